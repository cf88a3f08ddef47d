// Steps of a definition that are computed in the dtype of sums (float32 for 16-bit numbers), so that their result is
// rounded once.
#pragma once
#include "facula/ops.h"

namespace facula::catalog {

// A result of 16 bits says less of its operand than its gradient needs: it is computed anew.
inline bool is_rounded(const Tensor& x) { return compute_type(x.dtype()) != x.dtype(); }
inline Tensor wide(const Tensor& x) { return is_rounded(x) ? to_dtype(x, compute_type(x.dtype())) : x; }
inline Tensor narrowed(const Tensor& y, DType to) { return y.dtype() == to ? y : to_dtype(y, to); }

}  // namespace facula::catalog
