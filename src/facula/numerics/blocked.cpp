#include "facula/numerics/blocked.h"

#include <algorithm>
#include <vector>

#include "facula/base/parallel.h"
#include "facula/numerics/column_strips.h"

namespace facula::numerics {

namespace {

// About half of n, as a multiple of `part`.
int64_t half(int64_t n, int64_t part) { return (n / 2 + part - 1) / part * part; }

// Solves A X = B in place of a strip x [n, columns], whose first `zeros` rows are 0 if A is a lower triangle.
template <class T>
void solve_strip(Triangle kind, int64_t n, int64_t columns, RowMajor<const T> a, RowMajor<T> x,
                 int64_t zeros = 0) {
  auto& in = strip_kernels<T>();
  auto block = [&](int64_t i, int64_t rows, int64_t rest_at, int64_t rest) {
    in.solve(kind, rows, columns, a.at(i, i), x.at(i, 0));
    in.subtract_product(rest, columns, rows, a.at(rest_at, i), read_only(x.at(i, 0)), x.at(rest_at, 0));
  };
  if (kind.upper)
    for (int64_t end = n, i; end > 0; end = i)
      i = std::max<int64_t>(0, end - kStrip), block(i, end - i, 0, i);
  else
    for (int64_t i = zeros, end; i < n; i = end)
      end = std::min(n, i + kStrip), block(i, end - i, end, n - end);
}

// If all pivots are finite, the factors are finite: an element that is not finite would make all later pivots of its row
// or column not finite.
template <class T>
class Factoring {
 public:
  Factoring(int64_t n, RowMajor<const T> from, RowMajor<T> to, int* pivots)
      : n_(n), from_(from), to_(to), pivots_(pivots), x_(n, n), panel_(size_t(n * kPanel)) {}

  bool run() {
    auto n = double(n_);
    bool good = run_by_strips(x_.count(), x_.count(), 2.0 / 3 * n * n * n,
                              {[&](int64_t k) { return factor(k); },
                               [&](int64_t k, int64_t j) { apply(k, j); }, [&](int64_t j) { finish(j); }});
    for (int64_t k = 0; good && k < n_; ++k) pivots_[k] += int(k / kStrip * kStrip) + 1;
    return good;
  }

 private:
  void read(int64_t j) { read_strip(n_, x_.width(j), from_.at(0, j * kStrip), x_[j]); }
  bool factor(int64_t k) {
    if (k == 0) read(k);
    int64_t top = k * kStrip;
    return columns(n_ - top, x_.width(k), x_[k].at(top, 0), pivots_ + top);
  }
  void apply(int64_t k, int64_t j) {
    if (k == 0) read(j);
    auto& in = strip_kernels<T>();
    int64_t top = k * kStrip, next = top + kStrip, wide = padded(x_.width(j));
    RowMajor<T> to = x_[j].at(top, 0);
    in.exchange(kStrip, pivots_ + top, wide, to);
    in.solve({.upper = false, .unit = true}, kStrip, wide, read_only(x_[k].at(top, 0)), to);
    in.subtract_product(n_ - next, wide, kStrip, read_only(x_[k].at(next, 0)), read_only(to),
                        x_[j].at(next, 0));
  }
  void finish(int64_t j) {
    for (int64_t k = j + 1; k < x_.count(); ++k)
      strip_kernels<T>().exchange(x_.width(k), pivots_ + k * kStrip, kStrip, x_[j].at(k * kStrip, 0));
    write_strip(n_, x_.width(j), read_only(x_[j]), to_.at(0, j * kStrip));
  }

  // Factors the first `w` columns of m rows recursively; Toledo, "Locality of reference in LU decomposition with partial
  // pivoting", 1997.
  bool columns(int64_t m, int64_t w, RowMajor<T> a, int* pivots) {
    if (w <= kPanel) return panel(m, int(w), a, pivots);
    auto& in = strip_kernels<T>();
    int64_t h = half(w, kPanel), rest = w - h;
    if (!columns(m, h, a, pivots)) return false;
    RowMajor<T> right = a.at(0, h);
    in.exchange(h, pivots, padded(rest), right);
    in.solve({.upper = false, .unit = true}, h, padded(rest), read_only(a), right);
    in.subtract_product(m - h, padded(rest), h, read_only(a.at(h, 0)), read_only(right), right.at(h, 0));
    if (!columns(m - h, rest, a.at(h, h), pivots + h)) return false;
    in.exchange(rest, pivots + h, h, a.at(h, 0));
    for (int64_t k = h; k < w; ++k) pivots[k] += int(h);
    return true;
  }
  bool panel(int64_t m, int w, RowMajor<T> a, int* pivots) {
    return as_panel(m, a, panel_.data(),
                    [&](T* panel) { return strip_kernels<T>().factor_panel(m, w, panel, pivots); });
  }

  int64_t n_;
  RowMajor<const T> from_;
  RowMajor<T> to_;
  int* pivots_;
  Strips<T> x_;
  Workspace<T> panel_;
};

}  // namespace

template <class T>
void turn_in_rows(int64_t rows, int64_t columns, RowMajor<const T> from, RowMajor<T> to) {
  strip_kernels<T>().turn(rows, columns, from, to);
}

template <class T>
void solve_in_rows(Triangle kind, int64_t n, int64_t columns, RowMajor<const T> a, RowMajor<const T> b,
                   RowMajor<T> x) {
  each_strip<T>(n, columns, double(n) * double(n) * double(columns),
                [&](int64_t j, int64_t w, RowMajor<T> strip) {
                  read_strip(n, w, b.at(0, j * kStrip), strip);
                  solve_strip(kind, n, padded(w), a, strip);
                  write_strip(n, w, read_only(strip), x.at(0, j * kStrip));
                });
}

template <class T>
bool factor_in_rows(int64_t n, RowMajor<const T> a, RowMajor<T> lu, int* pivots) {
  return Factoring<T>(n, a, lu, pivots).run();
}

template <class T>
void solve_factored_in_rows(int64_t n, int64_t columns, const T* lu, const int* pivots, const T* b, T* x,
                            bool turned) {
  auto& in = strip_kernels<T>();
  std::vector<int> from_0(pivots, pivots + n);
  for (auto& p : from_0) --p;
  Workspace<T> room(turned ? size_t(n * n) : 0);
  if (turned) in.turn(n, n, {lu, n}, {room.data(), n});
  RowMajor<const T> factors{turned ? room.data() : lu, n};
  each_strip<T>(n, columns, 2 * double(n) * double(n) * double(columns),
                [&](int64_t j, int64_t w, RowMajor<T> strip) {
                  read_strip(n, w, {b + j * kStrip, columns}, strip);
                  if (!turned) in.exchange(n, from_0.data(), padded(w), strip);
                  solve_strip<T>({.upper = false, .unit = !turned}, n, padded(w), factors, strip);
                  solve_strip<T>({.upper = true, .unit = turned}, n, padded(w), factors, strip);
                  for (int64_t i = n; turned && i-- > 0;)
                    std::swap_ranges(strip[i], strip[i] + (from_0[size_t(i)] == i ? 0 : w),
                                     strip[from_0[size_t(i)]]);
                  write_strip(n, w, read_only(strip), {x + j * kStrip, columns});
                });
}

namespace {
// Writes the columns of A^-1 from j on, for a lower triangle A.
template <class T>
void invert_strip(bool unit, int64_t n, int64_t j, int64_t columns, RowMajor<const T> a, RowMajor<T> strip) {
  unit_strip(n, j, columns, strip);
  solve_strip({.upper = false, .unit = unit}, n, padded(columns), a, strip, j);
}
}  // namespace

template <class T>
void invert_factored_in_rows(int64_t n, const T* lu, const int* pivots, T* x) {
  each_strip<T>(n, n, 4.0 / 3 * double(n) * double(n) * double(n),
                [&](int64_t j, int64_t w, RowMajor<T> strip) {
                  invert_strip<T>(true, n, j * kStrip, w, {lu, n}, strip);
                  solve_strip<T>({.upper = true, .unit = false}, n, padded(w), {lu, n}, strip);
                  write_strip(n, w, read_only(strip), {x + j * kStrip, n});
                });
  // Columns are exchanged as the rows were, in reverse order.
  std::vector<int> column(static_cast<size_t>(n));
  for (int64_t k = 0; k < n; ++k) column[size_t(k)] = int(k);
  for (int64_t k = n; k-- > 0;) std::swap(column[size_t(k)], column[size_t(pivots[k] - 1)]);
  parallel_for(n, 1 + 50000 / n, [&](int64_t begin, int64_t end) {
    std::vector<T> row(static_cast<size_t>(n));
    for (int64_t i = begin; i < end; ++i) {
      std::copy_n(x + i * n, n, row.data());
      for (int64_t j = 0; j < n; ++j) x[i * n + j] = row[size_t(column[size_t(j)])];
    }
  });
}

template <class T>
void invert_triangle_in_rows(int64_t n, const T* l, T* x) {
  each_strip<T>(n, n, 1.0 / 3 * double(n) * double(n) * double(n),
                [&](int64_t j, int64_t w, RowMajor<T> strip) {
                  invert_strip<T>(false, n, j * kStrip, w, {l, n}, strip);
                  write_strip(n, w, read_only(strip), {x + j * kStrip, n});
                });
}

#define FACULA_BLOCKED(T)                                                                                            \
  template void turn_in_rows(int64_t, int64_t, RowMajor<const T>, RowMajor<T>);                                      \
  template void solve_in_rows(Triangle, int64_t, int64_t, RowMajor<const T>, RowMajor<const T>, RowMajor<T>);        \
  template bool factor_in_rows(int64_t, RowMajor<const T>, RowMajor<T>, int*);                                       \
  template void solve_factored_in_rows(int64_t, int64_t, const T*, const int*, const T*, T*, bool);                        \
  template void invert_factored_in_rows(int64_t, const T*, const int*, T*);                                          \
  template void invert_triangle_in_rows(int64_t, const T*, T*);
FACULA_BLOCKED(float)
FACULA_BLOCKED(double)
#undef FACULA_BLOCKED

}  // namespace facula::numerics
