// The nests of a matrix product by a matrix unit, which multiplies tiles of bfloat16 and adds in float32 (loop/tiles.h).
//
// A number of float32 is a sum of up to three bfloat16: its rounded value, the rounded rest, and the rest of that. With them a product is
//   1 part   a1 b1                                          bfloat16's error; exact products of bfloat16 operands
//   2 parts  a2 b2 + a2 b1 + a1 b1 + a1 b2                       below 2^-16 of |a| |b|
//   3 parts  a1 b3 + a1 b2 + a2 b2 + a2 b1 + a3 b1, then a1 b1   not above that of a chain of float32 additions
// Both operands are packed as parts: the left one by each task, and the right one before, or by each task where few rows need it. With 3 parts the small products of a K block are
// added up first, from zero.
//
// The result is float32's also where parts do not hold a number. A sum is computed again, by fused multiplications and additions of the
// operands, if it is not finite (an operand is not, or is above bfloat16's largest number), or if it is small and its panels have
// numbers so small that parts or products of parts would be subnormal, which the unit takes for zero. Panels come with the smallest and
// the largest absolute value in them, so that most tiles need no look at their sums.
//   Source of the splitting: Henry, Tang, Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision
//   Computations", 2019.
#pragma once
#include <compare>
#include <cstdint>

#include "facula/device/cpu/product_nest.h"
#include "facula/loop/tiles.h"

namespace facula::device::cpu {

// Integer parameters: those of ProductParam first.
struct TileParam {
  enum : int {
    steps = ProductParam::count,  // of a panel of the right operand, each of 32 terms
    right_row,  // strides of the right operand, in elements, for tiles that are computed again
    right_column,
    right_batch,
    panels,  // of a matrix of the right operand
    taps,    // of a window
    channels,
    padded,  // channels up to the next step of terms
    count
  };
};
// Buffers: those of ProductBuffer first. `left`, `b` are panels.
struct TileBuffer {
  enum : int {
    right = ProductBuffer::count,  // the right operand
    range_right,  // of each K block of each panel of the right operand, the smallest absolute value that is not 0 and the largest one
    range_left,   // of each tile of the block
    places,       // of the taps of each window
    count
  };
};

// The operand that consists of windows of images, as in convolutions; it is never stored as a whole. `places` has for each window and tap
// the offset of the first of `channels` adjacent elements, or a negative number: they are zero.
//   left   rows are windows, and terms are taps, of `padded` channels each; K blocks have whole taps
//   right  terms are windows, and columns are taps, of `padded` channels each
enum class Windows : uint8_t { none, left, right };

struct TileVariant {
  Adjacent left;  // of the left operand
  Adjacent right = Adjacent::row;
  bool packs_right =
      false;  // else all panels of the right operand are packed before, and `right` does not matter
  int parts = 3;
  bool scaled = false;  // by alpha and beta
  ProductForm form{};
  int lanes = 0;  // of a vector; 0: as many as this machine has
  Windows windows = Windows::none;
  auto operator<=>(const TileVariant&) const = default;
};
TaskNest tile_nest(const TileVariant& v);

// Packs a matrix [k, n] into panels of 32 columns.
struct TilePackParam {
  enum : int {
    n,
    k,
    stride,
    batch,
    out_batch,
    panels,
    steps,
    terms /* of a K block */,
    first_panel,
    taps,
    channels,
    padded,
    tasks,
    count
  };
};
struct TilePackVariant {
  Adjacent right;
  int parts = 3;
  DType memory = DType::Float32;
  int lanes = 0;         // of a vector; 0: as many as this machine has
  bool windows = false;  // Windows::right
  auto operator<=>(const TilePackVariant&) const = default;
};
// Buffers: the matrix or images, panels, the ranges of absolute values, and places.
loop::Nest tile_pack_nest(const TilePackVariant& v);

}  // namespace facula::device::cpu
