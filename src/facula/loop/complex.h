// Splits complex expressions into pairs of real ones, so that targets only see real code.
//   example: add(x, y) of complex64  ->  (add(real(x), real(y)), add(imag(x), imag(y))), where the parts of a load are
//            loads of parts
#pragma once
#include <utility>

#include "facula/loop/expr.h"

namespace facula::loop {

// The real and imaginary parts of `x`, without complex dtypes. For a real x these are x and 0, with complex
// subexpressions inside (a modulus, a comparison) split as well.
std::pair<Expr, Expr> split_complex(Expr x);

// x of real dtype, without complex subexpressions.
Expr without_complex(Expr x);

}  // namespace facula::loop
