// Products of bytes by generated kernels (byte_nest.h), with exact sums: matrices, and convolutions of NHWC images, whose windows are
// rows of a left operand that is never stored as a whole.
#pragma once
#include <cstdint>

#include "facula/base/dtype.h"
#include "facula/tensor/storage.h"

namespace facula::device::cpu {

// Rows of bytes, with or without sign, from which `zero_point` is subtracted.
struct ByteRows {
  const void* data;
  bool has_sign;
  int32_t zero_point;
};
struct ByteMatrix {
  ByteRows rows;
  int64_t m, k;  // adjacent in memory
};
struct ByteImages {
  ByteRows rows;
  int64_t n, h, w, c;      // in memory in this order
  int64_t kh, kw, oh, ow;  // taps of a window, and windows of an image
  int64_t stride[2], padding[2], dilation[2];
};
// The right operand: element (term, column) is at column * column_stride + term * term_stride. For images there are taps * c terms, and
// channel i of tap t is at t * tap_stride + i * term_stride. The storage may retain it packed.
struct ByteWeight {
  const int8_t* data;
  int64_t columns, column_stride, term_stride, tap_stride;
  StorageImpl* storage;
};
struct ByteResult {
  void* data;  // [m][columns]
  DType dtype;
  const float *multiplier, *bias;  // [columns], or null
  bool relu;
  int32_t zero_point;
};
// The way to compute the sums; all ways give the same bits.
enum class ByteWay : uint8_t { vectors, tiles };
void byte_product(const ByteMatrix& left, const ByteWeight& right, const ByteResult& out, ByteWay way);
void byte_product(const ByteImages& left, const ByteWeight& right, const ByteResult& out, ByteWay way);
// Whether this processor has a matrix unit for bytes that does what loop/tiles.h says. The first call tries it.
bool multiplies_byte_tiles();

}  // namespace facula::device::cpu
