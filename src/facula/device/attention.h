// A constant that the definition of attention and its kernels share.
#pragma once
#include "facula/base/dtype.h"

namespace facula::device {

// Magnitude from which sums over a row of the statistics that attention saves (lse, delta) may overflow.
constexpr double overflowing(DType d) { return d == DType::Float64 ? 0x1p400 : 0x1p60; }

}  // namespace facula::device
