// The operators that order the lines of a tensor (numerics/sort.h).
#include "facula/numerics/sort.h"

#include <algorithm>
#include <memory>
#include <type_traits>

#include "facula/base/parallel.h"
#include "facula/device/cpu/cpu.h"

// Functions of this file use these instructions: every processor that runs generated kernels has them.
#pragma GCC target("avx2,bmi,bmi2,lzcnt,popcnt")
#pragma GCC optimize("vect-cost-model=dynamic")  // vectorize loops of any length

namespace facula::device::cpu {

namespace {

struct Lines {
  int64_t n, inner, count;  // elements of a line, their distance, number of lines
  Lines(const Tensor& self, int dim) : n(1), inner(1), count(1) {
    auto sizes = self.int_sizes();
    for (int k = 0; k < int(sizes.size()); ++k) (k < dim ? count : k == dim ? n : inner) *= sizes[size_t(k)];
    count *= inner;
  }
  // Calls f(x, at, buffers) for each line: its elements, made adjacent, and the position of its first result of `wanted`.
  template <class T, class F>
  void each(const T* x, int64_t wanted, F f) const {
    parallel_for(count, std::max<int64_t>(1, 8192 / std::max<int64_t>(1, n)),
                 [&](int64_t begin, int64_t end) {
                   SortBuffers buffers;
                   // Adjacent lines are copied together, because they share cache lines.
                   const int64_t most =
                       inner == 1 ? 1 : std::clamp<int64_t>(16384 / std::max<int64_t>(1, n), 1, 16);
                   auto apart = std::make_unique<T[]>(inner > 1 ? size_t(n * most) : 0);
                   for (int64_t line = begin, count = 1; line < end; line += count) {
                     int64_t o = line / inner, i = line - o * inner;
                     const T* from = x + o * n * inner + i;
                     count = std::min({most, inner - i, end - line});
                     for (int64_t k = 0; inner > 1 && k < n; ++k)
                       for (int64_t j = 0; j < count; ++j) apart[size_t(j * n + k)] = from[k * inner + j];
                     for (int64_t j = 0; j < count; ++j)
                       f(inner > 1 ? apart.get() + j * n : from, o * wanted * inner + i + j, buffers);
                   }
                 });
  }
};

// Calls f(T{}) with the element type of dtype d, if its values are ordered.
template <class F>
void of_ordered(DType d, F&& f) {
  dispatch_stored(d, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (is_complex(dtype_of<T>()) || is_float8(dtype_of<T>()))
      internal_check(false) << d << " is not sorted";
    else f(zero);
  });
}

// Writes the first `wanted` along dimension `dim`, in the order of each line, values and positions, to contiguous
// tensors.
template <class OrderLine>
void sorted(const Tensor& self, int dim, int64_t wanted, const Tensor& values, const Tensor& indices,
            OrderLine order_line) {
  Lines lines(self, dim);
  int64_t inner = lines.inner;
  of_ordered(self.dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* value = values.data<T>();
    auto* index = indices.data<int64_t>();
    lines.each(self.data<T>(), wanted, [&](const T* from, int64_t at, SortBuffers& buffers) {
      auto* order = inner > 1 ? buffers.room<int64_t>(2, wanted) : index + at;
      order_line(from, lines.n, wanted, order, buffers);
      auto put = [&](int64_t first, int64_t last) {
        for (int64_t k = first; k < last; ++k) {
          value[at + k * inner] = from[order[k]];
          index[at + k * inner] = order[k];
        }
      };
      constexpr int64_t kPiece = 1 << 16;
      wanted > kPiece ? parallel_for(wanted, kPiece, put) : put(0, wanted);
    });
  });
}

template <class OrderLine>
Results run(const Call& c, Out out, OrderLine order_line) {
  Tensor self = c.tensor("self");
  Destination values(out[0]), indices(out[1]);
  if (out[0].numel() != SymInt(int64_t(0))) {
    int d = self.dim() ? c.dim("dim") : 0;
    int64_t wanted = self.dim() ? out[0].int_sizes()[size_t(d)] : 1;
    sorted(dense(self), d, wanted, values.tensor(), indices.tensor(), order_line);
  }
  values.finish();
  indices.finish();
  return Results{out[0], out[1]};
}

}  // namespace

Results sort(const Call& c, Out out) {
  bool descending = c.flag("descending");
  return run(c, out, [=](auto* x, int64_t n, int64_t, int64_t* order, SortBuffers& buffers) {
    order_line(x, n, descending, order, buffers);
  });
}
Results topk(const Call& c, Out out) {
  bool largest = c.flag("largest");
  return run(c, out, [=](auto* x, int64_t n, int64_t wanted, int64_t* order, SortBuffers& buffers) {
    top_line(x, n, wanted, largest, order, buffers);
  });
}

namespace {
// For each line along `dim`, finds the position of the element of rank rank(x, n), counting from 0; a negative rank is
// ~position.
template <class F>
Results positions(const Call& c, Out out, bool by_position, F rank) {
  Tensor self = dense(c.tensor("self"));
  Destination result(out[0]);
  Lines lines(self, c.dim("dim"));
  if (lines.count)
    of_ordered(self.dtype(), [&](auto zero) {
      using T = decltype(zero);
      auto* index = result.tensor().data<int64_t>();
      lines.each(self.data<T>(), 1, [&](const T* x, int64_t at, SortBuffers& buffers) {
        int64_t k = rank(x, lines.n);
        index[at] = k < 0 ? ~k : kth_position(x, lines.n, k, by_position, buffers);
      });
    });
  result.finish();
  return Results{out[0]};
}
template <class T>
bool is_number(T x) {
  if constexpr (std::is_integral_v<T>) return true;
  else return float(x) == float(x);
}
template <>
bool is_number(double x) {
  return x == x;
}
}  // namespace

Results kth(const Call& c, Out out) {
  int64_t k = c.integer("k").concrete() - 1;
  return positions(c, out, false, [=](auto*, int64_t) { return k; });
}

Results middle(const Call& c, Out out) {
  bool ignore_nan = c.flag("ignore_nan");
  return positions(c, out, true, [=](auto* x, int64_t n) {
    int64_t numbers = 0;
    for (int64_t i = 0; i < n; ++i) numbers += is_number(x[i]);
    if (numbers == n || ignore_nan) return std::max<int64_t>(0, numbers - 1) / 2;
    return ~int64_t(std::find_if_not(x, x + n, [](auto v) { return is_number(v); }) - x);
  });
}

}  // namespace facula::device::cpu
