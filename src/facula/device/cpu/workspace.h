// Temporary memory of a routine. It comes from our allocator, which caches large blocks: page faults of fresh memory cost
// more than a pass over it. Elements are uninitialized.
#pragma once
#include <algorithm>
#include <cstdint>

#include "facula/tensor/tensor.h"

namespace facula::device::cpu {

template <class T>
class Workspace {
 public:
  Workspace() = default;
  explicit Workspace(size_t count) { resize(count); }
  // Discards the elements if the memory has to grow.
  void resize(size_t count) {
    int64_t words = int64_t(count * sizeof(T) / sizeof(int64_t)) + 1;
    if (!memory_.defined() || memory_.numel() < SymInt(words))
      memory_ = Tensor::empty(Dims{SymInt(words)}, DType::Int64);
    size_ = count;
  }
  template <class From>
  void assign(From begin, From end) {
    resize(size_t(end - begin));
    std::copy(begin, end, data());
  }
  size_t size() const { return size_; }
  T* data() const { return memory_.defined() ? reinterpret_cast<T*>(memory_.data<int64_t>()) : nullptr; }
  T& operator[](size_t k) const { return data()[k]; }

 private:
  Tensor memory_;
  size_t size_ = 0;
};

}  // namespace facula::device::cpu
