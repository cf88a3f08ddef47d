#include "facula/sym/substitute.h"

namespace facula::sym {

SymInt substitute(SymInt e, SymSpan values) {
  if (!e.is_symbolic()) return e;
  auto* n = e.node();
  if (n->kind == Kind::constant) return n->value;
  if (n->kind == Kind::symbol) return values[size_t(n->value)];
  SymInt a = substitute(SymInt::of(n->a), values), b = substitute(SymInt::of(n->b), values);
  switch (n->kind) {
    case Kind::add: return a + b;
    case Kind::mul: return a * b;
    case Kind::floordiv: return a / b;
    case Kind::mod: return a % b;
    case Kind::min: return min(a, b);
    default: return max(a, b);
  }
}

void each_symbol(SymInt e, const std::function<void(size_t)>& f) {
  if (!e.is_symbolic()) return;
  auto look = [&](const Node* n, auto& self) -> void {
    if (n->kind == Kind::symbol) f(size_t(n->value));
    if (n->a) self(n->a, self);
    if (n->b) self(n->b, self);
  };
  look(e.node(), look);
}

}  // namespace facula::sym
