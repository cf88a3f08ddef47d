// Decides how the loads and stores of loops over lanes reach memory, and states it in the nest.
//   example:  store 1[i1] = load[0:float32](mul(i1, 3))  ->  access load 0[mul(i1, 3)] spaced 3, then the store
//   requires: a nest whose loops over lanes have their width
//   ensures:  every access that is not direct is stated, and possible (loop/lane_access.h)
//   cost:     linear in the expressions of the loops over lanes
#pragma once
#include "facula/loop/lanes.h"

namespace facula::schedule {
// `facts` are those of the nest of this block.
void state_accesses(loop::NestFacts& facts, loop::Block& block, const loop::LaneLimits& limits);
}  // namespace facula::schedule
