// The compute dtypes of running sums and products.
#pragma once
#include "facula/base/dtype.h"

namespace facula::catalog {

// The precision that hides the rounding of steps, which would add up along a line.
inline DType running_type(DType result) {
  return result == DType::Float32     ? DType::Float64
         : result == DType::Complex64 ? DType::Complex128
                                      : compute_type(result);
}

}  // namespace facula::catalog
