// Inserts the barriers of a grid's nest: one wherever a thread of a block may read what another thread has written
// since the last barrier, or overwrite what another thread has read.
//   example:  threads: shared[t] := x; threads: y := shared[t + 1]  ->  the same with a barrier between the two loops
//   requires: a nest for a grid, without barriers
//   assumes:  what parallel.h assumes, so that places which differ only in iterations of loops around a `threads`
//             loop belong to one thread
//   ensures:  the interpreter finds no element that two threads access; arrays of the block are free at the end of a
//             task
//   cost:     quadratic in the accesses to one buffer within a loop
#pragma once
#include "facula/loop/nest.h"

namespace facula::schedule {
void place_barriers(loop::Nest& n);
}  // namespace facula::schedule
