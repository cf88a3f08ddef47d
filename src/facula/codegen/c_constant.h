// Prints a finished nest as a C99 function for one layout: its parameters are constants of the text, and buffers are typed
// arguments. Such a function needs no table of parameters and no caller that divides tasks, as programs for microcontrollers
// want it (embed/c_program.h). The arithmetic is that of c99.h.
#pragma once
#include <functional>
#include <span>
#include <string>

#include "facula/loop/nest.h"

namespace facula::codegen {

struct ConstantFunction {
  std::string arguments;  // "const float* b0, float* b1", without a name
  std::string body;       // in braces
  bool checks;            // whether it has a last argument `struct facula_status* status`
};
// Whether all elements of a buffer are at least 0 and less than `size`.
using InRange = std::function<bool(int buffer, int64_t size)>;
// `params`: values of the nest's parameters; `in_range`: what is known about buffers of indices, or empty.
ConstantFunction constant_function(const loop::Nest& n, std::span<const int64_t> params,
                                   InRange in_range = {});

}  // namespace facula::codegen
