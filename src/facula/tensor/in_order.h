// Are elements in order? What views and most questions about strides ask of every tensor.
#pragma once
#include "facula/sym/symint.h"

namespace facula {

// The number of elements if sizes and strides are numbers, and those of elements in order; else -1.
inline int64_t elements_in_order(SymSpan sizes, SymSpan strides) {
  int64_t next = 1;
  const SymInt *size = sizes.data(), *stride = strides.data();
  for (size_t d = sizes.size(); d-- > 0;) {
    if (size[d].is_symbolic() || stride[d].is_symbolic() || stride[d].concrete() != next) return -1;
    next =
        int64_t(uint64_t(next) * uint64_t(size[d].concrete()));  // beyond int64 without memory: no error here
  }
  return next;
}

}  // namespace facula
