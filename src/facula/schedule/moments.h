// Folds over pairs, whose combination step is costly, as two sweeps of plain folds.
#pragma once
#include <vector>

#include "facula/loop/expr.h"

namespace facula::schedule {

// Variance as two sums, and logsumexp as a maximum and a sum.
loop::Expr in_two_sweeps(loop::Expr e);
// Mean, sum of squared deviations and count of a float32 welford fold, by two sweeps in its dtype, as float64:
// chunks' means lie so close together that a rounded one would add to their variance.
std::vector<loop::Expr> wide_moments(loop::Expr fold);

}  // namespace facula::schedule
