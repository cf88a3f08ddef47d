// Factors of and triangular systems with real matrices that are too large to lie side by side in lanes (small.h), by strips of
// columns (strips.h), in products and triangles that are computed in registers. Matrices lie in rows, `row` elements apart,
// as tensors do; LAPACK takes columns, into which they would have to be turned.
#pragma once
#include <cstdint>

namespace facula::backend::cpu {

constexpr int kFewestBlocked = 32;  // rows from which on this is quicker

template <class T>
struct RowMajor {
  T* data;
  int64_t row;
  RowMajor at(int64_t i, int64_t j) const { return {data + i * row + j, row}; }
  T* operator[](int64_t i) const { return data + i * row; }
};
struct Triangle {
  bool upper, unit;
};

// to[j][i] = from[i][j] for [rows, columns].
template <class T>
void turn_in_rows(int64_t rows, int64_t columns, RowMajor<const T> from, RowMajor<T> to);

// X of A X = B [n, columns] into x, which may be b; of A [n, n] the triangle is read.
template <class T>
void solve_in_rows(Triangle kind, int64_t n, int64_t columns, RowMajor<const T> a, RowMajor<const T> b,
                   RowMajor<T> x);

// P L U of a [n, n] into lu, rows exchanged as getrf tells. False, and lu holds anything, where a pivot or its reciprocal is no
// normal number, or a factor is not finite: how such matrices are factored, LAPACK says.
template <class T>
bool factor_in_rows(int64_t n, RowMajor<const T> a, RowMajor<T> lu, int* pivots);
// What factors give: A^-1 B, or A^-T B, into x [n, columns], which may be b; A^-1 into x [n, n].
template <class T>
void solve_factored_in_rows(int64_t n, int64_t columns, const T* lu, const int* pivots, const T* b, T* x,
                            bool turned = false);
template <class T>
void invert_factored_in_rows(int64_t n, const T* lu, const int* pivots, T* x);

// (L L^T)^-1 of a lower triangle L [n, n], whole, into x; `room` is as large.
template <class T>
void invert_product_in_rows(int64_t n, const T* l, T* room, T* x);

}  // namespace facula::backend::cpu
