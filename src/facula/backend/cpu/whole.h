// Products of matrices of integers, modulo 2^bits.
#pragma once
#include <cstdint>

namespace facula::backend::cpu {

// out [m, n], in rows, = alpha * a [m, k] @ b [k, n] + beta * out. Strides of rows and columns in elements.
struct WholeProduct {
  int64_t m, n, k;
  int64_t a_rs, a_cs, b_rs, b_cs;
  uint64_t alpha, beta;
};

// Of integers of 1, 2, 4 or 8 bytes, signed or not.
void whole_product(int bytes, const WholeProduct& p, const char* a, const char* b, char* out);

}  // namespace facula::backend::cpu
