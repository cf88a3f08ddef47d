#include "facula/base/parallel.h"

#include <omp.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>

#include "facula/base/settings.h"

namespace facula {

namespace {

// The pool's threads do not live on in a forked child: there, everything runs on the caller.
std::atomic<bool> forked{false};

std::atomic<int>& threads() {
  static std::atomic<int> n = [] {
    pthread_atfork(nullptr, nullptr, [] { forked = true; });
    return settings().num_threads > 0 ? int(std::min<int64_t>(settings().num_threads, 1024)) : omp_get_max_threads();
  }();
  return n;
}

}  // namespace

int num_threads() { return forked ? 1 : threads().load(std::memory_order_relaxed); }
void set_num_threads(int n) {
  threads() = std::max(1, n);
  omp_set_num_threads(threads());
}
bool in_parallel() { return omp_in_parallel(); }

void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& f) {
  if (n <= 0) return;
  int64_t pieces = std::min<int64_t>(n / std::max<int64_t>(grain, 1), num_threads());
  if (pieces <= 1 || in_parallel()) return f(0, n);
  // The first n % pieces pieces have one item more.
  int64_t size = n / pieces, longer = n % pieces;
  std::exception_ptr failure;
  std::mutex mutex;
#pragma omp parallel for schedule(static, 1) num_threads(int(pieces))
  for (int64_t k = 0; k < pieces; ++k) {
    try {
      int64_t begin = k * size + std::min(k, longer);
      f(begin, begin + size + (k < longer));
    } catch (...) {
      std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace facula
