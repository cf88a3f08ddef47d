// What an operator of kind pointwise or loop computes, before any schedule.
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
  int rank = 0;              // of the result (gather form)
  std::vector<Expr> values;  // one a result
  std::optional<Scatter> scatter;
};

// The derivative of a gather-form definition with respect to operand `slot` of sizes `slot_sizes`, as
// definitions whose sum is the gradient. Operand `grad_slot` is the gradient of result `result`.
// Transposition: loads at the result's own index stay gathers, broadcasts become reductions, computed indices
// become scatter-sums.
std::vector<Definition> transpose(const Definition& d, int result, SymSpan result_sizes, DType grad_dtype,
                                  int grad_slot, int slot, SymSpan slot_sizes);

}  // namespace facula::loop
