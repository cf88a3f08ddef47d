// The nests of a matrix product out = epilogue(alpha * a @ b + beta * out) in float32, compiled by the code generator. Operands and
// the epilogue's values may be bfloat16 in memory; they are converted while they are packed and stored.
//
// The right operand is packed first: strips of as many columns as a vector has lanes, [strip][k][lane]. A task then computes
// a block of the result: for each K block it packs its rows of the left operand and multiplies tile by tile. The sums of a
// tile of `rows` x `vectors` vectors stay in registers over the K block; blocks are added up in the result, in order. The last
// block applies the epilogue to the sums in registers. So each element is a sum of partial sums over fixed pieces of K, each
// one a chain of fused multiplications and additions from zero, whatever the tiles, blocks and threads are.
//   Source: Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008, for the blocks;
//   Van Zee and van de Geijn, "BLIS", 2015, for the register tile as the unit that is generated.
#pragma once
#include <compare>
#include <cstdint>
#include <vector>

#include "facula/base/dtype.h"
#include "facula/device/cpu/nest_builder.h"
#include "facula/device/cpu/product_form.h"

namespace facula::device::cpu {

// Integer parameters of the nest of tasks. Strides are in elements.
struct ProductParam {
  enum : int {
    m,
    n,
    k,
    a_stride,  // from row to row of `a`, or from column to column if Adjacent::columns
    a_batch,
    b_batch,     // of the packed operand
    out_stride,  // from row to row of the result
    out_batch,
    rows,     // of a block of the result, a multiple of a tile's
    columns,  // of a block of the result, a multiple of a tile's
    terms,    // of a K block
    row_blocks,
    column_blocks,
    adds,          // not 0: alpha and beta apply, and the result is read
    batch_rows,    // rows that the epilogue counts from matrix to matrix
    first_column,  // that the epilogue counts
    tasks,
    count  // parameters of the epilogue follow
  };
};
struct ProductBuffer {
  enum : int {
    a,
    b,
    out,
    numbers,
    left,
    tile,
    out_before,
    result,
    count
  };  // operands of the epilogue follow
};
enum ProductNumber { product_alpha, product_beta };

// The elements of an operand that are adjacent in memory: those of a row, or those of a column.
enum class Adjacent : uint8_t { row, column };

// The epilogue that adds a vector [n], operand 0.
Epilogue bias_epilogue(DType d = DType::Float32);

struct ProductVariant {
  Adjacent left;        // of the left operand
  int rows, vectors;    // of a tile
  bool scaled = false;  // by alpha and beta
  ProductForm form{};
  int lanes = 0;  // of a vector; 0: as many as this machine has
  auto operator<=>(const ProductVariant&) const = default;
};
TaskNest product_nest(const ProductVariant& v);

// Packs a matrix [k, n] into strips; those beyond n, up to `strips`, repeat its last column or are zero.
struct PackParam {
  enum : int { n, k, stride, batch, out_batch, strips, groups, tasks, count };
};
constexpr int64_t kPackedStrips = 8;  // strips of a task
struct PackVariant {
  Adjacent right;
  DType memory = DType::Float32;
  int lanes = 0;  // of a vector; 0: as many as this machine has
  auto operator<=>(const PackVariant&) const = default;
};
loop::Nest pack_nest(const PackVariant& v);

}  // namespace facula::device::cpu
