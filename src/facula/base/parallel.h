// Work shared among threads (OpenMP's pool, which oneDNN uses too).
#pragma once
#include <cstdint>
#include <functional>

namespace facula {

int num_threads();
void set_num_threads(int n);
bool in_parallel();

// Calls f(begin, end) on disjoint pieces that cover [0, n); pieces hold >= grain items, what is worth a
// thread (some ten microseconds). Runs on the caller when one piece suffices or when already inside a
// parallel region. An exception of any piece is rethrown here. Long loops are cut into pieces between which
// Ctrl-C is heard (interrupt.h).
void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& f);

}  // namespace facula
