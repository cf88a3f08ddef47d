// The order of a program's steps.
#pragma once
#include <vector>

#include "facula/graph/graph.h"
#include "facula/schedule/fuse.h"

namespace facula::embed {

// Runs a step as soon as its operands exist if it frees at least as much memory as it needs, and the others in their order. So the
// update of a weight runs when its gradient is known, and the gradients of two layers never exist at the same time.
//   ensures: a step that replaces a mutated input runs after all steps that read the former value
//   cost:    quadratic in the steps
std::vector<schedule::Step> in_order_of_memory(std::vector<schedule::Step> steps, const graph::Graph& g);

}  // namespace facula::embed
