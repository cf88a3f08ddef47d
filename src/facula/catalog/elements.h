// Checks of what elements are.
#pragma once
#include "facula/tensor/tensor.h"

namespace facula::catalog {

// Has it any to look at? Tensors on meta have none, and pass every check of them.
inline bool has_elements(const Tensor& t) { return t.device().type != DeviceType::meta; }

}  // namespace facula::catalog
