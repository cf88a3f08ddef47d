// Calls as they run while a profile is recorded; apart, so that the usual ones stay small.
#pragma once
#include "facula/backend/backend.h"
#include "facula/op/call.h"

namespace facula::run {

// op::perform inside a scope. It comes back to op::perform, which asks once whether it is that call.
[[gnu::cold]] op::Results perform_profiled(const op::Operator& o, std::span<const op::Value> args,
                                           op::Form form, std::span<const Tensor> out);
[[gnu::cold]] bool is_inside_profiled();
[[gnu::cold]] op::Results run_function_profiled(backend::LibraryFn fn, const op::Call& c,
                                                std::span<const Tensor> out);

}  // namespace facula::run
