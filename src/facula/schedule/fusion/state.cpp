#include "facula/schedule/fusion/state.h"

#include "facula/loop/seen.h"
#include "facula/op/helpers.h"

namespace facula::schedule::fusion {

using graph::Node;
using graph::Value;
using loop::Expr;
using loop::Kind;

namespace {

// Keeps the check of index i if e, which was read at i, turns out not to depend on it (one element serves all).
Expr checking(Expr e, Expr i) {
  if (!contains(i, Kind::check)) return e;
  bool used = false;
  loop::visit(e, [&](Expr x) { used |= loop::same(x, i); });
  // The two sides differ, or the select would be simplified away, and the check with it.
  int64_t other = e->kind == Kind::constant && !e->value.to_bool();
  return used ? e : loop::select(i < 0, loop::constant(other, e.dtype()), e);
}

}  // namespace

// The member that computes v, at a given index; `space`: the extents of its axes.
Expr State::member_at(const Member& m, const std::vector<Expr>& at, const Dims& space, const Value& v) {
  Expr e = m.value;
  if (!is_identity(m, at)) {
    if (contains(e, Kind::position)) {
      std::vector<Expr> own;
      for (size_t k = 0; k < space.size(); ++k)
        own.push_back(is_one(space[k]) ? integer(0) : loop::index(int(k)));
      Expr linear = op::linear_index(own, space);
      e = loop::rewrite(e, [&](Expr x) { return x->kind == Kind::position ? linear : Expr(); });
    }
    std::vector<std::pair<int, Expr>> map;
    for (size_t k = 0; k < at.size(); ++k)
      if (m.axes[k] >= 0) map.push_back({m.axes[k], at[k]});
    e = loop::substitute(e, map);
  }
  for (auto& i : at) e = checking(e, i);
  return between == Between::rounded || v.held ? loop::round_to(e, v.tensor.dtype()) : e;
}

Expr State::expanded(Expr e, const Cluster* k) {
  auto go = [&](auto&& self, Expr x) -> Expr {
    return loop::rewrite(x, [&](Expr y) -> Expr {
      if (y->kind != Kind::load) return {};
      Value* v = values.at(y->slot);
      Value* r = values.root(v);
      std::vector<Expr> at;
      for (auto& i : y->args) at.push_back(self(self, i));
      auto vt = virtual_values.find(r->id);
      auto mt = k ? k->members.find(r->id) : std::map<int, Member>::const_iterator();
      bool member = k && mt != k->members.end();
      if (vt == virtual_values.end() && !member) return loop::load(y->slot, y->memory, at, y->part);
      at = values.root_index(v, std::move(at));
      Expr element =
          member_at(member ? mt->second : vt->second, at, member ? k->extents : Dims(r->tensor.sizes()), *r);
      if (!member) element = self(self, element);  // virtual values may consist of members
      return y->part == 1 ? loop::real(element) : y->part == 2 ? loop::imag(element) : element;
    });
  };
  return go(go, e);
}

std::vector<Read> State::reads_of(const std::vector<Expr>& exprs) {
  std::vector<Read> reads;
  loop::Seen seen;
  for (auto& e : exprs)
    each_node(e, seen, [&](Expr x) {
      if (x->kind != Kind::load) return;
      Value* v = values.at(x->slot);
      if (in_cluster(values.root(v)->id)) reads.push_back({values.root(v), values.root_index(v, x->args)});
    });
  return reads;
}

std::vector<Read> State::reads_of(const std::vector<Expr>& exprs, int at) {
  auto reads = reads_of(exprs);
  std::erase_if(reads, [&](auto& r) { return unit[size_t(r.root->id)] != at; });
  return reads;
}

std::set<int> State::units_read(const std::vector<Expr>& exprs, int self) {
  std::set<int> sources;
  loop::Seen seen;
  for (auto& e : exprs)
    each_node(e, seen, [&](Expr x) {
      if (x->kind != Kind::load) return;
      int u = unit[size_t(values.root(values.at(x->slot))->id)];
      if (u >= 0 && u != self) sources.insert(u);
    });
  return sources;
}

int State::need(Value* v) {
  if (Values::is_view(v)) {
    int at = unit[size_t(v->id)];
    if (at >= 0) return at;
    int from = need(Values::base_of(v));
    at = add_unit(v->producer);
    if (from >= 0) order.need(at, from);
    return at;
  }
  if (virtual_values.erase(v->id)) add_cluster(*v->producer, body_of(*v->producer));
  if (in_cluster(v->id)) cluster_of(v->id).outputs.insert(v->id);
  return unit[size_t(v->id)];
}

void State::read_from_memory(const std::vector<Expr>& exprs, int at) {
  std::set<int> loads;
  for (auto& v : exprs) add_loads(v, loads);
  for (int id : loads) {
    int u = need(values.at(id));
    if (u >= 0 && u != at) order.need(at, u);
  }
}

int State::add_unit(const Node* n) {
  units.emplace_back().node = n;
  int at = order.add();
  if (n)
    for (auto* r : n->results) unit[size_t(r->id)] = at;
  return at;
}

void State::add_call(const Node& n) {
  std::vector<int> needs;
  for (auto* v : graph::operands(n))
    if (v)
      if (int at = need(v); at >= 0) needs.push_back(at);
  int at = add_unit(&n);
  for (int u : needs) order.need(at, u);
  auto& effects = n.op->effects;
  if (!effects.draws && !effects.ordered) return;
  if (last_ordered >= 0) order.need(at, last_ordered);
  last_ordered = at;
}

int State::add_cluster(const Node& n, const Body& b) {
  int at = add_unit(nullptr);
  auto& k = units[size_t(at)].cluster.emplace();
  if (b.scatter) {
    add_scatter(n, b, at);
    return at;
  }
  Placement p;
  for (SymInt s : n.results[0]->tensor.sizes()) k.extents.push_back(s);
  p.extents = k.extents;
  for (size_t d = 0; d < p.extents.size(); ++d) p.axes.push_back(is_one(p.extents[d]) ? -1 : int(d));
  for (auto& v : b.values) p.values.push_back(canonical(expanded(v, nullptr)));
  bool same_sizes = true;
  for (auto* r : n.results) same_sizes &= r->tensor.sizes().size() == p.extents.size();
  internal_check(same_sizes) << n.op->name() << ": results of different ranks in one loop";
  add_node(n, at, p);
  read_from_memory(p.values, at);
  return at;
}

void State::add_scatter(const Node& n, const Body& b, int at) {
  loop::Scatter s = *b.scatter;
  s.value = canonical(expanded(s.value, nullptr));
  std::vector<Expr> all{s.value};
  for (auto& t : s.target) all.push_back(t = canonical(expanded(t, nullptr)));
  if (s.base >= 0) {
    std::vector<Expr> at_zero(values.at(s.base)->tensor.sizes().size(), integer(0));
    all.push_back(loop::load(s.base, values.at(s.base)->tensor.dtype(), at_zero));
  }
  auto& k = cluster(at);
  k.extents = s.domain;
  k.scatter = s;
  k.nodes.push_back(&n);
  k.members[n.results[0]->id] = {};
  k.outputs.insert(n.results[0]->id);
  for (auto& e : all) add_loads(e, k.loads);
  read_from_memory(all, at);
  unit[size_t(n.results[0]->id)] = at;
}

void State::add_node(const Node& n, int at, const Placement& p) {
  Cluster& k = cluster(at);
  k.extents = p.extents;
  k.nodes.push_back(&n);
  for (size_t r = 0; r < n.results.size(); ++r) {
    k.members[n.results[r]->id] = {p.values[r], p.axes};
    unit[size_t(n.results[r]->id)] = at;
    k.positioned |= contains(p.values[r], Kind::position);
    k.scans |= contains(p.values[r], Kind::scan);
    add_rows(k.rows, p.values[r]);
    add_loads(p.values[r], k.loads);
  }
}

}  // namespace facula::schedule::fusion
