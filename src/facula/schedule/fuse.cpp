#include "facula/schedule/fuse.h"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>

#include "facula/schedule/fusion/complete.h"
#include "facula/schedule/fusion/join.h"
#include "facula/schedule/fusion/merge.h"
#include "facula/schedule/fusion/state.h"
#include "facula/schedule/fusion/steps.h"
#include "facula/schedule/fusion/unbind.h"
#include "facula/schedule/fusion/virtual.h"

namespace facula::schedule {

using graph::Graph;
using graph::Node;
using loop::Expr;
using op::OpKind;
using namespace fusion;

namespace {

constexpr size_t kTriedClusters = 16;  // only the latest clusters are tried for the sake of shared loads

std::vector<Expr> expressions(const Body& b) {
  std::vector<Expr> all = b.values;
  if (b.scatter) {
    all.push_back(b.scatter->value);
    all.insert(all.end(), b.scatter->target.begin(), b.scatter->target.end());
  }
  return all;
}

// Creates views without an index map before deciding about their consumers: their base has to be in memory, so a
// consumer cannot join the cluster that computes it.
void make_views(State& f, const Body& b) {
  std::set<int> loads;
  for (Expr e : expressions(b)) add_loads(e, loads);
  for (int id : loads)
    if (auto* r = f.values.root(f.values.at(id)); Values::is_view(r)) f.need(r);
}

bool reduces(const Body& b) {
  return std::any_of(b.values.begin(), b.values.end(),
                     [](Expr v) { return v->has_reduce && !contains(v, loop::Kind::scan); });
}

// The clusters that a node may join, best first: those that it reads (`vertical`), then some that load what it loads.
struct Candidates {
  std::vector<int> vertical, all;

  Candidates(State& f, const Body& b, const std::set<int>& apart) {
    std::vector<Expr> full;
    for (auto& v : b.values) full.push_back(f.expanded(v, nullptr));
    if (b.scatter) full.push_back(f.expanded(b.scatter->value, nullptr));
    for (auto& r : f.reads_of(full))
      if (int u = f.unit[size_t(r.root->id)]; !apart.count(u)) vertical.push_back(u);
    std::sort(vertical.rbegin(), vertical.rend());
    for (int u : vertical) add(u);
    std::set<int> loads;
    for (auto& v : full) add_loads(v, loads);
    for (size_t u = f.units.size(), tried = 0; u-- > 0 && tried < kTriedClusters; ++tried) {
      if (!f.units[u].cluster || f.units[u].merged || apart.count(int(u))) continue;
      auto& others = f.units[u].cluster->loads;
      if (std::any_of(loads.begin(), loads.end(),
                      [&](int id) { return f.values.at(id)->tensor.dim() > 0 && others.count(id); }))
        add(int(u));
    }
  }
  void add(int u) {
    if (std::find(all.begin(), all.end(), u) == all.end()) all.push_back(u);
  }
};

// Adds a node to the first cluster that accepts it, and merges the other clusters that it reads into that one.
void add_kernel(State& f, const Node& n) {
  Body b = f.body_of(n);
  make_views(f, b);
  if (may_be_virtual(f, n, b)) return make_virtual(f, n, b);
  std::set<int> apart;
  if (reduces(b))
    if (auto read = unbind(f, b.values, n)) std::tie(b.values, apart) = std::tie(read->values, read->from);
  Candidates candidates(f, b, apart);
  int joined = -1;
  for (int u : candidates.all) {
    auto p = placement(f, n, b, u);
    if (!p) continue;
    f.add_node(n, u, *p);
    joined = u;
    break;
  }
  if (joined < 0) {
    f.add_cluster(n, b);
    return;
  }
  for (int u : candidates.vertical)
    if (u != joined && !f.units[size_t(u)].merged) merge(f, u, joined, n, b);
  std::vector<Expr> values;
  for (auto* r : n.results) values.push_back(f.cluster(joined).members.at(r->id).value);
  f.read_from_memory(values, joined);
}

}  // namespace

std::vector<Step> fuse(const Graph& g, Between between) {
  std::optional<sym::Shapes::With> with;
  if (g.shapes) with.emplace(*g.shapes);
  State f(g, between);
  for (auto* v : partly_read(g, f.values, f.body_of)) f.values.require(v);
  for (auto& n : g.nodes) {
    switch (n->op->kind()) {
      case OpKind::view: break;  // created when something needs the alias itself
      case OpKind::pointwise:
      case OpKind::loop: add_kernel(f, *n); break;
      default: f.add_call(*n); break;
    }
  }
  for (auto& v : g.values())
    if (f.values.is_required(v->id) && Values::is_view(v.get())) f.need(v.get());
  for (auto& v : g.values())
    if (f.values.is_required(v->id) && f.in_cluster(v->id)) f.cluster_of(v->id).outputs.insert(v->id);
  return steps_of(f);
}

}  // namespace facula::schedule
