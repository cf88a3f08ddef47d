// The definition of a pointwise or loop operator: what it computes, independently of any schedule.
#pragma once
#include <optional>
#include <vector>

#include "facula/loop/expr.h"

namespace facula::loop {

// Gather form: result k at (i0..i[rank-1]) is values[k].
// Scatter form: starting from operand `base`, for every point of the domain in row-major order,
//   result[target...] = combine(result[target...], value).
struct Scatter {
  enum class Combine : uint8_t { assign, sum, prod, max, min } combine = Combine::sum;
  int base = -1;             // operand copied into the result first; -1: zeros
  Dims domain;               // variables 0..domain.size()-1
  std::vector<Expr> target;  // one index per dimension of the result
  Expr value;
};

struct Definition {
  int rank = 0;              // rank of the result (gather form)
  std::vector<Expr> values;  // one per result
  std::optional<Scatter> scatter;
};

// The derivative of a gather-form definition with respect to operand `slot` of sizes `slot_sizes`, as definitions
// whose sum is the gradient. Operand `grad_slot` is the gradient of result `result`. Loads are transposed: a load at
// the result's index remains a gather, a broadcast becomes a reduction, and a computed index becomes a scatter-sum.
//   example: y[i] = x[2 i]  ->  dx[2 i] += dy[i];   y[i, j] = x[j]  ->  dx[j] = sum over i of dy[i, j]
std::vector<Definition> transpose(const Definition& d, int result, SymSpan result_sizes, DType grad_dtype,
                                  int grad_slot, int slot, SymSpan slot_sizes);

}  // namespace facula::loop
