#include "facula/codegen/background.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>

#include "facula/base/error.h"
#include "facula/base/fork.h"
#include "facula/base/parallel.h"
#include "facula/base/thread_state.h"
#include "facula/codegen/kernel.h"

namespace facula::codegen {
namespace {

constexpr int kMostThreads = 4;
constexpr size_t kMostJobs = 256;  // the oldest jobs are dropped: the program has long passed them

int processors() {
  static const int n = [] {
    cpu_set_t all;
    return sched_getaffinity(0, sizeof all, &all) ? 1 : CPU_COUNT(&all);
  }();
  return n;
}

// Registers the end again with every job that is added or done, so that it runs before the destructors of everything
// that was used until then.
void register_end() {
  static std::atomic<size_t> count{0};
  if (count.fetch_add(1, std::memory_order_relaxed) < kMostJobs) std::atexit(end_background);
}

class Pool {
 public:
  void add(std::vector<std::function<void()>> jobs, int threads) {
    {
      std::lock_guard lock(mutex_);
      if (ended_) return;
      for (auto& j : jobs) jobs_.push_back(std::move(j));
      if (jobs_.size() > kMostJobs) jobs_.erase(jobs_.begin(), jobs_.end() - kMostJobs);
      int wanted = std::min(threads, running_ + int(jobs_.size()));
      for (; started_ < wanted; ++started_) std::thread([this] { serve(); }).detach();
    }
    wake_.notify_all();
  }
  void finish() {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [&] { return jobs_.empty() && !running_; });
  }
  void end() {
    if (!is_own()) return;
    std::unique_lock lock(mutex_);
    ended_ = true;
    jobs_.clear();
    idle_.wait(lock, [&] { return !running_; });
  }
  bool is_own() const { return owner_ == getpid(); }
  bool ended() const { return ended_; }

 private:
  void serve() {
    thread_state.is_background = true;
    // A fork waits for the end of the job, so that the child inherits no half-initialised static.
    TableMutex busy;
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return !jobs_.empty(); });
      auto job = std::move(jobs_.back());
      jobs_.pop_back();
      ++running_;
      lock.unlock();
      {
        std::lock_guard working(busy);
        try {
          job();
        } catch (...) {}
        job = nullptr;
        register_end();
      }
      lock.lock();
      if (!--running_) idle_.notify_all();
    }
  }

  const pid_t owner_ = getpid();
  TableMutex mutex_;
  std::condition_variable_any wake_, idle_;
  std::vector<std::function<void()>> jobs_;
  int started_ = 0, running_ = 0;
  std::atomic<bool> ended_{false};
};

// Never destroyed: threads wait in it until the process ends.
Pool& pool() {
  static Pool* p = new Pool;
  return *p;
}

void add(std::vector<std::function<void()>> jobs) {
  int threads = background_threads();
  if (!threads || jobs.empty() || !pool().is_own()) return;
  try {
    pool().add(std::move(jobs), threads);
    register_end();
  } catch (const std::exception&) {  // no thread could be started
  }
}

}  // namespace

int background_threads() {
  if (thread_state.is_background) return 0;  // a job makes what it needs itself
  return std::min({num_threads(), processors(), kMostThreads + 1}) - 1;
}

bool is_background_thread() { return thread_state.is_background; }
void check_background() {
  runtime_check(!thread_state.is_background || !pool().ended(), "codegen") << "the process ends";
}

void run_in_background(std::function<void()> job) {
  std::vector<std::function<void()>> jobs;
  jobs.push_back(std::move(job));
  add(std::move(jobs));
}

void run_in_background_next(std::vector<std::function<void()>> jobs) {
  std::reverse(jobs.begin(), jobs.end());
  if (thread_state.is_background) pool().add(std::move(jobs), 0);
}

void expect(std::vector<std::shared_ptr<const loop::LazyNest>> nests) {
  if (!background_threads()) return;
  std::vector<std::function<void()>> jobs;
  for (auto n = nests.rbegin(); n != nests.rend(); ++n) jobs.push_back([nest = *n] { kernel(*nest); });
  add(std::move(jobs));
}

void finish_background() {
  if (pool().is_own()) pool().finish();
}
void end_background() { pool().end(); }

}  // namespace facula::codegen
