#include "facula/tensor/promotion.h"

#include <cmath>
#include <limits>

namespace facula {

namespace {
// A lower rank only matters if it has a higher category. If that is complex, it takes the precision of the higher
// rank.
DType outrank(DType high, DType low) {
  if (category(low) <= category(high)) return high;
  return is_floating(high) && !is_float8(high) ? complex_of(high) : promote(high, low);
}
}  // namespace

DType Promotion::result() const {
  DType r{};
  bool any = false;
  for (int p = 2; p >= 0; --p) {
    if (!any_[p]) continue;
    r = any ? outrank(types_[p], r) : types_[p];
    any = true;
  }
  return r;
}

bool can_cast(DType from, DType to) {
  if (is_complex(from) && !is_complex(to)) return false;
  if (is_floating(from) && !is_differentiable(to)) return false;
  return is_bool(from) || !is_bool(to);
}

bool overflows(const Scalar& value, DType d) {
  if (d == DType::Bool) return false;
  auto z = value.to_complex();
  if (value.category() == Category::complex && !is_complex(d))
    return z.imag() != 0 || overflows(Scalar(z.real()), d);
  if (is_integral(d)) {
    int bits = itemsize(d) * 8 - is_signed(d);
    if (value.category() <= Category::integral) {
      if (d == DType::UInt64) return false;
      if (value.is_beyond_int64()) return true;
      int64_t v = value.to_int(), high = int64_t((uint64_t(1) << bits) - 1);
      return v > high || v < -high - is_signed(d);
    }
    double v = z.real(), high = std::ldexp(1.0, bits);  // the first number that is too large
    return !(v < high && v >= (is_signed(d) ? -high : 0));
  }
  double largest;
  switch (is_complex(d) ? real_of(d) : d) {
    case DType::Float16: largest = 65504; break;
    case DType::BFloat16: largest = 3.3895313892515355e38; break;
    case DType::Float32: largest = std::numeric_limits<float>::max(); break;
    default: return false;  // float8 dtypes have codes for out-of-range numbers
  }
  auto beyond = [&](double v) { return std::isfinite(v) && std::abs(v) > largest; };
  return beyond(z.real()) || beyond(z.imag());
}

}  // namespace facula
