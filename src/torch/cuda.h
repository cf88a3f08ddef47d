// torch::cuda: there are no CUDA devices; programs that ask run on the CPU.
#pragma once
#include "torch/types.h"

namespace torch::cuda {
inline size_t device_count() { return 0; }
inline bool is_available() { return false; }
inline bool cudnn_is_available() { return false; }
inline void manual_seed(uint64_t) {}
inline void manual_seed_all(uint64_t) {}
inline void synchronize(int64_t = -1) { user_check(false, "synchronize") << "No CUDA GPUs are available"; }
}  // namespace torch::cuda
