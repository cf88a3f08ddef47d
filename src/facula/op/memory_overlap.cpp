#include "facula/op/memory_overlap.h"

#include <algorithm>

namespace facula::op {

bool may_overlap(SymSpan sizes, SymSpan strides) {
  Ints order;
  for (size_t d = 0; d < sizes.size(); ++d)
    if (sizes[d].hint() != 1 || sizes[d] != SymInt(int64_t(1))) order.push_back(int64_t(d));
  std::sort(order.begin(), order.end(),
            [&](int64_t a, int64_t b) { return strides[size_t(a)].hint() < strides[size_t(b)].hint(); });
  SymInt extent = int64_t(1);
  for (auto d : order) {
    if (strides[size_t(d)] < extent) return true;
    extent += (sizes[size_t(d)] - SymInt(int64_t(1))) * strides[size_t(d)];
  }
  return false;
}

}  // namespace facula::op
