// Turns a nest of tasks and lanes (nest.h) into a nest for a grid, which machines with blocks of threads run. A block
// runs a task, and its threads take the place of lanes:
//   - The iterations of an independent `vector` loop are distributed over the threads. Each thread accumulates its
//     own total; a tree in shared memory combines the totals, in an order that depends on the number of threads only.
//   - A scan along a loop runs tile by tile, with one element per thread, by combining neighbours at distances 1, 2,
//     4, ...
//   - If several stores may write to one element (a scatter), they become atomic updates, provided that these give the
//     same bits in any order (loop::is_order_free). Otherwise every thread walks over all stores in order and performs
//     those whose place modulo the number of threads equals the thread's number, so that each place is updated in the
//     interpreter's order.
//   - Every thread computes the code around these loops; only the first thread stores its results.
//   - Arrays of a task become shared memory, or scratch memory if they are too large or their size is a parameter.
// A nest without such loops runs one task on each thread. barriers.h places the barriers.
//   example:  for i1 < p0 vector { store 1[i1] = exp(load[0:float32](i1)) }  ->  for i1 < p0 threads { ... }
//   requires: a verified nest without a grid, whose tasks only read what they share
//   ensures:  the result verifies under the limits; it computes what the interpreter computes, bit by bit, except for
//             the order of floating-point additions
//   cost:     each loop is analysed once for every loop around it
#pragma once
#include "facula/loop/nest.h"

namespace facula::schedule {
loop::Nest on_grid(const loop::Nest& n, const loop::GridLimits& limits);
}  // namespace facula::schedule
