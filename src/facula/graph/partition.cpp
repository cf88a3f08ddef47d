// What to save and what to compute again: a minimum cut between what the forward pass makes and what the
// backward pass reads. Every value that does not depend on a tangent is an edge in -> out whose capacity is
// the cost of saving it; a value that may not be computed again hangs on the source, one that the backward
// reads on the sink. The cut's edges are the saved values. Graphs have a few hundred values, so Dinic's
// algorithm is fast enough.
#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include "facula/graph/cut.h"
#include "facula/graph/function.h"
#include "facula/graph/passes.h"
#include "facula/op/registry.h"

namespace facula::graph {

namespace {

// Copies parts of a graph into another.
class Copier {
 public:
  explicit Copier(const Graph& from) : from_(from) { to.shapes = from.shapes; }
  Value* input(const Value* v) {
    auto* mine = copy(v);
    to.inputs.push_back(mine);
    return mine;
  }
  void node(const Node& n) {
    op::Args args = n.args.clone();
    args.each_tensor([&](size_t, Tensor& t) {
      if (t.defined()) t = value(value_of(t))->tensor;
    });
    std::vector<Value*> results;
    for (auto* r : n.results) results.push_back(copy(r));
    to.add_node(*n.op, args.values(), results)->place = n.place;
  }
  void same(const Value* v, const Value* as) { at_[v] = value(as); }
  Value* value(const Value* v) {
    auto it = at_.find(v);
    if (it != at_.end()) return it->second;
    internal_check(v->constant.defined()) << "partition: %" << v->id << " is used before it is made\n"
                                          << print(from_);
    return at_[v] = to.add_constant(v->constant);
  }
  bool has(const Value* v) const { return at_.count(v) > 0; }
  Graph to;

 private:
  Value* copy(const Value* v) {
    auto& t = v->tensor;
    auto* mine = to.add_value(t.sizes(), t.strides(), t.dtype(), t.device());
    mine->tensor.impl()->wrapped_number = t.impl()->wrapped_number;
    return at_[v] = mine;
  }
  const Graph& from_;
  std::unordered_map<const Value*, Value*> at_;
};

// Nodes that `targets` need, not looking beyond `given`.
std::unordered_set<const Node*> needed(const std::vector<const Value*>& targets,
                                       const std::unordered_set<const Value*>& given) {
  std::unordered_set<const Node*> found;
  std::vector<const Value*> todo = targets;
  while (!todo.empty()) {
    auto* v = todo.back();
    todo.pop_back();
    if (!v || given.count(v) || !v->producer || !found.insert(v->producer).second) continue;
    for (auto* a : operands(*v->producer)) todo.push_back(a);
  }
  return found;
}

void symbols_in(SymInt s, std::unordered_set<int64_t>& found) {
  if (!s.is_symbolic()) return;
  std::vector<const sym::Node*> todo{s.node()};
  while (!todo.empty()) {
    auto* n = todo.back();
    todo.pop_back();
    if (n->kind == sym::Kind::symbol) found.insert(n->value);
    if (n->a) todo.push_back(n->a);
    if (n->b) todo.push_back(n->b);
  }
}

Partition cut(const Joint& j) {
  auto& g = j.graph;
  size_t count = g.values().size(), tangents = j.tangent_of.size(), inputs = g.inputs.size() - tangents;
  auto id = [](const Value* v) { return size_t(v->id); };

  // What depends on a tangent belongs to the backward.
  std::vector<bool> behind(count);
  for (size_t k = inputs; k < g.inputs.size(); ++k) behind[id(g.inputs[k])] = true;
  for (auto& n : g.nodes) {
    auto args = operands(*n);
    if (std::any_of(args.begin(), args.end(), [&](Value* v) { return v && behind[id(v)]; }))
      for (auto* r : n->results) behind[id(r)] = true;
  }
  std::vector<const Value*> forward_targets(g.outputs.begin(), g.outputs.begin() + j.forward_outputs);
  for (auto& [i, v] : g.mutated) forward_targets.push_back(v);
  std::vector<const Value*> gradients(g.outputs.begin() + j.forward_outputs, g.outputs.end());

  // What the backward reads of the rest.
  std::vector<bool> wanted(count);
  for (auto* v : gradients)
    if (v && !behind[id(v)]) wanted[id(v)] = true;
  auto is_random = [&](const Value* v) {
    return v->producer && v->producer->op->effects.draws && !behind[id(v)];
  };
  for (auto& n : g.nodes)
    for (auto* r : n->results)
      if (is_random(r)) wanted[id(r)] = true;
  for (auto& n : g.nodes) {
    if (n->results.empty() || !behind[id(n->results[0])]) continue;
    for (auto* v : operands(*n))
      if (v && !behind[id(v)]) wanted[id(v)] = true;
  }

  // Distance from the backward: among equals, save what is near.
  std::vector<int> distance(count, 100);
  for (size_t v = 0; v < count; ++v)
    if (wanted[v]) distance[v] = 0;
  for (size_t k = g.nodes.size(); k-- > 0;) {
    auto& n = *g.nodes[k];
    int nearest = 100;
    for (auto* r : n.results)
      if (!behind[id(r)]) nearest = std::min(nearest, distance[id(r)] + 1);
    for (auto* v : operands(n))
      if (v) distance[id(v)] = std::min(distance[id(v)], nearest);
  }

  std::unordered_set<const Value*> function_inputs(g.inputs.begin(),
                                                   g.inputs.begin() + std::ptrdiff_t(inputs)),
      written;
  for (auto& [i, v] : g.mutated) written.insert(g.inputs[size_t(i)]);
  std::unordered_set<const Value*> outputs(forward_targets.begin(),
                                           forward_targets.begin() + j.forward_outputs);

  int source = int(2 * count), sink = source + 1;
  Flow flow(sink + 1);
  for (auto& value : g.values()) {
    const Value* v = value.get();
    if (behind[id(v)] || v->constant.defined()) continue;
    bool input = function_inputs.count(v) > 0, kept_anyway = (input && !written.count(v)) || outputs.count(v);
    bool made_anyway = kept_anyway || (v->producer && !recomputable(*v->producer));
    double cost = bytes(*v) * std::pow(1.1, std::clamp(distance[id(v)], 1, 100));
    if (kept_anyway) cost *= 0.5;      // alive already: only a reference is kept
    else if (!made_anyway) cost *= 2;  // writing it is extra work
    flow.edge(2 * v->id, 2 * v->id + 1, cost);
    if (input || (v->producer && !recomputable(*v->producer))) flow.edge(source, 2 * v->id, kUncut);
    if (wanted[id(v)]) flow.edge(2 * v->id + 1, sink, kUncut);
  }
  for (auto& n : g.nodes) {
    if (n->results.empty() || behind[id(n->results[0])] || !recomputable(*n)) continue;
    for (auto* v : operands(*n)) {
      if (!v || v->constant.defined()) continue;
      for (auto* r : n->results) flow.edge(2 * v->id + 1, 2 * r->id, kUncut);
    }
  }
  auto side = flow.cut(source, sink);
  std::vector<const Value*> saved;
  for (auto& v : g.values())
    if (!behind[id(v.get())] && !v->constant.defined() && side[2 * id(v.get())] && !side[2 * id(v.get()) + 1])
      saved.push_back(v.get());

  std::unordered_set<const Value*> given(saved.begin(), saved.end());
  for (size_t k = inputs; k < g.inputs.size(); ++k) given.insert(g.inputs[k]);
  auto backward_nodes = needed(gradients, given);
  // Saved only if something still reads it.
  std::erase_if(saved, [&](const Value* v) {
    if (is_random(v) || std::find(gradients.begin(), gradients.end(), v) != gradients.end()) return false;
    for (auto* n : backward_nodes)
      for (auto* a : operands(*n))
        if (a == v) return false;
    return true;
  });

  // Sizes that the backward mentions but cannot read off its inputs travel as an empty-handed value of that
  // size.
  std::unordered_set<int64_t> known, mentioned;
  auto read_off = [&](const Value* v) {
    for (auto s : v->tensor.sizes())
      if (s.is_symbol()) known.insert(s.node()->value);
  };
  for (auto* v : saved) read_off(v);
  for (size_t k = inputs; k < g.inputs.size(); ++k) read_off(g.inputs[k]);
  for (auto& n : g.nodes) {
    if (!backward_nodes.count(n.get())) continue;
    op::Args args = n->args.clone();
    args.each_size([&](SymInt& s) { symbols_in(s, mentioned); });
    for (auto* v : operands(*n))
      if (v)
        for (auto s : v->tensor.sizes()) symbols_in(s, mentioned);
    for (auto* v : n->results)
      for (auto s : v->tensor.sizes()) symbols_in(s, mentioned);
  }
  std::vector<SymInt> carried;
  for (int64_t s : mentioned)
    if (!known.count(s)) carried.push_back(g.shapes->symbol(int(s)));
  std::sort(carried.begin(), carried.end(),
            [](SymInt a, SymInt b) { return a.node()->value < b.node()->value; });

  Partition p;
  p.outputs = j.forward_outputs;
  Copier forward(g), backward(g);
  for (size_t k = 0; k < inputs; ++k) forward.input(g.inputs[k]);
  std::vector<const Value*> targets = forward_targets;
  targets.insert(targets.end(), saved.begin(), saved.end());
  auto forward_nodes = needed(targets, {});
  for (auto& n : g.nodes)
    if (forward_nodes.count(n.get())) forward.node(*n);
  for (int k = 0; k < j.forward_outputs; ++k)
    forward.to.outputs.push_back(g.outputs[size_t(k)] ? forward.value(g.outputs[size_t(k)]) : nullptr);
  for (auto& [i, v] : g.mutated) forward.to.mutated.push_back({i, forward.value(v)});
  for (auto* v : saved) {
    if (is_random(v)) p.random.push_back({int(p.saved_inputs.size()), v});
    auto input = std::find(g.inputs.begin(), g.inputs.end(), v) - g.inputs.begin();
    auto output = std::find(g.outputs.begin(), g.outputs.begin() + j.forward_outputs, v) - g.outputs.begin();
    bool is_input = input < std::ptrdiff_t(inputs), is_written = written.count(v) > 0;
    p.saved_inputs.push_back(is_input && !is_written ? int(input) : -1);
    p.saved_outputs.push_back(output < j.forward_outputs && !is_input ? int(output) : -1);
    Value* mine = forward.value(v);
    if (is_written) {  // the function writes over it: keep a copy
      op::Value args[] = {mine->tensor};
      auto* copy =
          forward.to.add_value(v->tensor.sizes(), v->tensor.strides(), v->tensor.dtype(), v->tensor.device());
      forward.to.add_node(op::get("_copied"), args, {copy});
      mine = copy;
    }
    forward.to.outputs.push_back(mine);
    backward.input(v);
  }
  for (SymInt s : carried) {
    auto* one = forward.to.add_constant(Tensor::empty(IntSpan(), DType::Bool));
    Dims sizes{s}, strides{SymInt(int64_t(0))};
    auto* wide = forward.to.add_value(sizes, strides, DType::Bool);
    auto& expand = op::get("expand");
    std::vector<op::Value> args(expand.schema.parameters.size());
    args[0] = one->tensor;
    args[1] = SymSpan(sizes);
    forward.to.add_node(expand, args, {wide});
    forward.to.outputs.push_back(wide);
    p.saved_inputs.push_back(-1);
    p.saved_outputs.push_back(-1);
    backward.to.inputs.push_back(backward.to.add_value(sizes, strides, DType::Bool));
  }
  for (size_t k = inputs; k < g.inputs.size(); ++k) backward.input(g.inputs[k]);
  for (auto& n : g.nodes)
    if (backward_nodes.count(n.get())) backward.node(*n);
  for (auto* v : gradients) backward.to.outputs.push_back(v ? backward.value(v) : nullptr);
  forward.to.results = size_t(j.forward_outputs);
  backward.to.results = 0;
  p.forward = std::move(forward.to);
  p.backward = std::move(backward.to);
  return p;
}

}  // namespace

Partition partition(const Joint& j) {
  auto& g = j.graph;
  if (std::none_of(g.nodes.begin(), g.nodes.end(), [](auto& n) { return function_of(*n->op); }))
    return cut(j);
  // The calls that stand for users' functions have told their gradient: they are identities from here on.
  Copier plain(g);
  for (auto* v : g.inputs) plain.input(v);
  for (auto& n : g.nodes) {
    if (!function_of(*n->op)) {
      plain.node(*n);
      continue;
    }
    for (auto* r : n->results) plain.same(r, function_output(*n, r->result));
  }
  auto value = [&](const Value* v) { return v ? plain.value(v) : nullptr; };
  for (auto* v : g.outputs) plain.to.outputs.push_back(value(v));
  for (auto& [i, v] : g.mutated) plain.to.mutated.push_back({i, value(v)});
  std::unordered_map<const Value*, const Value*> original;
  for (auto& n : g.nodes)
    if (n->op->effects.draws)
      for (auto* r : n->results) original[plain.value(r)] = r;
  Partition p = cut({std::move(plain.to), j.forward_outputs, j.tangent_of, j.wrt});
  for (auto& [k, v] : p.random) v = original.at(v);
  return p;
}

}  // namespace facula::graph
