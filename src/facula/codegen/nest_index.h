// The index of the shipped folder: which kernels groups became when it was filled (schedule/nest_index.h), one file
// that is trusted as kernels are (store.h) and belongs to one build of this library.
#pragma once
#include <string>

#include "facula/schedule/nest_index.h"

namespace facula::codegen {

extern const schedule::NestIndex shipped_nests;

// Writes what was noted since the recording of kernels began (kernel.h, record_kernels_to).
void write_nest_index(const std::string& folder);

}  // namespace facula::codegen
