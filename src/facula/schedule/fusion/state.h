// The state of the fusion pass: which unit computes each value, the order of units, and which values exist only
// inside of their consumers.
#pragma once
#include <deque>
#include <set>
#include <unordered_map>
#include <vector>

#include "facula/schedule/fuse.h"
#include "facula/schedule/fusion/body.h"
#include "facula/schedule/fusion/cluster.h"
#include "facula/schedule/fusion/folds.h"
#include "facula/schedule/fusion/values.h"
#include "facula/schedule/order.h"

namespace facula::schedule::fusion {

// A load of a member of a cluster, possibly through views.
struct Read {
  graph::Value* root;
  std::vector<loop::Expr> at;
};

struct State {
  State(const graph::Graph& g, Between between)
      : graph(g), between(between), values(g), unit(g.values().size(), -1) {}

  const graph::Graph& graph;
  const Between between;
  Values values;
  Bodies body_of;
  Canonical canonical;
  std::deque<Unit> units;
  Order order;            // of the units
  int last_ordered = -1;  // the last unit that draws from a sequence, such as a generator
  std::vector<int> unit;  // by value: the unit that computes it; -1: an input
  std::unordered_map<int, Member> virtual_values;  // values that exist only inside of their consumers

  bool in_cluster(int id) const { return unit[size_t(id)] >= 0 && units[size_t(unit[size_t(id)])].cluster; }
  Cluster& cluster(int at) { return *units[size_t(at)].cluster; }
  Cluster& cluster_of(int id) { return cluster(unit[size_t(id)]); }

  // Replaces loads of virtual values and of members of `k` by the expressions that define them.
  loop::Expr expanded(loop::Expr e, const Cluster* k);
  // The reads of members of any cluster, or of unit `at`.
  std::vector<Read> reads_of(const std::vector<loop::Expr>& exprs);
  std::vector<Read> reads_of(const std::vector<loop::Expr>& exprs, int at);
  // The units, apart from `self`, that compute what these expressions load.
  std::set<int> units_read(const std::vector<loop::Expr>& exprs, int self);

  // Makes v available in memory: marks it as an output of its unit, and adds units that create views. Gives the unit
  // that computes it, or -1.
  int need(graph::Value* v);
  // Ensures that what these expressions load is in memory before unit `at` runs.
  void read_from_memory(const std::vector<loop::Expr>& exprs, int at);

  int add_unit(const graph::Node* n);
  void add_call(const graph::Node& n);  // adds a library call
  int add_cluster(const graph::Node& n, const Body& b);
  void add_node(const graph::Node& n, int at, const Placement& p);  // adds the node to cluster `at`

 private:
  loop::Expr member_at(const Member& m, const std::vector<loop::Expr>& at, const Dims& space,
                       const graph::Value& v);
  void add_scatter(const graph::Node& n, const Body& b, int at);
};

}  // namespace facula::schedule::fusion
