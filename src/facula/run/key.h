// Cache keys: everything that a plan depends on, as 64-bit words. Calls of equal keys are interchangeable.
#pragma once
#include <bit>
#include <vector>

#include "facula/op/key.h"
#include "facula/op/value.h"

namespace facula::run {

// Limits of the caches of one operator or program: plans, and traces. The least recently used entries go (base/bounded.h).
inline constexpr size_t kMaxPlans = 2048, kMaxPrograms = 256;

using Key = op::Words;
using KeyHash = op::WordsHash;

inline void append(Key& key, const TensorImpl& t) {
  size_t rank = t.sizes.size();
  uint64_t* to = key.append(1 + 2 * rank);
  *to++ = uint64_t(op::Tag::tensor) | uint64_t(t.dtype) << 8 | uint64_t(t.device.type) << 16 |
          uint64_t(uint8_t(t.device.index)) << 24 | uint64_t(t.wrapped_number) << 32 | uint64_t(rank) << 40;
  const SymInt *size = t.sizes.data(), *stride = t.strides.data();
  for (size_t d = 0; d < rank; ++d, to += 2) {
    to[0] = size[d].identity();
    to[1] = stride[d].identity();
  }
}
// Appends an input of a program: the layout of a tensor, or the dtype of a number.
inline void append(Key& key, const op::Value& v) {
  if (v.tag == op::Tag::tensor) append(key, *v.tensor);
  else
    key.push_back(uint64_t(v.tag) | uint64_t(v.tag == op::Tag::scalar ? int(op::operand_dtype(v)) : 0) << 8);
}
// Appends a destination: its layout, and which inputs share its memory.
inline void append(Key& key, const Tensor& out, std::span<const op::Value> inputs) {
  key.push_back(out.defined());
  if (!out.defined()) return;
  append(key, *out.impl());
  uint64_t shared = 0;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].tag == op::Tag::tensor && inputs[i].tensor->storage == out.impl()->storage)
      shared |= 1ull << (i % 64);
  key.push_back(shared);
}

}  // namespace facula::run
