#include "facula/base/fork.h"

#include <pthread.h>

#include <chrono>
#include <thread>

namespace facula {

constinit std::atomic<bool> TableMutex::fork_waits_{false};
constinit thread_local int TableMutex::held_ = 0;

struct TableMutexes {
  std::mutex gate;  // held by a fork from its beginning to its end
  std::mutex list;  // guards `first`
  TableMutex* first = nullptr;
  bool taken = false;  // the fork has taken all locks and the list

  TableMutexes() {
    pthread_atfork([] { all().take(); }, [] { all().release(); }, [] { all().release(); });
  }
  static TableMutexes& all() {
    static auto* t = new TableMutexes;
    return *t;
  }

  // Takes all locks or none at a time, so that their order does not matter: a holder may wait for another lock.
  void take() {
    gate.lock();
    TableMutex::fork_waits_ = true;
    auto start = std::chrono::steady_clock::now();
    while (!(taken = take_all()) && std::chrono::steady_clock::now() - start < std::chrono::seconds(5))
      std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  void release() {
    if (taken) give_back();
    TableMutex::fork_waits_ = false;
    gate.unlock();
  }

 private:
  bool take_all() {
    if (!list.try_lock()) return false;
    for (auto* m = first; m; m = m->next_)
      if (!(m->taken_ = m->mutex_.try_lock())) {
        give_back();
        return false;
      }
    return true;
  }
  void give_back() {
    for (auto* m = first; m && m->taken_; m = m->next_) {
      m->taken_ = false;
      m->mutex_.unlock();
    }
    list.unlock();
  }
};

namespace {
// Initialised when the library is loaded: a fork before the first lock would otherwise not be observed.
[[maybe_unused]] const auto& at_load = TableMutexes::all();
}  // namespace

void TableMutex::wait_for_fork() { std::lock_guard over(TableMutexes::all().gate); }

void TableMutex::enter() {
  auto& all = TableMutexes::all();
  std::lock_guard lock(all.list);
  if (listed_) return;
  next_ = all.first;
  if (next_) next_->before_ = this;
  all.first = this;
  listed_ = true;
}

TableMutex::~TableMutex() {
  if (!listed_) return;
  auto& all = TableMutexes::all();
  std::lock_guard lock(all.list);
  (before_ ? before_->next_ : all.first) = next_;
  if (next_) next_->before_ = before_;
}

}  // namespace facula
