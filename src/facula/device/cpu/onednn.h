// How this backend uses oneDNN. A Bound is a primitive for certain shapes with its memory objects; it belongs to one
// thread and is cached there under a key of everything that it was built from. Scratchpads belong to the user, one buffer
// per thread: in library mode one primitive that two threads run gives wrong numbers silently.
#pragma once
#include <unistd.h>

#include <atomic>
#include <dnnl.hpp>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "facula/base/bounded.h"
#include "facula/base/caches.h"
#include "facula/base/dtype.h"
#include "facula/base/fork.h"
#include "facula/base/hash.h"
#include "facula/base/parallel.h"
#include "facula/base/per_thread.h"
#include "facula/base/small_vector.h"
#include "facula/codegen/prediction.h"

namespace facula::device::cpu {

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
// Returns the number of threads that a primitive created now will use, which is part of every key. Also sets OpenMP's
// number on this thread.
int onednn_threads();
// Returns whether this is a reference implementation, which callers refuse, and reports it (FACULA_LOG=kernels).
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
  void run(std::initializer_list<const void*> pointers) const { run({pointers.begin(), pointers.size()}); }
  void run(std::span<const void* const> pointers) const;

 private:
  dnnl::primitive primitive_;
  size_t scratchpad_ = 0;
  std::vector<dnnl::memory> memories_;
  std::vector<dnnl_exec_arg_t> args_;
};

// Logs under FACULA_LOG=kernels why a plan is refused.
void log_refusal(const dnnl::error& e);

// Returns the plan from `make`, or a plan that is `refused` if oneDNN has no primitive or memory descriptor for it.
template <class Plan, class F>
std::unique_ptr<Plan> make_or_refuse(F&& make) {
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

// Plans that were created in the background (codegen/prediction.h), until a thread takes them.
template <class Plan>
class Prepared {
 public:
  static Prepared& all() {
    static auto& b = *new Prepared;
    return b;
  }
  // Null if there is none or if it could not be created. Waits for a plan that is being created.
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
    slot->plan = make_or_refuse<Plan>(f);
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

// Returns this thread's plan for `key`. If it is not cached, the plan is taken from those created in the background for
// `thing`, or `make` creates it. If a plan is refused, the caller copies its operands or uses another library. A thread
// keeps the plans that it used last.
template <class Plan, class F>
const Plan& planned(const codegen::Thing& thing, const Key& key, F&& make) {
  constexpr size_t kMost = 1024;
  struct Plans : Bounded<Key, std::unique_ptr<Plan>, KeyHash> {
    Plans() : Bounded<Key, std::unique_ptr<Plan>, KeyHash>(kMost) {
      on_drop_caches_of_thread([] { per_thread<Plans>().clear(); });
    }
  };
  auto& plans = per_thread<Plans>();
  auto* cached = plans.find(key);
  if (!cached) {
    std::unique_ptr<Plan> plan;
    if (!in_parallel()) {
      codegen::wanted(thing, codegen::Words(key.data(), key.size()));
      plan = Prepared<Plan>::all().take(key);
    }
    if (!plan) plan = make_or_refuse<Plan>(make);
    cached = &plans.put(key, std::move(plan));
  }
  return **cached;
}

}  // namespace facula::device::cpu
