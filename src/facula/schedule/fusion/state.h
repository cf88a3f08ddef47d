// What the pass knows while it runs: what makes each value, in which order, and which values exist only inside of
// their readers.
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

// A load of a member of some cluster: maybe through views.
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
  int last_ordered = -1;  // the last unit so far that takes from a sequence, as a generator's
  std::vector<int> unit;  // by value: what makes it; -1: given
  std::unordered_map<int, Member> virtual_values;  // that exist only inside of their readers

  bool in_cluster(int id) const { return unit[size_t(id)] >= 0 && units[size_t(unit[size_t(id)])].cluster; }
  Cluster& cluster(int at) { return *units[size_t(at)].cluster; }
  Cluster& cluster_of(int id) { return cluster(unit[size_t(id)]); }

  // Loads of virtual values and of members of `k` replaced by what they are.
  loop::Expr expanded(loop::Expr e, const Cluster* k);
  // Reads of members of clusters; of one unit.
  std::vector<Read> reads_of(const std::vector<loop::Expr>& exprs);
  std::vector<Read> reads_of(const std::vector<loop::Expr>& exprs, int at);
  // Units whose results the loads of these expressions need, apart from `self`.
  std::set<int> units_read(const std::vector<loop::Expr>& exprs, int self);

  // Makes v available in memory: marks outputs, adds the steps that make views. The unit that makes it, or -1.
  int need(graph::Value* v);
  // What these expressions load must be in memory before unit `at` runs.
  void read_from_memory(const std::vector<loop::Expr>& exprs, int at);

  int add_unit(const graph::Node* n);
  void add_call(const graph::Node& n);  // of a library
  int add_cluster(const graph::Node& n, const Body& b);
  void add_node(const graph::Node& n, int at, const Placement& p);  // to a cluster

 private:
  loop::Expr member_at(const Member& m, const std::vector<loop::Expr>& at, const Dims& space, DType d);
  void add_scatter(const graph::Node& n, const Body& b, int at);
};

}  // namespace facula::schedule::fusion
