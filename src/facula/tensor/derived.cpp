#include "facula/tensor/derived.h"

#include <algorithm>
#include <list>
#include <mutex>
#include <vector>

#include "facula/base/caches.h"
#include "facula/base/error.h"
#include "facula/base/fork.h"
#include "facula/base/settings.h"

namespace facula {

namespace {

constexpr uint64_t kLately = 4096;     // requests; a model has fewer weights
constexpr int64_t kAlways = 16 << 20;  // bytes for which there is room in any process
constexpr size_t kMostEntries = 16;    // of a storage

// Memory whose last reference may only be released without the lock: its storage may have derived data in turn.
using Released = std::vector<Storage>;

}  // namespace

// The derived data of one storage, guarded by the lock of the table.
struct DerivedData {
  struct Entry {
    std::vector<int64_t> key;
    Storage memory;  // null: requested once
    uint64_t last_request = 0;
  };
  uint64_t version = 0;
  int direction = 0;
  std::vector<Entry> entries;
  std::list<DerivedData*>::iterator place{};  // in Table::all

  static DerivedData* of(const StorageImpl& s) { return s.derived_.load(std::memory_order_acquire); }
  static DerivedData* created_for(StorageImpl& s);
  Entry* find(std::span<const int64_t> key) {
    auto it = std::find_if(entries.begin(), entries.end(),
                           [&](const Entry& e) { return std::ranges::equal(e.key, key); });
    return it == entries.end() ? nullptr : &*it;
  }
  void forget(Released& released);
};

namespace {

struct Table {
  TableMutex mutex;
  std::list<DerivedData*> all;
  uint64_t requests = 0;
  DerivedCounts counts;
};
Table& table() {
  static auto* t = new Table;
  return *t;
}

// Makes room for so many bytes; false if there is none.
bool make_room(size_t bytes, Released& released) {
  auto& t = table();
  const int64_t tensors = memory_stats().current_bytes - t.counts.bytes;
  const int64_t most = std::min(settings().retained_packs << 20, std::max(tensors, kAlways));
  auto fits = [&] { return t.counts.bytes + int64_t(bytes) <= most; };
  if (fits() || int64_t(bytes) > most) return fits();
  for (auto* d : t.all)
    for (auto& e : d->entries)
      if (e.memory && e.last_request + kLately < t.requests) {
        t.counts.bytes -= int64_t(e.memory->bytes()), ++t.counts.dropped;
        released.push_back(std::move(e.memory));
      }
  return fits();
}

void drop_all() {
  auto& t = table();
  Released released;
  std::lock_guard lock(t.mutex);
  for (auto* d : t.all) d->forget(released);
}
const Droppable droppable(drop_all);

}  // namespace

DerivedData* DerivedData::created_for(StorageImpl& s) {  // the caller holds the lock
  auto* d = of(s);
  if (d) return d;
  auto& all = table().all;
  d = new DerivedData;
  d->place = all.insert(all.end(), d);
  s.derived_.store(d, std::memory_order_release);
  return d;
}

void DerivedData::forget(Released& released) {
  auto& counts = table().counts;
  for (auto& e : entries)
    if (e.memory) {
      counts.bytes -= int64_t(e.memory->bytes()), ++counts.dropped;
      released.push_back(std::move(e.memory));
    }
  entries.clear();
}

void StorageImpl::drop_derived() {
  if (!is_logical()) {
    PhysicalLayout layout;
    if (physical_layout(layout)) layout.memory->note_written();
  }
  auto* d = derived_.load(std::memory_order_acquire);
  if (!d) return;
  Released released;
  std::lock_guard lock(table().mutex);
  ++d->version;
  d->forget(released);
}

void StorageImpl::delete_derived() {
  auto* d = derived_.load(std::memory_order_acquire);
  Released released;
  std::lock_guard lock(table().mutex);
  d->forget(released);
  table().all.erase(d->place);
  delete d;
}

namespace {

struct Answer {
  Storage memory;        // what is retained, or null
  bool wanted = false;   // whether to retain what is computed now
  uint64_t version = 0;  // of the elements
};

Answer request(StorageImpl& elements, std::span<const int64_t> key, int direction, size_t bytes) {
  auto& t = table();
  Released released;
  std::lock_guard lock(t.mutex);
  auto& d = *DerivedData::created_for(elements);
  const uint64_t now = ++t.requests;
  if (d.direction != direction || d.entries.size() >= kMostEntries) d.forget(released);
  d.direction = direction;
  auto* e = d.find(key);
  if (!e) {
    d.entries.push_back({{key.begin(), key.end()}, {}, now});
    return {};
  }
  e->last_request = now;
  if (e->memory) {
    ++t.counts.used;
    return {e->memory, false, d.version};
  }
  return {{}, make_room(bytes, released), d.version};
}

// Retains `memory` if the elements were not written since the request.
void retain(StorageImpl& elements, std::span<const int64_t> key, uint64_t version, const Storage& memory) {
  auto& t = table();
  std::lock_guard lock(t.mutex);
  auto* d = DerivedData::of(elements);
  if (!d || d->version != version) return;
  auto* e = d->find(key);
  if (!e || e->memory) return;
  t.counts.bytes += int64_t(memory->bytes()), ++t.counts.retained;
  e->memory = memory;
}

// Null if there is not so much memory: what is computed is then not retained.
Storage allocated(size_t bytes) {
  try {
    return make_ref<StorageImpl>(bytes, Device{});
  } catch (const Error&) { return {}; }
}

}  // namespace

Storage derived(StorageImpl& elements, std::span<const int64_t> key, int direction, size_t bytes,
                const std::function<void(void*)>& fill) {
  if (elements.is_written_unseen() || settings().retained_packs <= 0) return {};
  Answer answer = request(elements, key, direction, bytes);
  if (answer.memory || !answer.wanted) return answer.memory;
  Storage memory = allocated(bytes);
  if (!memory) return {};
  fill(memory->data());
  retain(elements, key, answer.version, memory);
  return memory;
}

DerivedCounts derived_counts() {
  auto& t = table();
  std::lock_guard lock(t.mutex);
  return t.counts;
}

}  // namespace facula
