// Temporary memory of a routine. Elements are uninitialized.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace facula::numerics {

// The functions that workspaces take their memory from. device/cpu/ installs those of the tensors' allocator, because it
// caches large blocks: page faults of fresh memory cost more than a pass over it. Without them, as in a program that links
// this library alone, memory comes from the heap. Blocks are aligned to 64 bytes.
struct MemorySource {
  void* (*take)(size_t bytes, size_t& capacity);  // `capacity` is a number that give() gets
  void (*give)(void* block, size_t bytes, size_t capacity);
};
void set_memory_source(const MemorySource& source);  // has to live as long as the process
const MemorySource& memory_source();

template <class T>
class Workspace {
 public:
  Workspace() = default;
  explicit Workspace(size_t count) { resize(count); }
  Workspace(Workspace&& other) noexcept { swap(other); }
  Workspace& operator=(Workspace&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Workspace() {
    if (block_) source_->give(block_, bytes_, capacity_);
  }
  // Discards the elements if the memory has to grow.
  void resize(size_t count) {
    size_t bytes = (count * sizeof(T) / sizeof(int64_t) + 1) * sizeof(int64_t);
    if (bytes > bytes_) {
      Workspace larger;
      larger.source_ = &memory_source();
      larger.block_ = larger.source_->take(bytes, larger.capacity_);
      larger.bytes_ = bytes;
      swap(larger);
    }
    size_ = count;
  }
  template <class From>
  void assign(From begin, From end) {
    resize(size_t(end - begin));
    std::copy(begin, end, data());
  }
  size_t size() const { return size_; }
  T* data() const { return static_cast<T*>(block_); }
  T& operator[](size_t k) const { return data()[k]; }

 private:
  void swap(Workspace& other) {
    std::swap(source_, other.source_);
    std::swap(block_, other.block_);
    std::swap(bytes_, other.bytes_);
    std::swap(capacity_, other.capacity_);
    std::swap(size_, other.size_);
  }
  const MemorySource* source_ = nullptr;
  void* block_ = nullptr;
  size_t bytes_ = 0, capacity_ = 0, size_ = 0;
};

}  // namespace facula::numerics
