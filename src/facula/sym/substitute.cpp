#include "facula/sym/substitute.h"

namespace facula::sym {

static SymInt combined(Kind kind, SymInt a, SymInt b) {
  switch (kind) {
    case Kind::add: return a + b;
    case Kind::mul: return a * b;
    case Kind::floordiv: return a / b;
    case Kind::mod: return a % b;
    case Kind::min: return min(a, b);
    default: return max(a, b);
  }
}

SymInt substitute(SymInt e, SymSpan values) {
  if (!e.is_symbolic()) return e;
  auto* n = e.node();
  if (n->kind == Kind::constant) return n->value;
  if (n->kind == Kind::symbol) return values[size_t(n->value)];
  return combined(n->kind, substitute(SymInt::of(n->a), values), substitute(SymInt::of(n->b), values));
}

SymInt rewrite(SymInt e, const std::function<std::optional<SymInt>(SymInt)>& f) {
  if (!e.is_symbolic()) return e;
  if (auto replacement = f(e)) return *replacement;
  auto* n = e.node();
  if (!n->a) return n->kind == Kind::constant ? SymInt(n->value) : e;
  return combined(n->kind, rewrite(SymInt::of(n->a), f), rewrite(SymInt::of(n->b), f));
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

bool is_of(SymInt e, const Shapes& shapes) {
  auto look = [&](const Node* n, auto& self) -> bool {
    if (n->kind == Kind::symbol)
      return n->value < shapes.symbol_count() && shapes.symbol(int(n->value)).node() == n;
    return (!n->a || self(n->a, self)) && (!n->b || self(n->b, self));
  };
  return !e.is_symbolic() || look(e.node(), look);
}

}  // namespace facula::sym
