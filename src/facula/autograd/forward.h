// Forward-mode differentiation: within a level, a tensor may carry a tangent, and every operator called on
// this thread gives its results the tangents that follow (dual numbers).
//
// No operator needs a rule. The tangent of a view is the same view of the tangent; a composite runs as its operators; for every
// other operator the tangent follows from its gradient, which is linear in the incoming gradient: for g(u) = J^T u, the gradient of
// g at v is J v (Townsend, "A new trick for calculating Jacobian vector products", 2017). Forward and reverse mode nest in any
// order, because each sees the operators of the other. Within vmap the physical tensors carry the tangents (batch.h).
#pragma once
#include "facula/autograd/node.h"

namespace facula::autograd {

// Enters, leaves the level of this thread. RuntimeError if there is one already, or none. Tangents end with
// it.
void enter_forward_level();
void exit_forward_level();
bool forward_level();

// Undefined without a tangent, or outside of a level.
Tensor tangent_of(const Tensor& t);
// RuntimeError unless `tangent` has the dtype, sizes and device of `t`. Undefined takes the tangent away.
void set_tangent(const Tensor& t, const Tensor& tangent);

// Gives `t`, which stands for result `k` of `node`, the tangent that this result had.
void restore_tangent(const Tensor& t, const Node& node, int k);

// Operators called within this scope see no tangents and give none.
class ForwardPaused {
 public:
  ForwardPaused();
  ~ForwardPaused();
  ForwardPaused(const ForwardPaused&) = delete;

 private:
  bool paused_;
};

}  // namespace facula::autograd
