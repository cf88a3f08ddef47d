// use_deterministic_algorithms. Results have the same bits for any number of threads in any case; the setting only
// fills uninitialised memory.
#pragma once
#include <atomic>

namespace facula {
// If set, uninitialised tensors are filled with NaN or the largest integer.
inline std::atomic<bool> fill_uninitialized{false};
}  // namespace facula
