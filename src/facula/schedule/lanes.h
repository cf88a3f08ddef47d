// A nest of tasks and lanes (nest.h) becomes one for a machine of vectors: of every `vector` loop it says how it runs.
//   - in lanes if no iteration reads or writes what another one writes, else one iteration after the other (and the loops
//     inside in lanes, if they can)
//   - in as many as a vector has of 32 bits, half as many where everything is wider, more where elements are only moved
//   - rounds of several vectors with accumulators of their own where little is computed for each of them
//   - strips of vectors beside each other where a loop inside goes through all of them together (the columns of a sum over
//     rows): each visit of a row reads a stretch of it, and accumulators stay in registers; what is in no strip has chains
// Loops that stay unrolled have few steps. Locals get a number each.
//   requires: a verified nest, of no grid and for no lanes
//   ensures:  it verifies under the limits; results are the interpreter's of the nest before to the bit, but for the order in
//             which floating numbers are added up
#pragma once
#include "facula/loop/nest.h"

namespace facula::schedule {
loop::Nest in_lanes(const loop::Nest& n, const loop::LaneLimits& limits);
}  // namespace facula::schedule
