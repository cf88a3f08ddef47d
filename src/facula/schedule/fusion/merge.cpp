#include "facula/schedule/fusion/merge.h"

#include <algorithm>

#include "facula/schedule/fusion/join.h"

namespace facula::schedule::fusion {

using graph::Node;
using loop::Expr;
using loop::Kind;

namespace {

// By axis of `from`: the axis of k along which node n of k reads members of `from`; -1: extent 1. None if it is
// ambiguous.
std::optional<std::vector<int>> axes_read(State& f, const Cluster& k, int from, const Node& n,
                                          const Body& b) {
  const Cluster& other = *f.units[size_t(from)].cluster;
  auto moved = along(k.members.at(n.results[0]->id).axes, b.values);
  std::vector<int> axes(other.extents.size(), -1);
  for (auto& r : f.reads_of(moved, from)) {
    auto& m = other.members.at(r.root->id);
    for (size_t d = 0; d < r.at.size(); ++d) {
      if (m.axes[d] < 0) continue;
      if (r.at[d]->kind != Kind::index || r.at[d]->slot >= kFirstBound) return {};
      int& a = axes[size_t(m.axes[d])];
      if (a >= 0 && a != r.at[d]->slot) return {};
      a = r.at[d]->slot;
    }
  }
  for (size_t a = 0; a < axes.size(); ++a)
    if (!is_one(other.extents[a]) &&
        (axes[a] < 0 || !SymInt::surely_equal(other.extents[a], k.extents[size_t(axes[a])])))
      return {};
  return axes;
}

// True if merging creates no cycle and not too many buffers, and makes no map repeat its work.
bool may_merge(State& f, int from, int to, const Node& n) {
  const Cluster &k = *f.units[size_t(to)].cluster, &other = *f.units[size_t(from)].cluster;
  bool maps = !k.rows.any && !other.rows.any;
  if (maps) {
    size_t wide = 0, wide_other = 0;
    for (auto e : k.extents) wide += !is_one(e);
    for (auto e : other.extents) wide_other += !is_one(e);
    if (wide != wide_other) return false;
  }
  for (int u : f.order.needs(to))
    if (u != from && f.order.depends(u, from)) return false;
  for (auto* r : n.results)
    for (int u : f.units_read({k.members.at(r->id).value}, to))
      if (u != from && (f.order.depends(u, from) || f.order.depends(u, to))) return false;
  for (int u : f.order.needs(from))
    if (f.order.depends(u, to)) return false;
  return k.loads.size() + other.loads.size() + k.outputs.size() + other.outputs.size() <= kMaxBuffers;
}

// k with the members of another cluster, whose axes are mapped to axes of k.
Cluster with_members(State& f, const Cluster& k, const Cluster& other, const std::vector<int>& axes) {
  Cluster merged = k;
  auto map = indices(axes);
  for (auto& [id, m] : other.members) {
    Member x{f.canonical(loop::substitute(m.value, map)), m.axes};
    for (auto& a : x.axes)
      if (a >= 0) a = axes[size_t(a)];
    merged.members[id] = x;
  }
  // Members that loaded what is now in the same cluster use it directly, in order of creation.
  for (auto* node : k.nodes)
    for (auto* r : node->results) {
      auto& m = merged.members.at(r->id);
      m.value = f.canonical(f.expanded(m.value, &merged));
    }
  merged.rows = {};
  for (auto& [id, m] : merged.members) add_rows(merged.rows, m.value);
  return merged;
}

// Removes outputs of a cluster that only the cluster itself reads.
void recount(State& f, int at) {
  auto& k = f.cluster(at);
  std::set<int> outputs;
  for (int id : k.outputs) {
    bool outside = f.values.is_required(id);
    for (int u : f.order.readers(at)) {
      auto& reader = f.units[size_t(u)];
      if (reader.cluster) outside |= reader.cluster->loads.count(id) > 0;
      else
        for (auto* v : graph::operands(*reader.node)) outside |= v && v->id == id;
    }
    if (outside) outputs.insert(id);
  }
  k.outputs = outputs;
}

}  // namespace

void merge(State& f, int from, int to, const Node& n, const Body& b) {
  Cluster &k = *f.units[size_t(to)].cluster, &other = *f.units[size_t(from)].cluster;
  if (other.scatter || other.scans || k.scans || other.positioned || k.positioned) return;
  auto axes = axes_read(f, k, from, n, b);
  if (!axes || !may_merge(f, from, to, n)) return;
  Cluster merged = with_members(f, k, other, *axes);
  if (!merged.rows.legal) return;
  merged.loads.clear();
  for (auto& [id, m] : merged.members) add_loads(m.value, merged.loads);
  merged.outputs.insert(other.outputs.begin(), other.outputs.end());
  std::vector<const Node*> nodes = other.nodes;
  nodes.insert(nodes.end(), k.nodes.begin(), k.nodes.end());
  std::sort(nodes.begin(), nodes.end(), [](auto* a, auto* b) { return a->id < b->id; });
  merged.nodes = nodes;
  for (auto& [id, m] : other.members) f.unit[size_t(id)] = to;
  f.order.merge(from, to);
  k = std::move(merged);
  f.units[size_t(from)].merged = true;
  f.units[size_t(from)].cluster.reset();
  recount(f, to);
}

}  // namespace facula::schedule::fusion
