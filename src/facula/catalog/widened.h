// Steps of a definition that are computed in the dtype of sums (float32 for 16-bit numbers), so that their result is
// rounded once.
#pragma once
#include "facula/ops.h"

namespace facula::catalog {

inline Tensor wide(const Tensor& x) {
  return compute_type(x.dtype()) == x.dtype() ? x : to_dtype(x, compute_type(x.dtype()));
}
inline Tensor narrowed(const Tensor& y, DType to) { return y.dtype() == to ? y : to_dtype(y, to); }

}  // namespace facula::catalog
