// Replaces folds over pairs, whose combination step is expensive, by two sweeps of plain folds.
#pragma once
#include <vector>

#include "facula/loop/expr.h"

namespace facula::schedule {

// Computes variance by two sums, and logsumexp by a maximum and a sum.
loop::Expr in_two_sweeps(loop::Expr e);
// The mean, sum of squared deviations and count of a float32 Welford fold, computed by two sweeps in float32 and
// returned as float64: the means of chunks are so close together that rounding them would add to the variance.
std::vector<loop::Expr> wide_moments(loop::Expr fold);

}  // namespace facula::schedule
