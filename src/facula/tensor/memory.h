// The allocator of storage.h: statistics, with the names and meanings of PyTorch's caching allocator, and temporary memory
// that belongs to no storage.
#pragma once
#include <cstddef>
#include <cstdint>

namespace facula {

struct AllocatorStats {
  // The current amount, its maximum, and totals.
  struct Amount {
    int64_t current, peak, allocated, freed;
  };
  Amount allocated_bytes;                 // held by tensors; as coarse as MemoryStats
  Amount reserved_bytes;                  // taken from the system: held by tensors, or waiting for reuse
  int64_t allocations;                    // storages created
  int64_t waiting_bytes, waiting_blocks;  // large blocks in the pool, for any thread
  int64_t retries,
      failures;  // requests that had to empty the pool first, and requests that failed nevertheless
};
AllocatorStats allocator_stats();

// Returns waiting blocks to the system: those of the pool, and small ones of this thread (other threads keep theirs,
// at most 1 MiB of each size).
void empty_cache();

// A block of at least `bytes`, aligned to 64 bytes, uninitialised. It is given back with the capacity that was returned.
void* take_temporary(size_t bytes, size_t& capacity);
void give_temporary(void* block, size_t bytes, size_t capacity);

}  // namespace facula
