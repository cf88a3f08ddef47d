// What the definition of attention and its kernels agree on.
#pragma once
#include "facula/base/dtype.h"

namespace facula::backend {

// From here on sums over a row of what attention keeps of it (lse, delta) may overflow.
constexpr double overflowing(DType d) { return d == DType::Float64 ? 0x1p400 : 0x1p60; }

}  // namespace facula::backend
