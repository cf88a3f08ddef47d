// Arithmetic with elements of matrices that may be complex, not finite, or subnormal, by the steps of LAPACK.
#pragma once
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

namespace facula::numerics {

template <class T>
constexpr bool kComplex = !std::is_floating_point_v<T>;

// The size by which LAPACK chooses pivots.
template <class T>
auto pivot_size(T x) {
  if constexpr (std::is_floating_point_v<T>) return std::abs(x);
  else return std::abs(x.real()) + std::abs(x.imag());
}

// Products by parts, as in LAPACK: C++'s complex product looks for infinities behind a NaN (C, annex G).
template <class T>
T by_parts(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return a * b;
  else return T(a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real());
}
// Complex quotients by parts, as by_parts multiplies.
template <class T>
T quotient(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return a / b;
  } else if (std::abs(b.real()) >= std::abs(b.imag())) {  // Smith, 1962
    auto r = b.imag() / b.real(), size = b.real() + b.imag() * r;
    return T((a.real() + a.imag() * r) / size, (a.imag() - a.real() * r) / size);
  } else {
    auto r = b.real() / b.imag(), size = b.imag() + b.real() * r;
    return T((a.real() * r + a.imag()) / size, (a.imag() * r - a.real()) / size);
  }
}
template <class T>
bool finite(const T* a, int64_t n) {
  constexpr int64_t kSums = 16;  // independent sums without branches, which vectorize
  T rests[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums)
    for (int64_t l = 0; l < kSums; ++l) rests[l] += a[i + l] - a[i + l];
  for (; i < n; ++i) rests[0] += a[i] - a[i];
  return std::all_of(rests, rests + kSums, [](T x) { return x == T(0); });
}
template <class T>
bool subnormal(const T* a, int64_t n) {  // all elements but zeros are subnormal
  auto least = std::numeric_limits<decltype(std::abs(T{}))>::min();
  return std::all_of(a, a + n, [&](T x) { return pivot_size(x) < least; });
}
// getrf of such a matrix: a NaN never counts as the larger number, and a complex quotient by a number that is not finite
// is NaN, as in PyTorch's library.
template <class T>
int eliminate(int m, int n, T* a, int* pivots) {
  int info = 0;
  for (int k = 0; k < std::min(m, n); ++k) {
    T* column = a + int64_t(k) * m;
    int p = k;
    for (int i = k + 1; i < m; ++i)
      if (pivot_size(column[i]) > pivot_size(column[p])) p = i;
    pivots[k] = p + 1;
    for (int j = 0; p != k && j < n; ++j) std::swap(a[int64_t(j) * m + k], a[int64_t(j) * m + p]);
    T pivot = column[k];
    if (pivot == T(0)) {
      if (!info) info = k + 1;
      continue;
    }
    auto rest = pivot_size(pivot - pivot);  // 0 of a finite one, else NaN
    for (int i = k + 1; i < m; ++i) {
      if constexpr (std::is_floating_point_v<T>) column[i] /= pivot;
      else column[i] = rest == 0 ? column[i] / pivot : T(rest, rest);
    }
    for (int j = k + 1; j < n; ++j) {
      T* to = a + int64_t(j) * m;
      for (int i = k + 1; i < m; ++i) to[i] -= by_parts(column[i], to[k]);
    }
  }
  return info;
}

}  // namespace facula::numerics
