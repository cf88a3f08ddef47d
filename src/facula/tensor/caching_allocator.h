// Allocators of users for the memory of tensors: within a scope, the calling thread's tensors on the CPU take their blocks from
// one of them. PyTorch's names for these classes are in c10/mobile/CPUCachingAllocator.h.
#pragma once
#include <atomic>
#include <cstddef>
#include <unordered_map>
#include <vector>

namespace facula {

// Retains every block that it has allocated, for requests of about the same size, until it is destroyed. The pool of storage.h
// is shared and bounded (1 GiB, 256 large blocks); a program that needs more blocks at a time than the pool retains returns
// pages to the system and faults them in again in every run, and its own allocator prevents that.
//
// A derived class with another source of memory overrides both functions, and has to outlive the tensors that it serves.
// Blocks are aligned to 64 bytes. A tensor's block returns to the allocator that it came from, on any thread, also after the
// scope. All functions may be called from several threads.
class CachingAllocator {
 public:
  CachingAllocator() = default;
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;
  virtual ~CachingAllocator();
  virtual void* allocate(size_t bytes);  // uninitialised; RuntimeError if the system has no more memory
  virtual void free(void* block);        // ValueError for a block that this allocator did not allocate
  // Declares that a block of some allocator is going to be freed elsewhere: it becomes a block of the pool.
  static void record_free(void* block);

 private:
  void release_waiting();
  std::unordered_map<size_t, std::vector<void*>> waiting_;  // by capacity
};

// The allocator of the calling thread's innermost scope, or null.
CachingAllocator* caching_allocator();

// A scope. A null allocator selects the pool.
class WithCachingAllocator {
 public:
  explicit WithCachingAllocator(CachingAllocator* allocator);
  ~WithCachingAllocator();
  WithCachingAllocator(const WithCachingAllocator&) = delete;
  WithCachingAllocator& operator=(const WithCachingAllocator&) = delete;

 private:
  CachingAllocator* outer_;
};

// For storages.
namespace detail {

extern constinit std::atomic<size_t> owned_blocks;  // blocks of all allocators that are in use
inline bool blocks_have_owners() { return owned_blocks.load(std::memory_order_relaxed); }
void* take_from_allocator(CachingAllocator& allocator, size_t bytes, size_t& capacity);
bool give_to_owner(void* block) noexcept;  // false if the block belongs to no allocator

// Provided by storages: blocks like those of the pool, from and to the system.
void* block_from_system(size_t bytes, size_t& capacity);
void block_to_system(void* block, size_t capacity);
size_t capacity_for(size_t bytes);
CachingAllocator* exchange_caching_allocator(CachingAllocator* allocator);

}  // namespace detail

}  // namespace facula
