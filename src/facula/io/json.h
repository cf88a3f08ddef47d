// JSON texts as Values: objects are dicts, arrays are lists, numbers are ints where they have no fraction.
#pragma once
#include <string_view>

#include "facula/io/value.h"

namespace facula::io {

// Raises ValueError with the position of the first mistake. Nesting is limited to 200 levels.
Value parse_json(std::string_view text);

}  // namespace facula::io
