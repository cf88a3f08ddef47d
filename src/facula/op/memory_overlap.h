// Detects geometries in which several indices share memory.
#pragma once
#include "facula/sym/symint.h"

namespace facula::op {

// True if two indices may refer to the same element; false if strides nest. For symbolic sizes the answer becomes a
// guard of the trace.
bool may_overlap(SymSpan sizes, SymSpan strides);

}  // namespace facula::op
