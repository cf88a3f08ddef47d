// Storage: a block of memory on a device, shared by views. Small blocks come from per-thread free lists, large ones
// from a bounded pool; all are 64-byte aligned. On the meta device there is no memory. Storage carries a physical order (see "Hidden layouts" in docs/architecture.md): whoever
// wants plain memory asks `Tensor::data`, which restores the plain order once.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>

#include "facula/base/device.h"
#include "facula/base/intrusive.h"

namespace facula {

// Element order of a dense storage: plain, or the permutation that the elements of its owning tensor are stored in.
struct PhysicalOrder {
  uint8_t rank = 0;          // 0: plain
  uint8_t order[8] = {};     // order[k]: the logical dimension stored k-th from outside
  int64_t sizes[8] = {};     // the logical sizes that the order refers to
  bool is_plain() const { return rank == 0; }
};

inline constexpr PhysicalOrder kPlainOrder{};

class StorageImpl final : public RefCounted {
 public:
  StorageImpl(size_t bytes, Device device);                                             // uninitialised
  StorageImpl(void* data, size_t bytes, Device device, std::function<void()> release);  // foreign memory
  ~StorageImpl() override;
  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  const PhysicalOrder& order() const { return order_ ? *order_ : kPlainOrder; }
  bool is_plain() const { return !order_; }
  void set_order(const PhysicalOrder& o);
  // Brings the elements (of `itemsize` bytes) into the plain order, in place. The only function that does. Threads may
  // ask at the same time.
  void restore_plain(int itemsize);

  static void* operator new(size_t bytes);  // recycled like the blocks
  static void operator delete(void* p);

 protected:
  void destroy() override { delete this; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
  size_t capacity_ = 0;   // of a pooled block
  Device device_;
  std::unique_ptr<PhysicalOrder> order_;  // null: plain
  std::unique_ptr<std::function<void()>> foreign_;
};
using Storage = Ref<StorageImpl>;

// Memory of this process's storages; blocks waiting to be used again do not count. Threads count for themselves and
// pass on what exceeds 64 KiB: of another running thread, so much may be missing.
struct MemoryStats { int64_t current_bytes, peak_bytes, allocations; };
MemoryStats memory_stats();
void reset_peak_memory();

}  // namespace facula
