#include "facula/run/entry.h"

#include <utility>

#include "facula/base/caches.h"
#include "facula/base/dtype.h"
#include "facula/base/fork.h"
#include "facula/tensor/block.h"

namespace facula::run {

bool is_run_time_number(const op::Operator& o, size_t k, const op::Value& v) {
  if (v.tag != op::Tag::scalar && v.tag != op::Tag::integer) return false;
  auto& p = o.schema.parameters[k];
  if (p.type == op::Type::Tensor) return true;
  auto* composite = o.as<op::Composite>();
  if (p.type == op::Type::Float) return composite && k < 64 && composite->operand_floats >> k & 1;
  return p.is_number_operand() && !(composite && k < 64 && composite->baked_numbers >> k & 1);
}

void key_of(const op::Operator& o, std::span<const op::Value> args, Purpose purpose, Key& key,
            Operands& operands) {
  uint64_t* head = key.append(2);
  head[0] = reinterpret_cast<uint64_t>(&o);
  head[1] = uint64_t(purpose) | uint64_t(default_dtype()) << 8;
  for (size_t k = 0; k < args.size(); ++k) {
    auto& v = args[k];
    if (v.tag == op::Tag::tensor) [[likely]] {
      append(key, *v.tensor);
      operands.values.push_back(v);
      operands.position.push_back(uint32_t(k) << 16);
    } else if (v.tag == op::Tag::tensors) {
      key.push_back(uint64_t(v.tag) | v.list.count << 8);
      auto items = v.tensors();
      for (size_t i = 0; i < items.size(); ++i) {
        op::Value item(items[i]);
        append(key, item);
        if (!items[i]) continue;
        operands.values.push_back(item);
        operands.position.push_back(uint32_t(k) << 16 | uint32_t(i));
      }
    } else if (is_run_time_number(o, k, v)) {
      op::Value number = as_operand(v);
      append(key, number);
      operands.values.push_back(number);
      operands.position.push_back(uint32_t(k) << 16);
    } else if (v.tag != op::Tag::none) {
      op::append_attributes(key, args.subspan(k, 1));
    } else {
      key.push_back(0);
    }
  }
}

namespace {
TableMutex caches_mutex;
// The caches of all operators that have one. Those of operators that are gone are dropped with them.
std::vector<std::weak_ptr<void>>& caches() {
  static auto& all = *new std::vector<std::weak_ptr<void>>;
  return all;
}
void drop_entries() {
  std::vector<std::weak_ptr<void>> all;
  {
    std::lock_guard lock(caches_mutex);
    all = caches();
  }
  for (auto& weak : all) {
    auto held = weak.lock();
    if (!held) continue;
    auto& cache = *static_cast<Cache*>(held.get());
    std::lock_guard lock(cache.mutex);
    cache.entries.clear();
    cache.traced.clear();
  }
}
}  // namespace

Cache& cache_of(const op::Operator& o) {
  std::lock_guard lock(caches_mutex);
  if (!o.cache) {
    o.cache = std::make_shared<Cache>();
    if (caches().empty()) on_drop_caches(drop_entries);
    caches().push_back(o.cache);
  }
  return *static_cast<Cache*>(o.cache.get());
}

namespace {
constexpr size_t kRecent = 256;
constinit FACULA_FAST_THREAD_LOCAL Recent* recent = nullptr;
struct Closer {
  ~Closer() { delete[] std::exchange(recent, nullptr); }
};
}  // namespace

Recent& recent_of(uint64_t hash) {
  if (!recent) [[unlikely]] {
    static thread_local Closer closer;
    recent = (void(&closer), new Recent[kRecent]);
    on_drop_caches_of_thread([] {
      for (size_t k = 0; recent && k < kRecent; ++k)
        if (!recent[k].users) recent[k].entry = nullptr;
    });
  }
  return recent[hash % kRecent];
}

}  // namespace facula::run
