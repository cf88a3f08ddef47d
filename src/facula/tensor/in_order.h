// Tests whether a tensor is contiguous, which views and most questions about strides begin with.
#pragma once
#include "facula/sym/symint.h"

namespace facula {

// The number of elements if sizes and strides are concrete and contiguous; else -1.
inline int64_t elements_in_order(SymSpan sizes, SymSpan strides) {
  int64_t next = 1;
  const SymInt *size = sizes.data(), *stride = strides.data();
  for (size_t d = sizes.size(); d-- > 0;) {
    if (size[d].is_symbolic() || stride[d].is_symbolic() || stride[d].concrete() != next) return -1;
    next = int64_t(
        uint64_t(next) *
        uint64_t(
            size[d].concrete()));  // wraps around for huge tensors without memory, which is no error here
  }
  return next;
}

}  // namespace facula
