// Complex values as pairs of real ones: nests load, compute and store real numbers only.
#pragma once
#include <vector>

#include "facula/loop/expr.h"

namespace facula::schedule {

// What is stored for a result of dtype `d`: the value, or its real and imaginary parts. No complex number is left
// inside. NotImplementedError for a complex function or reduction that has no rule.
std::vector<loop::Expr> components(loop::Expr value, DType d);

}  // namespace facula::schedule
