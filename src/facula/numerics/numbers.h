// Lanes of real and of complex numbers under the same names, so that an algorithm is written once for both (small_*.cpp).
// All functions are inlined (lanes.h).
#pragma once
#include <complex>

#include "facula/numerics/lanes.h"

namespace facula::numerics {

// Real and imaginary parts of a complex number in each lane; W is a vector. Products are computed by parts, without C++'s
// special cases.
template <class W>
struct ComplexVector {
  W re, im;

#define FACULA_INLINE [[gnu::always_inline]] friend inline
  FACULA_INLINE ComplexVector operator-(ComplexVector a) { return {-a.re, -a.im}; }
  FACULA_INLINE ComplexVector operator+(ComplexVector a, ComplexVector b) {
    return {a.re + b.re, a.im + b.im};
  }
  FACULA_INLINE ComplexVector operator-(ComplexVector a, ComplexVector b) {
    return {a.re - b.re, a.im - b.im};
  }
  FACULA_INLINE ComplexVector operator*(ComplexVector a, ComplexVector b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
  }
  FACULA_INLINE ComplexVector operator*(ComplexVector a, W b) { return {a.re * b, a.im * b}; }
  FACULA_INLINE ComplexVector operator*(W a, ComplexVector b) { return b * a; }
  FACULA_INLINE ComplexVector operator/(ComplexVector a, W b) { return {a.re / b, a.im / b}; }
  template <class X>
  FACULA_INLINE ComplexVector& operator*=(ComplexVector& a, X b) {
    return a = a * b;
  }
  FACULA_INLINE ComplexVector& operator+=(ComplexVector& a, ComplexVector b) { return a = a + b; }
  FACULA_INLINE ComplexVector& operator-=(ComplexVector& a, ComplexVector b) { return a = a - b; }
#undef FACULA_INLINE
};

// V has a number of type T in each lane, W a real number of its precision.
template <class T, int kBytes>
struct Numbers : Lanes<T, kBytes> {
  using L = Lanes<T, kBytes>;
  using typename L::Mask;
  using typename L::V;
  using Number = T;
  using R = T;
  using W = V;
  static constexpr bool kIsComplex = false;

  FACULA_LANES W reals(R x) { return L::all(x); }
  FACULA_LANES W real(V x) { return x; }
  FACULA_LANES V of_real(W x) { return x; }
  FACULA_LANES V conj(V x) { return x; }
  FACULA_LANES Mask is_real(V) { return L::everywhere(); }
  FACULA_LANES W norm(V x) { return x * x; }  // |x|^2
  FACULA_LANES W modulus(V x) { return L::abs(x); }
  FACULA_LANES W size(V x) { return L::abs(x); }  // the magnitude that LAPACK compares
  FACULA_LANES W largest_part(V x) { return L::abs(x); }
  FACULA_LANES Mask invertible(W size) { return L::settled(size >= L::kLeast); }
  FACULA_LANES V reciprocal(V x) { return 1 / x; }
  FACULA_LANES V quotient(V x, V by, V) { return x / by; }  // the third argument is the reciprocal of `by`
  FACULA_LANES V select(Mask where, V a, V b) { return where ? a : b; }
};

template <class Real, int kBytes>
struct Numbers<std::complex<Real>, kBytes> : Lanes<Real, kBytes> {
  using L = Lanes<Real, kBytes>;
  using typename L::Mask;
  using T = std::complex<Real>;
  using Number = T;
  using R = Real;
  using W = typename L::V;
  using V = ComplexVector<W>;
  static constexpr bool kIsComplex = true;
  // Bounds of magnitudes whose squares are normal numbers.
  static constexpr R kLow = R(sizeof(R) == 4 ? 0x1p-60 : 0x1p-508), kHigh = 2 / kLow;

  FACULA_LANES V all(R x) { return {L::all(x), W()}; }
  FACULA_LANES W reals(R x) { return L::all(x); }
  FACULA_LANES W real(V x) { return x.re; }
  FACULA_LANES V of_real(W x) { return {x, W()}; }
  FACULA_LANES V conj(V x) { return {x.re, -x.im}; }
  FACULA_LANES Mask is_real(V x) { return L::settled(x.im == 0); }
  FACULA_LANES W norm(V x) { return x.re * x.re + x.im * x.im; }
  FACULA_LANES W modulus(V x) { return L::root(norm(x)); }
  FACULA_LANES W size(V x) { return L::abs(x.re) + L::abs(x.im); }
  FACULA_LANES W largest_part(V x) { return L::max(L::abs(x.re), L::abs(x.im)); }
  FACULA_LANES Mask invertible(W size) { return L::settled(size >= kLow) & L::settled(size <= kHigh); }
  FACULA_LANES V reciprocal(V x) {
    W inverse = 1 / norm(x);
    return {x.re * inverse, -x.im * inverse};
  }
  FACULA_LANES V quotient(V x, V, V reciprocal) { return x * reciprocal; }
  FACULA_LANES V select(Mask where, V a, V b) { return {where ? a.re : b.re, where ? a.im : b.im}; }

  using L::note;
  FACULA_LANES void note(W& rests, V x) {
    L::note(rests, x.re);
    L::note(rests, x.im);
  }
  using L::swap_where;
  FACULA_LANES void swap_where(Mask where, V& a, V& b) {
    L::swap_where(where, a.re, b.re);
    L::swap_where(where, a.im, b.im);
  }
  // In memory, the two parts of an element are neighbours, as two vectors are in V.
  using L::load;
  FACULA_LANES void load(V* to, const T* from, int64_t matrix, int rows, int columns, int64_t stride,
                         int count) {
    L::load(reinterpret_cast<W*>(to), reinterpret_cast<const R*>(from), 2 * matrix, rows, 2 * columns,
            2 * stride, count);
  }
  using L::store;
  FACULA_LANES void store(const V* from, T* to, int64_t matrix, int rows, int columns, int64_t stride,
                          uint32_t which) {
    L::store(reinterpret_cast<const W*>(from), reinterpret_cast<R*>(to), 2 * matrix, rows, 2 * columns,
             2 * stride, which);
  }
};

}  // namespace facula::numerics
