// Loads a relocatable x86-64 ELF object into executable memory without LLVM, so that a cached kernel costs no
// more than a read, a copy and a few relocations. Refuses (returns null) anything malformed or out of bounds.
#pragma once
#include <string_view>

#include "facula/codegen/kernel.h"

namespace facula::codegen {

KernelFn load_object(std::string_view object);
constexpr size_t kLargestObject = size_t(64) << 20;

// The object in the bytes of a cache file; "" if they are not the whole file of that name.
std::string_view object_in(std::string_view file, std::string_view name);
constexpr size_t kObjectHeader = 112;  // before the object in such a file; the name's 64 digits at 8

}  // namespace facula::codegen
