// Binary search in sorted lines.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "facula/base/parallel.h"
#include "facula/device/cpu/cpu.h"

// Functions of this file use these instructions: every processor that runs generated kernels has them.
#pragma GCC target("avx2")
#pragma GCC optimize("vect-cost-model=dynamic")  // vectorize loops of any length

namespace facula::device::cpu {

namespace {

template <class T>
auto comparable(T x) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) return float(x);
  else return x;
}

// State of one binary search. Its result is the number of leading elements of x, in the order of `sorter` if Sorter, that
// are less than the target, or not greater than it if Right. Steps do not branch on the comparison, whose outcome is
// unpredictable.
template <class T, bool Right, bool Sorter>
struct Search {
  int64_t begin, left;

  void step(const T* x, const int64_t* sorter, T target) {
    int64_t half = left / 2, at = begin + half;
    auto here = comparable(x[Sorter ? sorter[at] : at]), value = comparable(target);
    int64_t before = Right ? !(here > value) : !(here >= value);
    begin += (half + 1) & -before;
    left = half - (before & ~left & 1);
  }
  // The same step when at most one of the n elements is left.
  void last_step(const T* x, const int64_t* sorter, int64_t n, T target) {
    int64_t at = std::min(begin, n - 1);
    auto here = comparable(x[Sorter ? sorter[at] : at]), value = comparable(target);
    begin += left & (Right ? !(here > value) : !(here >= value));
  }
};

// Searches one line of n elements for several values at a time, since each search waits for memory at every step.
template <class T, bool Right, bool Sorter>
void search_line(const T* x, const int64_t* sorter, int64_t n, const T* values, int64_t count, int64_t* to) {
  constexpr int kInterleaved = 8;
  auto some = [&](auto interleaved) {
    Search<T, Right, Sorter> searches[interleaved()];
    for (auto& s : searches) s = {0, n};
    int64_t most = n;  // elements left in any search; others have one less
    for (int64_t least = n; least > 0; least -= least / 2 + 1, most /= 2)
      for (int k = 0; k < interleaved(); ++k) searches[k].step(x, sorter, values[k]);
    for (int k = 0; most > 0 && k < interleaved(); ++k) searches[k].last_step(x, sorter, n, values[k]);
    for (int k = 0; k < interleaved(); ++k) to[k] = searches[k].begin;
    count -= interleaved(), values += interleaved(), to += interleaved();
  };
  while (count >= kInterleaved) some(std::integral_constant<int, kInterleaved>());
  while (count > 0) some(std::integral_constant<int, 1>());
}

// Short lines: every element is compared with several values at a time, which gives one bit per element and value; the
// steps above then read those bits instead of the line.
constexpr int64_t kFew = 32;
template <class T>
struct Few {
  using W =
      std::conditional_t<sizeof(T) == 8, T, std::conditional_t<is_floating(dtype_of<T>()), float, int32_t>>;
  using U = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  static constexpr int kLanes = 32 / int(sizeof(W));
  typedef W V __attribute__((vector_size(32)));
  typedef U Bits __attribute__((vector_size(32)));
};
template <class T, bool Right, bool Sorter>
void search_few(const T* x, const int64_t* sorter, int64_t n, const T* values, int64_t count, int64_t* to) {
  using W = typename Few<T>::W;
  using U = typename Few<T>::U;
  using V = typename Few<T>::V;
  using Bits = typename Few<T>::Bits;
  constexpr int kLanes = Few<T>::kLanes;
  W line[kFew];
  for (int64_t j = 0; j < n; ++j) line[j] = W(x[Sorter ? sorter[j] : j]);
  auto search = [&](const T* from, int64_t* positions) {
    V value = {};
    if constexpr (std::is_same_v<T, W>) std::memcpy(&value, from, sizeof value);
    else
      for (int k = 0; k < kLanes; ++k) value[k] = W(from[k]);
    Bits outcomes = {}, begin = {}, left = Bits() + U(n), bit = Bits() + U(1);
    for (int64_t j = 0; j < n; ++j, bit += bit) {
      V here = V() + line[j];
      outcomes |= Bits(Right ? ~(here > value) : ~(here >= value)) & bit;
    }
    int64_t most = n;  // elements left in any search; others have one less
    for (int64_t least = n; least > 0; least -= least / 2 + 1, most /= 2) {
      Bits half = left >> 1, before = (outcomes >> (begin + half)) & 1;
      begin += (half + 1) & -before;
      left = half - (before & ~left & 1);
    }
    if (most > 0) begin += (outcomes >> (begin & (8 * sizeof(U) - 1))) & left;  // at most one is left
    for (int k = 0; k < kLanes; ++k) positions[k] = int64_t(begin[k]);
  };
  for (; count >= kLanes; count -= kLanes, values += kLanes, to += kLanes) search(values, to);
  if (count <= 0) return;
  T rest[kLanes] = {};
  int64_t positions[kLanes];
  std::copy(values, values + count, rest);
  search(rest, positions);
  std::copy(positions, positions + count, to);
}

}  // namespace

Results searchsorted(const Call& c, Out out) {
  Tensor sequence = dense(c.tensor("sorted_sequence")), values = dense(c.tensor("values")), sorter;
  if (c.has("sorter")) sorter = dense(c.tensor("sorter"));
  bool right = c.flag("right"), shared = sequence.dim() == 1;
  Destination result(out[0]);
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
      auto* to = result.tensor().data<int64_t>();
      parallel_for(count, 2048, [&](int64_t begin, int64_t end) {
        auto either = [&](auto short_line, auto long_line) { return n <= kFew ? short_line : long_line; };
        auto search = order ? (right ? either(search_few<T, true, true>, search_line<T, true, true>)
                                     : either(search_few<T, false, true>, search_line<T, false, true>))
                            : (right ? either(search_few<T, true, false>, search_line<T, true, false>)
                                     : either(search_few<T, false, false>, search_line<T, false, false>));
        if (shared) return search(x, order, n, v + begin, end - begin, to + begin);
        int64_t at = begin / line;
        for (int64_t k = begin, last; k < end; k = last, ++at) {
          last = std::min(end, (at + 1) * line);
          search(x + at * n, order ? order + at * n : nullptr, n, v + k, last - k, to + k);
        }
      });
    }
  };
  if (count) dispatch(sequence.dtype(), search);
  result.finish();
  return Results{out[0]};
}

}  // namespace facula::device::cpu
