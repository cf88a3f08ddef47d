// Identity and combination of each monoid, as expressions: used by the interpreter, the scheduler and every target.
#pragma once
#include <vector>

#include "facula/loop/expr.h"

namespace facula::loop {
// The neutral element, one expression per component, for values of dtype `d` (positions are Int64).
std::vector<Expr> identity(Monoid m, DType d);
// a and b combined; a comes first in order (argmax keeps the first of equals).
std::vector<Expr> combine(Monoid m, std::span<const Expr> a, std::span<const Expr> b);
// What one element contributes, as components: (x) for sum, (x, position) for argmax, (x, 0, 1) for welford.
std::vector<Expr> lift(Monoid m, std::span<const Expr> values);
}  // namespace facula::loop
