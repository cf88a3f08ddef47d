// Elementary functions by simpler ones, once for all targets: every target prints these expressions, or a step of them
// by an instruction of its own, so that results agree to the bit. Bounds on the errors: expr.h.
//
// What has no expansion is exact (sums, roots, comparisons, fmod) or a special function (special_functions.h; is_library).
#pragma once
#include <cstddef>
#include <cstdint>

#include "facula/loop/expr.h"

namespace facula::loop {

// f of argument(0, d), argument(1, d), ..., which are locals from kArguments on; empty if f has no expansion in dtype d.
// Nodes in the order of their `id` are in an order that suits processors, the same in every process.
Expr expansion(Fn f, DType d);
constexpr int kArguments = 1 << 20;
Expr argument(int k, DType d);
// Is f of dtype d neither exact nor expanded? Such are special functions, of one source for all targets.
bool is_library(Fn f, DType d);
// What targets compute for e: times_ndtr and times_sigmoid of x for the products x ndtr(x) and x sigmoid(x), else e.
Expr fused_product(Expr e);
// x with every function expanded, and those of the expansions. The interpreter gives its bits then.
Expr expanded(Expr x);

// A row of constants, of float32 or float64.
struct TableRow {
  DType dtype;
  size_t count;
  const void* values;
};
const TableRow& table_row(int64_t row);
double entry_of(const TableRow& row, int64_t index);

}  // namespace facula::loop
