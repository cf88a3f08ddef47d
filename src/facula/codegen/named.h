// Kernels by name, for plans that are stored on disk: a plan that knows its kernels by name needs no nests.
#pragma once
#include <string>

#include "facula/base/sha256.h"
#include "facula/codegen/kernel.h"

namespace facula::codegen {

// The name of a kernel that `kernel` returned, and of the kernel of a nest.
const Sha256& name_of(const Kernel& k);
Sha256 name_of(const loop::Nest& n);
// The kernel of that name if it is in memory or in a folder; null if it would have to be compiled. Its `tasks` and
// `cost` are not set before `kernel` was called for it. `shown` is the name for users. Thread-safe; the kernel lives
// as long as the process.
const Kernel* find_kernel(const Sha256& name, const std::string& shown);
// True while every kernel that is used is recorded, so that kernels have to be requested by their nests.
bool records_kernels();

}  // namespace facula::codegen
