// CUDA C on a CPU, for tests: blocks run one after the other, the threads of a block are fibers that go from barrier to
// barrier in turn. Include before the text of kernels and compile as C++. A thread that ends, or waits at another barrier,
// while others wait is an error, as it is on a GPU (where it hangs). Headers of C alone: every kernel pays for them.
#pragma once
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#define __global__
#define __device__
#define __shared__ static
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(n)

struct facula_dim3 {
  unsigned x = 0;
};
static facula_dim3 threadIdx, blockIdx, gridDim, blockDim;

// ---- fibers

constexpr unsigned kFaculaMostThreads = 1024;
constexpr size_t kFaculaStack = 64 * 1024;
struct facula_fiber {
  ucontext_t context;
  char* stack;
  const void* barrier;  // where it waits
  bool done;
};
static facula_fiber facula_fibers[kFaculaMostThreads];
static ucontext_t facula_scheduler;
static void (*facula_work)();

static void facula_fiber_main() {
  facula_work();
  facula_fiber& own = facula_fibers[threadIdx.x];
  own.done = true;
  swapcontext(&own.context, &facula_scheduler);
}
__attribute__((noinline)) static void facula_wait() {
  facula_fiber& own = facula_fibers[threadIdx.x];
  own.barrier = __builtin_return_address(0);
  swapcontext(&own.context, &facula_scheduler);
}
#define __syncthreads() facula_wait()

static void facula_run_block(unsigned threads) {
  for (unsigned t = 0; t < threads; ++t) {
    facula_fiber& f = facula_fibers[t];
    if (!f.stack) f.stack = (char*)malloc(kFaculaStack);
    f.done = false;
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = f.stack;
    f.context.uc_stack.ss_size = kFaculaStack;
    f.context.uc_link = nullptr;
    makecontext(&f.context, facula_fiber_main, 0);
  }
  const facula_fiber& first = facula_fibers[0];
  while (!first.done) {
    for (unsigned t = 0; t < threads; ++t) {
      const facula_fiber& f = facula_fibers[t];
      threadIdx.x = t;
      swapcontext(&facula_scheduler, &facula_fibers[t].context);
      if (f.done == first.done && (f.done || f.barrier == first.barrier)) continue;
      fprintf(stderr, "thread %u of a block comes to another barrier than the first\n", t);
      abort();
    }
  }
}

// ---- kernels

// Runs tasks [begin, end) on as many blocks, for one thread of the process at a time.
template <template <int, int> class Arguments, int buffer_count, int param_count, class Status>
void facula_emulate(void (*kernel)(Arguments<buffer_count, param_count>, int64_t, int64_t, Status*,
                                   unsigned char*, int64_t),
                    unsigned threads, unsigned blocks, void* const* buffers, const int64_t* params,
                    int64_t begin, int64_t end, Status* status, int64_t bytes) {
  static decltype(kernel) f;
  static Arguments<buffer_count, param_count> args;
  static int64_t from, to, scratch_bytes;
  static Status* failures;
  static unsigned char* scratch;
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&mutex);
  f = kernel, from = begin, to = end, failures = status, scratch_bytes = bytes;
  scratch = (unsigned char*)malloc(size_t(bytes) * blocks + 1);
  for (int k = 0; k < buffer_count; ++k) args.buffers[k] = buffers[k];
  for (int k = 0; k < param_count; ++k) args.params[k] = params[k];
  blockDim.x = threads;
  gridDim.x = blocks;
  facula_work = [] { f(args, from, to, failures, scratch, scratch_bytes); };
  for (unsigned b = 0; b < blocks; ++b) {
    blockIdx.x = b;
    facula_run_block(threads);
  }
  free(scratch);
  pthread_mutex_unlock(&mutex);
}

// The kernel as this library calls one on a CPU (codegen/kernel.h).
constexpr int64_t kFaculaScratch = 16 << 20;  // of a block, touched only where it is used
#define FACULA_EMULATED(name, kernel, threads)                                                                  \
  extern "C" void name(void* const* buffers, const int64_t* params, int64_t begin, int64_t end, int64_t* status) { \
    facula_status failure = {};                                                                                 \
    facula_emulate(kernel, threads, 3, buffers, params, begin, end, &failure, kFaculaScratch);                  \
    status[0] = failure.failed, status[1] = failure.index, status[2] = failure.size;                            \
  }

// ---- CUDA's functions

static inline void __threadfence() {}
template <class T>
T atomicCAS(T* at, T before, T now) {
  T seen = *at;
  if (seen == before) *at = now;
  return seen;
}
template <class T>
T atomicExch(T* at, T now) {
  T seen = *at;
  *at = now;
  return seen;
}
static inline double normcdf(double x) { return (double)(0.5L * erfcl(-(long double)x / sqrtl(2.0L))); }
// Halves the interval on the tail, where erfc has the digits, then Newton's steps.
static inline double erfinv(double x) {
  const long double pi = 3.141592653589793238462643383279502884L;
  long double low = 0, high = 7, a = fabs(x);
  if (a == 0) return x;
  if (!(a < 1)) return a == 1 ? copysign(INFINITY, x) : NAN;
  for (int k = 0; k < 60; ++k) {
    long double middle = (low + high) / 2;
    (erfcl(middle) > 1 - a ? low : high) = middle;
  }
  long double y = a < 0.5L ? a * sqrtl(pi) / 2 : low;
  for (int k = 0; k < 6; ++k)
    y -= (a < 0.5L ? erfl(y) - a : (1 - a) - erfcl(y)) * expl(y * y) * sqrtl(pi) / 2;
  return (double)copysignl(y, (long double)x);
}
