// Translates sizes of one trace into sizes of another.
#pragma once
#include <functional>
#include <optional>

#include "facula/sym/symint.h"

namespace facula::sym {

// `e` with symbol i replaced by values[i], which may be symbolic.
SymInt substitute(SymInt e, SymSpan values);
// `e` with every part x for which f gives a size replaced by f(x), outermost first.
SymInt rewrite(SymInt e, const std::function<std::optional<SymInt>(SymInt)>& f);
// Calls f(number) for every occurrence of a symbol in `e`.
void each_symbol(SymInt e, const std::function<void(size_t)>& f);
// True if all symbols of `e` belong to `shapes`, or if it is a number.
bool is_of(SymInt e, const Shapes& shapes);

}  // namespace facula::sym
