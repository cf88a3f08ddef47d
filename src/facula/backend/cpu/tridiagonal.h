// Eigenvalues and eigenvectors of real symmetric tridiagonal matrices by divide and conquer, on all threads.
// Sources: Cuppen, "A divide and conquer method for the symmetric tridiagonal eigenproblem", 1981; Gu and Eisenstat, "A
// divide-and-conquer algorithm for the symmetric tridiagonal eigenproblem", 1995 (orthogonal vectors from a modified rank-one
// change); Li, "Solving secular equations stably and efficiently", 1994 (LAPACK working note 89); Parlett, "The symmetric eigenvalue
// problem", 1980 (implicit QL, for small parts). Parts, deflation and signs of vectors are those of LAPACK's stedc and steqr.
// The number of threads changes no bit.
#pragma once
#include "facula/backend/cpu/blocked.h"

namespace facula::backend::cpu {

// `diagonal` [n], of finite elements, becomes the eigenvalues, ascending; eigenvector k becomes row k of `vectors` [n, n] unless
// its data is null. `beside` [n - 1] is overwritten. Gives how many elements beside the diagonal did not vanish: 0 if all is well.
template <class T>
int solve_tridiagonal(int64_t n, T* diagonal, T* beside, RowMajor<T> vectors);

}  // namespace facula::backend::cpu
