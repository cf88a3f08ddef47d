// Factors L D L^T of one small symmetric matrix (L D L^H of a Hermitian one), by the steps of LAPACK's sytrf and hetrf
// without those that only large matrices need, which take most of its time on small ones.
#pragma once

namespace facula::numerics {

constexpr int kMostLdlRows = 8;  // maximum number of rows

// Factors the row-major a [n, n] in place; only the lower triangle is read and written. Pivots count from 1; two equal
// negative ones in a row denote a 2x2 block. Returns the number of the first block of zeros, or 0.
template <class T>
int factor_small_ldl(int n, T* a, bool hermitian, int* pivots);

// Solves L D L^T x = b in place of the row-major b [n, columns].
template <class T>
void solve_small_ldl(int n, int columns, const T* a, bool hermitian, const int* pivots, T* b);

}  // namespace facula::numerics
