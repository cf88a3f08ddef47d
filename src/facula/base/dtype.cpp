#include "facula/base/dtype.h"

#include <atomic>
#include <cmath>

namespace facula {

Half::Half(float f) {
  uint32_t x = std::bit_cast<uint32_t>(f), sign = x >> 16 & 0x8000, magnitude = x & 0x7fffffff;
  if (magnitude >= 0x47800000) {  // too large, infinite or NaN
    bits = uint16_t(sign | (magnitude > 0x7f800000 ? 0x7e00 : 0x7c00));
  } else if (magnitude < 0x38800000) {  // subnormal: the addition rounds to a multiple of 2^-24
    float scaled = std::bit_cast<float>(magnitude) + 0.5f;
    bits = uint16_t(sign | (std::bit_cast<uint32_t>(scaled) - 0x3f000000));
  } else {
    uint32_t odd = magnitude >> 13 & 1;
    bits = uint16_t(sign | (magnitude - 0x38000000 + 0xfff + odd) >> 13);
  }
}

Half::operator float() const {
  uint32_t sign = uint32_t(bits & 0x8000) << 16, exponent = bits >> 10 & 0x1f, fraction = bits & 0x3ff;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000 | fraction << 13);
  if (exponent == 0) {
    float f = std::ldexp(float(fraction), -24);
    return sign ? -f : f;
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
}

BFloat16::BFloat16(float f) {
  uint32_t x = std::bit_cast<uint32_t>(f);
  if ((x & 0x7fffffff) > 0x7f800000) bits = uint16_t(x >> 16 | 0x40);
  else bits = uint16_t((x + 0x7fff + (x >> 16 & 1)) >> 16);
}

DType dtype_from_name(std::string_view wanted) {
  for (int i = 0; i < kDTypeCount; ++i)
    if (wanted == name(DType(i))) return DType(i);
  std::string known;
  for (int i = 0; i < kDTypeCount; ++i) known += std::string(i ? ", " : "") + name(DType(i));
  type_check(false, "dtype") << "'" << wanted << "' is not a dtype" << hint("one of ", known);
  __builtin_unreachable();
}

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (category(a) > category(b)) std::swap(a, b);
  if (category(a) == category(b)) {
    if (is_integral(a)) {
      // uint8 with a signed type needs a signed type that holds both.
      if (a == DType::UInt8 || b == DType::UInt8) {
        DType other = a == DType::UInt8 ? b : a;
        return other == DType::Int8 ? DType::Int16 : other;
      }
      return itemsize(a) > itemsize(b) ? a : b;
    }
    if (is_floating(a) && itemsize(a) == 2 && itemsize(b) == 2)
      return DType::Float32;  // float16 and bfloat16
    return itemsize(a) > itemsize(b) ? a : b;
  }
  // A complex type takes the precision of a floating partner.
  if (is_complex(b) && a == DType::Float64) return DType::Complex128;
  return b;
}

namespace {
std::atomic<DType> default_floating{DType::Float32};
}
DType default_dtype() { return default_floating.load(std::memory_order_relaxed); }
void set_default_dtype(DType d) {
  type_check(is_floating(d), "set_default_dtype")
      << "only floating-point types are supported as the default type, got " << d;
  default_floating = d;
}

}  // namespace facula
