// Counts how often numbers occur.
#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "facula/base/parallel.h"
#include "facula/device/cpu/cpu.h"

// Functions of this file use these instructions: every processor that runs generated kernels has them.
#pragma GCC target("avx2")
#pragma GCC optimize("vect-cost-model=dynamic")  // vectorize loops of any length

namespace facula::device::cpu {

namespace {

constexpr int64_t kPiece = 1 << 15;  // numbers that are worth starting a thread for

template <class T>
std::pair<T, T> range_of(const T* x, int64_t n) {
  T low = x[0], high = x[0];
  for (int64_t i = 0; i < n; ++i) {  // in vectors
    T value = x[i];
    low = value < low ? value : low;
    high = value > high ? value : high;
  }
  return {low, high};
}
template <class T>
void widen_range(const T* x, int64_t n, std::atomic<int64_t>& least, std::atomic<int64_t>& most) {
  parallel_for(n, kPiece, [&](int64_t begin, int64_t end) {
    auto [low, high] = range_of(x + begin, end - begin);
    for (int64_t seen = least; low < seen && !least.compare_exchange_weak(seen, low);) {}
    for (int64_t seen = most; high > seen && !most.compare_exchange_weak(seen, high);) {}
  });
}

// Adds to `counts` how often each of 0, ... size - 1 occurs among n numbers. If tables are small, neighbours count into
// different ones: a repeated number would otherwise wait for the previous increment.
template <class T>
void count(const T* x, int64_t n, int64_t size, int64_t* counts) {
  constexpr int64_t kTables = 4;
  int64_t i = 0;
  if (size <= 1024 && n >= 16 * size) {
    std::vector<int64_t> tables(size_t(kTables * size), 0);
    int64_t *a = tables.data(), *b = a + size, *c = b + size, *d = c + size;
    for (; i + kTables <= n; i += kTables) ++a[x[i]], ++b[x[i + 1]], ++c[x[i + 2]], ++d[x[i + 3]];
    for (int64_t j = 0; j < size; ++j) counts[j] += a[j] + b[j] + c[j] + d[j];
  }
  for (; i < n; ++i) ++counts[x[i]];
}

}  // namespace

Results counts(const Call& c, Out) {
  Tensor self = dense(c.tensor("self"));
  int64_t n = self.numel().concrete(), size = c.integer("minlength").concrete();
  Tensor out;
  auto all = [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!is_integral(dtype_of<T>())) {
      internal_check(false) << self.dtype() << " is not counted";
    } else {
      const T* x = self.data<T>();
      std::atomic<int64_t> least = 0, most = -1;
      if (n) widen_range(x, n, least, most);
      runtime_check(least >= 0, "bincount")
          << "only supports 1-d non-negative integral inputs, got " << least;
      runtime_check(most < int64_t(1) << 58, "bincount")
          << "the largest number, " << most << ", asks for more counts than a tensor has elements";
      size = std::max(size, most + 1);
      // If counts are few, each piece has a separate table and the tables are added: the sum is the same for any number
      // of pieces.
      int64_t pieces = std::clamp<int64_t>(n / std::max(kPiece, 4 * size), 1, num_threads());
      Tensor some = Tensor::empty(IntSpan(Ints{pieces, size}), DType::Int64);
      fill_zero(some);
      auto* to = some.data<int64_t>();
      parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
        for (int64_t p = begin; p < end; ++p)
          count(x + n * p / pieces, n * (p + 1) / pieces - n * p / pieces, size, to + p * size);
      });
      for (int64_t p = 1; p < pieces; ++p)
        for (int64_t j = 0; j < size; ++j) to[j] += to[p * size + j];
      out = pieces == 1 ? some.alias(Dims{SymInt(size)}, Dims{SymInt(int64_t(1))}, some.offset())
                        : Tensor::empty(IntSpan(Ints{size}), DType::Int64);
      if (pieces > 1) std::copy(to, to + size, out.data<int64_t>());
    }
  };
  dispatch(self.dtype(), all);
  return Results(out);
}

}  // namespace facula::device::cpu
