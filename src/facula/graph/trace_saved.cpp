// Open traces: values that eager mode saves for a backward pass, and that the function has written since.
#include <unordered_set>

#include "facula/graph/history.h"
#include "facula/graph/node_formula.h"
#include "facula/graph/trace_gradients.h"

namespace facula::graph {

namespace {

// The calls through which gradients flow from `roots`.
std::unordered_set<const Node*> reached_from(std::vector<Value*> roots) {
  std::unordered_set<const Node*> nodes;
  each_in_history(std::move(roots), [&](Value* v) {
    if (auto* call = call_behind(v)) nodes.insert(call);
    return true;
  });
  return nodes;
}

}  // namespace

void Gradients::check_saved(const char* op, std::span<const Tensor> outputs) const {
  if (!tracer_.keeps_handles() || !tracer_.has_written() || in_backward()) return;
  std::vector<Value*> roots;
  for (auto& t : outputs)
    if (t.defined() && t.is_traced()) roots.push_back(tracer_.current_value(t));
  auto reached = reached_from(std::move(roots));
  std::vector<bool> active(graph_->values().size());
  for (auto& v : graph_->values())
    active[size_t(v->id)] = v->constant.defined() && v->constant.requires_grad();
  for (size_t i = 0, count = graph_->nodes.size(); i < count; ++i) {
    auto& n = *graph_->nodes[i];
    if (!reached.count(&n)) continue;
    auto args = operands(n);
    if (std::ranges::none_of(args, [&](Value* v) { return v && active[size_t(v->id)]; })) continue;
    for (auto* r : n.results) active[size_t(r->id)] = true;
    auto is_written = [&](Value* v) { return v && tracer_.is_written_by_user(v); };
    bool suspicious = std::ranges::any_of(args, is_written) || std::ranges::any_of(n.results, is_written);
    if (!suspicious || !autograd::has_formula(*n.op) || n.place.checkpoint || tracer_.pack_of(n)) continue;
    auto formula = formula_of(n, active);
    auto check = [&](const std::vector<bool>& read, const std::vector<Value*>& values, size_t first) {
      for (size_t k = first; k < values.size() && k < read.size(); ++k)
        trace_runtime_check(!read[k] || !is_written(values[k]), gradients, op)
            << "needs a tensor of shape " << to_string(values[k]->tensor.sizes()) << " for the gradient of "
            << n.op->name() << ", which has been modified by an inplace operation"
            << hint("write out of place, or clone() it first");
    };
    check(formula->reads, args, tracer_.keeps_first(n));
    check(formula->reads_result, n.results, 0);
  }
}

}  // namespace facula::graph
