// A finished nest as C99: for machines that have a C compiler and no LLVM, and for people who want to read what a kernel
// computes. The text needs <math.h> and <stdint.h>, no other header, no allocation, no thread. It decides nothing: loops that
// a target may run in lanes are plain loops, whose sums are added in order, as the interpreter adds them.
//
// Elementary functions are the expansions of loop/elementary.h, as C functions, special ones those of
// loop/special_functions.h, which compute in double whatever is asked for. Sums of products are fma().
#pragma once
#include <string>

#include "facula/loop/nest.h"

namespace facula::codegen {

// The signature of every printed function is KernelFn's (kernel.h): what does not fit an index is noted in `status`.
std::string c99_function(const loop::Nest& n, const std::string& name);
// What `code`, the functions of a file, needs before it, once: of elementary and special functions those that it calls.
std::string c99_prelude(const std::string& code);
// Of elementary functions that `code` calls, behind such a prelude in a namespace of C++, those without branches: a compiler
// takes a loop of them side by side. Angles are less than 2^20.
std::string c99_straight(const std::string& code);

}  // namespace facula::codegen
