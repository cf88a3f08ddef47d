// An epilogue (schedule/epilogue.h) in a nest that is written by hand.
#pragma once
#include "facula/loop/expr.h"
#include "facula/schedule/epilogue.h"

namespace facula::device::cpu {

// The value of the epilogue for `element` at this row and column. Its operands are the buffers from `buffer` on, and its params
// those of the nest from `param` on.
inline loop::Expr applied(const schedule::Epilogue& e, loop::Expr element, loop::Expr row, loop::Expr column,
                          int buffer, int param) {
  using loop::Expr, loop::Kind;
  const loop::Rewrite place = [&](Expr x) -> Expr {
    switch (x->kind) {
      case Kind::local: return x->slot == schedule::kResultElement ? element : x;
      case Kind::index: return x->slot == 0 ? row : column;
      case Kind::param: return loop::param(param + x->slot);
      case Kind::load: return loop::load(buffer + x->slot, x->memory, {rewrite(x->args[0], place)});
      default: return {};
    }
  };
  return rewrite(e.value, place);
}

}  // namespace facula::device::cpu
