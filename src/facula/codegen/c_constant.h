// Prints a finished nest as a C99 function for one layout: its parameters are constants of the text, and buffers are typed
// arguments. Such a function needs no table of parameters and no caller that divides tasks, as programs for microcontrollers
// want it (embed/c_program.h). The arithmetic is that of c99.h.
#pragma once
#include <span>
#include <string>

#include "facula/loop/nest.h"

namespace facula::codegen {

struct ConstantFunction {
  std::string arguments;  // "const float* b0, float* b1", without a name
  std::string body;       // in braces
  bool checks;            // whether it has a last argument `struct facula_status* status`
};
// `params`: values of the nest's parameters.
ConstantFunction constant_function(const loop::Nest& n, std::span<const int64_t> params);

}  // namespace facula::codegen
