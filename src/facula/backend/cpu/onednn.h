// oneDNN as this backend uses it. A Bound is a primitive made for certain shapes with its memory objects; it
// belongs to one thread and is kept in that thread's cache under a key that says everything it was made from.
// Scratchpads are the user's, one buffer a thread: in library mode one primitive run by two threads gives
// wrong numbers silently.
#pragma once
#include <dnnl.hpp>
#include <memory>
#include <vector>

#include "facula/base/bounded.h"
#include "facula/base/dtype.h"
#include "facula/base/hash.h"
#include "facula/base/small_vector.h"

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

// What was made for `key` on this thread; `make` makes it. A plan that oneDNN has no primitive or memory
// descriptor for is `refused`: the caller copies its operands or takes another way. A thread keeps the plans
// that it used last.
template <class Plan, class F>
const Plan& planned(const Key& key, F&& make) {
  constexpr size_t kMost = 1024;
  using Plans = Bounded<Key, std::unique_ptr<Plan>, KeyHash>;
  thread_local std::unique_ptr<Plans> plans;  // by pointer: memory of a thread itself is scarce
  if (!plans) plans = std::make_unique<Plans>(kMost);
  auto* known = plans->find(key);
  if (!known) {
    auto plan = std::make_unique<Plan>();
    try {
      *plan = make();
    } catch (const dnnl::error& e) {
      log_refusal(e);
      *plan = {};
      plan->refused = true;
    }
    known = &plans->put(key, std::move(plan));
  }
  return **known;
}

}  // namespace facula::backend::cpu
