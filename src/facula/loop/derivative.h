// The reverse sweep behind differentiate(), for callers that treat reductions as leaves.
#pragma once
#include "facula/loop/differentiate.h"

namespace facula::loop {
// Adjoints of every load, and of every reduce, scan and part (which are not looked into), of differentiable
// dtype.
std::vector<Adjoint> sweep(Expr y, Expr seed);
}  // namespace facula::loop
