// oneDNN as this backend uses it. A Bound is a primitive made for certain shapes with its memory objects; it
// belongs to one thread and is kept in that thread's cache under a key that says everything it was made from.
// Scratchpads are the user's, one buffer a thread: in library mode one primitive run by two threads gives
// wrong numbers silently.
#pragma once
#include <unistd.h>

#include <atomic>
#include <dnnl.hpp>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "facula/base/bounded.h"
#include "facula/base/caches.h"
#include "facula/base/dtype.h"
#include "facula/base/fork.h"
#include "facula/base/hash.h"
#include "facula/base/parallel.h"
#include "facula/base/small_vector.h"
#include "facula/codegen/sequel.h"

namespace facula::backend::cpu {

using Key = SmallVector<int64_t, 40>;
struct KeyHash {
  size_t operator()(const Key& k) const {
    uint64_t h = k.size();
    for (auto w : k) h = mix(h, uint64_t(w));
    return h;
  }
};

const dnnl::engine& onednn_engine();
dnnl::memory::data_type onednn_type(DType d);
dnnl::primitive_attr onednn_attributes();  // scratchpad mode: user
// Threads that a primitive made now will use; part of every key. Also tells OpenMP on this thread.
int onednn_threads();
// Is this a reference implementation? If so it is reported (FACULA_LOG=kernels), to be refused.
bool is_reference(const char* what, const char* implementation);

// A buffer of this thread that lives until the next request for the same use.
enum class Scratch { primitive, source, weights, destination, other, count };
void* scratch(Scratch use, size_t bytes);

class Bound {
 public:
  Bound() = default;
  template <class Primitive, class Descriptor>
  static Bound of(const Descriptor& pd) {
    Bound b;
    b.primitive_ = Primitive(pd);
    b.scratchpad_ = pd.scratchpad_desc().get_size();
    if (b.scratchpad_) b.add(DNNL_ARG_SCRATCHPAD, pd.scratchpad_desc());
    return b;
  }
  static Bound reorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to);
  // Arguments are given to run() in the order of add().
  void add(int argument, const dnnl::memory::desc& d);
  void run(std::initializer_list<const void*> pointers) const;

 private:
  dnnl::primitive primitive_;
  size_t scratchpad_ = 0;
  std::vector<dnnl::memory> memories_;
  std::vector<dnnl_exec_arg_t> args_;
};

// Says under FACULA_LOG=kernels why a plan is not made.
void log_refusal(const dnnl::error& e);

// What `make` makes, or a plan that is `refused`, for which oneDNN has no primitive or memory descriptor.
template <class Plan, class F>
std::unique_ptr<Plan> made_or_refused(F&& make) {
  auto plan = std::make_unique<Plan>();
  try {
    *plan = make();
  } catch (const dnnl::error& e) {
    log_refusal(e);
    *plan = {};
    plan->refused = true;
  }
  return plan;
}

// Plans that were made beside the program (codegen/sequel.h), until a thread takes them.
template <class Plan>
class Beside {
 public:
  static Beside& all() {
    static auto& b = *new Beside;
    return b;
  }
  // Null if there is none, or if it could not be made. Waits where it is being made.
  std::unique_ptr<Plan> take(const Key& key) {
    std::shared_ptr<Slot> slot;
    {
      std::lock_guard lock(mutex_);
      auto it = slots_.find(key);
      if (it == slots_.end()) return nullptr;
      slot = std::move(it->second);
      slots_.erase(it);
    }
    if (slot->maker == getpid()) slot->done.wait(false, std::memory_order_acquire);
    return slot->done.load(std::memory_order_acquire) ? std::move(slot->plan) : nullptr;
  }
  template <class F>
  void make(const Key& key, F&& f) {
    auto slot = std::make_shared<Slot>();
    {
      std::lock_guard lock(mutex_);
      if (slots_.size() >= kMost || !slots_.emplace(key, slot).second) return;
    }
    struct Finish {
      Slot& slot;
      ~Finish() {
        slot.done.store(true, std::memory_order_release);
        slot.done.notify_all();
      }
    } finish{*slot};
    slot->plan = made_or_refused<Plan>(f);
  }

 private:
  static constexpr size_t kMost = 1024;
  struct Slot {
    const pid_t maker = getpid();  // a forked child has no threads of its parent
    std::atomic<bool> done{false};
    std::unique_ptr<Plan> plan;
  };
  TableMutex mutex_;
  std::unordered_map<Key, std::shared_ptr<Slot>, KeyHash> slots_;
};

// What was made for `key` on this thread; `make` makes it, unless it was made beside the program as a `thing`. Where
// a plan is refused the caller copies its operands or takes another way. A thread keeps the plans that it used last.
template <class Plan, class F>
const Plan& planned(const codegen::Thing& thing, const Key& key, F&& make) {
  constexpr size_t kMost = 1024;
  using Plans = Bounded<Key, std::unique_ptr<Plan>, KeyHash>;
  thread_local std::unique_ptr<Plans> plans;  // by pointer: memory of a thread itself is scarce
  if (!plans) {
    plans = std::make_unique<Plans>(kMost);
    on_drop_caches_of_thread([] {
      if (plans) plans->clear();
    });
  }
  auto* known = plans->find(key);
  if (!known) {
    std::unique_ptr<Plan> plan;
    if (!in_parallel()) {
      codegen::wanted(thing, codegen::Words(key.data(), key.size()));
      plan = Beside<Plan>::all().take(key);
    }
    if (!plan) plan = made_or_refused<Plan>(make);
    known = &plans->put(key, std::move(plan));
  }
  return **known;
}

}  // namespace facula::backend::cpu
