// Convolutions with 3x3 kernels and stride 1 by Winograd's minimal filtering F(4x4, 3x3): 36 products per tile of 16
// results and pair of channels where the definition has 144 (Winograd, 1980; Lavin and Gray, "Fast Algorithms for
// Convolutional Neural Networks", 2016). Images are NHWC in float32 or bfloat16; bfloat16 is summed in float32 and the
// result is rounded once. The code generator compiles the nests. The points 0, +-3/4, +-3/2 and infinity keep the error
// at about 2.5 times that of a plain float32 sum (docs/layouts.md); results do not depend on the number of threads. A
// value that is not finite would spread to all results of its tile: the functions return false then, and the caller has
// to compute the results in another way.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "facula/base/dtype.h"
#include "facula/device/cpu/nest_builder.h"
#include "facula/tensor/storage.h"

namespace facula::device::cpu {

// Strides that locate element (out, in, y, x) of a weight, whose channels may be split into blocks.
struct WeightPlaces {
  // Elements per block; distances from block to block and within one.
  struct Channels {
    int64_t block, outer, inner;
  };
  Channels out, in;
  int64_t y, x;
};

struct WinogradShape {
  DType dtype;                               // Float32 or BFloat16, of all tensors
  int64_t n, c, h, w, o, oh, ow, top, left;  // top, left: padding
};

// Gives memory of so many bytes that the function has written and that is retained with the weight; null: it is not retained.
using RetainTransformed = std::function<Storage(size_t bytes, const std::function<void(void*)>& transform)>;

// The nest of a convolution's tasks, each of a few tiles, with its parameters. Its buffers besides the work buffers:
// input, weight [strips, place, c, results of a strip], bias, output, and for each task 0, or NaN if a result is not
// finite.
struct WinogradTask {
  TaskNest nest;
  std::vector<int64_t> params;
};
WinogradTask winograd_task(const WinogradShape& s, bool bias);

// Returns whether the shape is supported and faster this way.
bool winograd_pays(const WinogradShape& s);
// Writes the convolution of input to output; `bias` may be null.
[[nodiscard]] bool winograd(const WinogradShape& s, const void* input, const void* weight,
                            const WeightPlaces& places, const void* bias, void* output,
                            const RetainTransformed& retain);
// Writes the gradient `input` [n, h, w, c] of the input of a convolution s, for `grad` [n, oh, ow, o].
[[nodiscard]] bool winograd_backward_input(const WinogradShape& s, const void* grad, const void* weight,
                                           const WeightPlaces& places, void* input,
                                           const RetainTransformed& retain);
// Writes the gradient of the weight at the positions that `places` gives.
[[nodiscard]] bool winograd_backward_weight(const WinogradShape& s, const void* input, const void* grad,
                                            const WeightPlaces& places, void* weight);

}  // namespace facula::device::cpu
