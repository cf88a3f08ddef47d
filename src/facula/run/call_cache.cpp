#include "facula/run/call_cache.h"

#include <utility>

#include "facula/base/fork.h"
#include "facula/op/operator.h"
#include "facula/tensor/block.h"

namespace facula::run {

CallCache& cache_of(const op::Operator& o) {
  static TableMutex mutex;
  std::lock_guard lock(mutex);
  if (!o.cache) o.cache = std::make_shared<CallCache>();
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
  }
  return recent[hash % kRecent];
}

}  // namespace facula::run
