// The Fourier transform of one long line. Included by sources that are compiled for AVX2 (cmake/rooms.cmake). The points
// are treated as a matrix, with point j1 * n2 + j2 in row j1 (Bailey, "FFTs in external or hierarchical memory", 1990):
// columns are transformed side by side, a column to a lane, multiplied by roots of unity and transposed, so that lanes
// become rows, which are then transformed. A length that is not the product of two moderate ones is computed as a
// convolution with a chirp (Bluestein, "A linear filtering approach to the computation of discrete Fourier transform",
// 1970) by transforms of a length that is; its columns, rows, inverse rows and inverse columns need no reordering in
// between.
#pragma once
#include <algorithm>
#include <cmath>
#include <complex>
#include <memory>
#include <vector>

#include "facula/base/parallel.h"
#include "facula/numerics/fft_plan.h"

namespace facula::numerics {

template <class M, class T>
class LongLine {
 public:
  using Plan = LinePlan<M, T>;
  using L = LineLanes<T, M::kBytes>;
  using V = typename L::V;
  static constexpr int64_t kCount = L::kCount;
  static constexpr int64_t kMostPart = 16384;

  // Null if n is too long for parts of at most kMostPart, or if the parts have factors without steps in such registers.
  static std::shared_ptr<const LongLine> of(int64_t n) {
    return cached_plan<LongLine, 4, size_t(80) << 20>(n, [n]() -> std::shared_ptr<const LongLine> {
      int64_t parts = parts_of(n), convolved = 0;
      if (parts && !(Plan::serves(parts) && Plan::serves(n / parts))) return nullptr;
      if (!parts) {
        convolved = Steps<T>::least(2 * n - 1, kCount * kCount);
        if (!parts_of(convolved)) return nullptr;
      }
      return std::shared_ptr<const LongLine>(new LongLine(n, convolved ? convolved : n));
    });
  }
  size_t footprint() const { return size_t(length_) * 40; }  // at most

  // load(j, count, row), always inlined, reads `count` points from j on into the first lanes of row[0], the real parts,
  // and row[1]; other lanes are ignored. store(k, count, row) writes points in the same form.
  template <class Load, class Store>
  void forward(const Load& load, const Store& store) const {
    Workspace<V> work(size_t(slabs() * slab_rows()));
    if (chirp_.empty()) {
      columns(load, work.data());
      each_slab([&](int64_t slab, V* buffer) {
        int64_t first = slab * kCount, count = std::min(kCount, n1_ - first);
        V* rows = second_.run(work.data() + slab * slab_rows(), buffer, true);
        M::run([&]() __attribute__((always_inline)) {
          for (int64_t k = 0; k < n2_; ++k) store(first + n1_ * k, count, rows + 2 * k);
        });
      });
      return;
    }
    columns([&](int64_t j, int64_t count, V* row)
                __attribute__((always_inline)) { load_chirped(load, j, count, row); },
            work.data());
    each_slab([&](int64_t slab, V* buffer) {
      V *rows = work.data() + slab * slab_rows(), *points = second_.run(rows, buffer, true);
      V* other = points == rows || second_.room() > 2 * n2_ ? buffer + second_.room() : rows;
      M::run([&]() __attribute__((always_inline)) {
        multiply(points, points, kernel_->data() + slab * 2 * n2_, n2_, false);
      });
      V* result = second_.run(points, other, false);
      if (result != rows) std::copy(result, result + 2 * n2_, rows);
    });
    columns_back(work.data(), [&](int64_t k, int64_t count, V* row) __attribute__((always_inline)) {
      if (k >= n_) return;
      multiply_by_chirp(k, count = std::min(count, n_ - k), row);
      store(k, count, row);
    });
  }

 private:
  // Padding rows between slabs, which would otherwise map to the same sets of the first-level cache.
  static constexpr int64_t kPad = 16;

  LongLine(int64_t n, int64_t length)
      : n_(n),
        length_(length),
        n1_(parts_of(length)),
        n2_(length / n1_),
        first_(n1_),
        second_(n2_),
        roots_(size_t(2 * n1_ * column_blocks())) {
    ducc0::UnityRoots<T, std::complex<T>> roots{size_t(length)};
    parallel_for(column_blocks(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t column = begin * kCount; column < end * kCount; ++column) {
        T* row = reinterpret_cast<T*>(roots_.data() + 2 * (column / kCount * n1_)) + column % kCount;
        int64_t at = 0;  // column * k modulo length; the last block may have more columns than are used
        for (int64_t k = 0; k < n1_; ++k, row += 2 * kCount) {
          auto root = roots[size_t(at)];
          row[0] = root.real();
          row[kCount] = -root.imag();
          at += column;
          at -= at >= length ? length : 0;
        }
      }
    });
    if (length != n) make_chirp();
  }

  // The smaller part of n: the divisor next to its square root, preferably one that fills lanes. 0 if there is none.
  static int64_t parts_of(int64_t n) {
    int64_t any = 0;
    for (int64_t k = int64_t(std::sqrt(double(n))) + 1; k >= kCount && n / k <= kMostPart; --k)
      if (n % k == 0 && k <= kMostPart) {
        if (k % kCount == 0 && n / k % kCount == 0) return k;
        if (!any) any = k;
      }
    return any;
  }

  void make_chirp() {
    chirp_ = chirp_of<T>(n_);
    kernel_ = std::make_unique<Workspace<V>>(size_t(2 * n2_ * slabs()));
    Workspace<V> work(size_t(slabs() * slab_rows()));
    T scale = T(1) / T(length_);
    columns(
        [&](int64_t j, int64_t count, V* row) __attribute__((always_inline)) {
          for (int64_t l = 0; l < count; ++l) {
            int64_t at = j + l < n_ ? j + l : length_ - (j + l);
            auto x = at < n_ ? chirp_[size_t(at)] * scale : std::complex<T>();
            row[0][size_t(l)] = x.real();
            row[1][size_t(l)] = x.imag();
          }
        },
        work.data());
    each_slab([&](int64_t slab, V* buffer) {
      V* rows = second_.run(work.data() + slab * slab_rows(), buffer, true);
      std::copy(rows, rows + 2 * n2_, kernel_->data() + slab * 2 * n2_);
    });
  }

  int64_t column_blocks() const { return (n2_ + kCount - 1) / kCount; }
  int64_t slabs() const { return (n1_ + kCount - 1) / kCount; }
  int64_t slab_rows() const { return 2 * kCount * ((n2_ + kCount - 1) / kCount) + kPad; }
  static int64_t rows_of(const Plan& plan) { return 2 * plan.length() + kPad + plan.room(); }

  FACULA_LANES void multiply(const V* from, V* to, const V* by, int64_t n, bool by_conjugate) {
    for (int64_t k = 0; k < n; ++k) {
      V re = from[2 * k], im = from[2 * k + 1], c = by[2 * k],
        s = by_conjugate ? -by[2 * k + 1] : by[2 * k + 1];
      to[2 * k] = re * c - im * s;
      to[2 * k + 1] = re * s + im * c;
    }
  }

  // Reads columns with load(), transforms and multiplies them, and writes them transposed to the rows of `work`.
  template <class Load>
  void columns(const Load& load, V* work) const {
    each_column_block([&](int64_t c, V* rows, V* buffer) {
      int64_t first = c * kCount, count = std::min(kCount, n2_ - first);
      M::run([&]() __attribute__((always_inline)) {
        for (int64_t j = 0; j < n1_; ++j) load(j * n2_ + first, count, rows + 2 * j);
      });
      const V *result = first_.run(rows, buffer, true), *roots = roots_.data() + 2 * c * n1_;
      M::run([&]() __attribute__((always_inline)) {
        for (int64_t slab = 0; slab < slabs(); ++slab) {
          V x[2][kCount] = {};
          for (int64_t l = 0; l < std::min(kCount, n1_ - slab * kCount); ++l) {
            V row[2];
            multiply(result + 2 * (slab * kCount + l), row, roots + 2 * (slab * kCount + l), 1, false);
            for (int64_t p = 0; p < 2; ++p) x[p][l] = row[p];
          }
          for (auto& part : x) L::L::turn(part);
          V* to = work + slab * slab_rows() + 2 * first;
          for (int64_t i = 0; i < kCount; ++i)
            for (int64_t p = 0; p < 2; ++p) to[2 * i + p] = x[p][i];
        }
      });
    });
  }
  // The inverse of columns(), without a factor.
  template <class Store>
  void columns_back(const V* work, const Store& store) const {
    each_column_block([&](int64_t c, V* rows, V* buffer) {
      int64_t first = c * kCount, count = std::min(kCount, n2_ - first);
      M::run([&]() __attribute__((always_inline)) {
        for (int64_t slab = 0; slab < slabs(); ++slab) {
          const V* from = work + slab * slab_rows() + 2 * first;
          V x[2][kCount];
          for (int64_t i = 0; i < kCount; ++i)
            for (int64_t p = 0; p < 2; ++p) x[p][i] = from[2 * i + p];
          for (auto& part : x) L::L::turn(part);
          for (int64_t l = 0; l < std::min(kCount, n1_ - slab * kCount); ++l)
            for (int64_t p = 0; p < 2; ++p) rows[2 * (slab * kCount + l) + p] = x[p][l];
        }
        multiply(rows, rows, roots_.data() + 2 * c * n1_, n1_, true);
      });
      V* result = first_.run(rows, buffer, false);
      M::run([&]() __attribute__((always_inline)) {
        for (int64_t j = 0; j < n1_; ++j) store(j * n2_ + first, count, result + 2 * j);
      });
    });
  }
  template <class F>
  void each_column_block(F&& f) const {
    parallel_for(column_blocks(), std::max<int64_t>(1, kGrain / n1_), [&](int64_t begin, int64_t end) {
      Workspace<V> room(size_t(rows_of(first_)));
      for (int64_t c = begin; c < end; ++c) f(c, room.data(), room.data() + 2 * n1_ + kPad);
    });
  }
  template <class F>
  void each_slab(F&& f) const {
    parallel_for(slabs(), std::max<int64_t>(1, kGrain / n2_), [&](int64_t begin, int64_t end) {
      Workspace<V> room(size_t(2 * second_.room()));
      for (int64_t slab = begin; slab < end; ++slab) f(slab, room.data());
    });
  }

  // Points from n on are zero.
  template <class Load>
  FACULA_MEMBER void load_chirped(const Load& load, int64_t j, int64_t count, V* row) const {
    row[0] = row[1] = V();
    if (j >= n_) return;
    load(j, count = std::min(count, n_ - j), row);
    multiply_by_chirp(j, count, row);
    for (auto l = size_t(count); l < size_t(kCount); ++l) row[0][l] = row[1][l] = 0;
  }
  // Multiplies by the conjugate of the chirp; the chirp is stored as for a forward transform.
  FACULA_MEMBER void multiply_by_chirp(int64_t j, int64_t count, V* row) const {
    const T* from = reinterpret_cast<const T*>(chirp_.data() + j);
    V by[2] = {};
    if (count == kCount) L::template load_across<2>(from, by);
    else
      for (int64_t l = 0; l < count; ++l)
        for (int64_t p = 0; p < 2; ++p) by[p][size_t(l)] = from[2 * l + p];
    multiply(row, row, by, 1, true);
  }

  static constexpr int64_t kGrain = 2048;
  int64_t n_, length_, n1_, n2_;  // length_ is n_, or the length of the convolution: n1_ * n2_
  Plan first_, second_;
  Workspace<V> roots_;  // [column block, k1, 2]
  std::vector<std::complex<T>> chirp_;
  std::unique_ptr<Workspace<V>> kernel_;  // the transform of the chirp, in the order of slabs
};

}  // namespace facula::numerics
