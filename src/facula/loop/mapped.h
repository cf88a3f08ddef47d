// Special functions of FACULA_MAPPED_UNARY and FACULA_MAPPED_BINARY (expr.h), whose number of steps depends on the
// arguments, compiled for the host from special_functions.h. The interpreter and generated code (lane by lane) call
// the same code, which gives the same bits as printed kernels.
#pragma once
#include <cstdint>

#include "facula/loop/expr.h"

namespace facula::loop::mapped {
#define FACULA_FN(n, a, r, u) double n(double x);
FACULA_MAPPED_UNARY(FACULA_FN)
#undef FACULA_FN
// igamma(a, x) and igammac(a, x) are the regularised incomplete gamma functions; hurwitz_zeta(s, q) is the sum of (q
// + k)^-s. The others are polynomials of order n, f(x, n), and 0 for negative n.
#define FACULA_FN(n, a, r, u) double n(double x, double y);
FACULA_MAPPED_BINARY(FACULA_FN)
#undef FACULA_FN
// The same for each lane, x[i] := f(x[i], y[i]), with the same bits.
#define FACULA_FN(n, a, r, u) void n(double* x, const double* y, int64_t count);
FACULA_MAPPED_UNARY(FACULA_FN)
FACULA_MAPPED_BINARY(FACULA_FN)
#undef FACULA_FN
namespace wide {  // eight lanes, for processors with AVX-512 F, DQ and VL; the same bits
#define FACULA_FN(n, a, r, u) void n(double* x, const double* y, int64_t count);
FACULA_MAPPED_UNARY(FACULA_FN)
FACULA_MAPPED_BINARY(FACULA_FN)
#undef FACULA_FN
}  // namespace wide
}  // namespace facula::loop::mapped
