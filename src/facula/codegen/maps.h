// Functions over lanes in float64, which generated code calls where an expansion would be long and is rarely needed:
// `void facula_map_<name>(double* x, const double* y, int64_t n)`, x[i] := f(x[i], y[i]). The bits of a lane depend
// neither on its place nor on its neighbours. Sine, cosine and tangent are rounded from libm's long double form, and
// fmod is exact; for the others see loop/mapped.h.
#pragma once
#include <string_view>

namespace facula::codegen {
// The address of a map by its symbol; null if there is no such map.
const void* map_named(std::string_view symbol);
}  // namespace facula::codegen
