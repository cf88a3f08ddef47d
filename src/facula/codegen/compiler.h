// What the lazily loaded library libfacula_llvm offers to codegen/cache.cpp, as two C symbols.
#pragma once
#include <cstdint>
#include <string>

#include "facula/loop/nest.h"

namespace facula::codegen {
// Compiles a nest for lanes (schedule/lanes.h), as many as the processor has, to a relocatable object (ELF) whose only global symbol is `facula_kernel` of type KernelFn,
// with no undefined symbols but those that `resolve` in object.cpp lists (memcpy and the like, libm functions
// in double).
extern "C" bool facula_llvm_compile(const loop::Nest* nest, std::string* object, std::string* error);
}  // namespace facula::codegen
