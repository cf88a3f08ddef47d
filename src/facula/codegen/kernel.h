// Machine code of a loop nest, and the cache that holds it.
//
// A kernel is found by what it does: the digest of the printed nest, the target's features and the
// generator's version. Look-up order: memory; the shipped folder filled at build time; the user's folder
// (mode 0700); else LLVM, in a library of its own that is loaded at the first miss, compiles it and the
// object is written to the user's folder by rename. A damaged, truncated or foreign file is ignored and
// replaced; an unwritable folder is no error.
#pragma once
#include <cstdint>
#include <string>

#include "facula/loop/lazy_nest.h"

namespace facula::codegen {

// Set by a kernel whose `check` (failed = 1) or `divisor` (2) failed; the smallest failing task wins, so the
// report does not depend on threads.
struct Status {
  int64_t failed = 0;
  int64_t index = 0, size = 0;
};

// Runs tasks [begin, end). buffers[k]: first element of buffer k; params: sizes and strides.
using KernelFn = void (*)(void* const* buffers, const int64_t* params, int64_t begin, int64_t end,
                          Status* status);

struct Kernel {
  KernelFn fn = nullptr;
  loop::Expr tasks, cost;  // over params; evaluate with eval_params
  std::string name;
  uint64_t random_id = 0;  // for the profiler
};

// The kernel of a verified nest. Thread-safe; the result lives for ever. Hears Ctrl-C before it begins:
// callers hold no lock.
const Kernel* kernel(const loop::Nest& n);
const Kernel* kernel(const loop::LazyNest& n);  // makes the nest only if its kernel is in no folder

// How a kernel's tasks are shared among threads: in pieces of `grain` tasks, which make it worth a thread.
struct Work {
  int64_t tasks = 0, grain = 1;
};
Work work_of(const Kernel& k, const int64_t* params);

// Runs all tasks on the process's threads; raises IndexError if a check failed, RuntimeError after a division
// by zero (`op` is named in it).
void launch(const Kernel& k, Work work, void* const* buffers, const int64_t* params, const char* op);
inline void launch(const Kernel& k, void* const* buffers, const int64_t* params, const char* op) {
  launch(k, work_of(k, params), buffers, params, op);
}

// An expression of constants, params and integer functions.
int64_t eval_params(loop::Expr e, const int64_t* params);

struct CacheStats {
  int64_t memory_hits, shipped_hits, disk_hits, compiled;
  double compile_seconds;
};
CacheStats cache_stats();
std::string cache_folder();  // "" if none can be used
// Makes `folder` receive every kernel used from now on (fills the shipped cache at build time).
void record_kernels_to(const std::string& folder);

// Vector lanes for 32-bit elements on the chosen instruction set (8 for AVX2, 16 for AVX-512).
int vector_lanes();
const loop::LaneLimits& lane_limits();  // of that instruction set
std::string target_features();          // e.g. "x86-64+avx512f+..."; honours FACULA_CPU_CAPABILITY
bool gathers_are_quick();  // quicker than a load for each lane; kernels that use indices are others then

}  // namespace facula::codegen
