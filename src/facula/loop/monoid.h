// The identity and the combination of each monoid as expressions, which the interpreter, the scheduler and every
// target use.
#pragma once
#include <vector>

#include "facula/loop/expr.h"

namespace facula::loop {
// The neutral element, one expression per component, for values of dtype `d` at positions of dtype `position`.
std::vector<Expr> identity(Monoid m, DType d, DType position = DType::Int64);
// True if an element of a sum is fma(x, y, 0). It is then added as fma(x, y, total), which rounds once.
bool adds_product(Monoid m, const Expr& element);
// True if neighbouring elements may be combined before they are combined with what precedes them (apart from
// rounding). False for Welford's triples, argmax_pool and complex products. False also for factors of a floating-point
// product, since groups of them might overflow although the product does not; unless the factors were converted from a
// smaller dtype, in whose range groups of kFactors cannot overflow.
bool may_regroup(Monoid m, std::span<const Expr> values);
inline constexpr int kFactors = 4;
// Combines a and b; a comes first in order (argmax keeps the first of equal values).
std::vector<Expr> combine(Monoid m, std::span<const Expr> a, std::span<const Expr> b);
// The same for argmax and argmin if b's position is not before a's. If all values equal the identity, the identity's
// position remains.
std::vector<Expr> combine_rising(Monoid m, std::span<const Expr> a, std::span<const Expr> b);
// The components that one element contributes: (x) for sum, (x, position) for argmax, (x, 0, 1) for welford.
std::vector<Expr> lift(Monoid m, std::span<const Expr> values);
}  // namespace facula::loop
