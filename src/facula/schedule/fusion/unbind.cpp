#include "facula/schedule/fusion/unbind.h"

#include <algorithm>

namespace facula::schedule::fusion {

using graph::Node;
using graph::Value;
using loop::Expr;

namespace {

// The most operations that a reduction recomputes to avoid binding a cluster of maps to its rows.
constexpr double kCopied = 32;

// True if reading a member that is in memory anyway is cheaper than recomputing it.
bool is_read_sooner(State& f, const Value* v) {
  if (!f.values.is_required(v->id)) return false;
  Expr e = f.cluster_of(v->id).members.at(v->id).value;
  std::set<int> loads;
  add_loads(e, loads);
  auto large =
      std::count_if(loads.begin(), loads.end(), [&](int id) { return f.values.at(id)->tensor.dim() > 0; });
  return large > 1 || pointwise_cost(e) > kCheap;
}

// True if other consumers read what this node would bind to its rows.
bool are_shared(State& f, const std::set<int>& clusters, const Node& n) {
  bool shared = false;
  for (int u : clusters)
    for (auto& [id, m] : f.cluster(u).members) {
      int inside = 0;
      auto count = [&](const Node& reader) {
        for (auto* v : graph::operands(reader)) inside += v && f.values.root(v)->id == id;
      };
      for (auto* node : f.cluster(u).nodes) count(*node);
      count(n);
      shared |= f.values.uses(id) > inside || f.values.is_required(id);
    }
  return shared;
}

}  // namespace

std::optional<Unbound> unbind(State& f, const std::vector<Expr>& values, const Node& n) {
  std::set<int> clusters, from;
  for (auto& r : f.reads_of(values)) {
    Cluster& k = f.cluster_of(r.root->id);
    if (k.scatter || k.scans || k.positioned || k.rows.any) return {};
    int u = f.unit[size_t(r.root->id)];
    if (is_read_sooner(f, r.root)) {
      from.insert(u);
    } else {
      if (pointwise_cost(k.members.at(r.root->id).value) > kCopied) return {};
      clusters.insert(u);
    }
  }
  for (int u : clusters)
    if (from.count(u)) return {};
  if (!are_shared(f, clusters, n)) clusters.clear();
  if (clusters.empty() && from.empty()) return {};
  Unbound out{{}, from};
  for (auto& v : values) {
    Expr e = v;
    for (int u : clusters) e = f.expanded(e, &f.cluster(u));
    out.values.push_back(e);
  }
  return out;
}

}  // namespace facula::schedule::fusion
