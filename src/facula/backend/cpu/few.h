// Products of many matrices of a few rows and columns each, whose rows stay in registers.
#pragma once
#include <cstdint>

#include "facula/base/dtype.h"

namespace facula::backend::cpu {

constexpr int64_t kFew = 8;  // the most rows and columns

// out [m, n], in rows, = alpha * a [m, k] @ b [k, n] + beta * out; of complex numbers with alpha 1 and beta 0. Steps lead from
// matrix to matrix. All in elements.
struct FewProducts {
  int64_t m, n, k;
  int64_t a_rs, a_cs, b_rs, b_cs;  // strides of rows and columns
  double alpha, beta;
  int64_t a_step, b_step, out_step;
};

// Of float32, float64 and their complex types.
void few_products(DType d, const FewProducts& p, const char* a, const char* b, char* out, int64_t count);

}  // namespace facula::backend::cpu
