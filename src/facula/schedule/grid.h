// A nest of tasks and lanes (nest.h) becomes one of a grid: what a machine with blocks of threads runs.
//
// A task is a block's, lanes are its threads:
//   - a `vector` loop whose iterations are independent goes over the threads; what it adds to accumulators of outside is
//     added up thread by thread, then by a tree in shared memory, so that the order is fixed by the number of threads
//   - a scan along a loop goes tile by tile, as many elements as threads, by sums over 1, 2, 4, ... neighbours
//   - stores of which several may meet at an element (a scatter) are atomic changes where these give the same bits in any
//     order (loop::is_order_free); elsewhere every thread walks over all of them, in order, and makes those at places
//     whose number modulo the threads is its own: what a place gets, it gets in the interpreter's order
//   - what lies around is computed by every thread alike, stored by the first
//   - arrays of a task are shared, or where they are too large or of a size that only a call knows, scratch
// A nest without such loops runs a task on each thread. Barriers are placed by barriers.h.
//   requires: a verified nest of no grid, whose tasks share nothing but what they read
//   ensures:  it verifies under the limits; results are the interpreter's to the bit, but for the order in which floating
//             numbers are added up
#pragma once
#include "facula/loop/nest.h"

namespace facula::schedule {
loop::Nest on_grid(const loop::Nest& n, const loop::GridLimits& limits);
}  // namespace facula::schedule
