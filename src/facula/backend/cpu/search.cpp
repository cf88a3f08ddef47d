// Binary search in sorted lines.
#include <algorithm>

#include "facula/backend/cpu/cpu.h"
#include "facula/base/parallel.h"

namespace facula::backend::cpu {

namespace {

template <class T>
auto comparable(T x) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) return float(x);
  else return x;
}

// Does the search go on behind `here`?
template <bool Right, class T>
bool is_before(T here, T value) {
  return Right ? !(here > value) : !(here >= value);
}

// The number of leading elements of x[0..n), in the order of `sorter` if there is one, that are not `at least`
// value, or not above it if `right`. Without a branch on the comparison: its outcome cannot be foreseen.
template <class T, bool Right>
int64_t position(const T* x, const int64_t* sorter, int64_t n, T given) {
  auto value = comparable(given);
  int64_t begin = 0;
  while (n > 0) {
    int64_t half = n / 2, at = begin + half;
    bool before = is_before<Right>(comparable(x[sorter ? sorter[at] : at]), value);
    begin = before ? at + 1 : begin;
    n = before ? n - half - 1 : half;
  }
  return begin;
}

// The same of several values at a time, since each waits for memory at every step; they all take the same steps,
// which is right where no NaN is among the elements.
template <int kBeside, class T, bool Right>
void positions(const T* x, int64_t n, const T* values, int64_t* to) {
  const T* at[kBeside];
  decltype(comparable(*values)) value[kBeside];
  for (int k = 0; k < kBeside; ++k) at[k] = x, value[k] = comparable(values[k]);
  for (int64_t left = n; left > 1; left -= left / 2)
    for (int k = 0; k < kBeside; ++k) {
      int64_t before = is_before<Right>(comparable(at[k][left / 2 - 1]), value[k]);
      at[k] += left / 2 & -before;
    }
  for (int k = 0; k < kBeside; ++k) to[k] = at[k] - x + is_before<Right>(comparable(*at[k]), value[k]);
}

// All values of [begin, end) that are sought in one sorted line.
template <class T, bool Right>
void search_line(const T* x, const int64_t* sorter, int64_t n, const T* values, int64_t count, int64_t* to) {
  int64_t k = 0;
  if (bool numbers = n && !sorter && comparable(x[n - 1]) == comparable(x[n - 1]); numbers) {
    constexpr int kBeside = 8;
    for (; k + kBeside <= count; k += kBeside) positions<kBeside, T, Right>(x, n, values + k, to + k);
    for (; k < count; ++k) positions<1, T, Right>(x, n, values + k, to + k);
  }
  for (; k < count; ++k) to[k] = position<T, Right>(x, sorter, n, values[k]);
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
        for (int64_t k = begin, last; k < end; k = last) {
          int64_t from = k / line * n;  // of the sorted line that these values are sought in
          last = std::min(end, shared ? end : (k / line + 1) * line);
          auto search = right ? search_line<T, true> : search_line<T, false>;
          search(x + from, order ? order + from : nullptr, n, v + k, last - k, to + k);
        }
      });
    }
  };
  if (count) dispatch(sequence.dtype(), search);
  found.finish();
  return Results{out[0]};
}

}  // namespace facula::backend::cpu
