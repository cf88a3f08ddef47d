// Translates the definition of a graph node into expressions over values of the graph.
#pragma once
#include <optional>
#include <vector>

#include "facula/graph/graph.h"
#include "facula/loop/expr.h"

namespace facula::schedule::fusion {

// Load slots are numbers of values, numeric arguments are constants, and bound variables are unique.
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
