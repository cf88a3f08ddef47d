// Storage: a block of memory on a device, shared by views. Small blocks come from per-thread free lists,
// large ones from a bounded pool; all are 64-byte aligned. On the meta device there is no memory. The
// elements of a storage may lie in a physical layout that is not the logical one (docs/layouts.md): whoever
// wants the logical one asks `Tensor::data`, which restores it once.
#pragma once
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>

#include "facula/base/device.h"
#include "facula/base/intrusive.h"

namespace facula {

// The order in which the elements of a dense tensor lie in memory, where it is not the logical (row-major) one.
// The packed form of a library splits dimensions: [64, 32] in blocks of 16 by 16 has the sizes [4, 16, 2,
// 16].
struct PhysicalOrder {
  uint8_t rank = 0;  // 0: the logical order
  uint8_t itemsize = 0;
  uint8_t order[8] = {};  // order[k]: the logical dimension stored k-th from outside
  int64_t sizes[8] = {};  // the logical sizes
  bool is_logical() const { return rank == 0; }
  bool operator==(const PhysicalOrder&) const = default;
};

// Memory that the CPU does not address; one for a type of device. Addresses are the device's own: nobody else follows or
// compares them. Functions are called from any thread, and what they throw reaches the user; release() throws nothing.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual void* allocate(size_t bytes,
                         int index) const = 0;  // uninitialised; index: of the device, -1 the current one
  virtual void release(void* memory, size_t bytes, int index) const noexcept = 0;
  virtual void to_host(void* host, const void* memory, size_t bytes) const = 0;    // done when it returns
  virtual void from_host(void* memory, const void* host, size_t bytes) const = 0;  // likewise
};
void register_memory(DeviceType type, const DeviceMemory* memory);
const DeviceMemory* memory_of(DeviceType type);  // null: the CPU, meta, or a device that nothing serves

class StorageImpl final : public RefCounted {
 public:
  StorageImpl(size_t bytes, Device device);                                             // uninitialised
  StorageImpl(void* data, size_t bytes, Device device, std::function<void()> release);  // foreign memory
  StorageImpl(Ref<StorageImpl> memory,
              const PhysicalOrder& order);  // elements lie in `memory`, in that order
  ~StorageImpl() override;
  void* data() const { return data_; }
  // On another device, where data() is null.
  void* device_data() const { return device_data_; }
  size_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  bool is_foreign() const { return foreign_ != nullptr; }  // over memory that someone else gave
  void move_to(void* data) { data_ = data; }               // who gave it has it there now
  void resize_foreign(size_t bytes) { bytes_ = bytes; }    // and so much of it
  // Do the elements lie in the logical layout, as strides say? Else they lie in another storage, in another order, until
  // someone wants memory in the logical layout.
  bool is_logical() const { return !physical_.load(std::memory_order_acquire); }
  struct PhysicalLayout {
    PhysicalOrder order;
    Ref<StorageImpl> memory;
  };
  // The physical layout now, its memory kept alive for the reader; false if it is the logical one. Threads may ask and
  // restore at the same time.
  bool physical_layout(PhysicalLayout& to) const;
  // Makes memory in the logical layout and copies the elements into it. The only function that does.
  void restore_logical();
  // For writers, after they wrote where physical_layout() said: a reader may have restored the logical layout meanwhile, from
  // what was there before.
  void settle(const PhysicalOrder& order, const Ref<StorageImpl>& written);
  // Moves elements from the logical layout into another order. Only for writers; false where someone may know the address of
  // the elements.
  bool reorder(const PhysicalOrder& order);
  // From now on someone outside knows where the elements lie.
  void pin() {
    if (!pinned_.load(std::memory_order_relaxed)) pinned_.store(true, std::memory_order_relaxed);
  }

  static void* operator new(size_t bytes);  // recycled like the blocks
  static void operator delete(void* p);

 protected:
  void destroy() override { delete this; }

 private:
  void allocate();
  void allocate_elsewhere();
  void deallocate();
  PhysicalLayout* restore_locked();  // what nobody asks for from now on
  void* data_ = nullptr;
  void* device_data_ = nullptr;
  size_t bytes_ = 0;
  size_t capacity_ = 0;  // of a pooled block
  Device device_;
  std::atomic<PhysicalLayout*> physical_{nullptr};  // null: the logical layout
  std::atomic<bool> pinned_{false};
  std::unique_ptr<std::function<void()>> foreign_;
};
using Storage = Ref<StorageImpl>;

// How often layouts changed in this process: tensors made in a physical layout, the logical one restored, and copies into
// another order that a library needed of what it read or wrote.
struct LayoutCounts {
  std::atomic<int64_t> physical{0}, restored{0}, reordered{0};
};
LayoutCounts& layout_counts();

// Memory of this process's storages; blocks waiting to be used again do not count. Threads count for
// themselves and pass on what exceeds 64 KiB: of another running thread, so much may be missing.
struct MemoryStats {
  int64_t current_bytes, peak_bytes, allocations;
};
MemoryStats memory_stats();
void reset_peak_memory();

}  // namespace facula
