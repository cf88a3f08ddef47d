// Products of many matrices with few rows and columns each; the sums of a row stay in registers.
#pragma once
#include <cstdint>

#include "facula/base/dtype.h"

namespace facula::numerics {

constexpr int64_t kFew = 8;  // maximum number of rows and columns

// out [m, n], row-major, = alpha * a [m, k] @ b [k, n] + beta * out, for each matrix of a batch; alpha is 1 and beta 0
// for complex numbers. A step is the distance from one matrix to the next. All distances are in elements.
struct BatchedProducts {
  int64_t m, n, k;
  int64_t a_rs, a_cs, b_rs, b_cs;  // strides of rows and columns
  double alpha, beta;
  int64_t a_step, b_step, out_step;
};

// Multiplies matrices of float32, float64 and their complex types.
void batched_products(DType d, const BatchedProducts& p, const char* a, const char* b, char* out,
                      int64_t count);

}  // namespace facula::numerics
