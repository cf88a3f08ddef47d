#include "facula/schedule/fusion/complete.h"

#include <algorithm>
#include <map>

#include "facula/graph/passes.h"
#include "facula/loop/seen.h"
#include "facula/op/geometry.h"
#include "facula/schedule/fusion/folds.h"

namespace facula::schedule::fusion {

using graph::Node;
using graph::Value;
using loop::Expr;
using loop::Kind;

namespace {

bool is_zero(SymInt s) { return SymInt::surely_equal(s, int64_t(0)); }

// Whether each element of the base is an element of the view.
bool shows_all(const Node& n, const Value& view) {
  using Step = op::ViewStep::Kind;
  op::Call c(*n.op, n.args.values());
  auto views = n.op->as<op::View>()->rule(c, op::Geometry(n.op->name(), n.args.tensors().at(0)));
  auto& steps = views[size_t(view.result)].steps();
  return std::ranges::all_of(steps, [](const op::ViewStep& s) {
    switch (s.kind) {
      case Step::slice: return SymInt::surely_equal(s.length, s.before[size_t(s.dim)]);
      case Step::expand: return std::ranges::none_of(s.sizes, is_zero);
      case Step::select:
      case Step::strided:
      case Step::diagonal: return false;
      default: return true;
    }
  });
}

// The extents of the variables of a body.
using Extents = std::map<int, Expr>;

Extents extents_of(const Node& n, const Body& b) {
  Extents all;
  SymSpan sizes = b.scatter ? SymSpan(b.scatter->domain) : n.results[0]->tensor.sizes();
  for (size_t d = 0; d < sizes.size(); ++d) all[int(d)] = loop::size(sizes[d]);
  return all;
}

// True if the indices run over all elements of v, each along another variable.
bool runs_over(const std::vector<Expr>& at, const Value& v, const Extents& extents) {
  auto sizes = v.tensor.sizes();
  std::vector<int> used;
  for (size_t d = 0; d < at.size(); ++d) {
    if (is_one(sizes[d])) continue;
    if (at[d]->kind != Kind::index || std::ranges::count(used, at[d]->slot)) return false;
    used.push_back(at[d]->slot);
    auto it = extents.find(at[d]->slot);
    if (it == extents.end() || !loop::same(it->second, loop::size(sizes[d]))) return false;
  }
  return true;
}

// Whether e reads all elements of v, whatever other elements are.
bool reads_all(Expr e, const Value& v, Extents& extents, loop::Seen& seen) {
  if (!seen.insert(e.get())) return false;
  if (e->kind == Kind::load && e->slot == v.id && runs_over(e->args, v, extents)) return true;
  for (auto& b : e->bound) extents[b.var] = b.extent;
  size_t always = e->kind == Kind::select ? 1 : e->args.size();  // either side may be skipped
  return std::any_of(e->args.begin(), e->args.begin() + std::ptrdiff_t(always),
                     [&](Expr x) { return reads_all(x, v, extents, seen); });
}

bool reads_all(const Node& n, const Value& v, Bodies& body_of) {
  if (n.op->is<op::View>()) return shows_all(n, *n.results[0]);
  if (!n.op->is<op::Pointwise>() && !n.op->is<op::Loop>()) return true;  // reads it from memory
  Body b = body_of(n);
  auto extents = extents_of(n, b);
  if (std::ranges::any_of(n.results[0]->tensor.sizes(), is_zero)) return false;
  std::vector<Expr> all = b.values;
  if (b.scatter) {
    all.push_back(b.scatter->value);
    all.insert(all.end(), b.scatter->target.begin(), b.scatter->target.end());
  }
  loop::Seen seen;
  return std::ranges::any_of(all, [&](Expr e) { return reads_all(e, v, extents, seen); });
}

}  // namespace

std::vector<Value*> partly_read(const graph::Graph& g, const Values& values, Bodies& body_of) {
  auto checks = [](const auto& n) { return graph::may_refuse(*n); };
  if (std::ranges::none_of(g.nodes, checks)) return {};
  std::vector<bool> depends(g.values().size()), complete(g.values().size());  // by number
  for (auto& n : g.nodes) {
    bool any = checks(n);
    graph::each_operand(*n, [&](Value* v) { any = any || depends[size_t(v->id)]; });
    for (auto* r : n->results) depends[size_t(r->id)] = any;
  }
  std::vector<Value*> partly;
  for (size_t k = g.nodes.size(); k-- > 0;) {
    auto& n = *g.nodes[k];
    if (std::ranges::none_of(n.results, [&](auto* r) { return depends[size_t(r->id)]; })) continue;
    auto is_complete = [&](auto* r) { return complete[size_t(r->id)] || values.is_required(r->id); };
    bool all = std::ranges::any_of(n.results, is_complete);
    if (!all && checks(g.nodes[k]) && (n.op->is<op::Pointwise>() || n.op->is<op::Loop>())) {
      partly.push_back(n.results[0]);
      all = true;
    }
    if (!all) continue;
    graph::each_operand(n, [&](Value* v) {
      if (depends[size_t(v->id)] && !complete[size_t(v->id)])
        complete[size_t(v->id)] = reads_all(n, *v, body_of);
    });
  }
  return partly;
}

}  // namespace facula::schedule::fusion
