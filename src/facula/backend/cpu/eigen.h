// Eigenvalues and eigenvectors of one small matrix: the steps of LAPACK's geev without what large matrices need, which takes
// most of its time on small ones.
#pragma once
#include <complex>

namespace facula::backend::cpu {

constexpr int kFewEigen = 8;  // the most rows

// The eigenvalues of a [n, n], in rows and left as it is, and, unless null, vectors [n, n] in rows: of length 1, the largest element
// of complex ones real. False where that is left to LAPACK: of elements out of the range of plain arithmetic, with a row or column
// of zeros beside its diagonal, where steps do not converge or vectors overflow.
template <class A, class T>
bool few_eigenvalues(int n, const A* a, std::complex<T>* values, std::complex<T>* vectors);

}  // namespace facula::backend::cpu
