// Locks that a fork takes. A forked child is a copy of the process with one thread: a lock that another
// thread held would stay locked in it for ever, and who makes children (the workers of a DataLoader) cannot
// know what other threads are at. So the locks of tables that every operator may need are taken by the fork
// itself, all of them, and are free in the child. While it waits for who holds one, as for a kernel that is
// being compiled, threads that hold none take none. It waits five seconds at most: a thread may wait in turn
// for what the forking thread holds, and then the child is as it would have been.
#pragma once
#include <atomic>
#include <mutex>

namespace facula {

// A std::mutex of the process's tables. It enters the list of all when it is locked first, not when it is made:
// the thread that makes a static one would wait for a fork inside of the static's guard, and the child for it.
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
  __attribute__((tls_model("initial-exec"))) static constinit thread_local int held_;  // by this thread
  std::mutex mutex_;
  std::atomic<bool> listed_{false};
  TableMutex *next_ = nullptr, *before_ = nullptr;
  bool taken_ = false;  // by the fork
};

}  // namespace facula
