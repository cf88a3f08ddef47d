// Calls of operators whose results a library of the backend computes (kinds library and data-dependent), or a user's function
// (kind foreign).
#pragma once
#include <span>

#include "facula/device/device.h"
#include "facula/run/invocation.h"

namespace facula::run {

// Runs the operator on the backend of its operands, or its reference where the backend has no function for it. `out`: results
// in memory that the function writes, or empty: they are allocated.
op::Results run_library(const op::Operator& o, std::span<const op::Value> args, std::span<const Tensor> out);
// The same by a function that a plan looked up before; null: the backend has none. A result that nobody else refers to may get
// a packed layout of the library's.
op::Results run_library(device::LibraryFn fn, const op::Operator& o, std::span<const op::Value> args,
                        op::Results out);
// The same with an epilogue, by a function of the backend's; false if it does not do it, and wrote nothing.
bool run_with_epilogue(device::EpilogueFn fn, const op::Operator& o, std::span<const op::Value> args,
                       std::span<const Tensor> out, const device::EpilogueCall& epilogue);
// The reference of a library operator whose definition gives one by elements, as a loop operator.
const op::Operator& reference_loop(const op::Operator& o);
// Runs a user's function, or its operators if it is made of these.
op::Results run_foreign(const Invocation& call);

}  // namespace facula::run
