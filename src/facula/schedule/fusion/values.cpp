#include "facula/schedule/fusion/values.h"

#include "facula/op/operator.h"

namespace facula::schedule::fusion {

using graph::Value;
using loop::Expr;

namespace {

op::Geometry geometry(const Value* v) {
  auto& n = *v->producer;
  op::Call c(*n.op, n.args.values());
  auto views = n.op->as<op::View>()->rule(c, op::Geometry(n.op->name(), n.args.tensors().at(0)));
  return views[size_t(v->result)];
}

}  // namespace

Values::Values(const graph::Graph& g)
    : g_(g), required_(g.values().size()), uses_(g.values().size()), composes_(g.values().size(), -1) {
  for (auto* o : g_.outputs)
    if (o) require(o);
  for (auto& [i, v] : g_.mutated) require(v);
  for (auto& n : g_.nodes) {
    auto values = graph::operands(*n);
    for (auto* v : values)
      if (v) ++uses_[size_t(v->id)];
    if (n->op->backed() || n->op->calls())
      for (auto* v : values)
        if (v) require(v);
    if (n->op->is<op::View>() && !n->results.empty() && !composes(n->results[0])) require(values.at(0));
  }
}

void Values::require(Value* v) {
  while (v && !required_[size_t(v->id)]) {
    required_[size_t(v->id)] = true;
    if (!is_view(v)) return;
    v = base_of(v);
  }
}

bool Values::is_view(const Value* v) { return v->producer && v->producer->op->is<op::View>(); }
Value* Values::base_of(const Value* v) { return graph::value_of(v->producer->args.tensors().at(0)); }

Value* Values::root(Value* v) {
  while (is_view(v) && composes(v)) v = base_of(v);
  return v;
}

bool Values::composes(const Value* v) {
  auto& composable = composes_[size_t(v->id)];
  if (composable < 0) composable = geometry(v).has_base_index();
  return composable;
}

std::vector<Expr> Values::root_index(Value* u, std::vector<Expr> at) {
  while (is_view(u) && composes(u)) {
    at = geometry(u).base_index(std::move(at));
    u = base_of(u);
  }
  return at;
}

}  // namespace facula::schedule::fusion
