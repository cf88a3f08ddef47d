// Reverse-mode derivatives of scalar expressions.
//   example: y = exp(x) * z, seed g  ->  {x: g * z * exp(x), z: g * exp(x)}
//   cost:    linear in the nodes of the expression, except for the guards of nested selects
#pragma once
#include <vector>

#include "facula/loop/expr.h"

namespace facula::loop {

// The adjoint of one load of `y`: the load, and d(seed * y)/d(load), where `seed` is the gradient of y (conjugated
// for complex numbers, as in PyTorch). The gradient of an operand is the sum over all of its loads.
struct Adjoint {
  Expr load;
  Expr value;
};

// The adjoints of every floating or complex load in `y`, which must not contain reductions. derivative.cpp has one
// rule per function. A rule uses the function's own value if that is cheaper (exp, tanh, sigmoid, sqrt, relu), so
// that the tape can save the result instead of the operand.
std::vector<Adjoint> differentiate(Expr y, Expr seed);

}  // namespace facula::loop
