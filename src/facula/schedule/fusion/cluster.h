// Clusters: sets of values that one kernel will compute over shared axes, with the rows over which it reduces.
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

// The reductions of a kernel, which must all have the same rows (free variables) and the same domain.
struct Rows {
  std::set<int> vars;
  std::vector<const loop::Node*> domain;  // the extents of the reduction domain
  bool any = false, legal = true;
};

struct Cluster {
  Dims extents;
  std::map<int, Member> members;  // by number of the value
  std::vector<const graph::Node*> nodes;
  std::optional<loop::Scatter> scatter;
  bool positioned = false;  // some value depends on the position in exactly this index space
  bool scans = false;
  std::set<int> outputs;
  std::set<int> loads;  // values that it reads from memory
  Rows rows;            // rows of all members
};

// A unit of execution: a cluster, a library call, or the creation of views.
struct Unit {
  std::optional<Cluster> cluster;
  const graph::Node* node = nullptr;
  bool merged = false;  // merged into another
};

// The values of a node in the coordinates of a cluster, whose axes get the extents `extents`.
struct Placement {
  std::vector<int> axes;  // by dimension of the node's results: its axis; -1: size 1
  Dims extents;
  std::vector<loop::Expr> values;
};

void add_rows(Rows& r, loop::Expr e);

// Adds the numbers of the values that e loads to `to`.
void add_loads(loop::Expr e, std::set<int>& to);
// True if `values` and members of k read some value by the same index in each dimension.
bool shares_reads(const Cluster& k, const std::vector<loop::Expr>& values, const Rows& rows);

// True if the member is read at the index at which it is computed.
bool is_identity(const Member& m, const std::vector<loop::Expr>& at);
// Pairs of a dimension and its index along the axis, for all dimensions that have an axis (-1: size 1).
std::vector<std::pair<int, loop::Expr>> indices(const std::vector<int>& axes);
std::vector<loop::Expr> along(const std::vector<int>& axes, const std::vector<loop::Expr>& values);

}  // namespace facula::schedule::fusion
