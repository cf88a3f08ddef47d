// Reverse-mode derivatives of scalar expressions.
#pragma once
#include <vector>

#include "facula/loop/expr.h"

namespace facula::loop {

// How `y` depends on one load: the load, and d(seed * y)/d(load) with `seed` the gradient of y (conjugated as
// PyTorch does for complex numbers). The sum over all loads of an operand is that operand's gradient.
struct Adjoint {
  Expr load;
  Expr value;
};

// Adjoints of every floating or complex load in the reduce-free expression `y`. Rules: derivative.cpp, one
// line each; rules are written through the function's own value where that is cheaper (exp, tanh, sigmoid,
// sqrt, relu), so that replacing `y` itself by a load of the result saves the input.
std::vector<Adjoint> differentiate(Expr y, Expr seed);

}  // namespace facula::loop
