// Puts barriers where a thread of a block may use what another one has written since the last, or write what another
// one has used.
//   requires: a nest of a grid without barriers
//   assumes:  as parallel.h does; so places that are equal but for the iterations of loops around a `threads` loop belong
//             to one thread
//   ensures:  the interpreter finds no two threads at one element; arrays of the block are free at the end of a task
//   cost:     pairs of accesses to one buffer within a loop
#pragma once
#include "facula/loop/nest.h"

namespace facula::schedule {
void place_barriers(loop::Nest& n);
}  // namespace facula::schedule
