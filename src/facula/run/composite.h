// Composites that need a gradient: their joint forward and backward graph, partitioned into two programs by what is worth
// saving, and one node of the tape.
#pragma once
#include "facula/op/operator.h"

namespace facula::run {

// Runs a composite as its forward program and records it as one node.
op::Results run_composite(const op::Operator& o, std::span<const op::Value> args);
// Records a composite whose results an interposer computed (interpose.h). Nothing was saved, so that the gradient recomputes
// what it needs from the operands (recomputed_composite.cpp).
void record_recomputed(const op::Operator& o, std::span<const op::Value> args, op::Results& results);
// Whether the operand is a tensor that requires a gradient.
bool wants_gradient(const op::Value& operand);

}  // namespace facula::run
