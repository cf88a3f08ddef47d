// Complex expressions as pairs of real ones: targets only ever see real code.
#pragma once
#include <utility>

#include "facula/loop/expr.h"

namespace facula::loop {

// Real and imaginary part of `x`, free of complex dtypes; for a real x, x and 0, with complex subexpressions
// inside (a modulus, a comparison) rewritten likewise.
std::pair<Expr, Expr> split_complex(Expr x);

// x of real dtype, without complex subexpressions.
Expr without_complex(Expr x);

}  // namespace facula::loop
