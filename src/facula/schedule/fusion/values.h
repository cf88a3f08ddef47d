// Values of the graph as fusion sees them: views are index maps over their roots.
#pragma once
#include <vector>

#include "facula/graph/graph.h"
#include "facula/loop/expr.h"
#include "facula/op/geometry.h"

namespace facula::schedule::fusion {

class Values {
 public:
  explicit Values(const graph::Graph& g);

  graph::Value* at(int id) const { return g_.values()[size_t(id)].get(); }
  // Must the value exist in memory whatever is fused: as an output, a written input, an operand of a library?
  bool is_required(int id) const { return required_[size_t(id)]; }
  int uses(int id) const { return uses_[size_t(id)]; }  // as an operand

  static bool is_view(const graph::Value* v);
  static graph::Value* base_of(const graph::Value* v);
  // What an access to v reads: the value that v is a view of, or a view on the way that has no index map.
  graph::Value* root(graph::Value* v);
  // Where the elements of u (maybe through views) that an access reads lie in its root.
  std::vector<loop::Expr> root_index(graph::Value* u, std::vector<loop::Expr> at);

 private:
  bool composes(const graph::Value* v);  // has the view an index map?

  const graph::Graph& g_;
  // By value number.
  std::vector<bool> required_;
  std::vector<int> uses_;
  std::vector<signed char> composes_;  // -1: not asked yet
};

}  // namespace facula::schedule::fusion
