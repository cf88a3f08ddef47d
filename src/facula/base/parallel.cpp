#include "facula/base/parallel.h"

#include <omp.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "facula/base/interrupt.h"
#include "facula/base/settings.h"

extern "C" void facula_omp_wait_read();  // cmake/omp_wait.cpp

namespace facula {

namespace {

[[gnu::constructor]] void omp_wait_read() { facula_omp_wait_read(); }

// The number of grains per thread between two checks for interrupts: tens of milliseconds.
constexpr int64_t kBetweenChecks = 1024;

// The threads of the pool do not exist in a forked child: there everything runs on the caller.
std::atomic<bool> forked{false};

std::atomic<int>& threads() {
  static std::atomic<int> n = [] {
    pthread_atfork(nullptr, nullptr, [] { forked = true; });
    return settings().num_threads > 0 ? int(std::min<int64_t>(settings().num_threads, 1024))
                                      : omp_get_max_threads();
  }();
  return n;
}

#ifdef __SANITIZE_THREAD__
// The thread sanitizer does not understand the synchronisation of OpenMP's library, so std::threads replace its
// threads.
thread_local bool in_piece = false;
template <class Piece>
void share(int64_t pieces, const Piece& piece) {
  auto run = [&](int64_t k) {
    in_piece = true;
    piece(k);
    in_piece = false;
  };
  std::vector<std::thread> others;
  for (int64_t k = 1; k < pieces; ++k) others.emplace_back(run, k);
  run(0);
  for (auto& t : others) t.join();
}
#else
template <class Piece>
void share(int64_t pieces, const Piece& piece) {
#pragma omp parallel for schedule(static, 1) num_threads(int(pieces))
  for (int64_t k = 0; k < pieces; ++k) piece(k);
}
#endif

}  // namespace

int num_threads() { return forked ? 1 : threads().load(std::memory_order_relaxed); }
void set_num_threads(int n) {
  threads() = std::max(1, n);
  omp_set_num_threads(threads());
}
#ifdef __SANITIZE_THREAD__
bool in_parallel() { return in_piece || omp_in_parallel(); }
#else
bool in_parallel() { return omp_in_parallel(); }
#endif

void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& f) {
  if (n <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  int64_t pieces = std::min<int64_t>(n / grain, num_threads());
  if (in_parallel()) return f(0, n);
  int64_t step = grain > n / kBetweenChecks ? n : grain * kBetweenChecks;
  if (pieces <= 1) {
    for (int64_t at = 0; at < n; at += step) {
      if (at) check_interrupt();
      f(at, std::min(n, at + step));
    }
    return;
  }
  // The first n % pieces pieces have one more item.
  int64_t size = n / pieces, longer = n % pieces;
  std::exception_ptr failure;
  std::atomic<bool> failed{false};
  std::mutex mutex;
  share(pieces, [&](int64_t k) {
    try {
      int64_t begin = k * size + std::min(k, longer), end = begin + size + (k < longer);
      for (int64_t at = begin; at < end; at += step) {
        if (at > begin) {
          if (failed.load(std::memory_order_relaxed)) break;
          check_interrupt();
        }
        f(at, std::min(end, at + step));
      }
    } catch (...) {
      std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
      failed = true;
    }
  });
  if (failure) std::rethrow_exception(failure);
}

}  // namespace facula
