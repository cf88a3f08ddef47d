// RetainedBlock: a memory block that is retained between uses, as by the runs of a program. Between two uses it waits
// like blocks of the pool (storage.h), but only its owner can take it: it counts as reserved and not as allocated,
// and taking it again is no allocation. All waiting blocks together have at most 1 GiB (or are a single block);
// beyond that, blocks that were not used lately are returned to the pool. empty_cache() and a failed allocation
// return all of them to the system.
#pragma once
#include <atomic>
#include <cstddef>

namespace facula {

// The owner of retained blocks.
class Keeper {
 public:
  bool is_open() const { return open_.load(std::memory_order_relaxed); }
  void close();  // stops retaining: waiting blocks are returned to the pool

 private:
  std::atomic<bool> open_{true};
};

class RetainedBlock {
 public:
  // Without a keeper it takes an ordinary block of the pool each time. The keeper has to outlive the block.
  explicit RetainedBlock(const Keeper* keeper) : keeper_(keeper) {}
  ~RetainedBlock();
  RetainedBlock(const RetainedBlock&) = delete;
  // Uninitialised memory on the CPU, valid until give(): the waiting block if it has about this size, else another
  // block.
  void* take(size_t bytes);
  void give();

 private:
  friend class KeptBlocks;
  const Keeper* keeper_;
  void* taken_ = nullptr;
  size_t bytes_ = 0;                     // requested size
  size_t capacity_ = 0;                  // size of the block
  std::atomic<void*> waiting_{nullptr};  // other blocks may take it from here
  std::atomic<bool> lately_{false};      // it was taken since another block last looked
  bool listed_ = false, lost_ = false;   // listed_: registered with the others; lost_: another block took it
};

}  // namespace facula
