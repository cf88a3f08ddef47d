// Where results are written that users chose the place of: in place, or out=.
#pragma once
#include <span>

#include "facula/op/call.h"

namespace facula::run {

// out= must have the dtype of the result: of several results, where the definition says so, and by default of what
// is not computed element by element, as PyTorch's kernels convert only there. A dtype= that is given is meant.
bool takes_exact_out(const op::Operator& o, std::span<const op::Value> args);
// A result of dtype `from` is written to memory of dtype `to`: an in-place operator's or out=.
void check_conversion(const op::Operator& o, DType from, DType to, std::span<const op::Value> args, bool out);
// Checks that result k, of this meta, can be written into `out`; an out= tensor of other sizes is resized: true.
bool check_destination(const op::Operator& o, size_t k, const op::Meta& m, const Tensor& out,
                       std::span<const op::Value> args, op::Form form);

}  // namespace facula::run
