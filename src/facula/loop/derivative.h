// The reverse sweep of differentiate(), for callers that treat reductions as leaves.
#pragma once
#include "facula/loop/differentiate.h"

namespace facula::loop {
// The adjoints of every load, reduce, scan and part of a differentiable dtype. Reductions and scans are leaves.
std::vector<Adjoint> sweep(Expr y, Expr seed);
}  // namespace facula::loop
