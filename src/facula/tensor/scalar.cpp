#include "facula/tensor/scalar.h"

#include <cmath>
#include <ostream>
#include <type_traits>

namespace facula {

void Scalar::store(DType d, void* to) const {
  dispatch(d, [&](auto zero) {
    using T = decltype(zero);
    T v;
    if constexpr (std::is_same_v<T, bool>) v = to_bool();
    else if constexpr (std::is_integral_v<T>) v = T(to_int());
    else if constexpr (std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>) v = T(to_complex());
    else if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) v = T(float(to_double()));
    else v = T(to_double());
    std::memcpy(to, &v, sizeof v);
  });
}

Scalar Scalar::load(DType d, const void* from) {
  return dispatch(d, [&](auto zero) -> Scalar {
    using T = decltype(zero);
    T v;
    std::memcpy(&v, from, sizeof v);
    if constexpr (std::is_same_v<T, bool>) return Scalar(v);
    else if constexpr (std::is_integral_v<T>) return Scalar(int64_t(v));
    else if constexpr (std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>) return Scalar(std::complex<double>(v));
    else return Scalar(double(v));
  });
}

std::ostream& operator<<(std::ostream& s, const Scalar& v) {
  switch (v.category()) {
    case Category::boolean: return s << (v.to_bool() ? "True" : "False");
    case Category::integral: return s << v.to_int();
    case Category::floating: {
      auto precision = s.precision(17);
      s << v.to_double();
      s.precision(precision);
      return s;
    }
    default: return s << v.to_complex();
  }
}

}  // namespace facula
