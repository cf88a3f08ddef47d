// Checks of calls that write what the user chose, in place or `out=`.
#pragma once
#include <span>
#include <string>

#include "facula/op/operator.h"

namespace facula::op {

// Whether out= must have the dtype of the result. Like PyTorch's kernels, only elementwise operators with one result convert
// by default; a definition may say otherwise (Forms::exact_out), and a `dtype=` argument counts.
bool takes_exact_out(const Operator& o, std::span<const Value> args);
// Raises if a result of dtype `from` cannot be written to memory of dtype `to`, which is self, or out= if `out`.
void check_conversion(const Operator& o, DType from, DType to, std::span<const Value> args, bool out);
// Raises if a tensor that out= names requires a gradient, or if the call is recorded on the tape: its result would be cut off.
void check_out_without_gradients(const char* op, std::span<const Tensor> out, bool recording);
// RuntimeError unless `self` has the sizes of `value` and a dtype that this converts to. `where` is a hint.
void check_written(const Operator& o, const Tensor& value, const Tensor& self, const std::string& where = "");

}  // namespace facula::op
