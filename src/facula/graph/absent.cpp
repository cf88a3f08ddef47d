#include <algorithm>
#include <string_view>

#include "facula/autograd/calls.h"
#include "facula/graph/passes.h"
#include "facula/graph/trace.h"
#include "facula/op/registry.h"

namespace facula::graph {

namespace {

// Calls the nodes of a backward graph where some gradients are undefined.
class Present {
 public:
  Present(const Graph& g, size_t first) : is_gradient_(g.values().size()) {
    for (size_t k = first; k < g.inputs.size(); ++k) is_gradient_[size_t(g.inputs[k]->id)] = true;
    for (auto& n : g.nodes) {
      bool any = false;
      each_operand(*n, [&](Value* v) { any |= is_gradient_[size_t(v->id)]; });
      for (auto* r : n->results) is_gradient_[size_t(r->id)] = any;
    }
  }

  op::Results call(const Node& n, std::span<const op::Value> args) const {
    op::Args owned(args, n.op->schema);
    bool absent = false;
    std::vector<Tensor> present;
    each_gradient(n, owned, [&](const Value*, Tensor& t) {
      if (t.defined()) present.push_back(t);
      else absent = true;
    });
    if (!absent) return op::call(*n.op, args);
    bool is_linear = !std::string_view(n.op->schema.name).ends_with("_like");
    if (present.empty() && is_linear) {
      op::Results none;
      for (size_t k = 0; k < n.results.size(); ++k) none.push_back({});
      return none;
    }
    if (present.size() == 1 && is_sum(n, present[0])) return op::Results(present[0]);
    each_gradient(n, owned, [&](const Value* v, Tensor& t) {
      auto& m = v->tensor;
      if (!t.defined()) t = autograd::filled(0, m.sizes(), m.dtype(), m.device());
    });
    return op::call(*n.op, owned.values());
  }

 private:
  template <class F>
  void each_gradient(const Node& n, op::Args& args, F&& f) const {
    auto operands = graph::operands(n);
    args.each_tensor([&](size_t slot, Tensor& t) {
      if (auto* v = operands[slot]; v && is_gradient_[size_t(v->id)]) f(v, t);
    });
  }
  // Whether n adds gradients up, and gives the present one if the other is absent.
  static bool is_sum(const Node& n, const Tensor& present) {
    static const op::Operator& add = op::get("add");
    if (n.op != &add || !n.args.values()[2].is_none()) return false;
    auto& result = n.results[0]->tensor;
    return result.dtype() == present.dtype() &&
           std::ranges::equal(result.sizes(), present.sizes(), SymInt::surely_equal);
  }

  std::vector<bool> is_gradient_;  // by number of the value: it depends on a gradient
};

}  // namespace

Graph without_gradients(const Graph& g, size_t first, const std::vector<bool>& absent) {
  auto is_absent = [&](size_t i) { return i >= first && absent[i - first]; };
  std::vector<InputSpec> specs;
  for (size_t i = 0; i < g.inputs.size(); ++i)
    if (!is_absent(i)) specs.push_back(spec_of(g.inputs[i]->tensor));
  Present calls(g, first);
  Graph rest = trace(
      g.shapes, specs,
      [&](std::span<const Tensor> arguments) {
        KeepRules keep;
        std::vector<Tensor> inputs;
        for (size_t i = 0, next = 0; i < g.inputs.size(); ++i)
          inputs.push_back(is_absent(i) ? Tensor() : arguments[next++]);
        return interpret(g, inputs, {}, false,
                         [&](const Node& n, std::span<const op::Value> args) { return calls.call(n, args); });
      },
      "backward");
  rest.results = g.results;
  return rest;
}

}  // namespace facula::graph
