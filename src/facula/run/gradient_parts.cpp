#include "facula/run/gradient_parts.h"

#include <algorithm>
#include <numeric>

#include "facula/graph/history.h"
#include "facula/op/registry.h"

namespace facula::run {

namespace {

using Numbers = std::vector<size_t>;  // of inputs of the backward graph, sorted

// Sets of inputs that belong together.
class Sets {
 public:
  explicit Sets(size_t n) : parent_(n) { std::iota(parent_.begin(), parent_.end(), size_t(0)); }
  size_t find(size_t k) {
    while (parent_[k] != k) k = parent_[k] = parent_[parent_[k]];
    return k;
  }
  void join(const Numbers& all) {
    for (size_t k : all) parent_[find(k)] = find(all[0]);
  }

 private:
  std::vector<size_t> parent_;
};

Numbers merged(const Numbers& a, const Numbers& b) {
  Numbers all;
  std::ranges::set_union(a, b, std::back_inserter(all));
  return all;
}

// Whether a gradient of `result` flows to `input`.
bool depends(graph::Value* result, const graph::Value* input) {
  bool reaches = false;
  graph::each_in_history({result}, [&](graph::Value* v) { return !(reaches |= v == input); });
  return reaches;
}

}  // namespace

GradientParts gradient_parts(const graph::Partition& p, const graph::Joint& joint) {
  static const op::Operator& add = op::get("add");
  auto& g = p.backward;
  size_t saved = p.saved_inputs.size(), tangents = g.inputs.size() - saved;
  GradientParts parts;
  if (tangents < 2) return parts;
  Sets sets(g.inputs.size());
  // By number of the value: the tangents of a gradient; of another value, the computed values that it is made of.
  std::vector<Numbers> from(g.values().size());
  std::vector<bool> is_gradient(g.values().size());
  for (size_t k = 0; k < g.inputs.size(); ++k) {
    auto id = size_t(g.inputs[k]->id);
    is_gradient[id] = k >= saved;
    if (k >= saved || p.saved_inputs[k] < 0) from[id] = {k};
  }
  for (auto& n : g.nodes) {
    Numbers all;
    bool any = false, sums_calls = n->op == &add;  // gradients inside of one call are not held
    graph::each_operand(*n, [&](graph::Value* v) {
      auto id = size_t(v->id);
      all = merged(all, from[id]);
      any |= is_gradient[id];
      sums_calls &= is_gradient[id] && v->held;
    });
    if (!all.empty() && !sums_calls) {
      sets.join(all);
      all = {sets.find(all[0])};
    }
    for (auto* r : n->results) {
      from[size_t(r->id)] = all;
      is_gradient[size_t(r->id)] = any;
    }
  }
  std::vector<int> number(g.inputs.size(), -1);  // by the first input of a set
  parts.count = 0;
  for (size_t k = saved; k < g.inputs.size(); ++k) {
    auto& part = number[sets.find(k)];
    if (part < 0) part = parts.count++;
    parts.of_tangent.push_back(part);
  }
  for (auto* v : g.outputs) {
    size_t place = parts.of_gradient.size();
    auto& of = parts.of_gradient.emplace_back(size_t(parts.count));
    if (v && !is_gradient[size_t(v->id)]) {
      auto* input = joint.graph.inputs[size_t(joint.wrt[place])];
      for (size_t k = 0; k < parts.of_tangent.size(); ++k)
        if (depends(joint.graph.outputs[size_t(joint.tangent_of[k])], input))
          of[size_t(parts.of_tangent[k])] = true;
    }
    if (!v || !is_gradient[size_t(v->id)]) continue;
    for (size_t k : from[size_t(v->id)])
      if (int part = number[sets.find(k)]; part >= 0) of[size_t(part)] = true;
  }
  return parts;
}

}  // namespace facula::run
