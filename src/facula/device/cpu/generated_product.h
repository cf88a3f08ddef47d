// Matrix products in float32 by generated kernels (product_nest.h).
#pragma once
#include <cstdint>
#include <memory>
#include <span>

#include "facula/device/cpu/product_nest.h"
#include "facula/schedule/product_tiles.h"

namespace facula::device::cpu {

// out[i] (row-major) = epilogue(alpha * a[i] @ b[i] + beta * out[i]) for i below `count`. Of each operand the elements of
// rows or columns are adjacent; strides are in elements, from one row or column to the next and from matrix to matrix.
struct MatrixOperand {
  const float* data;
  Adjacent adjacent;
  int64_t stride, batch;
};
struct GeneratedProduct {
  int64_t m, n, k, count;
  MatrixOperand a, b;
  float* out;
  int64_t out_stride, out_batch;
  float alpha = 1, beta = 0;
  ProductEpilogue epilogue;
  std::span<void* const> operands;  // of the epilogue
  std::span<const int64_t> params;  // of the epilogue
};
void run(const GeneratedProduct& p);
void run(const GeneratedProduct& p,
         const schedule::ProductTiles& tiles);  // with other tiles than the model's

}  // namespace facula::device::cpu
