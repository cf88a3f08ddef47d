// Element types. FACULA_DTYPES is the only list of them: (enumerator, C++ type, name as printed, category).
#pragma once
#include <bit>
#include <complex>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "facula/base/error.h"

namespace facula {

// IEEE binary16 and bfloat16 storage; arithmetic happens in float.
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

// PyTorch's categories, in promotion order.
enum class Category : uint8_t { boolean, integral, floating, complex };

#define FACULA_DTYPES(_)                              \
  _(Bool, bool, "bool", boolean)                      \
  _(UInt8, uint8_t, "uint8", integral)                \
  _(Int8, int8_t, "int8", integral)                   \
  _(Int16, int16_t, "int16", integral)                \
  _(Int32, int32_t, "int32", integral)                \
  _(Int64, int64_t, "int64", integral)                \
  _(Float16, Half, "float16", floating)               \
  _(BFloat16, BFloat16, "bfloat16", floating)         \
  _(Float32, float, "float32", floating)              \
  _(Float64, double, "float64", floating)             \
  _(Complex64, std::complex<float>, "complex64", complex) \
  _(Complex128, std::complex<double>, "complex128", complex)

enum class DType : uint8_t {
#define FACULA_ENUM(e, c, n, k) e,
  FACULA_DTYPES(FACULA_ENUM)
#undef FACULA_ENUM
      count
};
inline constexpr int kDTypeCount = int(DType::count);

namespace detail {
struct DTypeInfo {
  const char* name;
  uint8_t size;
  Category category;
};
inline constexpr DTypeInfo kDTypeInfo[] = {
#define FACULA_INFO(e, c, n, k) {n, sizeof(c), Category::k},
    FACULA_DTYPES(FACULA_INFO)
#undef FACULA_INFO
};
}  // namespace detail

constexpr const char* name(DType d) { return detail::kDTypeInfo[int(d)].name; }
constexpr int itemsize(DType d) { return detail::kDTypeInfo[int(d)].size; }
constexpr Category category(DType d) { return detail::kDTypeInfo[int(d)].category; }
constexpr bool is_bool(DType d) { return category(d) == Category::boolean; }
constexpr bool is_integral(DType d) { return category(d) == Category::integral; }  // without bool
constexpr bool is_floating(DType d) { return category(d) == Category::floating; }
constexpr bool is_complex(DType d) { return category(d) == Category::complex; }
constexpr bool is_differentiable(DType d) { return is_floating(d) || is_complex(d); }
constexpr DType real_of(DType d) {
  return d == DType::Complex64 ? DType::Float32 : d == DType::Complex128 ? DType::Float64 : d;
}
constexpr DType complex_of(DType d) {
  return d == DType::Float64 || d == DType::Complex128 ? DType::Complex128 : DType::Complex64;
}
// The type arithmetic on `d` is done in: float for the 16-bit floats, itself otherwise.
constexpr DType compute_type(DType d) {
  return d == DType::Float16 || d == DType::BFloat16 ? DType::Float32 : d;
}
DType dtype_from_name(std::string_view name);  // TypeError if unknown

// Result type of two tensors of equal priority (PyTorch's lattice; category and dimension rules:
// tensor/promotion.h).
DType promote(DType a, DType b);

// The default floating type of new tensors (facula.set_default_dtype), a documented process-wide setting.
DType default_dtype();
void set_default_dtype(DType d);

// A set of dtypes, as operators declare them.
struct DTypeSet {
  uint32_t bits = 0;
  constexpr bool has(DType d) const { return bits >> int(d) & 1; }
  friend constexpr DTypeSet operator|(DTypeSet a, DTypeSet b) { return {a.bits | b.bits}; }
};
constexpr DTypeSet dtypes_where(bool (*test)(DType)) {
  DTypeSet s;
  for (int i = 0; i < kDTypeCount; ++i)
    if (test(DType(i))) s.bits |= 1u << i;
  return s;
}
namespace dtypes {
inline constexpr DTypeSet boolean = dtypes_where(is_bool), integral = dtypes_where(is_integral),
                          floating = dtypes_where(is_floating), complex = dtypes_where(is_complex),
                          numeric = integral | floating | complex, real = boolean | integral | floating,
                          any = numeric | boolean;
}  // namespace dtypes

// Calls f(T{}) with the C++ type of `d`.
template <class F>
decltype(auto) dispatch(DType d, F&& f) {
  switch (d) {
#define FACULA_CASE(e, c, n, k) case DType::e: return f(c{});
    FACULA_DTYPES(FACULA_CASE)
#undef FACULA_CASE
    default: break;
  }
  internal_check(false) << "dtype " << int(d);
  __builtin_unreachable();
}
template <class T>
constexpr DType dtype_of();
#define FACULA_OF(e, c, n, k) template <> constexpr DType dtype_of<c>() { return DType::e; }
FACULA_DTYPES(FACULA_OF)
#undef FACULA_OF

inline std::ostream& operator<<(std::ostream& s, DType d) { return s << name(d); }

}  // namespace facula
