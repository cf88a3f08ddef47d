// Calls over lazy tensors: views whose elements are the conjugates or the negatives of the elements in memory, such as
// PyTorch's conj() and its imaginary part. Views of lazy tensors are lazy too. For every other operator lazy operands are
// resolved first, and writes to a lazy tensor are conjugated back into memory. So no kernel, plan, library or saved value
// meets a lazy tensor.
#pragma once
#include <span>

#include "facula/op/call.h"

namespace facula::run {

// Whether the operator takes lazy tensors as they are: a view, or an operator that may return its argument or a view of it.
bool takes_lazy(const op::Operator& o, op::Form form);
bool any_lazy(std::span<const op::Value> args, std::span<const Tensor> out);
// Makes the call with every lazy tensor resolved, and writes the written ones back.
op::Results call_resolved(const op::Operator& o, std::span<const op::Value> args, op::Form form,
                          std::span<const Tensor> out);

}  // namespace facula::run
