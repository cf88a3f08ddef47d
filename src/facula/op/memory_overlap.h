// Do indices of a geometry share memory?
#pragma once
#include "facula/sym/symint.h"

namespace facula::op {

// May two indices reach the same element? No: strides nest. The trace relies on the answer for sizes that are symbols.
bool may_overlap(SymSpan sizes, SymSpan strides);

}  // namespace facula::op
