// Batches of small matrices, computed one matrix per lane: as many at a time as a vector register has lanes. The search
// for a pivot is then a selection, and a step of an algorithm takes a few instructions for all of them. Each lane
// computes by itself: a matrix has the same bits at any position in a batch of any size.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>
#include <type_traits>

#include "facula/base/parallel.h"

namespace facula::numerics {

constexpr int kSmall = 8;  // maximum number of rows and columns

// The operands of a routine: row-major matrices, one after another.
template <class T>
struct SmallJob {
  using R = decltype(std::abs(T()));
  int m = 0, n = 0;                                        // of a
  int columns = 0;                                         // of b and x
  int reflections = 0;                                     // number of reflections in a
  int count = 0;                                           // number of matrices, at most small_lanes
  const T *a = nullptr, *b = nullptr, *factors = nullptr;  // of reflections
  T *x = nullptr, *y = nullptr, *z = nullptr;
  R* values = nullptr;        // real results: eigenvalues, singular values, logarithms
  int32_t* pivots = nullptr;  // [n], from 1
  bool upper = false, unit = false, transposed = false, right = false, full = false, hermitian = false;
  R rcond = 0;  // singular values below rcond times the largest one count as zero
};

enum class Small {
  lu,               // x: L and U of a, pivots
  solve,            // x [n, columns] of a x = b
  inverse,          // x
  inverse_adjoint,  // x: the inverse's adjoint
  cofactor,         // x: the cofactors, inverse_adjoint times the determinant's conjugate
  det,              // x [1]
  slogdet,          // x [1]: the sign, values [1]: the logarithm of the absolute value
  solve_factored,   // x [n, columns] of P L U x = b by the factors from `lu`; of its adjoint if `transposed`
  cholesky,         // x: the lower factor of a, whose lower triangle is read
  factor_inverse,  // x: the inverse of a a^H for the lower triangle of a, of a^H a for the upper one if `upper`
  // x: L D L^T of symmetric a, L D L^H if `hermitian`, from the lower triangle; pivots, negative ones for 2x2
  // blocks
  ldl,
  triangular,   // x [n, columns] of a x = b for the triangle `upper` of a, with 1 on its diagonal if `unit`
  qr,           // x: geqrf's R and reflections of a [m, n], y [min(m, n)]: their factors
  reflections,  // x [m, n]: the first columns of the product of the reflections a
  // x: that product, or its adjoint if `transposed`, times b [m, columns]; if `right`, b [columns, m] times it
  reflect,
  eigh,  // values [n]: eigenvalues of Hermitian a, from its triangle `upper`, ascending; y [n, n]: vectors
  eigvalsh,  // values
  svd,  // values [min(m, n)]: singular values of a [m, n], descending; y and z: U and V^H, with all columns and rows if `full`
  svdvals,        // values
  least_squares,  // x [n, columns]: the shortest x that minimizes |a x - b|, for a [m, n] of full rank
                  // values: a's singular values, unless null
  turn,           // x [n, m]: a [m, n] transposed, whatever its elements are
  kCount,
};

// Number of matrices that one call takes.
template <class T>
int small_lanes();

// Bit k of the result is set if matrix k was not computed and is left to LAPACK: if it is not finite, is singular (not
// positive definite, possibly not of full rank), or has a scale whose squares or reciprocals are not normal numbers.
template <class T>
uint32_t run_small(Small routine, const SmallJob<T>& job);

// Returns whether matrices of this type and size are computed here.
template <class T>
bool is_small(int m, int n) {
  return m >= 1 && n >= 1 && m <= kSmall && n <= kSmall;
}

// Calls run_small for all matrices of a batch; `job` (first, count) returns the operands of some of them, `rest` (matrix
// number) computes a matrix that is left over. Returns false if matrices of this type and size are not computed here.
template <class T, class J, class F>
bool each_small(Small routine, int64_t count, int m, int n, J&& job, F&& rest) {
  if (!is_small<T>(m, n)) return false;
  int64_t lanes = small_lanes<T>(), grain = 1 + 2000 / (int64_t(m) * n * n);
  parallel_for((count + lanes - 1) / lanes, grain, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin * lanes; k < std::min(end * lanes, count); k += lanes) {
      SmallJob<T> some = job(k);
      some.count = int(std::min(lanes, count - k));
      for (uint32_t left = run_small(routine, some); left; left &= left - 1) rest(k + std::countr_zero(left));
    }
  });
  return true;
}

}  // namespace facula::numerics
