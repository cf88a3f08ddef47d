// Constructors and visitors for the statements of nests.
#pragma once
#include <utility>
#include <vector>

#include "facula/loop/nest.h"

namespace facula::schedule {

inline loop::Expr integer(int64_t i) { return loop::constant(Scalar(i), DType::Int64); }
inline loop::Statement loop_over(loop::LoopKind kind, int var, loop::Expr extent, loop::Block body) {
  loop::Statement s{loop::Statement::Kind::loop};
  s.loop = kind;
  s.var = var;
  s.extent = extent;
  s.body = std::move(body);
  return s;
}
inline loop::Statement store(int buffer, loop::Expr offset, loop::Expr value) {
  loop::Statement s{loop::Statement::Kind::store};
  s.buffer = buffer;
  s.offset = offset;
  s.values = {value};
  return s;
}
inline loop::Statement set(loop::Statement::Kind let_or_assign, int var, loop::Expr value) {
  loop::Statement s{let_or_assign};
  s.var = var;
  s.values = {value};
  return s;
}
inline loop::Statement when(loop::Expr condition, loop::Block body) {
  loop::Statement s{loop::Statement::Kind::condition};
  s.values = {condition};
  s.body = std::move(body);
  return s;
}

using loop::each_expression;
using loop::each_statement;
// Applies f to every expression of a block.
template <class F>
void replace(loop::Block& block, F&& f) {
  for (auto& s : block) {
    each_expression(s, [&](loop::Expr& e) { e = f(e); });
    replace(s.body, f);
  }
}

}  // namespace facula::schedule
