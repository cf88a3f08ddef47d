// Threads that work together on many short parallel loops in a row, for which starting them anew would take longer than a
// loop.
#pragma once
#include <immintrin.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "facula/base/parallel.h"

namespace facula::numerics {

// Waiting for another thread's next step by spinning: the caller calls wait() and looks again.
class Patience {
 public:
  void wait() {
    constexpr int kSpins = 1000;
    if (++spins_ % kSpins == 0) std::this_thread::yield();
    else _mm_pause();
  }

 private:
  int spins_ = 0;
};

class Crew {
 public:
  // Calls lead(crew) on this thread, with up to `threads` threads to help.
  static void with(int64_t threads, int64_t parts, const std::function<void(Crew&)>& lead) {
    Crew crew(threads, parts);
    parallel_for(threads, 1, [&](int64_t begin, int64_t) {
      if (begin > 0) return crew.help(begin);
      struct End {  // releases the helpers even if lead() throws
        Crew& crew;
        ~End() { crew.round_.store(kOver, std::memory_order_release); }
      } end{crew};
      lead(crew);
    });
  }

  // Calls f(part) for each part; f must not throw. A thread takes the same parts each time, because their memory is in
  // its cache, and then those of other threads that are left over.
  template <class F>
  void each(const F& f) {
    if (threads_ == 1) {
      for (int64_t k = 0; k < parts_; ++k) f(k);
      return;
    }
    work_ = [&f](int64_t k) { f(k); };
    done_.store(0, std::memory_order_relaxed);
    int64_t round = round_.load(std::memory_order_relaxed) + 1;
    round_.store(round, std::memory_order_release);
    take(0, round);
    wait([&] { return done_.load(std::memory_order_acquire) == parts_; });
  }

 private:
  static constexpr int64_t kOver = -1;

  Crew(int64_t threads, int64_t parts) : threads_(threads), parts_(parts), taken_(size_t(parts)) {}

  void help(int64_t own) {
    for (int64_t seen = 0, round;; seen = round) {
      wait([&] { return (round = round_.load(std::memory_order_acquire)) != seen; });
      if (round == kOver) return;
      take(own, round);
    }
  }
  // A round ends when all parts are taken: a thread that comes late finds none.
  void take(int64_t own, int64_t round) {
    for (bool mine : {true, false})
      for (int64_t k = 0; k < parts_; ++k) {
        int64_t before = taken_[size_t(k)].load(std::memory_order_relaxed);
        if ((k % threads_ == own) != mine || before >= round) continue;
        if (!taken_[size_t(k)].compare_exchange_strong(before, round, std::memory_order_acq_rel)) continue;
        work_(k);
        done_.fetch_add(1, std::memory_order_release);
      }
  }
  template <class Done>
  static void wait(const Done& done) {
    for (Patience patience; !done();) patience.wait();
  }

  const int64_t threads_, parts_;
  std::vector<std::atomic<int64_t>> taken_;  // the last round in which each part was taken
  std::function<void(int64_t)> work_;
  std::atomic<int64_t> round_{0}, done_{0};
};

}  // namespace facula::numerics
