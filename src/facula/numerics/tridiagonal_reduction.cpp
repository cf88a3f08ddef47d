#include "facula/numerics/tridiagonal_reduction.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "facula/numerics/worker_team.h"

#pragma GCC optimize("vect-cost-model=dynamic")  // vectorize loops of any length

namespace facula::numerics {

namespace {

constexpr int64_t kParts = 16;  // parts of the rows that threads share

int64_t panel_start(int64_t i) { return i / kPanel * kPanel; }

// Rows of numbers, padded with zeros to full panels.
template <class T>
class Rows {
 public:
  Rows(int64_t rows, int64_t columns) : row_(padded(columns)), memory_(size_t(rows * row_)) {
    std::fill_n(memory_.data(), rows * row_, T(0));
  }
  RowMajor<T> all() const { return {memory_.data(), row_}; }
  RowMajor<T> at(int64_t i, int64_t j) const { return all().at(i, j); }
  T* operator[](int64_t i) const { return all()[i]; }
  int64_t row() const { return row_; }

 private:
  int64_t row_;
  Workspace<T> memory_;
};

// Overwrites x [n] = (alpha, ...) with the reflection's vector (1, ...) that maps it to (beta, 0, ...), and returns beta.
// Zeros before x are not touched.
template <class T>
T reflect(int64_t n, T* x, T& tau) {
  double square = 0;
  constexpr int64_t kSums = 8;
  double sums[kSums] = {};
  int64_t i = 1;
  for (; i + kSums <= n; i += kSums)
    for (int64_t l = 0; l < kSums; ++l) sums[l] += double(x[i + l]) * double(x[i + l]);
  for (; i < n; ++i) sums[0] += double(x[i]) * double(x[i]);
  for (double s : sums) square += s;
  T alpha = x[0];
  tau = 0;
  x[0] = 1;
  double norm = std::sqrt(double(alpha) * double(alpha) + square);
  // Compared with elements of about 1 this is nothing; squares of smaller numbers lose digits.
  constexpr double kLeast = sizeof(T) == 4 ? 16 * double(std::numeric_limits<T>::min()) : 0x1p-460;
  if (square == 0 || norm < kLeast) {
    std::fill(x + 1, x + n, T(0));
    return alpha;
  }
  T beta = -std::copysign(T(norm), alpha);
  tau = (beta - alpha) / beta;
  T scale = T(1 / (double(alpha) - double(beta)));
  for (i = 1; i < n; ++i) x[i] *= scale;
  return beta;
}

// A matrix [m, n] minus left^T right, the delayed updates: two rows of each per step of a panel.
template <class T>
class Changing {
 public:
  Changing(int64_t m, int64_t n)
      : m(m),
        n(n),
        a(padded(m), n),
        left(2 * kPanel, m),
        right(2 * kPanel, n),
        columns_(kPanel, m),
        turned_(padded(m), 2 * kPanel),
        sums_(2 * kParts, n),
        part_(padded((m + kParts - 1) / kParts)) {}

  // Transposes the columns of a panel into rows, which are adjacent.
  void begin(int64_t first) {
    first_ = first;
    in_.turn(padded(m), kPanel, read_only(a.at(0, first)), columns_.all());
  }
  // Writes column i below row `from` after `done` updates; the coefficients are those of `right`.
  template <class Coefficient>
  void column(int64_t i, int64_t from, int64_t done, T* x, Coefficient&& coefficient) const {
    int64_t base = panel_start(from);
    std::copy(columns_[i - first_] + base, columns_[i - first_] + left.row(), x + base);
    T factors[2 * kPanel];
    for (int64_t k = 0; k < done; ++k) factors[k] = -coefficient(k);
    in_.add_rows(done, left.row() - base, read_only(left.at(0, base)), factors, x + base);
    std::fill(x + base, x + from, T(0));
  }
  // x = a v for rows from `from` on; v is 0 before `column`.
  void times(Crew& crew, int64_t from, int64_t column, const T* v, T* x) const {
    int64_t base = panel_start(column);
    each_rows(crew, from, [&](int64_t, int64_t begin, int64_t rows) {
      in_.dot_rows(rows, right.row() - base, read_only(a.at(begin, base)), v + base, x + begin);
    });
  }
  // x = factor a v from row `from` on for a symmetric a; the lower triangle and full squares on the diagonal are
  // read; v is 0 before `from`.
  void symmetric_times(Crew& crew, int64_t from, const T* v, T factor, T* x) const {
    int64_t base = panel_start(from), columns = right.row() - base;
    each_rows(crew, from, [&](int64_t part, int64_t begin, int64_t rows) {
      T *y = sums_[part], *dots = sums_[kParts + part];
      std::fill_n(y + base, columns, T(0));
      for (int64_t i = begin, end; i < begin + rows; i = end) {
        end = std::min(begin + rows, panel_start(i) + kPanel);
        int64_t square = panel_start(i);
        in_.dot_and_add_rows(end - i, square - base, read_only(a.at(i, base)), v + base, dots + i, v + i,
                             y + base);
        in_.add_rows(end - i, kPanel, read_only(a.at(i, square)), v + i, y + square);
      }
      for (int64_t i = begin; i < begin + rows; ++i) y[i] += dots[i];
    });
    std::fill_n(x + base, columns, T(0));
    T factors[kParts];
    std::fill_n(factors, kParts, factor);
    int64_t first = from / part_;
    in_.add_rows(kParts - first, columns, read_only(sums_.at(first, base)), factors, x + base);
  }
  // x = factor v^T a from column `from` on; v is 0 before `row`.
  void turned_times(Crew& crew, int64_t from, int64_t row, const T* v, T factor, T* x) const {
    int64_t base = panel_start(from), columns = right.row() - base;
    each_rows(crew, row, [&](int64_t part, int64_t begin, int64_t rows) {
      std::fill_n(sums_[part] + base, columns, T(0));
      if (rows > 0) in_.add_rows(rows, columns, read_only(a.at(begin, base)), v + begin, sums_[part] + base);
    });
    std::fill_n(x + base, columns, T(0));
    T factors[kParts];
    std::fill_n(factors, kParts, factor);
    int64_t first = row / part_;
    in_.add_rows(kParts - first, columns, read_only(sums_.at(first, base)), factors, x + base);
  }
  // Applies `done` updates to rows and columns from `from` on, full panels; if `lower`, columns to the right of a part of
  // rows are skipped.
  void change(Crew& crew, int64_t from, int64_t done, bool lower = false) {
    in_.turn(2 * kPanel, left.row(), read_only(left.all()), turned_.all());
    each_rows(crew, from, [&](int64_t, int64_t begin, int64_t rows) {
      int64_t columns = (lower ? padded(begin + rows) : right.row()) - from;
      in_.subtract_product(rows, columns, done, read_only(turned_.at(begin, 0)), read_only(right.at(0, from)),
                           a.at(begin, from));
    });
  }

  const int64_t m, n;
  Rows<T> a, left, right;

 private:
  template <class F>
  void each_rows(Crew& crew, int64_t from, F&& f) const {
    crew.each([&](int64_t part) {
      int64_t begin = std::max(part * part_, from), end = std::min(m, (part + 1) * part_);
      f(part, begin, std::max<int64_t>(0, end - begin));
    });
  }

  const StripKernels<T>& in_ = strip_kernels<T>();
  Rows<T> columns_, turned_, sums_;
  int64_t part_, first_ = 0;
};

// Copies every second row of a panel, from `first` on, to the panel's columns of reflections, `shift` rows down.
template <class T>
void keep(const Rows<T>& rows, int64_t first, int64_t shift, int64_t panel, Reflections<T>& to) {
  RowMajor<T> strip = to.v[panel / kStrip].at(0, panel % kStrip);
  int64_t count = std::min(kPanel, int64_t(to.tau.size()) - panel);
  if (count <= 0) return;
  strip_kernels<T>().turn(count, to.v.rows() - panel, {rows[first] + panel + shift, 2 * rows.row()},
                          strip.at(panel, 0));
}

}  // namespace

template <class T>
Bidiagonalized<T>::Bidiagonalized(int64_t m, int64_t n, RowMajor<const T> from, bool factors, T* diagonal,
                                  T* above)
    : m_(m), n_(n), left_(m, n), right_(n - 1, n - 1) {
  auto& in = strip_kernels<T>();
  Changing<T> x(m, n);
  auto &left = x.left, &right = x.right;
  Crew::with(workers_for(4.0 / 3 * double(m) * double(n) * double(n)), kParts, [&](Crew& crew) {
    crew.each([&](int64_t part) {
      for (int64_t i = m * part / kParts; i < m * (part + 1) / kParts; ++i) std::copy_n(from[i], n, x.a[i]);
    });
    T sums[2 * kPanel + 1];
    for (int64_t i = 0; i < n; ++i) {
      int64_t t = 2 * (i % kPanel), next = panel_start(i + 1), here = panel_start(i);
      if (t == 0) x.begin(i);
      T *u = left[t], *w = left[t + 1], *y = right[t], *v = right[t + 1];
      x.column(i, i, t, u, [&](int64_t k) { return right[k][i]; });
      diagonal[i] = reflect(m - i, u + i, left_.tau[size_t(i)]);
      if (i + 1 < n) {
        // y = tau (a^T u), and the remaining row: v.
        T tau = left_.tau[size_t(i)];
        x.turned_times(crew, i + 1, i, u, tau, y);
        in.dot_rows(t, left.row() - here, read_only(left.at(0, here)), u + here, sums);
        for (int64_t k = 0; k < t; ++k) sums[k] *= -tau;
        in.add_rows(t, right.row() - next, read_only(right.at(0, next)), sums, y + next);
        std::fill(y + next, y + i + 1, T(0));
        std::copy(x.a[i] + next, x.a[i] + right.row(), v + next);
        for (int64_t k = 0; k <= t; ++k) sums[k] = -left[k][i];
        in.add_rows(t + 1, right.row() - next, read_only(right.at(0, next)), sums, v + next);
        std::fill(v + next, v + i + 1, T(0));
        above[i] = reflect(n - i - 1, v + i + 1, tau);
        right_.tau[size_t(i)] = tau;
        // w = tau (a v)
        x.times(crew, i + 1, i + 1, v, w);
        in.dot_rows(t + 1, right.row() - next, read_only(right.at(0, next)), v + next, sums);
        for (int64_t k = 0; k <= t; ++k) sums[k] = -sums[k];
        std::fill(w + here, w + i + 1, T(0));
        in.add_rows(t + 1, left.row() - here, read_only(left.at(0, here)), sums, w + here);
        for (int64_t r = here; r < left.row(); ++r) w[r] *= tau;
        std::fill(w + here, w + i + 1, T(0));
      } else {
        std::fill(y, y + right.row(), T(0));
        std::fill(v, v + right.row(), T(0));
        std::fill(w, w + left.row(), T(0));
      }
      if (i + 1 < n && (i + 1) % kPanel) continue;
      if (i + 1 < n) x.change(crew, i + 1, t + 2);
      if (factors) keep(left, 0, 0, here, left_), keep(right, 1, 1, here, right_);
    }
  });
  if (factors) left_.finish(), right_.finish();
}

template <class T>
void Bidiagonalized<T>::left(const T* from, int64_t ld, int64_t columns, T* u) const {
  double operations = 4.0 * double(m_) * double(n_) * double(columns);
  each_strip<T>(m_, columns, operations, [&](int64_t j, int64_t w, RowMajor<T> strip) {
    int64_t own = std::clamp<int64_t>(n_ - j * kStrip, 0, w);
    std::fill_n(strip.data, m_ * kStrip, T(0));
    strip_kernels<T>().turn(own, n_, {from + j * kStrip * ld, ld}, strip);
    for (int64_t c = own; c < w; ++c) strip[j * kStrip + c][c] = 1;
    left_.apply(padded(w), strip);
    write_strip(m_, w, read_only(strip), {u + j * kStrip, columns});
  });
}

template <class T>
void Bidiagonalized<T>::right(const T* from, int64_t ld, T* vh) const {
  double operations = 4.0 * double(n_) * double(n_) * double(n_);
  each_strip<T>(n_, n_, operations, [&](int64_t j, int64_t w, RowMajor<T> strip) {
    read_strip(n_, w, {from + j * kStrip, ld}, strip);  // columns of V^T are rows of V
    right_.apply(padded(w), strip.at(1, 0));
    strip_kernels<T>().turn(n_, w, read_only(strip), {vh + j * kStrip * n_, n_});
  });
}

template <class T>
Tridiagonalized<T>::Tridiagonalized(int64_t n, RowMajor<const T> from, bool factors, T* diagonal,
                                    T* off_diagonal)
    : n_(n), reflections_(n - 1, n - 1) {
  auto& in = strip_kernels<T>();
  Changing<T> x(n, n);
  Crew::with(workers_for(4.0 / 3 * double(n) * double(n) * double(n)), kParts, [&](Crew& crew) {
    in.turn(n, n, from, x.a.all());
    for (int64_t i = 0; i < n; ++i) std::copy_n(from[i], i, x.a[i]);
    Workspace<T> room(size_t(padded(n)));
    T *column = room.data(), sums[2 * kPanel];
    auto& left = x.left;
    for (int64_t i = 0; i < n; ++i) {
      int64_t t = 2 * (i % kPanel), here = panel_start(i), next = panel_start(i + 1);
      if (t == 0) x.begin(i);
      T *v = left[t], *w = left[t + 1];
      x.column(i, i, t, column, [&](int64_t k) { return left[k ^ 1][i]; });
      diagonal[i] = column[i];
      if (i + 1 < n) {
        T& tau = reflections_.tau[size_t(i)];
        std::copy(column + here, column + left.row(), v + here);
        std::fill(v + here, v + i + 1, T(0));
        off_diagonal[i] = reflect(n - i - 1, v + i + 1, tau);
        // w = tau (a v) minus its part along v, which a product from both sides counts twice
        std::fill(w + here, w + next, T(0));
        x.symmetric_times(crew, i + 1, v, tau, w);
        in.dot_rows(t, left.row() - next, read_only(left.at(0, next)), v + next, sums);
        for (int64_t k = 0; k < t; k += 2) std::swap(sums[k], sums[k + 1]);
        for (int64_t k = 0; k < t; ++k) sums[k] *= -tau;
        in.add_rows(t, left.row() - next, read_only(left.at(0, next)), sums, w + next);
        std::fill(w + here, w + i + 1, T(0));
        in.dot_rows(1, left.row() - next, {w + next, left.row()}, v + next, sums);
        for (int64_t r = next; r < left.row(); ++r) w[r] -= tau / 2 * sums[0] * v[r];
      } else {
        std::fill(v, v + left.row(), T(0));
        std::fill(w, w + left.row(), T(0));
      }
      if (i + 1 < n && (i + 1) % kPanel) continue;
      for (int64_t k = 0; k < t + 2; ++k) std::copy_n(left[k ^ 1], left.row(), x.right[k]);
      if (i + 1 < n) x.change(crew, i + 1, t + 2, true);
      if (factors) keep(left, 0, 1, here, reflections_);
    }
  });
  if (factors) reflections_.finish();
}

template <class T>
void Tridiagonalized<T>::vectors(const T* from, int64_t ld, T* z) const {
  double operations = 4.0 * double(n_) * double(n_) * double(n_);
  each_strip<T>(n_, n_, operations, [&](int64_t j, int64_t w, RowMajor<T> strip) {
    for (int64_t i = 0; i < n_; ++i) std::fill(strip[i] + w, strip[i] + padded(w), T(0));
    strip_kernels<T>().turn(w, n_, {from + j * kStrip * ld, ld}, strip);
    reflections_.apply(padded(w), strip.at(1, 0));
    write_strip(n_, w, read_only(strip), {z + j * kStrip, n_});
  });
}

#define FACULA_CONDENSED(T)         \
  template class Bidiagonalized<T>; \
  template class Tridiagonalized<T>;
FACULA_CONDENSED(float)
FACULA_CONDENSED(double)
#undef FACULA_CONDENSED

}  // namespace facula::numerics
