#include "facula/run/call_cache.h"

#include <utility>

#include "facula/base/caches.h"
#include "facula/base/fork.h"
#include "facula/op/operator.h"
#include "facula/tensor/block.h"

namespace facula::run {

namespace {

TableMutex caches_mutex;

// The caches of all operators that have one.
std::vector<std::weak_ptr<void>>& caches() {
  static auto& all = *new std::vector<std::weak_ptr<void>>;
  return all;
}

void drop_entries() {
  std::vector<std::shared_ptr<void>> alive;
  {
    std::lock_guard lock(caches_mutex);
    std::erase_if(caches(), [](auto& weak) { return weak.expired(); });  // their operators are gone
    for (auto& weak : caches())
      if (auto cache = weak.lock()) alive.push_back(std::move(cache));
  }
  for (auto& held : alive) {
    auto& cache = *static_cast<CallCache*>(held.get());
    std::lock_guard lock(cache.mutex);
    cache.entries.clear();
    cache.traced.clear();
  }
}

}  // namespace

CallCache& cache_of(const op::Operator& o) {
  std::lock_guard lock(caches_mutex);
  if (!o.cache) {
    o.cache = std::make_shared<CallCache>();
    if (caches().empty()) on_drop_caches(drop_entries);
    caches().push_back(o.cache);
  }
  return *static_cast<CallCache*>(o.cache.get());
}

namespace {
constexpr size_t kRecent = 256;
constinit FACULA_FAST_THREAD_LOCAL RecentEntry* recent = nullptr;
struct Closer {
  ~Closer() { delete[] std::exchange(recent, nullptr); }
};
}  // namespace

RecentEntry& recent_entry(uint64_t hash) {
  if (!recent) [[unlikely]] {
    static thread_local Closer closer;
    recent = (void(&closer), new RecentEntry[kRecent]);
    on_drop_caches_of_thread([] {
      for (size_t k = 0; recent && k < kRecent; ++k)
        if (!recent[k].users) recent[k].entry = nullptr;
    });
  }
  return recent[hash % kRecent];
}

}  // namespace facula::run
