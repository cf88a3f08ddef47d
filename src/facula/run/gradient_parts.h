// The independent parts of a program's gradient. Eager mode has a node for each call, so that a backward pass frees what its own
// calls have saved. The node of a program stands for many calls: results that share none of them get a node each.
#pragma once
#include <vector>

#include "facula/graph/passes.h"

namespace facula::run {

struct GradientParts {
  int count = 1;
  std::vector<int> of_tangent;                 // by tangent of the backward graph
  std::vector<std::vector<bool>> of_gradient;  // by gradient and part: whether the part adds to the gradient
};

// Two tangents belong to the same part if a call takes both to a gradient, or if both need a saved value that the forward pass has
// computed. A last sum of the gradients of different calls joins nothing: eager mode rounds the gradient of each call, too.
// A gradient that is constant, such as that of sign(), belongs to the parts of all results that depend on its input.
// The program of a part learns sizes from its own inputs alone, so that the backward graph must have fixed sizes.
//   cost: linear in nodes, times the number of gradients that sums add up
GradientParts gradient_parts(const graph::Partition& p, const graph::Joint& joint);

}  // namespace facula::run
