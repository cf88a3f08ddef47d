// The nest of a product of bytes, out = epilogue(left @ right): the left operand has no sign, the right one has, sums are Int32 modulo 2^32.
// Both operands are packed before: words of four terms (loop's dot_bytes), the left one in tiles [tile][word][row], the
// right one in strips [strip][word][lane] of as many columns as a vector has lanes. The sums of a tile of rows x vectors stay in
// registers over all terms. Then `corrections` of the columns are added, for zero points and signs of the left operand, and the
// sums are rounded to the dtype of the result as catalog/quantized.cpp says.
//
// By a matrix unit (loop/tiles.h) both operands are packed as panels instead, which are padded to whole steps; products of padding
// are zero, because the right operand has zeros there.
#pragma once
#include <compare>

#include "facula/device/cpu/nest_builder.h"

namespace facula::device::cpu {

struct ByteParam {
  enum : int {
    words,       // of a row
    rows,        // of the task
    columns,     // of the task
    out_stride,  // from row to row of the result
    zero_point,  // of the result
    tasks,
    count
  };
};
// Buffers from `right` on begin at the task's first column.
struct ByteBuffer {
  enum : int { left, right, corrections, multiplier, bias, out, tile, count };
};
struct ByteVariant {
  int rows, vectors;  // of a tile
  DType result;       // UInt8, Int8, Float32, or Int32: the sums
  bool bias = false, relu = false;
  int lanes = 0;  // of a vector, which is never 0 here: width() reads it
  bool tiles = false;
  int64_t width() const { return int64_t(vectors) * lanes; }  // of a tile
  auto operator<=>(const ByteVariant&) const = default;
};
// The tile for a number of rows.
ByteVariant byte_variant(int64_t rows, int lanes);
ByteVariant byte_tile_variant(int lanes);
// The nest of one task.
TaskNest byte_nest(const ByteVariant& v);

}  // namespace facula::device::cpu
