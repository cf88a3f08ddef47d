// Locks that are released in forked children. A forked child is a copy of the process with a single thread: a lock
// that another thread held would stay locked for ever, and code that forks (DataLoader's workers) cannot know what
// other threads are doing. So the fork itself takes all locks of tables that operators may need, and they are free in
// the child. While it waits for a holder (a kernel that is being compiled, for example), threads that hold no such
// lock take none. It waits for at most five seconds, since a holder may in turn wait for something that the forking
// thread holds; in that case the child gets the locks as they are.
#pragma once
#include <atomic>
#include <mutex>

namespace facula {

// A std::mutex for tables of the process. It is registered when it is first locked, not when it is constructed: a
// thread that constructs a static one would wait for a fork while holding the static's guard, and the child would
// wait for that guard.
class TableMutex {
 public:
  constexpr TableMutex() noexcept = default;
  ~TableMutex();
  TableMutex(const TableMutex&) = delete;
  void lock() {
    if (fork_waits_.load(std::memory_order_relaxed) && !held_) [[unlikely]]
      wait_for_fork();
    if (!listed_.load(std::memory_order_acquire)) [[unlikely]]
      enter();
    mutex_.lock();
    ++held_;
  }
  bool try_lock() {
    if (!listed_.load(std::memory_order_acquire)) [[unlikely]]
      enter();
    bool got = mutex_.try_lock();
    held_ += got;
    return got;
  }
  void unlock() {
    --held_;
    mutex_.unlock();
  }

 private:
  friend struct TableMutexes;
  static void wait_for_fork();
  void enter();
  static constinit std::atomic<bool> fork_waits_;
  __attribute__((tls_model(
      "initial-exec"))) static constinit thread_local int held_;  // number of locks that this thread holds
  std::mutex mutex_;
  std::atomic<bool> listed_{false};
  TableMutex *next_ = nullptr, *before_ = nullptr;
  bool taken_ = false;  // the fork has taken it
};

}  // namespace facula
