// Gives a tensor other strides without moving its elements.
#pragma once
#include "facula/tensor/tensor.h"

namespace facula {

// Gives a dense tensor, to which nothing else refers, other dense strides of the same sizes. Its elements stay where they
// are: their order becomes its physical layout (docs/layouts.md). Returns false, and changes nothing, if the tensor is not
// alone in its storage, does not fill it, or has a physical layout that joins dimensions.
bool change_strides(const Tensor& fresh, SymSpan strides);

}  // namespace facula
