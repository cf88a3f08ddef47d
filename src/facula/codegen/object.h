// Loads a relocatable x86-64 ELF object into executable memory without LLVM, so that a cached kernel costs no more
// than a read, a copy and a few relocations. Refuses (returns null) anything malformed or out of bounds.
#pragma once
#include <string_view>

#include "facula/codegen/kernel.h"

namespace facula::codegen {
KernelFn load_object(std::string_view object);
}  // namespace facula::codegen
