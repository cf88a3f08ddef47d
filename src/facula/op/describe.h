// Prints arguments of calls: for the profiler, printed graphs and names.
#pragma once
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>

#include "facula/op/value.h"

namespace facula::op {

// JSON lists with one item per argument, for example [[8, 3], [], [[2], [2]]]: sizes, the items of a list, [] for
// others.
std::string shapes_text(std::span<const Value> args);
std::string dtypes_text(std::span<const Value> args);  // ["float32", "Scalar", ""]

// Prints a value other than a tensor: 1, 0.5, 'mean', [1, 2], float32. Equal texts mean equal values.
void print_attribute(std::ostream& s, const Value& v);

const char* name(MemoryFormat f);                      // "contiguous_format"
MemoryFormat format_from_name(std::string_view name);  // TypeError if unknown

}  // namespace facula::op
