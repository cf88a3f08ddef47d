#include "facula/numerics/small_ldl.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <type_traits>
#include <utility>

#include "facula/numerics/elements.h"

namespace facula::numerics {

namespace {

template <class T>
auto size_of(T x) {
  if constexpr (kComplex<T>) return std::abs(x.real()) + std::abs(x.imag());
  else return std::abs(x);
}

// Bunch, Kaufman, "Some stable methods for calculating inertia and solving symmetric linear systems", 1977.
template <class T, bool kHermitian>
struct Pivoted {
  int n;
  T* a;
  using R = decltype(size_of(T()));

  T& at(int i, int j) const { return a[i * n + j]; }
  static T other(T x) {  // an element mirrored at the diagonal
    if constexpr (kHermitian) return std::conj(x);
    else return x;
  }
  static T own(T x) {  // as an element of the diagonal
    if constexpr (kHermitian) return T(std::real(x));
    else return x;
  }
  R size(int i, int j) const { return size_of(at(i, j)); }
  R diagonal(int k) const { return size_of(own(at(k, k))); }

  struct Choice {
    int row, rows;  // to be exchanged with the last one of a block of `rows`
  };
  Choice choose(int k) const {
    const R alpha = (1 + std::sqrt(R(17))) / 8;
    int largest = k;
    R column = 0, row = 0;
    for (int i = k + 1; i < n; ++i)
      if (largest == k || size(i, k) > column) largest = i, column = size(i, k);
    if (diagonal(k) >= alpha * column) return {k, 1};
    for (int j = k; j < largest; ++j) row = std::max(row, size(largest, j));
    for (int i = largest + 1; i < n; ++i) row = std::max(row, size(i, largest));
    if (diagonal(k) >= alpha * column * (column / row)) return {k, 1};
    if (diagonal(largest) >= alpha * row) return {largest, 1};
    return {largest, 2};
  }

  void exchange(int k, Choice choice) const {
    int from = k + choice.rows - 1, to = choice.row;
    if (to != from) {
      for (int i = to + 1; i < n; ++i) std::swap(at(i, from), at(i, to));
      for (int j = from + 1; j < to; ++j) {
        T x = other(at(j, from));
        at(j, from) = other(at(to, j));
        at(to, j) = x;
      }
      at(to, from) = other(at(to, from));
      std::swap(at(from, from), at(to, to));
      if (choice.rows == 2) std::swap(at(k + 1, k), at(to, k));
    }
    for (int j : {k, from, to}) at(j, j) = own(at(j, j));
  }

  void eliminate(int k) const {
    T scale = T(R(1)) / at(k, k);
    for (int j = k + 1; j < n; ++j) {
      T x = by_parts(-scale, other(at(j, k)));
      for (int i = j; i < n; ++i) at(i, j) += by_parts(at(i, k), x);
      at(j, j) = own(at(j, j));
    }
    for (int i = k + 1; i < n; ++i) at(i, k) = by_parts(at(i, k), scale);
  }
  void eliminate_pair(int k) const {
    if (k + 2 >= n) return;
    // The block is D = d (x 1; 1 y) or, for a Hermitian matrix, |d| (x phase^*; phase y).
    T d = at(k + 1, k), phase = T(R(1)), low, high;
    if constexpr (kHermitian) {
      R length = std::abs(d);
      phase = d / length, d = T(length);
    }
    high = at(k + 1, k + 1) / d, low = at(k, k) / d;
    T scale = T(R(1)) / (by_parts(high, low) - T(R(1))) / d;
    for (int j = k + 2; j < n; ++j) {
      T first = by_parts(scale, by_parts(high, at(j, k)) - by_parts(phase, at(j, k + 1))),
        second = by_parts(scale, by_parts(low, at(j, k + 1)) - by_parts(other(phase), at(j, k)));
      for (int i = j; i < n; ++i)
        at(i, j) -= by_parts(at(i, k), other(first)) + by_parts(at(i, k + 1), other(second));
      at(j, k) = first, at(j, k + 1) = second;
      at(j, j) = own(at(j, j));
    }
  }

  int factor(int* pivots) const {
    int info = 0;
    for (int k = 0; k < n;) {
      R column = 0;
      for (int i = k + 1; i < n; ++i) column = std::max(column, size(i, k));
      if (std::max(diagonal(k), column) == 0) {
        info = info ? info : k + 1;
        at(k, k) = own(at(k, k));
        pivots[k] = k + 1;
        ++k;
        continue;
      }
      Choice choice = choose(k);
      exchange(k, choice);
      if (choice.rows == 1) eliminate(k), pivots[k] = choice.row + 1;
      else eliminate_pair(k), pivots[k] = pivots[k + 1] = -(choice.row + 1);
      k += choice.rows;
    }
    return info;
  }

  // One right-hand side.
  struct Column {
    T* first;
    int stride;
    T& operator[](int i) const { return first[i * stride]; }
  };
  // Subtracts the part of column k from rows `from` and after of x.
  void lower(int k, int from, Column x) const {
    for (int i = from; i < n; ++i) x[i] -= by_parts(at(i, k), x[k]);
  }
  void upper(int k, int from, Column x) const {
    for (int i = from; i < n; ++i) x[k] -= by_parts(other(at(i, k)), x[i]);
  }
  void solve(const int* pivots, Column x) const {
    for (int k = 0; k < n;) {
      if (pivots[k] > 0) {
        std::swap(x[k], x[pivots[k] - 1]);
        lower(k, k + 1, x);
        // By reciprocals, so that 0 leads to the same results as in LAPACK.
        if constexpr (kHermitian) x[k] *= 1 / std::real(at(k, k));
        else x[k] = by_parts(x[k], T(R(1)) / at(k, k));
        ++k;
        continue;
      }
      std::swap(x[k + 1], x[-pivots[k] - 1]);
      lower(k, k + 2, x);
      lower(k + 1, k + 2, x);
      T d = at(k + 1, k), low = at(k, k) / other(d), high = at(k + 1, k + 1) / d,
        rest = by_parts(low, high) - T(R(1)), first = x[k] / other(d), second = x[k + 1] / d;
      x[k] = (by_parts(high, first) - second) / rest;
      x[k + 1] = (by_parts(low, second) - first) / rest;
      k += 2;
    }
    for (int k = n - 1; k >= 0;) {
      bool pair = pivots[k] < 0;
      upper(k, k + 1, x);
      if (pair) upper(k - 1, k + 1, x);
      std::swap(x[k], x[std::abs(pivots[k]) - 1]);
      k -= pair ? 2 : 1;
    }
  }
};

}  // namespace

template <class T>
int factor_small_ldl(int n, T* a, bool hermitian, int* pivots) {
  if (kComplex<T> && hermitian) return Pivoted<T, kComplex<T>>{n, a}.factor(pivots);
  return Pivoted<T, false>{n, a}.factor(pivots);
}
template <class T>
void solve_small_ldl(int n, int columns, const T* a, bool hermitian, const int* pivots, T* b) {
  auto all = [&](auto factors) {
    for (int c = 0; c < columns; ++c) factors.solve(pivots, {b + c, columns});
  };
  if (kComplex<T> && hermitian) all(Pivoted<T, kComplex<T>>{n, const_cast<T*>(a)});
  else all(Pivoted<T, false>{n, const_cast<T*>(a)});
}
#define FACULA_INSTANTIATE(T)                               \
  template int factor_small_ldl<T>(int, T*, bool, int*); \
  template void solve_small_ldl<T>(int, int, const T*, bool, const int*, T*);
FACULA_INSTANTIATE(float)
FACULA_INSTANTIATE(double)
FACULA_INSTANTIATE(std::complex<float>)
FACULA_INSTANTIATE(std::complex<double>)
#undef FACULA_INSTANTIATE

}  // namespace facula::numerics
