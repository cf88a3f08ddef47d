#include "facula/base/interrupt.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace facula {

namespace {

constexpr int64_t kEvery = 20'000'000;  // nanoseconds between two checks

std::atomic<void (*)()> installed{nullptr};
// State of this thread: whether it is the main thread of the process (-1: not determined yet), the number of
// Uninterrupted scopes, and the time of the next check.
struct Turn {
  int main = -1, closed = 0;
  int64_t next = 0;
};
__attribute__((tls_model("initial-exec"))) thread_local Turn turn;

int64_t now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  return int64_t(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

}  // namespace

void set_interrupt_check(void (*check)()) { installed = check; }

void check_interrupt() {
  auto check = installed.load(std::memory_order_relaxed);
  if (!check || turn.closed) return;
  if (turn.main < 0) turn.main = syscall(SYS_gettid) == getpid();
  if (!turn.main) return;
  int64_t t = now();
  if (t < turn.next) return;
  turn.next = t + kEvery;
  check();
}

Uninterrupted::Uninterrupted() { ++turn.closed; }
Uninterrupted::~Uninterrupted() { --turn.closed; }

}  // namespace facula
