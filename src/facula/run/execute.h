// Runs a plan on inputs.
#pragma once
#include <span>

#include "facula/op/call.h"

namespace facula::run {

class Plan;
struct NumberedGraph;

// The results of `g` on `inputs` (Program::execute). `plan` was made for inputs of these layouts. Raises what the operators
// raise.
op::Results execute(const Plan& plan, const NumberedGraph& g, std::span<const op::Value> inputs,
                    std::span<const Tensor> out, bool logical);

}  // namespace facula::run
