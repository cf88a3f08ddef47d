// Compiles kernels from printed text with the machine's compiler: slow, but readable and checkable. Nothing is cached
// on disk. C99 runs directly. CUDA C runs with a header that emulates a GPU (tests/cuda/emulation.h): it is compiled
// as C++ with FACULA_CUDA_EMULATION.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "facula/codegen/kernel.h"
#include "facula/loop/nest.h"

namespace facula::codegen {

enum class Printed : uint8_t { none, c99, cuda };
Printed printed_target();  // as FACULA_TARGET says; none: LLVM compiles kernels
std::string printed_kernel(Printed target, const loop::Nest& n);
// Compiles all nests in one file. RuntimeError with the compiler's message.
std::vector<KernelFn> printed_kernels(Printed target, std::span<const loop::Nest* const> nests);

}  // namespace facula::codegen
