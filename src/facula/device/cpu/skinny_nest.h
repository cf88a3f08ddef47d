// The nest of a product with few rows, summed in float32, out = epilogue(a @ b): each element of `b` is read once, without packing, so that
// the time is that of reading memory. The elements of a row of `a` and of a column of `b` are adjacent, as in a linear layer of a
// model that generates one token at a time.
//
// A task computes some columns. The sums of `rows` x `columns` elements stay in registers as vectors over K, and the lanes of a
// vector are added up at the end. The bits of a sum depend on K and the vector's width alone.
#pragma once
#include <compare>

#include "facula/device/cpu/nest_builder.h"
#include "facula/device/cpu/product_form.h"

namespace facula::device::cpu {

struct SkinnyParam {
  enum : int { m, n, k, a_stride, b_stride, out_stride, columns /* of a task */, tasks, count };
};
struct SkinnyBuffer {
  enum : int { a, b, out, tile, out_before, result, count };  // operands of the epilogue follow
};
struct SkinnyVariant {
  int rows, columns;  // whose sums are in registers
  ProductForm form{};
  int lanes = 0;  // of a vector; 0: as many as this machine has
  auto operator<=>(const SkinnyVariant&) const = default;
};
// Returns the variant for a number of rows.
SkinnyVariant skinny_variant(int64_t rows, int lanes);
TaskNest skinny_nest(const SkinnyVariant& v);

}  // namespace facula::device::cpu
