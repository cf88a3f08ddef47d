// The gradient of a depthwise convolution's weight, with channels in the lanes. oneDNN has a special kernel for weights
// up to 3 wide without dilation; for others it pads every channel to a block of 16 by 16 (or unfolds), which is tens of
// times the work. Images are NHWC in float32 or bfloat16; bfloat16 is summed in float32 and the result is rounded once.
//
// A row of the gradient and a row of the input contribute to the sums of a row of taps. In columns where all taps are
// inside of the image they are summed together in registers; near the borders each tap is summed by itself, so that
// padding contributes nothing. The sums of rows are added in order, so results do not depend on the number of threads.
#pragma once
#include <cstdint>

#include "facula/base/dtype.h"

namespace facula::device::cpu {

struct DepthwiseShape {
  DType dtype;  // Float32 or BFloat16, of all tensors
  int64_t n, c, h, w, oh, ow, kh, kw;
  int64_t stride[2], padding[2], dilation[2];
};

// weight [c, kh, kw] is written; input [n, h, w, c], grad [n, oh, ow, c].
void depthwise_backward_weight(const DepthwiseShape& s, const void* input, const void* grad, void* weight);

}  // namespace facula::device::cpu
