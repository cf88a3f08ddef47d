#include "facula/base/dtype.h"

#include <algorithm>
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

float Float8Format::decode(uint8_t code) const {
  uint32_t magnitude = is_signed ? code & 0x7f : code, sign = uint32_t(is_signed ? code & 0x80 : 0) << 24;
  if (nan == 0x80 ? code == nan : magnitude >= nan || (has_infinity && magnitude > too_large))
    return std::bit_cast<float>(sign | 0x7fc00000);
  if (has_infinity && magnitude == too_large) return std::bit_cast<float>(sign | 0x7f800000);
  float f = !is_signed ? std::ldexp(1.0f, int(magnitude) - bias)
            : magnitude < 1u << mantissa
                ? std::ldexp(float(magnitude), 1 - bias - mantissa)
                : std::bit_cast<float>((magnitude << (23 - mantissa)) + (uint32_t(127 - bias) << 23));
  return std::bit_cast<float>(std::bit_cast<uint32_t>(f) | sign);
}

uint8_t Float8Format::encode(float f) const {
  uint32_t bits = std::bit_cast<uint32_t>(f), magnitude = bits & 0x7fffffff, code;
  if (magnitude > 0x7f800000) return uint8_t(nan | (has_negative_zero ? bits >> 24 & 0x80 : 0));
  if (!is_signed) {  // ties are rounded up, except between zero and the smallest number
    return uint8_t(std::min<uint32_t>((magnitude + 0x400000 - (magnitude < 0x800000)) >> 23, nan));
  } else if (magnitude < uint32_t(128 - bias)
                             << 23) {  // the addition rounds to a multiple of the smallest number
    float unit = std::ldexp(1.0f, 24 - bias - mantissa);
    code = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + unit) - std::bit_cast<uint32_t>(unit);
  } else {
    int shift = 23 - mantissa;
    code = (magnitude - (uint32_t(127 - bias) << 23) + (1u << (shift - 1)) - 1 + (magnitude >> shift & 1)) >>
           shift;
  }
  if (code > largest) code = too_large;
  bool keeps_sign = has_negative_zero || (code != 0 && code != nan);
  return uint8_t(code | (keeps_sign ? bits >> 24 & 0x80 : 0));
}

DType dtype_from_name(std::string_view wanted) {
  for (int i = 0; i < kDTypeCount; ++i)
    if (wanted == name(DType(i))) return DType(i);
  std::string names;
  for (int i = 0; i < kDTypeCount; ++i) names += std::string(i ? ", " : "") + name(DType(i));
  type_check(false, "dtype") << "'" << wanted << "' is not a dtype" << hint("one of ", names);
  __builtin_unreachable();
}

DType promote(DType a, DType b) {
  if (a == b) return a;
  auto refuse = [&](const char* what) {
    runtime_check(false, "promote_types") << "promotion of " << what << " is not supported: " << a << " and "
                                          << b << hint("x.to(dtype) converts one of them");
  };
  if (is_float8(a) || is_float8(b)) refuse("float8 dtypes");
  if (category(a) > category(b)) std::swap(a, b);
  if ((dtypes::wide_unsigned.has(a) && !is_floating(b)) || dtypes::wide_unsigned.has(b))
    refuse("uint16, uint32 and uint64");
  if (category(a) == category(b)) {
    if (is_integral(a)) {
      // uint8 with a signed dtype gives a signed dtype that can hold both.
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
  // A complex dtype takes the precision of a floating-point partner.
  return is_complex(b) && is_floating(a) ? complex_of(promote(a, real_of(b))) : b;
}

namespace {
std::atomic<DType> default_floating{DType::Float32};
}
DType default_dtype() { return default_floating.load(std::memory_order_relaxed); }
void set_default_dtype(DType d) {
  type_check(is_floating(d) && !is_limited(d), "set_default_dtype")
      << "only floating-point types are supported as the default type, got " << d;
  default_floating = d;
}

}  // namespace facula
