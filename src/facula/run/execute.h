// Runs a plan.
#pragma once
#include <span>

#include "facula/op/call.h"

namespace facula::run {

class Plan;
struct NumberedGraph;

// The results of `g` on `inputs`, as Program::execute says; `plan` was made for inputs that lie so. Throws what its operators
// throw.
op::Results execute(const Plan& plan, const NumberedGraph& g, std::span<const op::Value> inputs,
                    std::span<const Tensor> out, bool logical);

}  // namespace facula::run
