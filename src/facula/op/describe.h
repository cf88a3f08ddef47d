// Arguments of a call as the profiler shows them: JSON lists with an item an argument.
#pragma once
#include <span>
#include <string>

#include "facula/op/value.h"

namespace facula::op {

// [[8, 3], [], [[2], [2]]]: sizes, a list's items, [] for others.
std::string shapes_text(std::span<const Value> args);
std::string dtypes_text(std::span<const Value> args);  // ["float32", "Scalar", ""]

}  // namespace facula::op
