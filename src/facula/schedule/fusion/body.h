// The definition of a node over values of the graph.
#pragma once
#include <optional>
#include <vector>

#include "facula/graph/graph.h"
#include "facula/loop/expr.h"

namespace facula::schedule::fusion {

// Slots are numbers of values, numbers among the arguments are constants, bound variables are unique.
struct Body {
  std::vector<loop::Expr> values;
  std::optional<loop::Scatter> scatter;
};

class Bodies {
 public:
  Body operator()(const graph::Node& n);

 private:
  loop::Expr unique_bound(loop::Expr e);
  int next_var_ = 1 << 20;
};

}  // namespace facula::schedule::fusion
