#include "facula/schedule/fusion/body.h"

#include "facula/op/operands.h"
#include "facula/schedule/fuse.h"
#include "facula/schedule/fusion/folds.h"

namespace facula::schedule::fusion {

using graph::Node;
using graph::Value;
using loop::Expr;
using loop::Kind;
using op::Tag;

namespace {

// An operand of a node by slot: a value, a number (a size of the call counts as a number, by its symbol), or None.
struct Operand {
  Value* value = nullptr;
  std::optional<Scalar> number;
  std::optional<SymInt> size;
};
std::vector<Operand> operands_by_slot(const Node& n) {
  std::vector<Operand> slots;
  op::each_operand(op::Call(*n.op, n.args.values()), [&](const op::Operand& x) {
    Operand& o = slots.emplace_back();
    if (x.value.tag == Tag::tensor) o.value = x.value.tensor->traced;
    else if (x.value.tag == Tag::integer && x.value.integer().is_symbolic()) o.size = x.value.integer();
    else if (!x.value.is_none()) o.number = x.value.number();
  });
  return slots;
}

// Replaces the loads of e, which refer to operands by slot, by loads of values and by numbers.
Expr over_values(Expr e, const std::vector<Operand>& slots, const Node& n) {
  auto go = [&](auto&& self, Expr x) -> Expr {
    return loop::rewrite(x, [&](Expr y) -> Expr {
      if (y->kind != Kind::load) return {};
      auto& o = slots.at(size_t(y->slot));
      if (o.number && y->part == 2) return loop::imag(loop::constant(*o.number, compute_type(y->memory)));
      if (o.number) return loop::constant(*o.number, y.dtype());
      if (o.size && y->part == 2) return loop::constant(0.0, y.dtype());
      if (o.size) return loop::cast(loop::size(*o.size), y.dtype());
      internal_check(o.value) << n.op->name() << ": slot " << y->slot << " is None but loaded";
      std::vector<Expr> at;
      for (auto& i : y->args) at.push_back(self(self, i));
      return loop::load(o.value->id, y->memory, at, y->part);
    });
  };
  return go(go, e);
}

}  // namespace

Body Bodies::operator()(const Node& n) {
  auto def = lower(*n.op, n.args.values());
  auto slots = operands_by_slot(n);
  auto defined = [&](Expr e) { return unique_bound(over_values(e, slots, n)); };
  Body b;
  std::vector<std::pair<int, Expr>> ones;  // dimensions of size 1 have a single index
  if (!def.scatter) {
    SymSpan sizes = n.results[0]->tensor.sizes();
    for (size_t d = 0; d < sizes.size(); ++d)
      if (is_one(sizes[d])) ones.push_back({int(d), integer(0)});
  }
  for (auto& v : def.values) b.values.push_back(loop::substitute(defined(v), ones));
  if (def.scatter) {
    b.scatter = *def.scatter;
    b.scatter->value = defined(b.scatter->value);
    for (auto& t : b.scatter->target) t = defined(t);
  }
  if (b.scatter && b.scatter->base >= 0) {
    auto* base = slots.at(size_t(b.scatter->base)).value;
    internal_check(base) << n.op->name() << ": the base of a scatter is no tensor";
    b.scatter->base = base->id;
  }
  return b;
}

Expr Bodies::unique_bound(Expr e) {
  if (!e->has_reduce) return e;
  return loop::rewrite(e, [&](Expr x) -> Expr {
    if (!x->has_reduce) return x;
    if (!is_fold(x)) return {};
    // Removes bound variables of extent one, but keeps one if the components of the reduction are read.
    std::vector<loop::BoundVar> bound;
    std::vector<std::pair<int, Expr>> map;
    for (auto& b : x->bound) {
      bool one = x->kind == Kind::reduce && b.extent->kind == Kind::constant && b.extent->value.to_int() == 1;
      if (one && (loop::components(x->monoid) == 1 ||
                  (x->bound.size() > 1 && (!bound.empty() || &b != &x->bound.back())))) {
        map.push_back({b.var, integer(0)});
        continue;
      }
      map.push_back({b.var, loop::index(next_var_)});
      bound.push_back({next_var_++, b.extent});
    }
    std::vector<Expr> args;
    for (auto& a : x->args) args.push_back(loop::substitute(unique_bound(a), map));
    if (bound.empty()) return args[0];
    return x->kind == Kind::scan ? loop::scan(x->monoid, x->slot, bound[0], args)
                                 : loop::reduce(x->monoid, bound, args);
  });
}

}  // namespace facula::schedule::fusion
