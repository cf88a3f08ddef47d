// Runs of equal slices along the first dimension: the index at which each begins, and its slice.
#include <bit>
#include <complex>
#include <cstring>
#include <numeric>
#include <vector>

#include "facula/base/parallel.h"
#include "facula/device/cpu/cpu.h"

// Functions of this file use these instructions: every processor that runs generated kernels has them.
#pragma GCC target("avx2,popcnt")
#pragma GCC optimize("vect-cost-model=dynamic")  // vectorize loops of any length

namespace facula::device::cpu {

namespace {

// Zeros of either sign are equal; NaN is not equal to anything.
template <class T>
bool is_equal(const T& a, const T& b) {
  if constexpr (std::is_same_v<T, ComplexHalf>) return is_equal(a.re, b.re) && is_equal(a.im, b.im);
  else if constexpr (is_complex(dtype_of<T>()))
    return is_equal(a.real(), b.real()) && is_equal(a.imag(), b.imag());
  else if constexpr (is_floating(dtype_of<T>()) && sizeof(T) < 4) return float(a) == float(b);
  else return a == b;
}

// Marks with 1 those of the slices `first` to `last` that differ from the one before.
template <class T>
void mark(const T* x, int64_t width, int64_t first, int64_t last, uint8_t* __restrict marks) {
  if (first == 0) marks[first++] = 1;
  if (width == 1) {
    for (int64_t i = first; i < last; ++i) marks[i] = !is_equal(x[i - 1], x[i]);
  } else {
    auto same = [](const T& a, const T& b) { return is_equal(a, b); };
    for (int64_t i = first; i < last; ++i)
      marks[i] = !std::equal(x + (i - 1) * width, x + i * width, x + i * width, same);
  }
}
int64_t marked(const uint8_t* marks, int64_t n) {
  int64_t count = 0, i = 0;
  for (; i + 8 <= n; i += 8) {
    uint64_t eight;
    std::memcpy(&eight, marks + i, 8);
    count += std::popcount(eight);
  }
  return std::accumulate(marks + i, marks + n, count);
}

// Marks the slices that differ from the one before (1), and counts them per piece and cumulatively.
class Changes {
 public:
  explicit Changes(const Tensor& self)
      : count_(self.int_sizes()[0]),
        pieces_((count_ + kPiece - 1) / kPiece),
        begin_(size_t(pieces_) + 1, 0),
        marks_(Tensor::empty(IntSpan(Ints{count_}), DType::UInt8)) {
    int64_t width = count_ ? self.numel().concrete() / count_ : 0;
    auto* marks = marks_.data<uint8_t>();
    dispatch_stored(self.dtype(), [&](auto zero) {
      using T = decltype(zero);
      const T* x = self.data<T>();
      each_piece([&](int64_t p, int64_t first, int64_t last) {
        mark(x, width, first, last, marks);
        begin_[size_t(p) + 1] = marked(marks + first, last - first);
      });
    });
    std::partial_sum(begin_.begin(), begin_.end(), begin_.begin());
  }
  int64_t count() const { return begin_.back(); }

  // put(to, from): run `to` begins at slice `from`. copy(to, from, n) does the same for n consecutive runs.
  template <class Put, class Copy>
  void each(Put put, Copy copy) const {
    const auto* marks = marks_.data<uint8_t>();
    each_piece([&](int64_t p, int64_t first, int64_t last) {
      int64_t to = begin_[size_t(p)], i = first;
      for (; i + 8 <= last; i += 8) {
        uint64_t eight;
        std::memcpy(&eight, marks + i, 8);
        if (eight == 0x0101010101010101u) {
          copy(to, i, 8), to += 8;
        } else {
          for (; eight; eight &= eight - 1) put(to++, i + std::countr_zero(eight) / 8);
        }
      }
      for (; i < last; ++i)
        if (marks[i]) put(to++, i);
    });
  }

 private:
  static constexpr int64_t kPiece = 1 << 15;
  template <class F>
  void each_piece(F f) const {
    parallel_for(pieces_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) f(p, p * kPiece, std::min(count_, (p + 1) * kPiece));
    });
  }
  int64_t count_, pieces_;
  std::vector<int64_t> begin_;
  Tensor marks_;
};

}  // namespace

Results run_starts(const Call& c, Out) {
  Changes changes(dense(c.tensor("self")));
  Tensor out = Tensor::empty(IntSpan(Ints{changes.count()}), DType::Int64);
  auto* y = out.data<int64_t>();
  changes.each([=](int64_t to, int64_t from) { y[to] = from; },
               [=](int64_t to, int64_t from, int64_t n) { std::iota(y + to, y + to + n, from); });
  return Results(out);
}

Results run_values(const Call& c, Out) {
  Tensor self = dense(c.tensor("self"));
  Changes changes(self);
  Ints sizes(self.int_sizes());
  auto bytes = size_t(self.itemsize());
  for (size_t k = 1; k < sizes.size(); ++k) bytes *= size_t(sizes[k]);
  sizes[0] = changes.count();
  Tensor out = Tensor::empty(IntSpan(sizes), self.dtype());
  const auto* x = static_cast<const char*>(self.data_ptr());
  auto* y = static_cast<char*>(out.data_ptr());
  auto slices = [&](auto size) {  // the size is a compile-time constant if a slice is one number
    changes.each([=](int64_t to,
                     int64_t from) { std::memcpy(y + size_t(to) * size, x + size_t(from) * size, size); },
                 [=](int64_t to, int64_t from, int64_t n) {
                   std::memcpy(y + size_t(to) * size, x + size_t(from) * size, size_t(n) * size);
                 });
  };
  switch (bytes) {
    case 1: slices(std::integral_constant<size_t, 1>()); break;
    case 2: slices(std::integral_constant<size_t, 2>()); break;
    case 4: slices(std::integral_constant<size_t, 4>()); break;
    case 8: slices(std::integral_constant<size_t, 8>()); break;
    default: slices(bytes);
  }
  return Results(out);
}

}  // namespace facula::device::cpu
