// Binary search in sorted lines.
#include <algorithm>
#include <type_traits>

#include "facula/backend/cpu/cpu.h"
#include "facula/base/parallel.h"

namespace facula::backend::cpu {

namespace {

template <class T>
auto comparable(T x) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) return float(x);
  else return x;
}

// Where a value is sought: the number of leading elements of x, in the order of `sorter` if Sorter, that are not `at least`
// it, or not above it if Right. Without a branch on the comparison, whose outcome cannot be foreseen.
template <class T, bool Right, bool Sorter>
struct Search {
  int64_t begin, left;

  void step(const T* x, const int64_t* sorter, T given) {
    int64_t half = left / 2, at = begin + half;
    auto here = comparable(x[Sorter ? sorter[at] : at]), value = comparable(given);
    int64_t before = Right ? !(here > value) : !(here >= value);
    begin += (half + 1) & -before;
    left = half - (before & ~left & 1);
  }
};

// All values that are sought in one line of n elements: several at a time, since each waits for memory at every step.
template <class T, bool Right, bool Sorter>
void search_line(const T* x, const int64_t* sorter, int64_t n, const T* values, int64_t count, int64_t* to) {
  constexpr int kBeside = 8;
  auto some = [&](auto beside) {
    Search<T, Right, Sorter> searches[beside()];
    for (auto& s : searches) s = {0, n};
    for (int64_t least = n; least > 0; least -= least / 2 + 1)  // as much is left for each of them
      for (int k = 0; k < beside(); ++k) searches[k].step(x, sorter, values[k]);
    for (int k = 0; k < beside(); ++k) {
      while (searches[k].left > 0) searches[k].step(x, sorter, values[k]);
      to[k] = searches[k].begin;
    }
    count -= beside(), values += beside(), to += beside();
  };
  while (count >= kBeside) some(std::integral_constant<int, kBeside>());
  while (count > 0) some(std::integral_constant<int, 1>());
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
          auto search = order ? (right ? search_line<T, true, true> : search_line<T, false, true>)
                              : (right ? search_line<T, true, false> : search_line<T, false, false>);
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
