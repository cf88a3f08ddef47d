// Autocast: a mode (op/call.h) that casts operands to the dtype that Operator::autocast asks for; it costs nothing while it is
// off. Casts are calls and recorded, so gradients arrive in the dtype of the operand. The cast of a leaf that requires a
// gradient is cached until the outermost region ends or the leaf is written.
#pragma once
#include "facula/base/dtype.h"

namespace facula::run {

struct AutocastState {
  bool enabled = false;
  DType dtype = DType::BFloat16;  // the lower dtype
  bool cache = true;
};

// The settings of this thread.
const AutocastState& autocast_state();
void set_autocast(const AutocastState& s);
void clear_autocast_cache();
// A region begins or ends; the end of the outermost clears the cache.
void enter_autocast_region();
void exit_autocast_region();
int autocast_regions();  // of this thread that are open

// While it lives, autocast is off. Autocast regions take calls in front of traces, so they are left before a trace
// begins or ends to take calls, and entered again behind it.
class AutocastOff {
 public:
  AutocastOff() : state_(autocast_state()) {
    if (!state_.enabled) return;
    auto off = state_;
    off.enabled = false;
    set_autocast(off);
  }
  ~AutocastOff() {
    if (state_.enabled) set_autocast(state_);
  }
  AutocastOff(const AutocastOff&) = delete;

 private:
  AutocastState state_;
};

}  // namespace facula::run
