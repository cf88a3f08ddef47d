// The machine code of a loop nest, and the cache of kernels.
//
// The key of a kernel is a digest of the printed nest, the target's features and the generator's version. Look-up
// order: memory; the shipped folder that the build fills; the user's folder (mode 0700). Otherwise LLVM compiles it,
// in a separate library that the first miss loads, and the object is written to the user's folder by a rename. A
// damaged, truncated or foreign file is ignored and replaced; an unwritable folder is no error.
//   requires: a verified nest
//   cost:     a digest of the text and a table look-up; on a miss a read from disk, or a compilation
#pragma once
#include <cstdint>
#include <string>

#include "facula/loop/lazy_nest.h"

namespace facula::codegen {

// The failure that a kernel reports: a `check` (failed = 1) or a `divisor` (2). Of several failing tasks the smallest
// one counts, so that the report does not depend on threads.
struct Status {
  int64_t failed = 0;
  int64_t index = 0, size = 0;
};

// Runs tasks [begin, end). buffers[k] points to the first element of buffer k; params are sizes and strides.
using KernelFn = void (*)(void* const* buffers, const int64_t* params, int64_t begin, int64_t end,
                          Status* status);

struct Kernel {
  KernelFn fn = nullptr;
  loop::Expr tasks, cost;  // over params; evaluate with eval_params
  std::string name;
  uint64_t random_id = 0;  // identifies the kernel in profiles
};

// The kernel of a verified nest. Thread-safe; the kernel lives as long as the process. May raise on Ctrl-C before it
// begins, so callers must not hold locks.
const Kernel* kernel(const loop::Nest& n);
const Kernel* kernel(const loop::LazyNest& n);  // builds the nest only if no folder has its kernel

// The distribution of a kernel's tasks over threads: pieces of `grain` tasks, each worth waking a thread for.
struct Work {
  int64_t tasks = 0, grain = 1;
};
Work work_of(const Kernel& k, const int64_t* params);

// Runs all tasks on the threads of the process. Raises IndexError if a check failed, and RuntimeError on a division
// by zero; errors name `op`.
void launch(const Kernel& k, Work work, void* const* buffers, const int64_t* params, const char* op);
inline void launch(const Kernel& k, void* const* buffers, const int64_t* params, const char* op) {
  launch(k, work_of(k, params), buffers, params, op);
}

// Evaluates an expression of constants, params and integer functions.
int64_t eval_params(loop::Expr e, const int64_t* params);

struct CacheStats {
  int64_t memory_hits, shipped_hits, disk_hits, compiled;
  double compile_seconds;
};
CacheStats cache_stats();
std::string cache_folder();  // "" if none can be used
// From now on copies every kernel that is used to `folder` (the build fills the shipped folder so).
void record_kernels_to(const std::string& folder);

// Vector lanes for 32-bit elements on the chosen instruction set (8 for AVX2, 16 for AVX-512).
int vector_lanes();
const loop::LaneLimits& lane_limits();  // of that instruction set
std::string target_features();          // e.g. "x86-64+avx512f+..."; honours FACULA_CPU_CAPABILITY
// With those of the matrix unit, if there is one and the nest uses it.
std::string target_features(const loop::Nest& n);

}  // namespace facula::codegen
