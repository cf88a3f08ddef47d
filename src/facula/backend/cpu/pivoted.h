// L D L^T of one small matrix that is symmetric (L D L^H of a Hermitian one): the steps of LAPACK's sytrf and hetrf without what
// large matrices need, which takes most of their time on small ones.
#pragma once

namespace facula::backend::cpu {

constexpr int kFewPivoted = 8;  // the most rows

// Factors a [n, n], in rows, of which the lower triangle is read and written. Pivots count from 1; negative ones, of two
// rows alike, belong to a block of two. Returns the number of the first block of zeros, or 0.
template <class T>
int few_pivoted(int n, T* a, bool hermitian, int* pivots);

// x of L D L^T x = b in place of b [n, columns], in rows.
template <class T>
void solve_few_pivoted(int n, int columns, const T* a, bool hermitian, const int* pivots, T* b);

}  // namespace facula::backend::cpu
