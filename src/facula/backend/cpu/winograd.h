// Convolutions with 3x3 kernels and stride 1 by Winograd's minimal filtering F(4x4, 3x3): 36 products a tile
// of 16 results and pair of channels where the definition has 144 (Winograd, 1980; Lavin and Gray, "Fast
// Algorithms for Convolutional Neural Networks", 2016). Images are NHWC, float32 or bfloat16, which is read
// into float32 sums and rounded once, in the result; the nests are turned into kernels by the code generator.
// The points 0, +-3/4, +-3/2 and infinity keep the error at about 2.5 times that of a plain float32 sum
// (docs/layouts.md); results do not depend on the number of threads. A value that is not finite reaches all
// results of its tile: then the functions give false, and what they wrote is to be computed otherwise.
#pragma once
#include <cstdint>
#include <vector>

#include "facula/backend/cpu/nest_builder.h"
#include "facula/base/dtype.h"

namespace facula::backend::cpu {

// Where element (out, in, y, x) of a weight lies: channels may be split into blocks.
struct WeightPlaces {
  // Elements a block, steps from block to block and within one.
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

// The nest of a convolution's tasks, of few tiles each, with its parameters. Buffers besides those of a task: input, weight
// [strips, place, c, results of a strip], bias, output, and for each task 0 or, where a result is not finite, NaN.
struct WinogradTask {
  TaskNest nest;
  std::vector<int64_t> params;
};
WinogradTask winograd_task(const WinogradShape& s, bool bias);

// Is it worth it, and possible?
bool winograd_pays(const WinogradShape& s);
// output = convolution of input; `bias` may be null.
[[nodiscard]] bool winograd(const WinogradShape& s, const void* input, const void* weight,
                            const WeightPlaces& places, const void* bias, void* output);
// The gradient of the input of a convolution s: `grad` is [n, oh, ow, o], `input` [n, h, w, c] is written.
[[nodiscard]] bool winograd_backward_input(const WinogradShape& s, const void* grad, const void* weight,
                                           const WeightPlaces& places, void* input);
// The gradient of the weight, which is written as `places` says.
[[nodiscard]] bool winograd_backward_weight(const WinogradShape& s, const void* input, const void* grad,
                                            const WeightPlaces& places, void* weight);

}  // namespace facula::backend::cpu
