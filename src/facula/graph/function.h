// Users' functions with their own gradient (autograd.Function) in graphs. The calls of forward become calls of the
// graph, without history; after them one call, an identity, stands for the function:
//   %5: float32[3] = Square#1([%0], [%4], [%0])
// Its operands are the inputs, the results of forward, and `reads`: other values that backward reads. Its gradient is
// a separate graph, traced from the user's backward. The inputs of that graph are the reads, the results, and the
// incoming gradients. In the text form:
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
  std::vector<bool> needs;    // by input: backward was asked for its gradient
  std::vector<bool> defined;  // by result: its gradient is defined
  // (reads, results, defined incoming gradients) -> a gradient for each input; null: there is none, and `refused`
  // says why.
  std::shared_ptr<const Graph> graph;
  std::string refused = {};
  ErrorType type = ErrorType::RuntimeError;
};

struct UserFunction {
  std::string name;
  size_t inputs = 0, results = 0, reads = 0;
  bool materialize = true;                  // undefined incoming gradients are replaced by zeros
  std::vector<FunctionGradient> gradients;  // the first one that fits is used
};

// The operator of such calls; functions with equal texts share one. It lives as long as the process.
const op::Operator& operator_of(UserFunction f);
const UserFunction* function_of(const op::Operator& o);  // null for other operators
// The value that result k of a call of such an operator is equal to.
Value* function_output(const Node& n, int k);
// The text after the function's name; every line but the first is indented.
std::string print(const UserFunction& f);

}  // namespace facula::graph
