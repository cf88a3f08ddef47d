// Sizes of one trace in terms of another.
#pragma once
#include "facula/sym/symint.h"

namespace facula::sym {

// `e` with values[i], which may be symbolic, in the place of symbol i.
SymInt substitute(SymInt e, SymSpan values);

}  // namespace facula::sym
