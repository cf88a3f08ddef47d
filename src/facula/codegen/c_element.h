// Elements of tensors as C text: their type in memory, and their values as the list of an initializer.
#pragma once
#include <string>
#include <string_view>

#include "facula/base/dtype.h"

namespace facula::codegen {

// The type of an element; complex numbers are pairs, 16-bit and 8-bit floating-point numbers are unsigned integers.
const char* c_memory_type(DType d);
// `bytes`: the elements in order. Needs <math.h> if an element is infinite or NaN.
std::string c_elements(DType d, std::string_view bytes);

}  // namespace facula::codegen
