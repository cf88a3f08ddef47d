// Calls over lazy tensors: views whose elements are the conjugates, or the negatives, of what lies in memory, as
// PyTorch's conj() and the imaginary part of it are. Views of them are as lazy; every other operator computes on
// tensors resolved before, and what it writes to a lazy one reaches the memory conjugated back. So no kernel, plan,
// library or saved value knows of them, and a process that never made one pays for one look at a flag a call.
#pragma once
#include <span>

#include "facula/op/call.h"

namespace facula::run {

// Does the operator hand laziness on: a view, or what may give its argument or a view of it?
bool takes_lazy(const op::Operator& o, op::Form form);
bool any_lazy(std::span<const op::Value> args, std::span<const Tensor> out);
// The call with every lazy tensor resolved, written ones written back.
op::Results call_resolved(const op::Operator& o, std::span<const op::Value> args, op::Form form,
                          std::span<const Tensor> out);

}  // namespace facula::run
