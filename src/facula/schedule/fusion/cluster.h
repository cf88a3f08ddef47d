// Clusters: values that one kernel computes, over axes that they share, and the rows over which it reduces.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "facula/graph/graph.h"
#include "facula/loop/expr.h"

namespace facula::schedule::fusion {

struct Member {
  loop::Expr value;       // over the cluster's axes
  std::vector<int> axes;  // by dimension; -1: size 1
};

// The reductions of a kernel: all must have the same rows (free variables) and the same domain.
struct Rows {
  std::set<int> vars;
  std::vector<const loop::Node*> domain;  // extents
  bool any = false, legal = true;
};

struct Cluster {
  Dims extents;
  std::map<int, Member> members;  // by value number
  std::vector<const graph::Node*> nodes;
  std::optional<loop::Scatter> scatter;
  bool positioned = false;  // some value depends on the position in exactly this space
  bool scans = false;
  std::set<int> outputs;
  std::set<int> loads;  // values read from memory
  Rows rows;            // of the members
};

// Something that runs: a cluster, a library call, or the making of views.
struct Unit {
  std::optional<Cluster> cluster;
  const graph::Node* node = nullptr;
  bool gone = false;  // merged into another
};

// The values of a node in the coordinates of a cluster, whose axes become `extents`.
struct Placement {
  std::vector<int> axes;  // by dimension of the node's results; -1: size 1
  Dims extents;
  std::vector<loop::Expr> values;
};

void add_rows(Rows& r, loop::Expr e);

// Values that e loads.
void add_loads(loop::Expr e, std::set<int>& to);
// Are some values read alike, in each dimension, by `values` and by members of k?
bool shares_reads(const Cluster& k, const std::vector<loop::Expr>& values, const Rows& rows);

// Is the member read where it is computed?
bool is_identity(const Member& m, const std::vector<loop::Expr>& at);
// Dimensions to the indices of the axes that they run along; -1: of size 1.
std::vector<std::pair<int, loop::Expr>> indices(const std::vector<int>& axes);
std::vector<loop::Expr> along(const std::vector<int>& axes, const std::vector<loop::Expr>& values);

}  // namespace facula::schedule::fusion
