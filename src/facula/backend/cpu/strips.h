// Real matrices cut into strips of columns, each in rows and on its own: what a step of a factorization reads and writes lies
// together, whatever the matrix's rows are long. Their last columns are filled up with zeros to whole vectors.
// A factorization factors one strip after the other, a panel, and applies each to those behind it. Threads take such steps as
// they become possible, the foremost strip first, so that the next panel is factored while the rest is updated. What a
// step computes is the same whoever takes it: the number of threads changes no bit.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>

#include "facula/backend/cpu/blocked.h"
#include "facula/backend/cpu/workspace.h"

namespace facula::backend::cpu {

constexpr int64_t kStrip = 64;  // columns of a strip, rows of a triangle on the diagonal
constexpr int64_t kPanel = 16;  // columns that are factored together; strips are filled up to whole ones

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

// In registers: columns are whole panels.
template <class T>
struct StripKernels {
  void (*solve)(Triangle, int64_t n, int64_t columns, RowMajor<const T> a, RowMajor<T> x);
  // c [m, n] -= a [m, k] b [k, n]
  void (*subtract_product)(int64_t m, int64_t n, int64_t k, RowMajor<const T> a, RowMajor<const T> b,
                           RowMajor<T> c);
  void (*turn)(int64_t rows, int64_t columns, RowMajor<const T> from, RowMajor<T> to);
  void (*copy)(int64_t rows, int64_t columns, RowMajor<const T> from, RowMajor<T> to);
  // Rows exchanged one after the other, as `pivots` (from 0) say.
  void (*exchange)(int64_t rows, const int* pivots, int64_t columns, RowMajor<T> x);
  // c [m, n] += a^T b for a [k, m] and b [k, n]
  void (*add_turned_product)(int64_t m, int64_t n, int64_t k, RowMajor<const T> a, RowMajor<const T> b,
                             RowMajor<T> c);
  // x [n] += v^T a, and x [m] = a v, for a [m, n]
  void (*add_rows)(int64_t m, int64_t n, RowMajor<const T> a, const T* v, T* x);
  void (*dot_rows)(int64_t m, int64_t n, RowMajor<const T> a, const T* v, T* x);
  // Both: x = a v, and y [n] += w^T a.
  void (*dot_and_add_rows)(int64_t m, int64_t n, RowMajor<const T> a, const T* v, T* x, const T* w, T* y);
  // Of m rows of kPanel columns, which lie one after the other:
  // P L U of the first `columns`; pivots from 0. False as factor_in_rows.
  bool (*factor_panel)(int64_t m, int columns, T* panel, int* pivots);
  // R and reflections of the first `columns` as geqrf. False where a square is no normal number.
  bool (*reflect_panel)(int64_t m, int columns, T* panel, T* tau);
};
template <class T>
const StripKernels<T>& strip_kernels();

// Rows of any `columns` into a strip, which is filled up with zeros, and back.
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

// Columns of the unit matrix from `first` on.
template <class T>
void unit_strip(int64_t rows, int64_t first, int64_t columns, RowMajor<T> to) {
  for (int64_t i = 0; i < rows; ++i) {
    std::fill_n(to[i], padded(columns), T(0));
    if (i >= first && i < first + columns) to[i][i - first] = 1;
  }
}

// How many threads are worth their start for so many operations.
int64_t workers_for(double operations);
// f(item) for each of `count`, which threads take as they come, the first one first.
void take_turns(int64_t count, double operations, const std::function<void(int64_t)>& f);

// f(j, width, strip [rows, width]) for each strip of `columns`, for which there is room; so shared.
template <class T, class F>
void each_strip(int64_t rows, int64_t columns, double operations, F&& f) {
  take_turns(strips_of(columns), operations, [&](int64_t j) {
    Workspace<T> room(size_t(rows * kStrip));
    f(j, std::min(kStrip, columns - j * kStrip), RowMajor<T>{room.data(), kStrip});
  });
}
// What f gives for m rows of kPanel columns one after the other, in `room`; unless that is false they become those of a.
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
  std::function<void(int64_t strip)> finish;  // when all panels are factored, and applied to it
};
// Whether all panels, the first strips, were factored.
bool run_by_strips(int64_t panels, int64_t strips, double operations, const StripSteps& steps);

}  // namespace facula::backend::cpu
