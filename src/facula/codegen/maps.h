// Functions over lanes in float64 that generated code calls where an expansion would be long and is seldom
// needed: `void facula_map_<name>(double* x, const double* y, int64_t n)`, x[i] := f(x[i], y[i]). The bits of
// a lane depend neither on its place nor on its neighbours. Errors at most 1 ULP (Sleef); sines, cosines and
// tangents rounded from libm's wider form, fmod exact.
#pragma once
#include <string_view>

// (name, from where on Sleef promises less, so that libm's wider form is taken, as for arguments that are no
// numbers)
#define FACULA_UNARY_MAPS(_)                                                                                    \
  _(log1p, 1e300) _(asin, 1e300) _(acos, 1e300) _(sinh, 709) _(cosh, 709) _(asinh, 1e150) _(acosh, 1e150)       \
  _(atanh, 1e300)

namespace facula::codegen {
// The address of a map by its symbol; null if there is no such map.
const void* map_named(std::string_view symbol);
}  // namespace facula::codegen
