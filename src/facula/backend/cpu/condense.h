// Real matrices as orthogonal matrices times one of two diagonals, on all threads: what eigenvalues and singular values are made
// of. The products of a matrix and a vector that this takes are bound by memory; each thread keeps to its own rows, so that they
// stay in its cache. Changes of the matrix are put off for a panel of columns, as LAPACK does (Dongarra, Sorensen, Hammarling,
// "Block reduction of matrices to condensed forms", 1989). Numbers of threads change no bit.
#pragma once
#include <vector>

#include "facula/backend/cpu/blocked.h"
#include "facula/backend/cpu/reflections.h"
#include "facula/backend/cpu/workspace.h"

namespace facula::backend::cpu {

constexpr int kFewestCondensed = 64;  // rows and columns from which on this is quicker than LAPACK

// a [m, n], m >= n > 1, as Q B P^T, B with `diagonal` [n] and `above` it [n - 1]. Elements are at most about 1.
template <class T>
class Bidiagonalized {
 public:
  // Without `factors` there is no more than B.
  Bidiagonalized(int64_t m, int64_t n, RowMajor<const T> a, bool factors, T* diagonal, T* above);
  // Q times (U 0; 0 1) into u [m, columns]; U [n, n] in columns `ld` apart. V^T P^T into vh [n, n] likewise.
  void left(const T* from, int64_t ld, int64_t columns, T* u) const;
  void right(const T* from, int64_t ld, T* vh) const;

 private:
  int64_t m_, n_;
  Reflections<T> left_, right_;
};

// A symmetric a [n, n], of which the lower triangle is read, as Q B Q^T, B with `diagonal` [n] and `beside` it [n - 1].
template <class T>
class Tridiagonalized {
 public:
  Tridiagonalized(int64_t n, RowMajor<const T> a, bool factors, T* diagonal, T* beside);
  // Q Z into z [n, n]; Z in columns `ld` apart.
  void vectors(const T* from, int64_t ld, T* z) const;

 private:
  int64_t n_;
  Reflections<T> reflections_;
};

}  // namespace facula::backend::cpu
