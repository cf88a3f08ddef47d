// Loads a relocatable x86-64 ELF object into executable memory without LLVM, so that a cached kernel only costs a
// read, a copy and a few relocations. Returns null for anything malformed or out of bounds.
#pragma once
#include <string_view>

#include "facula/codegen/kernel.h"

namespace facula::codegen {

KernelFn load_object(std::string_view object);
constexpr size_t kLargestObject = size_t(64) << 20;

// The object inside the bytes of a cache file; "" unless they are a complete file of that name.
std::string_view object_in(std::string_view file, std::string_view name);
constexpr size_t kObjectHeader = 112;  // in front of the object in such a file; the name's 64 digits are at 8

}  // namespace facula::codegen
