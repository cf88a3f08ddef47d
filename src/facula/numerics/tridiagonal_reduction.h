// Reduction of real matrices to bidiagonal or tridiagonal form by orthogonal factors, on all threads: the first step
// towards singular values and eigenvalues. Its matrix-vector products are bound by memory; each thread keeps to the same
// rows, so that they stay in its cache. Updates of the matrix are delayed for a panel of columns, as in LAPACK (Dongarra,
// Sorensen, Hammarling, "Block reduction of matrices to condensed forms", 1989). Results have the same bits for any
// number of threads.
#pragma once
#include <vector>

#include "facula/numerics/blocked.h"
#include "facula/numerics/reflections.h"
#include "facula/numerics/workspace.h"

namespace facula::numerics {

constexpr int kFewestCondensed = 64;  // rows and columns from which this is faster than LAPACK

// a [m, n] = Q B P^T with m >= n > 1, where B has `diagonal` [n] and, `above` it, [n - 1]. The magnitude of elements is
// at most about 1.
template <class T>
class Bidiagonalized {
 public:
  // Without `factors` only B is computed.
  Bidiagonalized(int64_t m, int64_t n, RowMajor<const T> a, bool factors, T* diagonal, T* above);
  // left(): u [m, columns] = Q times (U 0; 0 1), where U [n, n] is stored in columns `ld` apart. right(): vh [n, n] = V^T
  // P^T, with V^T stored likewise.
  void left(const T* from, int64_t ld, int64_t columns, T* u) const;
  void right(const T* from, int64_t ld, T* vh) const;

 private:
  int64_t m_, n_;
  Reflections<T> left_, right_;
};

// Writes a symmetric a [n, n], whose lower triangle is read, as a = Q B Q^T, where B is the symmetric tridiagonal matrix
// with the elements `diagonal` [n] and `off_diagonal` [n - 1].
template <class T>
class Tridiagonalized {
 public:
  Tridiagonalized(int64_t n, RowMajor<const T> a, bool factors, T* diagonal, T* off_diagonal);
  // z [n, n] = Q Z, where Z is stored in columns `ld` apart.
  void vectors(const T* from, int64_t ld, T* z) const;

 private:
  int64_t n_;
  Reflections<T> reflections_;
};

}  // namespace facula::numerics
