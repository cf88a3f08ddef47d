// The argument `size` of what makes tensors.
#pragma once
#include "facula/op/call.h"

namespace facula::catalog {

inline Dims checked_size(const op::Call& c) {
  Dims sizes(c.ints("size"));
  for (auto s : sizes)
    runtime_check(!(s < SymInt(int64_t(0))), c.name())
        << "trying to create a tensor with negative dimension " << s << ": " << to_string(SymSpan(sizes));
  return sizes;
}

}  // namespace facula::catalog
