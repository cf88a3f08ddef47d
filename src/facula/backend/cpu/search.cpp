// Binary search in sorted lines.
#include "facula/backend/cpu/cpu.h"
#include "facula/base/parallel.h"

namespace facula::backend::cpu {

namespace {

template <class T>
auto comparable(T x) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) return float(x);
  else return x;
}

// The number of leading elements of x[0..n), in the order of `sorter` if there is one, that are not `at least`
// value, or not above it if `right`. Without a branch on the comparison: its outcome cannot be foreseen.
template <class T, bool Right>
int64_t position(const T* x, const int64_t* sorter, int64_t n, T given) {
  auto value = comparable(given);
  int64_t begin = 0;
  while (n > 0) {
    int64_t half = n / 2, at = begin + half;
    auto here = comparable(x[sorter ? sorter[at] : at]);
    bool beyond = Right ? here > value : here >= value;
    begin = beyond ? begin : at + 1;
    n = beyond ? half : n - half - 1;
  }
  return begin;
}

}  // namespace

Results searchsorted(const Call& c, Out out) {
  Tensor sequence = dense(c.tensor("sorted_sequence")), values = dense(c.tensor("values")), sorter;
  if (c.has("sorter")) sorter = dense(c.tensor("sorter"));
  bool right = c.flag("right"), shared = sequence.dim() == 1;
  Destination found(out[0]);
  int64_t n = sequence.int_sizes().back(), count = values.numel().guard_int();
  int64_t line =
      shared || !values.dim() ? std::max<int64_t>(count, 1) : std::max<int64_t>(values.int_sizes().back(), 1);
  auto search = [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>)
      internal_check(false) << "complex numbers have no order";
    else {
      const T *x = sequence.data<T>(), *v = values.data<T>();
      const int64_t* order = sorter.defined() ? sorter.data<int64_t>() : nullptr;
      auto* to = found.tensor().data<int64_t>();
      parallel_for(count, 2048, [&](int64_t begin, int64_t end) {
        for (int64_t k = begin; k < end; ++k) {
          int64_t from = k / line * n;
          const int64_t* o = order ? order + from : nullptr;
          to[k] = right ? position<T, true>(x + from, o, n, v[k]) : position<T, false>(x + from, o, n, v[k]);
        }
      });
    }
  };
  if (count) dispatch(sequence.dtype(), search);
  found.finish();
  return Results{out[0]};
}

}  // namespace facula::backend::cpu
