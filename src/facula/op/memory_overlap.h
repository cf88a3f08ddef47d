// Detects geometries in which several indices share memory, and operands that share a part of the written memory.
#pragma once
#include "facula/tensor/tensor.h"

namespace facula::op {

// True if two indices may refer to the same element; false if strides nest. For symbolic sizes the answer becomes a
// guard of the trace.
bool may_overlap(SymSpan sizes, SymSpan strides);

// Raises if an operand of an elementwise call shares some memory with the written tensor, and is not that tensor element for
// element. Both are in one memory, where they begin at these bytes. Like PyTorch, this does not look at tensors with gaps.
void check_partial_overlap(const char* op, const Tensor& written, SymInt written_begin, const Tensor& read,
                           SymInt read_begin);

}  // namespace facula::op
