// Expands elementary functions into simpler ones, once for all targets. Every target prints these expressions, or
// replaces a step of them by an equivalent instruction, so that results agree bit by bit. expr.h has the error
// bounds.
// A function without an expansion is either exact (sums, roots, comparisons, fmod) or a special function
// (special_functions.h; is_library).
//   example: expansion(exp, float32) = scaled_sum(point, rest, k), from the nearest entry of a table of powers of two
#pragma once
#include <cstddef>
#include <cstdint>

#include "facula/loop/expr.h"

namespace facula::loop {

// f applied to argument(0, d), argument(1, d), ..., which are locals from kArguments on; empty if f has no expansion
// in dtype d. The order of node ids is a good order of evaluation, and the same in every process.
Expr expansion(Fn f, DType d);
constexpr int kArguments = 1 << 20;
Expr argument(int k, DType d);
// True if f of dtype d is neither exact nor expanded: a special function, which has one source for all targets.
bool is_library(Fn f, DType d);
// The function that targets compute for e: times_ndtr and times_sigmoid of x for the products x ndtr(x) and x
// sigmoid(x), else e itself.
Expr fused_product(Expr e);
// x with every function expanded, recursively. The interpreter gives the same bits for it as for x.
Expr expanded(Expr x);

// A row of constants of float32 or float64.
struct TableRow {
  DType dtype;
  size_t count;
  const void* values;
};
const TableRow& table_row(int64_t row);
double entry_of(const TableRow& row, int64_t index);

}  // namespace facula::loop
