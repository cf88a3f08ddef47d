// Shifts, which are used modulo a size. SymInt holds numbers within +-2^61; larger ones are refused.
#pragma once
#include "facula/base/error.h"
#include "facula/sym/symint.h"

namespace facula {
inline void check_shift(const char* op, const char* name, const SymInt& n) {
  constexpr int64_t far = (int64_t(1) << 61) - 1;
  runtime_check(n.is_symbolic() || (n.concrete() < far && n.concrete() > -far), op)
      << name << " must be within -2^61 and 2^61";
}
}  // namespace facula
