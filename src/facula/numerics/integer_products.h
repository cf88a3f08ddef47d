// Products of matrices of integers, modulo 2^bits.
#pragma once
#include <cstdint>

namespace facula::numerics {

// out [m, n], row-major, = alpha * a [m, k] @ b [k, n] + beta * out. Strides of rows and columns are in elements.
struct IntegerProduct {
  int64_t m, n, k;
  int64_t a_rs, a_cs, b_rs, b_cs;
  uint64_t alpha, beta;
};

// Multiplies integers of 1, 2, 4 or 8 `bytes`, signed or unsigned.
void integer_product(int bytes, const IntegerProduct& p, const char* a, const char* b, char* out);

}  // namespace facula::numerics
