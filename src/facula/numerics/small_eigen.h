// Eigenvalues and eigenvectors of one small matrix, by the steps of LAPACK's geev without those that only large matrices
// need, which take most of its time on small ones.
#pragma once
#include <complex>

namespace facula::numerics {

constexpr int kMostEigenRows = 8;  // maximum number of rows

// Computes the eigenvalues of a row-major a [n, n], which is not changed, and, unless `vectors` is null, the eigenvectors
// as columns of a row-major [n, n]. Each has length 1, and the largest element of a complex one is real. Returns false if
// the matrix is left to LAPACK: if elements are outside of the range of plain arithmetic, if a row or column is zero
// apart from its diagonal element, if the steps do not converge, or if vectors overflow.
template <class A, class T>
bool small_eigenvalues(int n, const A* a, std::complex<T>* values, std::complex<T>* vectors);

}  // namespace facula::numerics
