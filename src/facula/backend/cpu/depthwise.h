// The gradient of a depthwise convolution's weight, channels in the lanes. oneDNN has a kernel of its own for weights up to
// 3 wide without dilation; for others it pads every channel to a block of 16 by 16 (or unfolds), which is tens of times the
// work. Images are NHWC, float32 or bfloat16, which is read into float32 sums and rounded once, in the result.
//
// A row of the gradient and a row of the input give the sums of a row of taps: where all taps are inside of the image they
// are added up in registers together, beside that each for itself, so that padding takes no part. The sums of rows are
// added in order; results do not depend on the number of threads.
#pragma once
#include <cstdint>

#include "facula/base/dtype.h"

namespace facula::backend::cpu {

struct DepthwiseShape {
  DType dtype;  // Float32 or BFloat16, of all tensors
  int64_t n, c, h, w, oh, ow, kh, kw;
  int64_t stride[2], padding[2], dilation[2];
};

// weight [c, kh, kw] is written; input [n, h, w, c], grad [n, oh, ow, c].
void depthwise_backward_weight(const DepthwiseShape& s, const void* input, const void* grad, void* weight);

}  // namespace facula::backend::cpu
