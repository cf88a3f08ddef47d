// Factorizations and triangular systems of real matrices that are too large to be computed one matrix per lane (small.h).
// They work by strips of columns (column_strips.h), with products and triangles computed in registers. Matrices are row-major
// with `row` elements from one row to the next, as tensors are; LAPACK would need them transposed to columns.
#pragma once
#include <cstdint>

namespace facula::numerics {

constexpr int kFewestBlocked = 32;  // rows from which this is faster than LAPACK

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

// Solves A X = B [n, columns] for X and writes it to x, which may be b; only the triangle of A [n, n] is read.
template <class T>
void solve_in_rows(Triangle kind, int64_t n, int64_t columns, RowMajor<const T> a, RowMajor<const T> b,
                   RowMajor<T> x);

// Writes P L U of a [n, n] to lu, with row exchanges as getrf reports them. Returns false, with undefined contents of lu,
// if a pivot or its reciprocal is not a normal number or a factor is not finite: LAPACK defines the factors of such
// matrices.
template <class T>
bool factor_in_rows(int64_t n, RowMajor<const T> a, RowMajor<T> lu, int* pivots);
// Solves with the factors: x [n, columns] = A^-1 B, or A^-T B if `turned`; x may be b. The next function writes A^-1 to x
// [n, n].
template <class T>
void solve_factored_in_rows(int64_t n, int64_t columns, const T* lu, const int* pivots, const T* b, T* x,
                            bool turned = false);
template <class T>
void invert_factored_in_rows(int64_t n, const T* lu, const int* pivots, T* x);

// Writes L^-1 to x [n, n], for a lower triangle L [n, n].
template <class T>
void invert_triangle_in_rows(int64_t n, const T* l, T* x);

}  // namespace facula::numerics
