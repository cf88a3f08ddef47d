// The graph's values as fusion sees them: a view is an index map over its root.
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
  // True if the value has to be in memory whatever is fused: an output, a mutated input, or a library operand.
  bool is_required(int id) const { return required_[size_t(id)]; }
  void require(graph::Value* v);                        // has it, or what it is a view of, in memory
  int uses(int id) const { return uses_[size_t(id)]; }  // how often it is an operand

  static bool is_view(const graph::Value* v);
  static graph::Value* base_of(const graph::Value* v);
  // The value that an access to v reads: the value that v is a view of, or the first view on the way that has no
  // index map.
  graph::Value* root(graph::Value* v);
  // The index in the root of the element that an access to u (possibly a view) at index `at` reads.
  std::vector<loop::Expr> root_index(graph::Value* u, std::vector<loop::Expr> at);

 private:
  bool composes(const graph::Value* v);  // true if the view has an index map

  const graph::Graph& g_;
  // By number of the value.
  std::vector<bool> required_;
  std::vector<int> uses_;
  std::vector<signed char> composes_;  // -1: not computed yet
};

}  // namespace facula::schedule::fusion
