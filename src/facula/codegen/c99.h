// A finished nest as C99: for machines that have a C compiler and no LLVM, and for people who want to read what a kernel
// computes. The text needs <math.h> and <stdint.h>, no other header, no allocation, no thread. It decides nothing: loops that
// a target may run in lanes are plain loops, whose sums are added in order, as the interpreter adds them.
//
// Elementary functions are libm's in double, rounded once to float32 (loop/number.cpp, of which each line here is the
// counterpart); where the same libm is linked the results are the interpreter's to the bit. Sums of products are fma().
#pragma once
#include <string>

#include "facula/loop/nest.h"

namespace facula::codegen {

// The signature of every printed function is KernelFn's (kernel.h): what does not fit an index is noted in `status`.
std::string c99_function(const loop::Nest& n, const std::string& name);
// What the functions of a file need, once before them. A function of loop/mapped.h that a nest calls is `double
// facula_bessel_j0(double)` and its like, declared here, to be linked.
const std::string& c99_prelude();

}  // namespace facula::codegen
