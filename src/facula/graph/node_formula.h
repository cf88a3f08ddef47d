// The gradient formula of a call in a graph.
#pragma once
#include <memory>
#include <vector>

#include "facula/autograd/formula.h"
#include "facula/graph/graph.h"

namespace facula::graph {

// The formula by the operands that are active (by number of their values), for gradients of all results that carry one. No mode sees
// the calls that it makes.
std::shared_ptr<const autograd::Formula> formula_of(const Node& n, const std::vector<bool>& active);

}  // namespace facula::graph
