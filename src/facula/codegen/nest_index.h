// The index of the shipped folder: the kernels of groups at the time when it was filled (schedule/nest_index.h). It
// is one file, which is trusted like kernels (store.h) and valid for one build of this library.
#pragma once
#include <string>

#include "facula/schedule/nest_index.h"

namespace facula::codegen {

extern const schedule::NestIndex shipped_nests;

// Writes all entries that were noted since the recording of kernels began (record_kernels_to in kernel.h).
void write_nest_index(const std::string& folder);

}  // namespace facula::codegen
