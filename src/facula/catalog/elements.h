// Checks of what elements are.
#pragma once
#include "facula/tensor/tensor.h"

namespace facula::catalog {

// Has it any to look at? Tensors on meta have none, and pass every check of them.
inline bool has_elements(const Tensor& t) { return t.device().type != DeviceType::meta; }
// Can the host look at them now? It cannot while a function is traced.
inline bool shows_elements(const Tensor& t) { return has_elements(t) && !t.is_traced(); }

}  // namespace facula::catalog
