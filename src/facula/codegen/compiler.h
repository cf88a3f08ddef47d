// The interface of the lazily loaded library libfacula_llvm to codegen/cache.cpp, a C function, and its presence.
#pragma once
#include <cstdint>
#include <string>

#include "facula/loop/nest.h"

namespace facula::codegen {
// Compiles a nest for lanes (schedule/lanes.h), lowered for this processor, to a relocatable ELF object. Its only
// global symbol is `facula_kernel` of type KernelFn, and its only undefined symbols are those that `resolve` in
// object.cpp lists (memcpy and the like, a product of tiles, and libm functions in double).
extern "C" bool facula_llvm_compile(const loop::Nest* nest, std::string* object, std::string* error);
// Whether this process can compile: it has the library. Otherwise it has the kernels of packages and caches alone.
bool can_compile();
}  // namespace facula::codegen
