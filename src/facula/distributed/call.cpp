#include "facula/distributed/call.h"

#include <algorithm>
#include <chrono>

namespace facula::distributed {

const char* name(Kind kind) {
  static constexpr const char* names[] = {"broadcast", "all_reduce",     "reduce",     "all_gather", "gather",
                                          "scatter",   "reduce_scatter", "all_to_all", "barrier",    "send",
                                          "recv"};
  return names[int(kind)];
}

std::exception_ptr Work::error() const {
  std::lock_guard lock(mutex_);
  return error_;
}

bool Work::wait(double seconds, const std::function<void()>& idle) {
  using Clock = std::chrono::steady_clock;
  if (is_done()) return true;
  auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                std::chrono::duration<double>(std::min(seconds, 1e9)));
  std::unique_lock lock(mutex_);
  while (!is_done()) {
    auto now = Clock::now();
    if (now >= end) return false;
    changed_.wait_until(lock, std::min(end, now + std::chrono::milliseconds(20)));
    if (is_done() || !idle) continue;
    lock.unlock();
    idle();
    lock.lock();
  }
  return true;
}

void Work::finish(std::exception_ptr error) {
  std::vector<std::function<void()>> callbacks;
  {
    std::lock_guard lock(mutex_);
    if (state_.load(std::memory_order_relaxed)) return;
    error_ = std::move(error);
    state_.store(error_ ? 2 : 1, std::memory_order_release);
    callbacks.swap(callbacks_);
    changed_.notify_all();
  }
  for (auto& f : callbacks) f();
}

void Work::then(std::function<void()> f) {
  {
    std::lock_guard lock(mutex_);
    if (!is_done()) {
      callbacks_.push_back(std::move(f));
      return;
    }
  }
  f();
}

}  // namespace facula::distributed
