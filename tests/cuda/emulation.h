// CUDA C on a CPU, for tests: blocks run one after the other, the threads of a block are fibers that go from barrier to
// barrier in turn. Include before the text of kernels, compile as C++ and call facula_emulate(kernel, ...). A thread that
// ends, or waits at another barrier, while others wait is an error, as it is on a GPU (where it hangs).
#pragma once
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

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

namespace facula_emulation {

constexpr size_t kStack = 64 * 1024;
struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack{new char[kStack]};
  const void* barrier = nullptr;  // where it waits
  bool done = false;
};
inline std::vector<Fiber>& fibers() {
  static std::vector<Fiber> all;
  return all;
}
inline ucontext_t& scheduler() {
  static ucontext_t context;
  return context;
}
inline void (*&work())() {
  static void (*f)();
  return f;
}
inline void fiber_main() {
  work()();
  fibers()[threadIdx.x].done = true;
  swapcontext(&fibers()[threadIdx.x].context, &scheduler());
}
inline void wait(const void* at) {
  unsigned own = threadIdx.x;
  fibers()[own].barrier = at;
  swapcontext(&fibers()[own].context, &scheduler());
}

inline void run_block(unsigned threads) {
  if (fibers().size() < threads) fibers().resize(threads);
  for (unsigned t = 0; t < threads; ++t) {
    Fiber& f = fibers()[t];
    f.done = false;
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = f.stack.get();
    f.context.uc_stack.ss_size = kStack;
    f.context.uc_link = nullptr;
    makecontext(&f.context, fiber_main, 0);
  }
  while (!fibers()[0].done) {
    for (unsigned t = 0; t < threads; ++t) {
      threadIdx.x = t;
      swapcontext(&scheduler(), &fibers()[t].context);
      bool apart = fibers()[t].done != fibers()[0].done ||
                   (!fibers()[0].done && fibers()[t].barrier != fibers()[0].barrier);
      if (apart) {
        std::fprintf(stderr, "thread %u of a block comes to another barrier than the first\n", t);
        std::abort();
      }
    }
  }
}

}  // namespace facula_emulation

// Runs tasks [begin, end) on as many blocks.
template <template <int, int> class Arguments, int buffer_count, int param_count, class Status>
void facula_emulate(void (*kernel)(Arguments<buffer_count, param_count>, int64_t, int64_t, Status*, unsigned char*,
                                   int64_t),
                    unsigned threads, unsigned blocks, void* const* buffers, const int64_t* params, int64_t begin,
                    int64_t end, Status* status, int64_t bytes) {
  static decltype(kernel) f;
  static Arguments<buffer_count, param_count> args;
  static int64_t from, to, scratch_bytes;
  static Status* failures;
  static unsigned char* scratch;
  std::unique_ptr<unsigned char[]> memory(new unsigned char[size_t(bytes) * blocks + 1]);
  f = kernel, from = begin, to = end, failures = status, scratch_bytes = bytes, scratch = memory.get();
  std::copy(buffers, buffers + buffer_count, args.buffers);
  std::copy(params, params + param_count, args.params);
  blockDim.x = threads;
  gridDim.x = blocks;
  facula_emulation::work() = [] { f(args, from, to, failures, scratch, scratch_bytes); };
  for (unsigned b = 0; b < blocks; ++b) {
    blockIdx.x = b;
    facula_emulation::run_block(threads);
  }
}

__attribute__((noinline)) static void facula_wait() { facula_emulation::wait(__builtin_return_address(0)); }
#define __syncthreads() facula_wait()

inline void __threadfence() {}
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
inline double normcdf(double x) { return (double)(0.5L * erfcl(-(long double)x / sqrtl(2.0L))); }
// By Newton's method from the other side of erfc, in more digits.
inline double erfinv(double x) {
  if (!(std::fabs(x) < 1)) return std::fabs(x) == 1 ? std::copysign(INFINITY, x) : NAN;
  long double low = 0, high = 7, a = std::fabs(x);
  for (int k = 0; k < 80; ++k) {
    long double middle = (low + high) / 2;
    (erfcl(middle) > 1 - a ? low : high) = middle;
  }
  long double y = a < 0.5L ? a * 0.886226925452758013649L : (low + high) / 2;
  for (int k = 0; k < 6; ++k) y -= (a < 0.5L ? erfl(y) - a : (1 - a) - erfcl(y)) / (expl(-y * y) * 1.12837916709551257390L);
  return a == 0 ? x : (double)copysignl(y, (long double)x);
}

// The kernel as this library calls one on a CPU; by one thread of the process at a time.
#define FACULA_EMULATED(name, kernel, threads)                                                                  \
  extern "C" void name(void* const* buffers, const int64_t* params, int64_t begin, int64_t end, int64_t* status) { \
    static std::mutex mutex;                                                                                    \
    std::lock_guard lock(mutex);                                                                                \
    facula_status failure = {};                                                                                 \
    facula_emulate(kernel, threads, 3, buffers, params, begin, end, &failure, kFaculaScratch);                  \
    status[0] = failure.failed, status[1] = failure.index, status[2] = failure.size;                            \
  }
constexpr int64_t kFaculaScratch = 16 << 20;  // of a block, touched only where it is used
