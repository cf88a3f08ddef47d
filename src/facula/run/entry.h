// What a call found before is found again by: the complete key of a call, and for each key an entry with the
// kernels, programs and sizes that serve it. A thread finds what it used last without a lock.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "facula/backend/backend.h"
#include "facula/base/bounded.h"
#include "facula/base/fork.h"
#include "facula/run/key.h"
#include "facula/run/program.h"

namespace facula::run {

// Arguments that are operands of the program: tensors, and numbers that stay run-time values.
struct Operands {
  SmallVector<op::Value, 8> values;   // in program order
  SmallVector<uint32_t, 8> position;  // argument << 16 | item
};
bool is_run_time_number(const op::Operator& o, size_t parameter, const op::Value& v);
inline op::Value as_operand(const op::Value& v) {
  return v.tag == op::Tag::integer ? op::Value(Scalar(v.integer().concrete())) : v;
}

// What a call is made for: its form, or recording a composite with its gradient.
enum class Purpose : uint8_t { functional, in_place, out, recorded };
// The complete key of a call, and its operands.
void key_of(const op::Operator& o, std::span<const op::Value> args, Purpose purpose, Key& key,
            Operands& operands);

// What serves all calls of one layout.
struct Entry {
  std::shared_ptr<const Program> program;
  std::shared_ptr<const Plan> plan;
  backend::LibraryFn library = nullptr;  // kind library, with what it allocates for the results
  std::vector<op::Meta> metas;
  std::vector<Dims> logical_strides;  // of results, where those in memory may be others
  std::vector<Dims> in_memory;        // kind library: the latter
  std::vector<size_t> bytes;          // kind library: of the results
  bool needs_logical = false;  // operands have to be restored to the logical layout: nothing else is set
  bool needs_copy = false;     // in place, and self is read at elements written before: nothing else is set
  std::shared_ptr<const void>
      recorded;  // a composite with its gradient (composite.cpp); then `plan` is its forward's
};

// Caches of one operator. Entries do not change; the lock is held for a look-up only.
struct Cache {
  TableMutex mutex;
  Bounded<Key, std::shared_ptr<const Entry>, KeyHash> entries{kMaxPlans};
  // By attributes, dtypes and ranks; of several the first that accepts the sizes.
  Bounded<Key, std::vector<std::shared_ptr<const Program>>, KeyHash> traced{kMaxPrograms};
};
Cache& cache_of(const op::Operator& o);

// The entries that a thread used last, in front of the locked tables.
struct Recent {
  Key key;
  std::shared_ptr<const Entry> entry;
  int users = 0;  // calls that are running with it: it stays until they return
};
Recent& recent_of(uint64_t hash);  // of this thread

// The entry of a key for the length of a call. If there is none, `make` fills it; false: it serves this call
// only.
class EntryHandle {
 public:
  template <class F>
  EntryHandle(const op::Operator& o, Key& key, F&& make) {
    Recent& r = recent_of(KeyHash()(key));
    if (!(r.entry && r.key == key)) [[unlikely]] {
      bool keep = true;
      auto entry = shared(o, key, make, keep);
      if (!keep || r.users) {  // by another call
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
  ~EntryHandle() {
    if (users_) --*users_;
  }
  EntryHandle(const EntryHandle&) = delete;
  const Entry* operator->() const { return entry_; }

 private:
  template <class F>
  static std::shared_ptr<const Entry> shared(const op::Operator& o, const Key& key, F&& make, bool& keep) {
    auto& cache = cache_of(o);
    {
      std::lock_guard lock(cache.mutex);
      if (auto* known = cache.entries.find(key)) return *known;
    }
    auto entry = std::make_shared<Entry>();
    keep = make(*entry);
    if (!keep) return entry;
    std::lock_guard lock(cache.mutex);
    if (auto* known = cache.entries.find(key)) return *known;  // another thread was faster
    return cache.entries.put(key, std::move(entry));
  }
  const Entry* entry_;
  int* users_ = nullptr;
  std::shared_ptr<const Entry> own_;
};

}  // namespace facula::run
