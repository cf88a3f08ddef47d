#include "facula/codegen/c_element.h"

#include <charconv>
#include <cmath>
#include <cstring>

#include "facula/base/error.h"

namespace facula::codegen {

const char* c_memory_type(DType d) {
  d = real_of(d);
  switch (d) {
    case DType::Bool:
    case DType::UInt8: return "uint8_t";
    case DType::Int8: return "int8_t";
    case DType::Int16: return "int16_t";
    case DType::Int32: return "int32_t";
    case DType::Int64: return "int64_t";
    case DType::UInt16: return "uint16_t";
    case DType::UInt32: return "uint32_t";
    case DType::UInt64: return "uint64_t";
    case DType::Float32: return "float";
    case DType::Float64: return "double";
    default: return itemsize(d) == 1 ? "uint8_t" : "uint16_t";
  }
}

namespace {

template <class T>
std::string text_of(T v) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(v)) return "NAN";
    if (std::isinf(v)) return v < 0 ? "-INFINITY" : "INFINITY";
    char text[48];
    auto end = std::to_chars(text, text + sizeof text, std::fabs(v), std::chars_format::hex).ptr;
    std::string digits(text, end);
    if (digits.find('p') == std::string::npos) digits += "p0";
    return (std::signbit(v) ? "-0x" : "0x") + digits + (sizeof(T) == 4 ? "f" : "");
  } else if constexpr (std::is_signed_v<T>) {
    if (v == INT64_MIN) return "INT64_MIN";
    return sizeof(T) == 8 ? "INT64_C(" + std::to_string(v) + ")" : std::to_string(v);
  } else {
    return sizeof(T) == 8 ? "UINT64_C(" + std::to_string(v) + ")" : std::to_string(v);
  }
}

template <class T>
std::string list_of(std::string_view bytes) {
  std::string text;
  for (size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    T v;
    std::memcpy(&v, bytes.data() + at, sizeof v);
    text += (at == 0 ? "" : at / sizeof(T) % 16 ? ", " : ",\n  ") + text_of(v);
  }
  return text.empty() ? "0" : text;
}

}  // namespace

std::string c_elements(DType d, std::string_view bytes) {
  std::string_view type = c_memory_type(d);
  if (type == "float") return list_of<float>(bytes);
  if (type == "double") return list_of<double>(bytes);
  if (type == "int8_t") return list_of<int8_t>(bytes);
  if (type == "int16_t") return list_of<int16_t>(bytes);
  if (type == "int32_t") return list_of<int32_t>(bytes);
  if (type == "int64_t") return list_of<int64_t>(bytes);
  if (type == "uint8_t") return list_of<uint8_t>(bytes);
  if (type == "uint16_t") return list_of<uint16_t>(bytes);
  if (type == "uint32_t") return list_of<uint32_t>(bytes);
  return list_of<uint64_t>(bytes);
}

}  // namespace facula::codegen
