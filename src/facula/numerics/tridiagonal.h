// Eigenvalues and eigenvectors of real symmetric tridiagonal matrices by divide and conquer, on all threads.
// Sources: Cuppen, "A divide and conquer method for the symmetric tridiagonal eigenproblem", 1981; Gu and Eisenstat, "A
// divide-and-conquer algorithm for the symmetric tridiagonal eigenproblem", 1995 (orthogonal vectors from a modified
// rank-one change); Li, "Solving secular equations stably and efficiently", 1994 (LAPACK working note 89); Parlett, "The
// symmetric eigenvalue problem", 1980 (implicit QL, for small parts). Parts, deflation and signs of vectors are those of
// LAPACK's stedc and steqr. Results have the same bits for any number of threads.
#pragma once
#include "facula/numerics/blocked.h"

namespace facula::numerics {

// Overwrites `diagonal` [n], whose elements are finite, with the eigenvalues in ascending order, and row k of `vectors`
// [n, n], unless its data is null, with eigenvector k. `off_diagonal` [n - 1] holds the off-diagonal elements and is
// overwritten. Returns the number of off-diagonal elements that did not converge to zero: 0 on success.
template <class T>
int solve_tridiagonal(int64_t n, T* diagonal, T* off_diagonal, RowMajor<T> vectors);

}  // namespace facula::numerics
