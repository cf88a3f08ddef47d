// The functions that CUDA C needs in addition to those that it shares with C99 (c_prelude.h), as text.
#pragma once

namespace facula::codegen {

inline constexpr char kCudaBefore[] = R"c(#include <math.h>
#include <stdint.h>

#define FACULA_FUNCTION static __device__ __forceinline__
#define FACULA_SPECIAL static __device__
#define FACULA_TABLE static __device__ const
#define FACULA_STATUS facula_report

/* Buffers and parameters, of which there may be none. */
template <int buffer_count, int param_count>
struct facula_arguments {
  void* buffers[buffer_count > 0 ? buffer_count : 1];
  int64_t params[param_count > 0 ? param_count : 1];
};

/* The first failure: 1 an index out of [-size, size), 2 a division by zero. `task`, `site` and `iteration` say where it
   was; of several the smallest counts, whichever thread comes first. */
struct facula_status {
  int64_t failed, index, size, task, site, iteration;
  int lock;
};
struct facula_report {
  facula_status* status;
  int64_t task, site, iteration;
};

static __device__ bool facula_is_first(const facula_report& r, const volatile facula_status* s) {
  if (!s->failed) return true;
  if (r.task != s->task) return r.task < s->task;
  if (r.site != s->site) return r.site < s->site;
  return r.iteration < s->iteration;
}
static __device__ __noinline__ void facula_fail(const facula_report& r, int64_t failed, int64_t index, int64_t size) {
  volatile facula_status* s = r.status;
  for (bool done = false; !done;) {
    if (atomicCAS(&r.status->lock, 0, 1)) continue;
    __threadfence();
    if (facula_is_first(r, s)) {
      s->index = index;
      s->size = size;
      s->task = r.task;
      s->site = r.site;
      s->iteration = r.iteration;
      s->failed = failed;
    }
    __threadfence();
    atomicExch(&r.status->lock, 0);
    done = true;
  }
}

)c";

inline constexpr char kCudaAfter[] = R"c(#define facula_fmaf fmaf

FACULA_FUNCTION double facula_far_sin(double x) { return sin(x); }
FACULA_FUNCTION double facula_far_cos(double x) { return cos(x); }
FACULA_FUNCTION double facula_far_tan(double x) { return tan(x); }

/* ---- *at := change(*at), at once. Numbers of 8 and 16 bits are changed within the word that holds them. */
template <class T, class F>
static __device__ __forceinline__ void facula_atomic(T* at, F change) {
  if constexpr (sizeof(T) == 8) {
    unsigned long long *word = (unsigned long long*)at, seen = *(volatile unsigned long long*)word, before;
    do {
      before = seen;
      seen = atomicCAS(word, before, (unsigned long long)change((T)before));
    } while (seen != before);
  } else {
    constexpr unsigned mask = sizeof(T) == 4 ? ~0u : (1u << sizeof(T) * 8 % 32) - 1;
    unsigned* word = (unsigned*)((uintptr_t)at & ~(uintptr_t)3);
    unsigned shift = (unsigned)((uintptr_t)at & 3) * 8, seen = *(volatile unsigned*)word, before;
    do {
      before = seen;
      unsigned now = (unsigned)change((T)(before >> shift)) & mask;
      seen = atomicCAS(word, before, (before & ~(mask << shift)) | now << shift);
    } while (seen != before);
  }
}
)c";

}  // namespace facula::codegen
