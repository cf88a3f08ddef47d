// KeptBlock: memory that is taken again and again, as by the runs of a program. In between it waits, as blocks of the pool
// do (storage.h), but for the next time alone: it counts as reserved and not as allocated, and taking it again is no
// allocation. What waits so is 1 GiB in all, or one block: beyond that, blocks that were not taken lately go to the pool.
// empty_cache() and a want of memory give all of them to the system.
#pragma once
#include <atomic>
#include <cstddef>

namespace facula {

// For whom blocks are kept.
class Keeper {
 public:
  bool is_open() const { return open_.load(std::memory_order_relaxed); }
  void close();  // keeps no more: what waits goes to the pool

 private:
  std::atomic<bool> open_{true};
};

class KeptBlock {
 public:
  // Without a keeper it is an ordinary block of the pool each time. The keeper lives as long.
  explicit KeptBlock(const Keeper* keeper) : keeper_(keeper) {}
  ~KeptBlock();
  KeptBlock(const KeptBlock&) = delete;
  // Memory of the CPU, uninitialised, until give(): the block that waits if it is about as large, else another.
  void* take(size_t bytes);
  void give();

 private:
  friend class KeptBlocks;
  const Keeper* keeper_;
  void* taken_ = nullptr;
  size_t bytes_ = 0;                     // that were asked for
  size_t capacity_ = 0;                  // of the block
  std::atomic<void*> waiting_{nullptr};  // others may take it away from here
  std::atomic<bool> lately_{false};      // was it taken since another looked?
  bool listed_ = false, lost_ = false;   // known to others; taken away by them
};

}  // namespace facula
