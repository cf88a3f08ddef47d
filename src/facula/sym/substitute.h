// Sizes of one trace in terms of another.
#pragma once
#include <functional>

#include "facula/sym/symint.h"

namespace facula::sym {

// `e` with values[i], which may be symbolic, in the place of symbol i.
SymInt substitute(SymInt e, SymSpan values);
// Calls f(number) for every symbol that `e` is made of, as often as it is there.
void each_symbol(SymInt e, const std::function<void(size_t)>& f);

}  // namespace facula::sym
