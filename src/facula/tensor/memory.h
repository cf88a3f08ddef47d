// What the allocator of storage.h holds and did. Names and meaning are those of PyTorch's caching allocator.
#pragma once
#include <cstdint>

namespace facula {

struct AllocatorStats {
  // Now, the most at once, in all.
  struct Amount {
    int64_t current, peak, allocated, freed;
  };
  Amount allocated_bytes;  // that tensors hold; as coarse as MemoryStats
  Amount reserved_bytes;   // taken from the system: what tensors hold and what waits to be used again
  int64_t allocations;     // storages made
  int64_t waiting_bytes, waiting_blocks;  // large blocks in the pool, for any thread
  int64_t retries, failures;  // requests that had to empty the pool first, and those that failed even so
};
AllocatorStats allocator_stats();

// Gives blocks that wait back to the system: the pool's, and this thread's small ones (other threads keep
// theirs, at most
// 1 MiB of each size).
void empty_cache();

}  // namespace facula
