// Text of sizes back to sizes: the inverse of to_string.
#pragma once
#include <string_view>

#include "facula/sym/symint.h"

namespace facula::sym {

// The range of a size that was given none.
constexpr int64_t kLeastSize = 2, kMostSize = int64_t(1) << 60;

// Reads an expression at the beginning of `rest`, as far as it goes, and takes it from there: "s0*3 + 1, ...".
// Symbols are those of `shapes`, by name. ValueError for anything else.
SymInt parse_size(std::string_view& rest, const Shapes& shapes);

}  // namespace facula::sym
