// Kernels by way of a printed text and the machine's compiler: slow, to read and to check. Nothing is kept on the disk.
// C99 runs as it is. CUDA C runs where a header plays the GPU, which tests have (tests/cuda/emulation.h): it is compiled
// as C++ behind FACULA_CUDA_EMULATION.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "facula/codegen/kernel.h"
#include "facula/loop/nest.h"

namespace facula::codegen {

enum class Printed : uint8_t { none, c99, cuda };
Printed printed_target();  // of FACULA_TARGET; none: LLVM makes kernels
std::string printed_kernel(Printed target, const loop::Nest& n);
// All nests in one file. RuntimeError with what the compiler said.
std::vector<KernelFn> printed_kernels(Printed target, std::span<const loop::Nest* const> nests);

}  // namespace facula::codegen
