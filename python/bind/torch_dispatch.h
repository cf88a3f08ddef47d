// __torch_dispatch__ of subclasses of Tensor.
#pragma once
#include "facula/tensor/tensor.h"

namespace facula::bind {

// True if the tensor is of a Python class that computes calls itself. Null: false.
bool takes_calls(const TensorImpl* t);
bool has_dispatch_mode();  // on this thread

}  // namespace facula::bind
