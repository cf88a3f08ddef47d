// Users' functions with a gradient of their own (autograd.Function) in graphs. The calls of forward are calls of the
// graph, without history; one call behind them, an identity, stands for the function:
//   %5: float32[3] = Square#1([%0], [%4], [%0])
// Its results are `outputs`. Their gradient is a graph of its own, which was traced from the user's backward: of `reads`,
// the results, and the gradients that arrive. In the text:
//   Square#1 = function of 1 inputs, 1 results, 1 reads, materialize
//     gradient needs [True] given [True]
//       graph(%0: float32[3], %1: float32[3], %2: float32[3])
//         ...
//         return %3
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "facula/graph/graph.h"

namespace facula::graph {

struct FunctionGradient {
  std::vector<bool> needs;  // by input: the gradients that backward was asked for
  std::vector<bool> given;  // by result: the gradients that arrive
  // reads, results, gradients that arrive -> a gradient for each input; null: there is none, as `refused` says.
  std::shared_ptr<const Graph> graph;
  std::string refused = {};
  ErrorType type = ErrorType::RuntimeError;
};

struct UserFunction {
  std::string name;
  size_t inputs = 0, results = 0, reads = 0;
  bool materialize = true;                  // gradients that do not arrive are zeros
  std::vector<FunctionGradient> gradients;  // the first that fits counts
};

// The operator of such calls; one for equal texts. It lives for ever.
const op::Operator& operator_of(UserFunction f);
const UserFunction* function_of(const op::Operator& o);  // null: it is another
// What result k of a call of such an operator is a name of.
Value* function_output(const Node& n, int k);
// What the text says of it behind its name, with every line after the first indented.
std::string print(const UserFunction& f);

}  // namespace facula::graph
