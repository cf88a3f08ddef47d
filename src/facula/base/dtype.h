// Element types. FACULA_DTYPES is the only list of them: (enumerator, C++ type, name as printed, category, PyTorch's
// name in names of classes: ByteTensor, ByteStorage).
#pragma once
#include <bit>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>

#include "facula/base/error.h"

namespace facula {

// Storage of IEEE binary16 and bfloat16; arithmetic is done in float.
struct Half {
  uint16_t bits = 0;
  Half() = default;
  explicit Half(float f);
  operator float() const;
};
struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float f);  // rounds to nearest, ties to even; NaN stays NaN
  operator float() const { return std::bit_cast<float>(uint32_t(bits) << 16); }
};
struct ComplexHalf {
  Half re, im;
  ComplexHalf() = default;
  explicit ComplexHalf(std::complex<float> z) : re(z.real()), im(z.imag()) {}
  operator std::complex<float>() const { return {float(re), float(im)}; }
};

// 8-bit floats: a sign (except in E8M0), an exponent and `mantissa` bits. Numbers are rounded to nearest, ties to
// even; numbers beyond the largest become `too_large`. The codes are those of positive numbers. Sources: Micikevicius
// et al., 2022 (E4M3FN, E5M2); Noune et al., 2022 (FNUZ: the code of negative zero is NaN); OCP Microscaling Formats,
// 2023 (E8M0: powers of two, without a zero). The results for numbers that are too large are PyTorch's.
struct Float8Format {
  int mantissa, bias;
  uint8_t largest, too_large, nan;
  bool is_signed = true, has_negative_zero = true, has_infinity = false;

  float decode(uint8_t code) const;
  uint8_t encode(float f) const;
};
inline constexpr Float8Format kE4M3FN{3, 7, 0x7e, 0x7e, 0x7f},
    kE5M2{2, 15, 0x7b, 0x7c, 0x7f, true, true, true}, kE4M3FNUZ{3, 8, 0x7f, 0x80, 0x80, true, false},
    kE5M2FNUZ{2, 16, 0x7f, 0x80, 0x80, true, false}, kE8M0FNU{0, 127, 0xfe, 0xff, 0xff, false, false};
template <const Float8Format& F>
struct Float8 {
  static constexpr const Float8Format& format = F;
  uint8_t bits = 0;
  Float8() = default;
  explicit Float8(float f) : bits(F.encode(f)) {}
  operator float() const { return F.decode(bits); }
};

// PyTorch's categories, in promotion order.
enum class Category : uint8_t { boolean, integral, floating, complex };

#define FACULA_COMMON_DTYPES(_)                                      \
  _(Bool, bool, "bool", boolean, "Bool")                             \
  _(UInt8, uint8_t, "uint8", integral, "Byte")                       \
  _(Int8, int8_t, "int8", integral, "Char")                          \
  _(Int16, int16_t, "int16", integral, "Short")                      \
  _(Int32, int32_t, "int32", integral, "Int")                        \
  _(Int64, int64_t, "int64", integral, "Long")                       \
  _(Float16, Half, "float16", floating, "Half")                      \
  _(BFloat16, BFloat16, "bfloat16", floating, "BFloat16")            \
  _(Float32, float, "float32", floating, "Float")                    \
  _(Float64, double, "float64", floating, "Double")                  \
  _(Complex64, std::complex<float>, "complex64", complex, "ComplexFloat") \
  _(Complex128, std::complex<double>, "complex128", complex, "ComplexDouble")
// Dtypes that can be stored, but with which only few operators compute; operators that support them declare a set
// (`dtypes`).
#define FACULA_LIMITED_DTYPES(_)                                                     \
  _(UInt16, uint16_t, "uint16", integral, "UInt16")                                  \
  _(UInt32, uint32_t, "uint32", integral, "UInt32")                                  \
  _(UInt64, uint64_t, "uint64", integral, "UInt64")                                  \
  _(Float8E4M3FN, Float8<kE4M3FN>, "float8_e4m3fn", floating, "Float8_e4m3fn")       \
  _(Float8E5M2, Float8<kE5M2>, "float8_e5m2", floating, "Float8_e5m2")               \
  _(Float8E4M3FNUZ, Float8<kE4M3FNUZ>, "float8_e4m3fnuz", floating, "Float8_e4m3fnuz") \
  _(Float8E5M2FNUZ, Float8<kE5M2FNUZ>, "float8_e5m2fnuz", floating, "Float8_e5m2fnuz") \
  _(Float8E8M0FNU, Float8<kE8M0FNU>, "float8_e8m0fnu", floating, "Float8_e8m0fnu")   \
  _(Complex32, ComplexHalf, "complex32", complex, "ComplexHalf")
#define FACULA_DTYPES(_) FACULA_COMMON_DTYPES(_) FACULA_LIMITED_DTYPES(_)

enum class DType : uint8_t {
#define FACULA_ENUM(e, c, n, k, t) e,
  FACULA_DTYPES(FACULA_ENUM)
#undef FACULA_ENUM
      count
};
inline constexpr int kDTypeCount = int(DType::count);

namespace detail {
struct DTypeInfo {
  const char *name, *class_name;
  uint8_t size;
  Category category;
  bool is_signed;
  const Float8Format* format;
};
template <class T>
constexpr const Float8Format* format_of() {
  if constexpr (requires { T::format; }) return &T::format;
  else return nullptr;
}
template <class T>
constexpr bool signed_type() {
  if constexpr (requires { T::format; }) return T::format.is_signed;
  else return !std::numeric_limits<T>::is_integer || std::numeric_limits<T>::is_signed;
}
inline constexpr DTypeInfo kDTypeInfo[] = {
#define FACULA_INFO(e, c, n, k, t) {n, t, sizeof(c), Category::k, signed_type<c>(), format_of<c>()},
    FACULA_DTYPES(FACULA_INFO)
#undef FACULA_INFO
};
#define FACULA_COUNT(e, c, n, k, t) +1
inline constexpr int kCommonCount = 0 FACULA_COMMON_DTYPES(FACULA_COUNT);
#undef FACULA_COUNT
}  // namespace detail

constexpr const char* name(DType d) { return detail::kDTypeInfo[int(d)].name; }
constexpr const char* class_name(DType d) { return detail::kDTypeInfo[int(d)].class_name; }
constexpr int itemsize(DType d) { return detail::kDTypeInfo[int(d)].size; }
constexpr Category category(DType d) { return detail::kDTypeInfo[int(d)].category; }
constexpr bool is_bool(DType d) { return category(d) == Category::boolean; }
constexpr bool is_integral(DType d) { return category(d) == Category::integral; }  // without bool
constexpr bool is_floating(DType d) { return category(d) == Category::floating; }
constexpr bool is_complex(DType d) { return category(d) == Category::complex; }
constexpr bool is_differentiable(DType d) { return is_floating(d) || is_complex(d); }
constexpr bool is_signed(DType d) { return detail::kDTypeInfo[int(d)].is_signed; }
constexpr bool is_limited(DType d) { return int(d) >= detail::kCommonCount; }
// Null for all other dtypes.
constexpr const Float8Format* float8_format(DType d) { return detail::kDTypeInfo[int(d)].format; }
constexpr bool is_float8(DType d) {
  return is_limited(d) && is_floating(d);
}  // no other floating-point dtype is limited
constexpr DType real_of(DType d) {
  return d == DType::Complex64    ? DType::Float32
         : d == DType::Complex128 ? DType::Float64
         : d == DType::Complex32  ? DType::Float16
                                  : d;
}
constexpr DType complex_of(DType d) {
  return d == DType::Float64 || d == DType::Complex128  ? DType::Complex128
         : d == DType::Float16 || d == DType::Complex32 ? DType::Complex32
                                                        : DType::Complex64;
}
// The compute dtype: float for floats (and parts of complex numbers) of 8 and 16 bits, otherwise the dtype itself.
constexpr DType compute_type(DType d) {
  if (d == DType::Complex32) return DType::Complex64;
  return is_floating(d) && itemsize(d) < 4 ? DType::Float32 : d;
}
DType dtype_from_name(std::string_view name);  // TypeError if unknown

// The result dtype of two tensors of equal priority (PyTorch's lattice; for category and dimension rules see
// tensor/promotion.h). RuntimeError if there is none: for a float8 with another dtype, and for uint16, uint32 or
// uint64 with another integer, bool or complex dtype.
DType promote(DType a, DType b);

// The default floating-point dtype of new tensors (facula.set_default_dtype), a documented process-wide setting.
DType default_dtype();
void set_default_dtype(DType d);

// A set of dtypes, as operators declare them.
struct DTypeSet {
  uint32_t bits = 0;
  constexpr bool has(DType d) const { return bits >> int(d) & 1; }
  friend constexpr DTypeSet operator|(DTypeSet a, DTypeSet b) { return {a.bits | b.bits}; }
};
static_assert(kDTypeCount <= 32);
constexpr DTypeSet limited_where(bool (*test)(DType)) {
  DTypeSet s;
  for (int i = detail::kCommonCount; i < kDTypeCount; ++i)
    if (test(DType(i))) s.bits |= 1u << i;
  return s;
}
constexpr DTypeSet dtypes_where(bool (*test)(DType)) {  // without limited ones
  DTypeSet s;
  for (int i = 0; i < detail::kCommonCount; ++i)
    if (test(DType(i))) s.bits |= 1u << i;
  return s;
}
namespace dtypes {
inline constexpr DTypeSet boolean = dtypes_where(is_bool), integral = dtypes_where(is_integral),
                          floating = dtypes_where(is_floating), complex = dtypes_where(is_complex),
                          numeric = integral | floating | complex, real = boolean | integral | floating,
                          any = numeric | boolean;
// Limited dtypes, grouped by what operators do with them.
inline constexpr DTypeSet wide_unsigned = limited_where(is_integral), float8 = limited_where(is_float8),
                          half_complex = limited_where(is_complex),
                          limited = wide_unsigned | float8 | half_complex,
                          stored = any | limited;  // for operators that only move, compare or create numbers
}  // namespace dtypes

// Calls f(T{}) with the C++ type of `d`, which must not be a limited dtype.
template <class F>
decltype(auto) dispatch(DType d, F&& f) {
  switch (d) {
#define FACULA_CASE(e, c, n, k, t) case DType::e: return f(c{});
    FACULA_COMMON_DTYPES(FACULA_CASE)
    default: break;
  }
  internal_check(false) << "dtype " << int(d);
  __builtin_unreachable();
}
// The same for every dtype.
template <class F>
decltype(auto) dispatch_stored(DType d, F&& f) {
  switch (d) {
    FACULA_LIMITED_DTYPES(FACULA_CASE)
#undef FACULA_CASE
    default: return dispatch(d, f);
  }
}
template <class T>
constexpr DType dtype_of();
#define FACULA_OF(e, c, n, k, t) template <> constexpr DType dtype_of<c>() { return DType::e; }
FACULA_DTYPES(FACULA_OF)
#undef FACULA_OF

inline std::ostream& operator<<(std::ostream& s, DType d) { return s << name(d); }

}  // namespace facula
