// use_deterministic_algorithms: results are the same bits for any number of threads with it or without. What
// is left to it is memory without a value, which it can have filled.
#pragma once
#include <atomic>

namespace facula {
// Are new tensors without a value filled with NaN or the largest integer?
inline std::atomic<bool> fill_uninitialized{false};
}  // namespace facula
