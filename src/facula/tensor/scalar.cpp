#include "facula/tensor/scalar.h"

#include <charconv>
#include <cmath>
#include <ostream>
#include <string_view>
#include <type_traits>

namespace facula {

void Scalar::store(DType d, void* to) const {
  dispatch_stored(d, [&](auto zero) {
    using T = decltype(zero);
    T v;
    if constexpr (std::is_same_v<T, bool>) v = to_bool();
    else if constexpr (std::is_integral_v<T>) v = T(to_int());
    else if constexpr (std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>)
      v = T(to_complex());
    else if constexpr (std::is_same_v<T, ComplexHalf>) v = T(std::complex<float>(to_complex()));
    else {
      using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
      v = T(category_ > Category::integral ? Wide(re_)
            : beyond_int64_                ? Wide(uint64_t(i_))
                                           : Wide(i_));  // an integer is rounded once
    }
    std::memcpy(to, &v, sizeof v);
  });
}

Scalar Scalar::load(DType d, const void* from) {
  return dispatch_stored(d, [&](auto zero) -> Scalar {
    using T = decltype(zero);
    // A bool is true unless its byte is 0, as in kernels: files and views may contain bytes other than 1, which a C++
    // bool must not have.
    std::conditional_t<std::is_same_v<T, bool>, unsigned char, T> v;
    std::memcpy(&v, from, sizeof v);
    if constexpr (std::is_same_v<T, bool>) return Scalar(v != 0);
    else if constexpr (std::is_same_v<T, uint64_t>) return Scalar::of_unsigned(v);
    else if constexpr (std::is_integral_v<T>) return Scalar(int64_t(v));
    else if constexpr (std::is_same_v<T, ComplexHalf>)
      return Scalar(std::complex<double>(std::complex<float>(v)));
    else if constexpr (std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>)
      return Scalar(std::complex<double>(v));
    else return Scalar(double(v));
  });
}

namespace {
// The shortest text that parses to `v`, in Python's form.
void write(std::ostream& s, double v) {
  if (std::isnan(v)) {
    s << "nan";
    return;
  }
  char text[32];
  auto end = std::to_chars(text, text + sizeof text, v).ptr;
  std::string_view written(text, size_t(end - text));
  s << written;
  if (written.find_first_of(".en") == written.npos) s << ".0";  // neither 1e+22 nor inf
}
}  // namespace

std::ostream& operator<<(std::ostream& s, const Scalar& v) {
  switch (v.category()) {
    case Category::boolean: return s << (v.to_bool() ? "True" : "False");
    case Category::integral:
      if (v.is_beyond_int64()) return s << uint64_t(v.to_int());
      return s << v.to_int();
    case Category::floating: write(s, v.to_double()); return s;
    default: {
      auto z = v.to_complex();
      s << "(";
      write(s, z.real());
      if (!std::signbit(z.imag())) s << "+";
      write(s, z.imag());
      return s << "j)";
    }
  }
}

}  // namespace facula
