// Real matrices cut into strips of columns. Each strip is a row-major block by itself, so that what a step of a
// factorization reads and writes is close together, whatever the length of the matrix's rows. The last columns are padded
// with zeros to full vectors. A factorization factors one strip (a panel) after the other and applies each to the strips
// to its right. Threads take such steps as soon as they become possible, the leftmost strip first, so that the next panel
// is factored while the rest is updated. Each step computes the same on any thread: results have the same bits for any
// number of threads.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>

#include "facula/numerics/blocked.h"
#include "facula/numerics/workspace.h"

namespace facula::numerics {

constexpr int64_t kStrip = 64;  // columns of a strip; rows of a triangle on the diagonal
constexpr int64_t kPanel = 16;  // columns that are factored together; strips are padded to full panels

inline int64_t padded(int64_t columns) { return (columns + kPanel - 1) / kPanel * kPanel; }
inline int64_t strips_of(int64_t columns) { return (columns + kStrip - 1) / kStrip; }

template <class T>
RowMajor<const T> read_only(RowMajor<T> x) {
  return {x.data, x.row};
}

template <class T>
class Strips {
 public:
  Strips(int64_t rows, int64_t columns)
      : rows_(rows), columns_(columns), memory_(size_t(rows * kStrip * strips_of(columns))) {}
  int64_t rows() const { return rows_; }
  int64_t count() const { return strips_of(columns_); }
  int64_t width(int64_t j) const { return std::min(kStrip, columns_ - j * kStrip); }
  RowMajor<T> operator[](int64_t j) const { return {memory_.data() + j * rows_ * kStrip, kStrip}; }

 private:
  int64_t rows_, columns_;
  Workspace<T> memory_;
};

// Kernels that compute in registers; columns are full panels.
template <class T>
struct StripKernels {
  void (*solve)(Triangle, int64_t n, int64_t columns, RowMajor<const T> a, RowMajor<T> x);
  // c [m, n] -= a [m, k] b [k, n]
  void (*subtract_product)(int64_t m, int64_t n, int64_t k, RowMajor<const T> a, RowMajor<const T> b,
                           RowMajor<T> c);
  void (*turn)(int64_t rows, int64_t columns, RowMajor<const T> from, RowMajor<T> to);
  void (*copy)(int64_t rows, int64_t columns, RowMajor<const T> from, RowMajor<T> to);
  // Exchanges rows one after the other, as `pivots` (counting from 0) say.
  void (*exchange)(int64_t rows, const int* pivots, int64_t columns, RowMajor<T> x);
  // c [m, n] += a^T b for a [k, m] and b [k, n]
  void (*add_turned_product)(int64_t m, int64_t n, int64_t k, RowMajor<const T> a, RowMajor<const T> b,
                             RowMajor<T> c);
  // x [n] += v^T a, and x [m] = a v, for a [m, n]
  void (*add_rows)(int64_t m, int64_t n, RowMajor<const T> a, const T* v, T* x);
  void (*dot_rows)(int64_t m, int64_t n, RowMajor<const T> a, const T* v, T* x);
  // Both at once: x = a v, and y [n] += w^T a.
  void (*dot_and_add_rows)(int64_t m, int64_t n, RowMajor<const T> a, const T* v, T* x, const T* w, T* y);
  // These two work on m rows of kPanel columns without gaps between the rows. factor_panel: P L U of the first `columns`;
  // pivots count from 0. Returns false as factor_in_rows does.
  bool (*factor_panel)(int64_t m, int columns, T* panel, int* pivots);
  // R and reflections of the first `columns` as geqrf. Returns false if a square is not a normal number.
  bool (*reflect_panel)(int64_t m, int columns, T* panel, T* tau);
};
template <class T>
const StripKernels<T>& strip_kernels();

// Copies rows of any number of `columns` into a strip, padded with zeros, and back.
template <class T>
void read_strip(int64_t rows, int64_t columns, RowMajor<const T> from, RowMajor<T> to) {
  if (columns % kPanel == 0) return strip_kernels<T>().copy(rows, columns, from, to);
  for (int64_t i = 0; i < rows; ++i)
    std::fill(std::copy_n(from[i], columns, to[i]), to[i] + padded(columns), T(0));
}
template <class T>
void write_strip(int64_t rows, int64_t columns, RowMajor<const T> from, RowMajor<T> to) {
  if (columns % kPanel == 0) return strip_kernels<T>().copy(rows, columns, from, to);
  for (int64_t i = 0; i < rows; ++i) std::copy_n(from[i], columns, to[i]);
}

// Writes columns of the unit matrix from `first` on.
template <class T>
void unit_strip(int64_t rows, int64_t first, int64_t columns, RowMajor<T> to) {
  for (int64_t i = 0; i < rows; ++i) {
    std::fill_n(to[i], padded(columns), T(0));
    if (i >= first && i < first + columns) to[i][i - first] = 1;
  }
}

// Returns how many threads are worth starting for so many operations.
int64_t workers_for(double operations);
// Calls f(item) for each of `count` items in order; threads take the next one when they are free.
void take_turns(int64_t count, double operations, const std::function<void(int64_t)>& f);

// Calls f(j, width, strip [rows, width]) for each strip of `columns`, with memory for the strip, in the same manner.
template <class T, class F>
void each_strip(int64_t rows, int64_t columns, double operations, F&& f) {
  take_turns(strips_of(columns), operations, [&](int64_t j) {
    Workspace<T> room(size_t(rows * kStrip));
    f(j, std::min(kStrip, columns - j * kStrip), RowMajor<T>{room.data(), kStrip});
  });
}
// Calls f on a copy of m rows of kPanel columns without gaps, in `room`, and copies it back to a unless f returns false.
// Returns the result of f.
template <class T, class F>
bool as_panel(int64_t m, RowMajor<T> a, T* room, F&& f) {
  RowMajor<T> together{room, kPanel};
  strip_kernels<T>().copy(m, kPanel, read_only(a), together);
  if (!f(room)) return false;
  strip_kernels<T>().copy(m, kPanel, read_only(together), a);
  return true;
}

struct StripSteps {
  std::function<bool(int64_t panel)> factor;  // false: no strip goes on
  std::function<void(int64_t panel, int64_t strip)> apply;
  std::function<void(int64_t strip)> finish;  // called when all panels are factored and applied to the strip
};
// Returns whether all panels, which are the first strips, were factored.
bool run_by_strips(int64_t panels, int64_t strips, double operations, const StripSteps& steps);

}  // namespace facula::numerics
