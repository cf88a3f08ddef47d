// Prints a finished nest as C99, for machines with a C compiler and without LLVM, and for people who want to read
// what a kernel computes. The text needs <math.h> and <stdint.h>, and neither other headers, allocation nor threads.
// It makes no decisions: loops that a target may run in lanes are plain loops, whose sums are added in order, as by
// the interpreter.
//
// Elementary functions are the expansions of loop/elementary.h as C functions. Special functions are those of
// loop/special_functions.h, which compute in double for every dtype. Sums of products are fma().
#pragma once
#include <string>

#include "facula/loop/nest.h"

namespace facula::codegen {

// Every printed function has the signature KernelFn (kernel.h); failed checks are reported in `status`.
std::string c99_function(const loop::Nest& n, const std::string& name);
// The text that `code`, all functions of a file, needs in front of it, once; it includes the elementary and special
// functions that `code` calls.
std::string c99_prelude(const std::string& code);
// The branch-free ones of the elementary functions that `code` calls, to be compiled as C++ in a namespace after the
// prelude: compilers vectorise loops over them. Angles must be less than 2^20.
std::string c99_straight(const std::string& code);

}  // namespace facula::codegen
