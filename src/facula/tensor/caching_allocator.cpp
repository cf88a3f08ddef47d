#include "facula/tensor/caching_allocator.h"

#include <cstdint>
#include <mutex>

#include "facula/base/error.h"
#include "facula/base/fork.h"
#include "facula/base/warning.h"

namespace facula {

constinit std::atomic<size_t> detail::owned_blocks{0};

namespace {

constexpr size_t kAlign = 64;

// Blocks in use. A block whose memory comes from a derived class is foreign to the pool.
struct Owner {
  CachingAllocator* allocator;  // null: destroyed, and the block is foreign
  size_t capacity;
  bool foreign;
};
struct Table {
  TableMutex mutex;  // also of the waiting blocks of all allocators
  std::unordered_map<void*, Owner> owners;

  void changed() { detail::owned_blocks.store(owners.size(), std::memory_order_relaxed); }
};
Table& table() {
  static auto* t = new Table;
  return *t;
}

}  // namespace

void* CachingAllocator::allocate(size_t bytes) {
  size_t capacity = detail::capacity_for(bytes);
  auto note = [&](void* block) {
    table().owners[block] = {this, capacity, false};
    table().changed();
    return block;
  };
  {
    std::lock_guard lock(table().mutex);
    if (auto entry = waiting_.find(capacity); entry != waiting_.end() && !entry->second.empty()) {
      void* block = entry->second.back();
      entry->second.pop_back();
      return note(block);
    }
  }
  void* block = nullptr;
  try {
    block = detail::block_from_system(bytes, capacity);
  } catch (const std::exception&) {
    release_waiting();
    block = detail::block_from_system(bytes, capacity);
  }
  std::lock_guard lock(table().mutex);
  return note(block);
}

void CachingAllocator::free(void* block) {
  std::lock_guard lock(table().mutex);
  auto entry = table().owners.find(block);
  bool mine = entry != table().owners.end() && entry->second.allocator == this && !entry->second.foreign;
  value_check(mine, "CachingAllocator::free")
      << "the block was not allocated by this allocator, or is free already"
      << hint("override allocate() and free() together");
  waiting_[entry->second.capacity].push_back(block);
  table().owners.erase(entry);
  table().changed();
}

void CachingAllocator::record_free(void* block) {
  std::lock_guard lock(table().mutex);
  table().owners.erase(block);
  table().changed();
}

void CachingAllocator::release_waiting() {
  std::unordered_map<size_t, std::vector<void*>> waiting;
  {
    std::lock_guard lock(table().mutex);
    waiting.swap(waiting_);
  }
  for (auto& [capacity, blocks] : waiting)
    for (void* block : blocks) detail::block_to_system(block, capacity);
}

CachingAllocator::~CachingAllocator() {
  {
    std::lock_guard lock(table().mutex);
    // Blocks that outlive the allocator become blocks of the pool, but for those of other memory.
    for (auto& [block, owner] : table().owners)
      if (owner.foreign && owner.allocator == this) owner.allocator = nullptr;
    std::erase_if(table().owners, [&](auto& entry) { return entry.second.allocator == this; });
    table().changed();
  }
  release_waiting();
}

CachingAllocator* caching_allocator() {
  CachingAllocator* current = detail::exchange_caching_allocator(nullptr);
  detail::exchange_caching_allocator(current);
  return current;
}

WithCachingAllocator::WithCachingAllocator(CachingAllocator* allocator)
    : outer_(detail::exchange_caching_allocator(allocator)) {}
WithCachingAllocator::~WithCachingAllocator() { detail::exchange_caching_allocator(outer_); }

namespace detail {

void* take_from_allocator(CachingAllocator& allocator, size_t bytes, size_t& capacity) {
  void* block = allocator.allocate(bytes);
  runtime_check(block, "allocate") << "the CachingAllocator of this scope returned no memory for " << bytes
                                   << " bytes";
  if (uintptr_t(block) % kAlign) {
    allocator.free(block);
    runtime_check(false, "allocate")
        << "the CachingAllocator of this scope returned a block that is not aligned to " << kAlign
        << " bytes";
  }
  std::lock_guard lock(table().mutex);
  auto [owner, foreign] = table().owners.try_emplace(block, Owner{&allocator, capacity_for(bytes), true});
  table().changed();
  capacity = owner->second.capacity;
  return block;
}

bool give_to_owner(void* block) noexcept {
  CachingAllocator* owner = nullptr;
  {
    std::lock_guard lock(table().mutex);
    auto entry = table().owners.find(block);
    if (entry == table().owners.end()) return false;
    owner = entry->second.allocator;
    if (entry->second.foreign) {
      table().owners.erase(entry);
      table().changed();
    }
  }
  if (!owner) return true;  // nobody is left who could free it
  try {
    owner->free(block);
  } catch (const std::exception& e) { warn(e.what()); }
  return true;
}

}  // namespace detail

}  // namespace facula
