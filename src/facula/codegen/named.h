// Kernels by their names, for plans that are kept on a disk: who knows which kernel it wants needs no nest.
#pragma once
#include <string>

#include "facula/base/sha256.h"
#include "facula/codegen/kernel.h"

namespace facula::codegen {

// The name of one that `kernel` gave, and of the one that a nest becomes.
const Sha256& name_of(const Kernel& k);
Sha256 name_of(const loop::Nest& n);
// The kernel of that name, if it is in memory or in a folder; null if it has to be compiled. Its `tasks` and `cost`
// are not there before `kernel` is asked for it. `shown` is for people. Thread-safe; the result lives for ever.
const Kernel* find_kernel(const Sha256& name, const std::string& shown);
// Is every kernel that is used being recorded, so that each has to be asked for by its nest?
bool records_kernels();

}  // namespace facula::codegen
