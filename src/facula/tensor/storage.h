// Storage: a block of memory on a device, shared by aliases. Small blocks come from per-thread free lists, large ones
// from a bounded pool; all are 64-byte aligned. On the meta device there is no memory. A storage may have a physical
// layout other than the logical one (docs/layouts.md): `Tensor::data` restores the logical layout, once.
#pragma once
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>

#include "facula/base/device.h"
#include "facula/base/intrusive.h"

namespace facula {

struct DerivedData;  // tensor/derived.h

// The physical order of the elements of a dense tensor, if it is not the logical (row-major) one. A library's packed
// layout splits dimensions: [64, 32] in blocks of 16 by 16 has the sizes [4, 16, 2, 16].
struct PhysicalOrder {
  uint8_t rank = 0;  // 0: the logical order
  uint8_t itemsize = 0;
  uint8_t order[8] = {};  // order[k]: the logical dimension that is stored k-th from the outside
  int64_t sizes[8] = {};  // the logical sizes
  bool is_logical() const { return rank == 0; }
  bool operator==(const PhysicalOrder&) const = default;
};

// Memory that the CPU cannot address; one object per type of device. Only the device interprets its addresses.
// Functions are called from any thread, and their exceptions reach the user; release() must not throw.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual void* allocate(size_t bytes,
                         int index) const = 0;  // uninitialised; index: of the device, -1 the current one
  virtual void release(void* memory, size_t bytes, int index) const noexcept = 0;
  virtual void to_host(void* host, const void* memory, size_t bytes) const = 0;    // done when it returns
  virtual void from_host(void* memory, const void* host, size_t bytes) const = 0;  // done when it returns
};
void register_memory(DeviceType type, const DeviceMemory* memory);
const DeviceMemory* memory_of(DeviceType type);  // null: the CPU, meta, or a device without registered memory

class StorageImpl final : public RefCounted {
 public:
  StorageImpl(size_t bytes, Device device);                                             // uninitialised
  StorageImpl(void* data, size_t bytes, Device device, std::function<void()> release);  // foreign memory
  StorageImpl(Ref<StorageImpl> memory,
              const PhysicalOrder& order);  // the elements are in `memory`, in that order
  ~StorageImpl() override;
  void* data() const { return data_; }
  // The memory on another device, for which data() is null.
  void* device_data() const { return device_data_; }
  size_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  bool is_foreign() const { return foreign_ != nullptr; }  // wraps memory that someone else owns
  void move_to(void* data) { data_ = data; }               // the owner has moved it
  void resize_foreign(size_t bytes) { bytes_ = bytes; }    // the owner has resized it
  // True if the elements are in the logical layout, as strides say. Otherwise another storage has them in another
  // order, until memory in the logical layout is needed.
  bool is_logical() const { return !physical_.load(std::memory_order_acquire); }
  struct PhysicalLayout {
    PhysicalOrder order;
    Ref<StorageImpl> memory;
  };
  // Gets the current physical layout and keeps its memory alive for the reader; false if the layout is logical.
  // Threads may call it while another one restores the layout.
  bool physical_layout(PhysicalLayout& to) const;
  // Allocates memory in the logical layout and copies the elements to it. No other function does that.
  void restore_logical();
  // For writers, after they wrote to the memory of physical_layout(): if a reader has restored the logical layout
  // meanwhile, copies what was written to it.
  void settle(const PhysicalOrder& order, const Ref<StorageImpl>& written);
  // Moves the elements from the logical layout to another order. For writers only; false if their address may be
  // known outside.
  bool reorder(const PhysicalOrder& order);
  // Declares that the address of the elements is known outside from now on.
  void pin() {
    if (!pinned_.load(std::memory_order_relaxed)) pinned_.store(true, std::memory_order_relaxed);
  }
  // True if somebody may write elements without a call of note_written().
  bool is_written_unseen() const { return foreign_ || pinned_.load(std::memory_order_relaxed); }
  // For writers, after they wrote or gave up: drops what was computed from the elements and retained (tensor/derived.h).
  void note_written() {
    if (derived_.load(std::memory_order_acquire) || !is_logical()) [[unlikely]]
      drop_derived();
  }

  static void* operator new(size_t bytes);  // recycled like the blocks
  static void operator delete(void* p);

 protected:
  void destroy() override { delete this; }

 private:
  friend struct DerivedData;
  void drop_derived();
  void delete_derived();
  void allocate();
  void allocate_elsewhere();
  void deallocate();
  PhysicalLayout* restore_locked();  // returns what has to be freed after the lock
  void* data_ = nullptr;
  void* device_data_ = nullptr;
  size_t bytes_ = 0;
  size_t capacity_ = 0;  // size of a pooled block
  Device device_;
  std::atomic<PhysicalLayout*> physical_{nullptr};  // null: the logical layout
  std::atomic<bool> pinned_{false};
  std::atomic<DerivedData*> derived_{
      nullptr};  // created when data is first asked for, deleted with the storage
  std::unique_ptr<std::function<void()>> foreign_;
};
using Storage = Ref<StorageImpl>;

// Counts of layout changes in this process: tensors created in a physical layout, restored logical layouts, and
// copies to another order for a library.
struct LayoutCounts {
  std::atomic<int64_t> physical{0}, restored{0}, reordered{0};
};
LayoutCounts& layout_counts();

// Memory of this process's storages, without blocks that wait for reuse. Threads have separate counts and pass on
// changes of more than 64 KiB, so the sums may be off by that much per running thread.
struct MemoryStats {
  int64_t current_bytes, peak_bytes, allocations;
};
MemoryStats memory_stats();
void reset_peak_memory();

}  // namespace facula
