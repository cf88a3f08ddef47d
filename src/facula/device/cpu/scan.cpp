// Running sums in log space along lines; each line is a sequence of steps that depend on each other.
#include <cmath>
#include <complex>
#include <limits>
#include <vector>

#include "facula/base/parallel.h"
#include "facula/device/cpu/cpu.h"

namespace facula::device::cpu {

namespace {

// log(exp(x) + exp(y)); NaN if either operand is NaN.
template <class R>
R log_sum(R x, R y) {
  if (std::isnan(x) || std::isnan(y)) return x + y;
  R low = std::min(x, y), high = std::max(x, y);
  if (low == high && std::isinf(low)) return x;
  return high + std::log1p(std::exp(low - high));
}

template <class R>
std::complex<R> log1p(std::complex<R> z) {
  R x = z.real(), y = z.imag(), angle = std::atan2(y, x + 1);
  if (std::abs(z) >= R(0.5)) return {std::log(std::hypot(x + 1, y)), angle};
  return {std::log1p(x * (2 + x) + y * y) / 2, angle};  // (1 + x)^2 + y^2 without the 1
}
template <class R>
std::complex<R> log_sum(std::complex<R> x, std::complex<R> y) {
  auto is_nan = [](std::complex<R> z) { return std::isnan(z.real()) || std::isnan(z.imag()); };
  constexpr R nan = std::numeric_limits<R>::quiet_NaN();
  if (is_nan(x) || is_nan(y)) return {nan, nan};
  auto low = x.real() < y.real() ? x : y, high = x.real() < y.real() ? y : x;
  if (std::isinf(low.real()) && low.real() == high.real())
    return low.real() < 0 ? low : std::log(std::exp(low) + std::exp(high));
  if (std::isinf(low.real())) return high;  // exp(low) is 0, and has no angle
  return high + log1p(std::exp(low - high));
}

// The accumulator type of a running sum of T, whose precision hides the rounding of the steps.
template <class T>
struct SumType {
  using type = double;
};
template <>
struct SumType<Half> {
  using type = float;
};
template <>
struct SumType<BFloat16> {
  using type = float;
};
template <class R>
struct SumType<std::complex<R>> {
  using type = std::complex<double>;
};

// Computes lines `first` to `last` of `length` elements that are `inner` apart; neighbouring lines advance together,
// because they share cache lines.
template <class T>
void running_log_sums(const T* x, T* y, int64_t length, int64_t inner, int64_t first, int64_t last) {
  using S = typename SumType<T>::type;
  constexpr int64_t kTogether = 64;
  S sums[kTogether];
  for (int64_t line = first; line < last;) {
    int64_t at = line % inner, count = std::min({kTogether, inner - at, last - line});
    int64_t start = line / inner * length * inner + at;
    for (int64_t k = 0; k < length; ++k)
      for (int64_t j = 0; j < count; ++j) {
        int64_t e = start + k * inner + j;
        S value = S(x[e]);
        sums[j] = k ? log_sum(value, sums[j]) : value;
        y[e] = T(sums[j]);
      }
    line += count;
  }
}

}  // namespace

Results logcumsumexp(const Call& c, Out out) {
  Tensor x = dense(c.tensor("self"));
  Destination to(out[0]);
  auto sizes = x.int_sizes();
  int64_t count = x.numel().concrete(), length = 1, inner = 1;
  if (x.dim()) {
    auto dim = size_t(c.dim("dim"));
    length = sizes[dim];
    for (size_t k = dim + 1; k < sizes.size(); ++k) inner *= sizes[k];
  }
  auto run = [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_integral_v<T>) internal_check(false) << "logarithms are no integers";
    else
      parallel_for(count / length, std::max<int64_t>(1, 4096 / length), [&](int64_t first, int64_t last) {
        running_log_sums(x.data<T>(), to.data<T>(), length, inner, first, last);
      });
  };
  if (count) dispatch(x.dtype(), run);
  to.finish();
  return Results{out[0]};
}

}  // namespace facula::device::cpu
