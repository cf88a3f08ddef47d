// OperatorReader: the operators that a printed graph calls. They are those of the registry, and derived ones that lines of
// the text declare: gradients of definitions, and functions with gradients given as graphs.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "facula/autograd/formula.h"
#include "facula/graph/function.h"
#include "facula/graph/graph.h"
#include "facula/graph/parse_values.h"

namespace facula::graph {

// Parses a graph inside of `depth` gradients of functions.
Graph parse_nested(std::string_view text, int depth, const Objects& objects = {});

class OperatorReader : protected ValueReader {
 protected:
  // `depth`: nesting of gradients of functions.
  OperatorReader(std::string_view text, int depth, const Objects& objects)
      : ValueReader(text, objects), depth_(depth) {}

  // Parses an operator between = and (: one of the registry, or a derived one by its number.
  const op::Operator& op();
  // name#1 = ...: declares a derived operator for the following calls
  void derived();
  // Checks that the tensors of a call of a function are the ones that its gradients take.
  void check_function(const UserFunction& f, const op::Args& args);

 private:
  // True if a trace records the operator as a node. Other operators are traced by the calls of their bodies, which
  // might look at elements.
  static bool is_recorded(const op::Operator& o);
  // Consumes `what` if the text continues with it; whitespace is significant.
  bool behind(std::string_view what);
  std::vector<bool> flags(size_t count);
  // 1 inputs, 1 results, 1 reads, materialize, followed by lines with the gradients (function.h)
  const op::Operator& function(const std::string& name);
  // A nested graph on separate lines, indented further.
  std::shared_ptr<const Graph> inner(size_t outputs, size_t inputs);
  // True if the graph's inputs match these tensors, which must determine all of its symbols.
  static bool takes(const Graph& g, const std::vector<const Tensor*>& tensors);
  // gradient of name(types) wanted [...] given [...] piece 0
  const op::Operator& gradient();
  const op::Operator& derived_from(const autograd::Derivation& d);

  int depth_;
  std::unordered_map<std::string, const op::Operator*> derived_;
};

}  // namespace facula::graph
