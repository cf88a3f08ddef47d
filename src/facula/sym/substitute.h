// Sizes of one trace in terms of another.
#pragma once
#include <functional>
#include <optional>

#include "facula/sym/symint.h"

namespace facula::sym {

// `e` with values[i], which may be symbolic, in the place of symbol i.
SymInt substitute(SymInt e, SymSpan values);
// `e` with f(x) in the place of each part x for which there is one, outermost first.
SymInt rewrite(SymInt e, const std::function<std::optional<SymInt>(SymInt)>& f);
// Calls f(number) for every symbol that `e` is made of, as often as it is there.
void each_symbol(SymInt e, const std::function<void(size_t)>& f);
// Is `e` made of these symbols, or a number?
bool is_of(SymInt e, const Shapes& shapes);

}  // namespace facula::sym
