// Identity and combination of each monoid, as expressions: used by the interpreter, the scheduler and every
// target.
#pragma once
#include <vector>

#include "facula/loop/expr.h"

namespace facula::loop {
// The neutral element, one expression per component, for values of dtype `d` at positions of dtype
// `position`.
std::vector<Expr> identity(Monoid m, DType d, DType position = DType::Int64);
// Whether an element of a sum is fma(x, y, 0): it is added as fma(x, y, total), rounded once.
bool adds_product(Monoid m, const Expr& element);
// May neighbours of values like these be combined before they are with what comes before them, but for rounding? Not the
// factors of a product, which might overflow together and vanish in it one by one, unless they come from a range so much
// smaller that kFactors of them do not.
bool may_regroup(Monoid m, std::span<const Expr> values);
inline constexpr int kFactors = 4;
// a and b combined; a comes first in order (argmax keeps the first of equals).
std::vector<Expr> combine(Monoid m, std::span<const Expr> a, std::span<const Expr> b);
// The same of argmax and argmin where b's position is not before a's, but for values that are the identity's:
// if all are, the identity's position stays.
std::vector<Expr> combine_rising(Monoid m, std::span<const Expr> a, std::span<const Expr> b);
// What one element contributes, as components: (x) for sum, (x, position) for argmax, (x, 0, 1) for welford.
std::vector<Expr> lift(Monoid m, std::span<const Expr> values);
}  // namespace facula::loop
