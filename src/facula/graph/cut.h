// Decides what to retain and what to recompute, by a minimum cut: between a forward and a backward pass in two
// programs (partition.cpp), or in one program (rematerialize.cpp).
#pragma once
#include <vector>

#include "facula/graph/graph.h"

namespace facula::graph {

constexpr double kUncut = 1e30;

// A flow network with Dinic's algorithm, which is fast enough for graphs with a few thousand values.
class Flow {
 public:
  explicit Flow(int nodes) : first_(size_t(nodes), -1), level_(size_t(nodes)), next_(size_t(nodes)) {}
  void edge(int from, int to, double capacity);
  std::vector<bool> cut(int source, int sink);  // the nodes on the source's side of a minimum cut

 private:
  struct Arc {
    int to, next;
    double left;
  };
  bool layer(int source, int sink);
  double push(int source, int sink, double limit);
  std::vector<Arc> arcs_;
  std::vector<int> first_, level_, next_;
};

// True if a later pass may recompute the node: pointwise operators and views, but not expensive operators or
// reductions; in a checkpoint, everything that is not random.
bool recomputable(const Node& n);
double bytes(const Value& v);  // by the hints of its sizes

}  // namespace facula::graph
