#include "facula/base/interrupt.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "facula/base/thread_state.h"

namespace facula {

namespace {

constexpr int64_t kEvery = 20'000'000;  // nanoseconds between two checks

std::atomic<void (*)()> installed{nullptr};

int64_t now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  return int64_t(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

}  // namespace

void set_interrupt_check(void (*check)()) { installed = check; }

void check_interrupt() {
  auto check = installed.load(std::memory_order_relaxed);
  auto& thread = thread_state;
  if (!check || thread.uninterrupted) return;
  if (thread.is_main < 0) thread.is_main = syscall(SYS_gettid) == getpid();
  if (!thread.is_main) return;
  int64_t t = now();
  if (t < thread.next_interrupt_check) return;
  thread.next_interrupt_check = t + kEvery;
  check();
}

Uninterrupted::Uninterrupted() { ++thread_state.uninterrupted; }
Uninterrupted::~Uninterrupted() { --thread_state.uninterrupted; }

}  // namespace facula
