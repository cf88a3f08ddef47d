// Distributes work over threads (OpenMP's pool, which oneDNN also uses).
#pragma once
#include <cstdint>
#include <functional>

namespace facula {

int num_threads();
void set_num_threads(int n);
bool in_parallel();

// Calls f(begin, end) on disjoint pieces that cover [0, n). A piece has at least `grain` items, the amount of work
// that pays for a thread (some ten microseconds). Runs on the calling thread if one piece suffices or inside a
// parallel region. Rethrows an exception of any piece. Long loops are divided further, to check for Ctrl-C in between
// (interrupt.h).
void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& f);

}  // namespace facula
