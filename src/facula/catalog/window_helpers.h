// Helpers of the families window, conv3d and pool3d.
#pragma once
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

namespace facula::catalog::window_helpers {

using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

inline const SymInt kOne = int64_t(1), kZero = int64_t(0);
// One dimension's kernel.
struct Window {
  SymInt size, stride, padding, dilation;
  SymInt places(SymInt n, bool ceil = false) const {
    SymInt span = n + padding * SymInt(int64_t(2)) - dilation * (size - kOne) - kOne;
    SymInt out = (ceil ? span + stride - kOne : span) / stride + kOne;
    if (ceil && (out - kOne) * stride >= n + padding) out -= kOne;
    return out;
  }
};
// RuntimeError unless `sizes` have `rank` dimensions, or one more for a batch, and only the batch is empty.
inline void check_images(const Call& c, SymSpan sizes, size_t rank, const char* layout) {
  bool fits = sizes.size() == rank || sizes.size() == rank + 1;
  for (size_t k = sizes.size() == rank + 1; fits && k < sizes.size(); ++k) fits = sizes[k] != kZero;
  runtime_check(fits, c.name()) << "expected " << rank << "D (unbatched) or " << rank + 1
                                << "D (batched) input " << layout << ", in which only N may be 0, got shape "
                                << to_string(sizes);
}
inline Dims three(const Call& c, const char* arg) { return c.ints(arg, 3); }
inline Dims last_two(const Dims& x) { return {x[1], x[2]}; }
// False for a tensor that is contiguous too.
inline bool is_in_channels_last_3d(const Tensor& t) {
  return t.dim() == 5 && !t.is_contiguous() && t.is_channels_last();
}

}  // namespace facula::catalog::window_helpers
