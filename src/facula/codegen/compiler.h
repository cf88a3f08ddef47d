// The interface of the lazily loaded library libfacula_llvm to codegen/cache.cpp: one C function.
#pragma once
#include <cstdint>
#include <string>

#include "facula/loop/nest.h"

namespace facula::codegen {
// Compiles a nest for lanes (schedule/lanes.h), lowered for this processor, to a relocatable ELF object. Its only
// global symbol is `facula_kernel` of type KernelFn, and its only undefined symbols are those that `resolve` in
// object.cpp lists (memcpy and the like, a product of tiles, and libm functions in double).
extern "C" bool facula_llvm_compile(const loop::Nest* nest, std::string* object, std::string* error);
}  // namespace facula::codegen
