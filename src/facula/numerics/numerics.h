// Numerical routines on pointers and strides: a library that knows no tensors and depends on base/ and profile/ alone.
//
// Linear algebra: batches of small matrices, one a lane (small.h, small_eigen.h, small_ldl.h); factorizations and
// triangular systems by strips of columns (blocked.h, reflections.h); eigenvalues of symmetric matrices
// (tridiagonal_reduction.h, tridiagonal.h); products of small matrices (batched_products.h) and of integers
// (integer_products.h). Fourier transforms of lines: fft_lines.h. Orders of lines: sort.h. Temporary memory: workspace.h.
//
// What is defined for which element type stands in each header. A result has the same bits for any number of threads.
#pragma once
#include "facula/numerics/batched_products.h"
#include "facula/numerics/blocked.h"
#include "facula/numerics/fft_lines.h"
#include "facula/numerics/integer_products.h"
#include "facula/numerics/reflections.h"
#include "facula/numerics/small.h"
#include "facula/numerics/small_eigen.h"
#include "facula/numerics/small_ldl.h"
#include "facula/numerics/sort.h"
#include "facula/numerics/tridiagonal.h"
#include "facula/numerics/tridiagonal_reduction.h"
#include "facula/numerics/workspace.h"
