// Calls that run as a cached program: pointwise and loop operators, composites, and the references of library operators.
#pragma once
#include "facula/run/layout.h"
#include "facula/run/operands.h"

namespace facula::run {

// A call as it meets the cache, without recording.
struct ProgramCall {
  const op::Operator& op;
  std::span<const op::Value> args;
  std::span<const Tensor> out;
  op::Form form;
  // Set if operands are in a physical layout: `physical` replaced the caller's arguments, `logical_args`, by `args`.
  const InMemory* physical = nullptr;
  std::span<const op::Value> logical_args = {};
  bool copies_self = false;  // an in-place loop reads a copy of self
};

// Finds or makes the program and the plan of the call, and runs it.
op::Results run_program(const ProgramCall& call);
// A composite that writes to lists of tensors, such as an optimizer's step, treats each item of a list separately
// (docs/adding_an_operator.md). Each item becomes a call of its own: equal items share a program and a plan.
op::Results run_program_by_items(const ProgramCall& call);

}  // namespace facula::run
