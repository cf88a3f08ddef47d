// Autocast: a mode (op/call.h) that gives operators their operands in the dtype that Operator::autocast says,
// so it costs nothing when off. Casts are calls, hence recorded: gradients arrive in the dtype of what was
// cast. A leaf that requires a gradient is cast once and the result kept, until the outermost region ends or
// the leaf is written.
#pragma once
#include "facula/base/dtype.h"

namespace facula::run {

struct AutocastState {
  bool enabled = false;
  DType dtype = DType::BFloat16;  // of operators that are lowered
  bool cache = true;
};

// Of this thread.
const AutocastState& autocast_state();
void set_autocast(const AutocastState& s);
void clear_autocast_cache();
// A region begins or ends; the end of the outermost clears the cache.
void enter_autocast_region();
void exit_autocast_region();

}  // namespace facula::run
