// Convolutions by a matrix unit, as products with windows of NHWC images for one operand (tile_nest.h): forward, and both
// gradients. Numbers are divided into parts as in other products by tiles, so results are as exact, and bits are the same for any number
// of threads.
#pragma once
#include <cstdint>

#include "facula/base/dtype.h"
#include "facula/tensor/tensor.h"

namespace facula::device::cpu {

struct TileConv {
  DType dtype;  // Float32 or BFloat16, of all tensors
  int64_t n, c, h, w, o, kh, kw, oh, ow;
  int64_t stride[2], padding[2], dilation[2];
};
// The number of parts that pays (product.cpp); 0: other ways are faster, or tiles do not do it. `terms`: of the product's sums.
int tile_conv_parts(const TileConv& s, int64_t rows, int64_t columns, int64_t terms);

// Images are NHWC in memory; the weight is [o, c, kh, kw] with any strides, and its storage may retain it packed. `bias` [o] or
// undefined.
void tile_conv(const TileConv& s, int parts, const Tensor& input, const Tensor& weight, const Tensor& bias,
               const Tensor& output);
void tile_conv_backward_input(const TileConv& s, int parts, const Tensor& grad, const Tensor& weight,
                              const Tensor& input);
// `weight` is the gradient, which is written.
void tile_conv_backward_weight(const TileConv& s, int parts, const Tensor& input, const Tensor& grad,
                               const Tensor& weight);

}  // namespace facula::device::cpu
