// What to keep and what to compute again, as a minimum cut: shared by what crosses from a forward to a backward pass in
// two programs (partition.cpp) and in one (rematerialize.cpp).
#pragma once
#include <vector>

#include "facula/graph/graph.h"

namespace facula::graph {

constexpr double kUncut = 1e30;

// A network for Dinic's algorithm, fast enough for graphs of some thousand values.
class Flow {
 public:
  explicit Flow(int nodes) : first_(size_t(nodes), -1), level_(size_t(nodes)), next_(size_t(nodes)) {}
  void edge(int from, int to, double capacity);
  std::vector<bool> cut(int source, int sink);  // nodes on the source's side of a minimum cut

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

// May a later pass compute it again? Element-wise work and views, not what is heavy or reduces; in a checkpoint all that
// is not random.
bool recomputable(const Node& n);
double bytes(const Value& v);  // by the hints of its sizes

}  // namespace facula::graph
