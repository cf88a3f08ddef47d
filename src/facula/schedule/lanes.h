// Turns a nest of tasks and lanes (nest.h) into a nest for a machine with vectors: decides for every `vector` loop
// how it runs.
//   - It runs in lanes if no iteration accesses what another one writes; otherwise iterations run one after the
//     other, and inner loops run in lanes if they can.
//   - The number of lanes is the number of 32-bit elements in a vector, half of that if all elements are wider, and
//     more if elements are only moved.
//   - Loops with little work per vector run in rounds of several vectors, each with its own accumulators.
//   - If a loop inside visits all vectors (the columns of a sum over rows), vectors form strips: each visit of a row
//     reads one contiguous stretch, and accumulators stay in registers. Vectors outside of a strip use chains.
// Loops that remain unrolled have few steps. Every local gets a unique number.
//   example:  for i1 < p0 vector { store 1[i1] = exp(load[0:float32](i1)) }  ->  for i1 < p0 vector 16 { ... }
//   requires: a verified nest, neither for a grid nor for lanes
//   ensures:  the result verifies under the limits; it computes what the interpreter computes from the input, bit by
//             bit, except for the order of floating-point additions
//   cost:     linear in expressions, times the depth of nested `vector` loops
#pragma once
#include "facula/loop/nest.h"

namespace facula::schedule {
loop::Nest in_lanes(const loop::Nest& n, const loop::LaneLimits& limits);
}  // namespace facula::schedule
