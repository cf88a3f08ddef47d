// The cache of calls. A call's complete layout (operator, form, attributes, and each tensor's dtype, sizes, strides and device)
// is its key; an entry holds the programs, plans or library functions that serve every call with this key. A thread finds the
// entries that it used last without a lock. Behind it, each operator keeps what it traced, which is independent of sizes.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "facula/base/bounded.h"
#include "facula/base/fork.h"
#include "facula/device/device.h"
#include "facula/run/key.h"
#include "facula/run/program.h"

namespace facula::run {

// The programs and functions that serve all calls of one layout.
struct CacheEntry {
  std::shared_ptr<const Program> program;
  std::shared_ptr<const Plan> plan;
  std::vector<Dims> logical_strides;  // of results, where their strides in memory may differ

  // Operators of kind library
  device::LibraryFn library = nullptr;
  std::vector<op::Meta> metas;         // of the results, as users see them
  std::vector<Dims> physical_strides;  // of the results in memory
  std::vector<size_t> bytes;           // that the results need

  // If one of these is set, nothing else is.
  bool needs_logical = false;    // operands have to be restored to the logical layout first
  bool needs_self_copy = false;  // an in-place loop would read elements that it has already written

  std::shared_ptr<const TracedCall>
      recorded;  // a composite with its gradient (composite.cpp); `plan` is the forward plan
};

// The cache of one operator. Entries do not change; the lock is held for look-ups alone.
struct CallCache {
  TableMutex mutex;
  Bounded<Key, std::shared_ptr<const CacheEntry>, KeyHash> entries{kMaxPlans};
  Bounded<Key, std::vector<std::shared_ptr<const TracedCall>>, KeyHash> traced{kMaxPrograms};
};
CallCache& cache_of(const op::Operator& o);

// The traced form of a call. `key` says what the trace depends on besides sizes; `make` traces where no trace under this
// key accepts the operands.
template <class Traced, class F>
std::shared_ptr<const Traced> traced_call(const op::Operator& o, Key key, std::span<const op::Value> operands,
                                          F&& make) {
  auto& cache = cache_of(o);
  {
    std::lock_guard lock(cache.mutex);
    if (auto* candidates = cache.traced.find(key))
      for (auto& c : *candidates)
        if (c->accepts(operands)) return std::static_pointer_cast<const Traced>(c);
  }
  std::shared_ptr<const Traced> traced = make();
  std::lock_guard lock(cache.mutex);
  auto* candidates = cache.traced.find(key);
  if (!candidates) candidates = &cache.traced.put(std::move(key), {});
  if (candidates->size() >= kMaxPrograms) candidates->erase(candidates->begin());
  candidates->push_back(traced);
  return traced;
}

// The entries that a thread used last, in front of the locked tables.
struct RecentEntry {
  Key key;
  std::shared_ptr<const CacheEntry> entry;
  int users = 0;  // running calls that use the entry, which stays until they return
};
RecentEntry& recent_entry(uint64_t hash);  // of this thread

// The entry of a key, held for the length of a call. Where there is none, `make` fills one in; if it returns false, the entry
// serves this call alone.
class CachedCall {
 public:
  template <class F>
  CachedCall(const op::Operator& o, Key& key, F&& make) {
    RecentEntry& r = recent_entry(KeyHash()(key));
    if (!(r.entry && r.key == key)) [[unlikely]] {
      bool shareable = true;
      auto entry = shared(o, key, make, shareable);
      if (!shareable || r.users) {  // the place belongs to a call that is still running
        own_ = std::move(entry);
        entry_ = own_.get();
        return;
      }
      r.key = std::move(key);
      r.entry = std::move(entry);
    }
    entry_ = r.entry.get();
    users_ = &r.users;
    ++*users_;
  }
  ~CachedCall() {
    if (users_) --*users_;
  }
  CachedCall(const CachedCall&) = delete;
  const CacheEntry* operator->() const { return entry_; }
  const CacheEntry& operator*() const { return *entry_; }

 private:
  template <class F>
  static std::shared_ptr<const CacheEntry> shared(const op::Operator& o, const Key& key, F&& make,
                                                  bool& shareable) {
    auto& cache = cache_of(o);
    {
      std::lock_guard lock(cache.mutex);
      if (auto* entry = cache.entries.find(key)) return *entry;
    }
    auto entry = std::make_shared<CacheEntry>();
    shareable = make(*entry);
    if (!shareable) return entry;
    std::lock_guard lock(cache.mutex);
    if (auto* earlier = cache.entries.find(key)) return *earlier;  // another thread was faster
    return cache.entries.put(key, std::move(entry));
  }
  const CacheEntry* entry_;
  int* users_ = nullptr;
  std::shared_ptr<const CacheEntry> own_;
};

}  // namespace facula::run
