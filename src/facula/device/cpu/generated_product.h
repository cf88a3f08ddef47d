// Matrix products by generated kernels, which sum in float32 (product_nest.h, skinny_nest.h).
#pragma once
#include <cstdint>
#include <memory>
#include <span>

#include "facula/device/cpu/product_nest.h"
#include "facula/device/cpu/tile_nest.h"
#include "facula/schedule/product_tiles.h"
#include "facula/tensor/storage.h"

namespace facula::device::cpu {

// out[i] (row-major) = epilogue(alpha * a[i] @ b[i] + beta * out[i]) for i below `count`. Of each operand the elements of
// rows or columns are adjacent; strides are in elements, from one row or column to the next and from matrix to matrix.
struct MatrixOperand {
  const void* data;
  Adjacent adjacent;
  int64_t stride, batch;
  StorageImpl* storage = nullptr;  // has the elements, and may retain them packed (retained_pack); or null
};
// Windows of images as an operand, for run_by_tiles (tile_nest.h).
struct WindowOperand {
  Windows side;
  const int32_t* places;  // [windows][taps]
  int64_t taps, channels, padded;
};
struct GeneratedProduct {
  int64_t m, n, k, count;
  MatrixOperand a, b;
  float* out;
  int64_t out_stride, out_batch;
  float alpha = 1, beta = 0;
  Epilogue epilogue;
  std::span<void* const> operands;  // of the epilogue
  std::span<const int64_t> params;  // of the epilogue
  // Memory of the epilogue's values, laid out like `out`, which gets the sums then; null: `out`.
  void* result = nullptr;
  Epilogue saved{};  // what `out` gets in place of the sums then, over the operands of `epilogue`
  DType operand_dtype = DType::Float32, result_dtype = DType::Float32;  // of a and b; of `result`
  const WindowOperand* windows = nullptr;                               // a or b; its stride does not matter
};
// Whether a product without alpha and beta has so few rows that the right operand is read without packing.
bool is_skinny(int64_t m, int64_t count, const MatrixOperand& a, const MatrixOperand& b);
void run(const GeneratedProduct& p);
// By a matrix unit, or its steps one by one: each operand as the sum of `parts` bfloat16 (tile_nest.h).
void run_by_tiles(const GeneratedProduct& p, int parts);
// Whether there are kernels for this product by tiles in a process that cannot compile.
bool has_tile_kernels(const GeneratedProduct& p, int parts);
// Whether this processor has a matrix unit that does what loop/tiles.h says. The first call tries it.
bool multiplies_tiles();
constexpr int kMostParts = 3;
void run(const GeneratedProduct& p,
         const schedule::ProductTiles& tiles);  // with other tiles than the model's

}  // namespace facula::device::cpu
