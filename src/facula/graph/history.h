// Walks back through the calls of a graph that carry gradients, as a backward pass goes.
#pragma once
#include <unordered_set>
#include <utility>
#include <vector>

#include "facula/graph/graph.h"

namespace facula::graph {

// The call through which the gradient of a value flows on; null if it ends there.
inline Node* call_behind(const Value* v) {
  return v->producer && v->producer->op->carries_gradient(size_t(v->result)) ? v->producer : nullptr;
}

// Calls f(v) once for each value that a gradient reaches from `todo`. It goes on behind v if f returns true.
template <class F>
void each_in_history(std::vector<Value*> todo, F&& f) {
  std::unordered_set<const Value*> seen;
  while (!todo.empty()) {
    Value* v = todo.back();
    todo.pop_back();
    if (!v || !is_differentiable(v->tensor.dtype()) || !seen.insert(v).second) continue;
    Node* call = f(v) ? call_behind(v) : nullptr;
    if (!call) continue;
    auto read = operands(*call);
    todo.insert(todo.end(), read.begin(), read.end());
  }
}

}  // namespace facula::graph
