// Decides what to save and what to recompute: a minimum cut between what the forward pass computes and what the
// backward pass reads. Every value that does not depend on a tangent is an edge in -> out whose capacity is the cost
// of saving it. A value that must not be recomputed is connected to the source, a value that the backward pass reads
// to the sink. The cut's edges are the saved values.
#include <algorithm>
#include <cmath>
#include <functional>
#include <unordered_map>
#include <unordered_set>

#include "facula/graph/cut.h"
#include "facula/graph/function.h"
#include "facula/graph/passes.h"
#include "facula/op/registry.h"

namespace facula::graph {

namespace {

// Copies parts of a graph into another one.
class Copier {
 public:
  explicit Copier(const Graph& from) : from_(from), at_(from.values().size()) { to.shapes = from.shapes; }
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
  void same(const Value* v, const Value* as) { at(v) = value(as); }
  // Sets `v` to the result of `make`, once all inputs exist.
  void stand_in(const Value* v, std::function<Value*()> make) { waiting_.push_back({v, std::move(make)}); }
  void fill_in() {
    for (auto& [v, make] : waiting_) at(v) = make();
  }
  Value* value(const Value* v) {
    if (at(v)) return at(v);
    internal_check(v->constant.defined()) << "partition: %" << v->id << " is used before it is made\n"
                                          << print(from_);
    return at(v) = to.add_constant(v->constant);
  }
  Graph to;

 private:
  Value* copy(const Value* v) { return at(v) = to.add_value_like(*v); }
  Value*& at(const Value* v) { return at_[size_t(v->id)]; }

  const Graph& from_;
  std::vector<Value*> at_;  // by number
  std::vector<std::pair<const Value*, std::function<Value*()>>> waiting_;
};

// A set of nodes, identified by the number of their first result.
class Nodes {
 public:
  explicit Nodes(size_t values) : in_(values) {}
  bool has(const Node& n) const { return !n.results.empty() && in_[size_t(n.results[0]->id)]; }
  bool insert(const Node& n) {  // true if it was not in the set
    bool had = has(n);
    in_[size_t(n.results[0]->id)] = true;
    return !had;
  }

 private:
  std::vector<bool> in_;
};

// The nodes of `g` on which `targets` depend, not looking beyond `boundary`.
Nodes needed(const Graph& g, const std::vector<const Value*>& targets,
             const std::vector<const Value*>& boundary) {
  Nodes nodes(g.values().size());
  std::vector<bool> stops(g.values().size());
  for (auto* v : boundary) stops[size_t(v->id)] = true;
  std::vector<const Value*> todo = targets;
  while (!todo.empty()) {
    auto* v = todo.back();
    todo.pop_back();
    if (!v || stops[size_t(v->id)] || !v->producer || !nodes.insert(*v->producer)) continue;
    each_operand(*v->producer, [&](const Value* a) { todo.push_back(a); });
  }
  return nodes;
}

void symbols_in(SymInt s, std::unordered_set<int64_t>& symbols) {
  if (!s.is_symbolic()) return;
  std::vector<const sym::Node*> todo{s.node()};
  while (!todo.empty()) {
    auto* n = todo.back();
    todo.pop_back();
    if (n->kind == sym::Kind::symbol) symbols.insert(n->value);
    if (n->a) todo.push_back(n->a);
    if (n->b) todo.push_back(n->b);
  }
}

// Cuts one joint graph, in stages that use the results of earlier ones.
class Cutter {
 public:
  explicit Cutter(const Joint& j)
      : g_(j.graph), inputs_(g_.inputs.size() - j.tangent_of.size()), outputs_(j.forward_outputs) {
    auto gradients = g_.outputs.begin() + outputs_;
    forward_targets_.assign(g_.outputs.begin(), gradients);
    gradients_.assign(gradients, g_.outputs.end());
    for (auto& [i, v] : g_.mutated) forward_targets_.push_back(v), written_.insert(g_.inputs[size_t(i)]);
  }

  Partition run() {
    find_behind();
    find_wanted();
    measure_distances();
    find_saved();
    auto carried = sizes_to_carry();
    copy_forward();
    for (auto* v : saved_) save(v);
    for (SymInt s : carried) carry(s);
    copy_backward();
    p_.outputs = outputs_;
    p_.forward = std::move(forward_.to);
    p_.backward = std::move(backward_.to);
    p_.forward.results = size_t(outputs_);
    p_.backward.results = 0;
    return std::move(p_);
  }

 private:
  static size_t id(const Value* v) { return size_t(v->id); }
  bool is_random(const Value* v) const {
    return v->producer && v->producer->op->effects.draws && !behind_[id(v)];
  }
  bool may_be_saved(const Value* v) const { return !behind_[id(v)] && !v->constant.defined(); }

  // Values that depend on a tangent belong to the backward graph.
  void find_behind() {
    for (size_t k = inputs_; k < g_.inputs.size(); ++k) behind_[id(g_.inputs[k])] = true;
    for (auto& n : g_.nodes) {
      bool behind = false;
      each_operand(*n, [&](Value* v) { behind |= behind_[id(v)]; });
      for (auto* r : n->results) behind_[id(r)] = behind;
    }
  }

  // Marks the other values that the backward graph reads.
  void find_wanted() {
    for (auto* v : gradients_)
      if (v && !behind_[id(v)]) wanted_[id(v)] = true;
    for (auto& n : g_.nodes)
      for (auto* r : n->results)
        if (is_random(r)) wanted_[id(r)] = true;
    for (auto& n : g_.nodes) {
      if (n->results.empty() || !behind_[id(n->results[0])]) continue;
      each_operand(*n, [&](Value* v) {
        if (!behind_[id(v)]) wanted_[id(v)] = true;
      });
    }
  }

  // Distances to the backward graph: of equally good cuts, the nearest one is chosen.
  void measure_distances() {
    for (size_t v = 0; v < count_; ++v)
      if (wanted_[v]) distance_[v] = 0;
    for (size_t k = g_.nodes.size(); k-- > 0;) {
      auto& n = *g_.nodes[k];
      int nearest = 100;
      for (auto* r : n.results)
        if (!behind_[id(r)]) nearest = std::min(nearest, distance_[id(r)] + 1);
      each_operand(n, [&](Value* v) { distance_[id(v)] = std::min(distance_[id(v)], nearest); });
    }
  }

  std::vector<const Value*> minimum_cut() const {
    int source = int(2 * count_), sink = source + 1;
    Flow flow(sink + 1);
    add_values(flow, source, sink);
    add_reads(flow);
    auto side = flow.cut(source, sink);
    std::vector<const Value*> cut;
    for (auto& v : g_.values())
      if (may_be_saved(v.get()) && side[2 * id(v.get())] && !side[2 * id(v.get()) + 1])
        cut.push_back(v.get());
    return cut;
  }
  void add_values(Flow& flow, int source, int sink) const {
    std::unordered_set<const Value*> inputs(g_.inputs.begin(), g_.inputs.begin() + std::ptrdiff_t(inputs_)),
        outputs(g_.outputs.begin(), g_.outputs.begin() + outputs_);
    for (auto& value : g_.values()) {
      const Value* v = value.get();
      if (!may_be_saved(v)) continue;
      bool input = inputs.count(v) > 0, retained = (input && !written_.count(v)) || outputs.count(v);
      bool stored = retained || (v->producer && !recomputable(*v->producer));
      double cost = bytes(*v) * std::pow(1.1, std::clamp(distance_[id(v)], 1, 100));
      if (retained) cost *= 0.5;    // stays alive anyway: saving it adds a reference only
      else if (!stored) cost *= 2;  // it has to be written to memory as well
      flow.edge(2 * v->id, 2 * v->id + 1, cost);
      if (input || (v->producer && !recomputable(*v->producer))) flow.edge(source, 2 * v->id, kUncut);
      if (wanted_[id(v)]) flow.edge(2 * v->id + 1, sink, kUncut);
    }
  }
  void add_reads(Flow& flow) const {
    for (auto& n : g_.nodes) {
      if (n->results.empty() || behind_[id(n->results[0])] || !recomputable(*n)) continue;
      each_operand(*n, [&](Value* v) {
        for (size_t k = 0; k < n->results.size() && !v->constant.defined(); ++k)
          flow.edge(2 * v->id + 1, 2 * n->results[k]->id, kUncut);
      });
    }
  }

  void find_saved() {
    saved_ = minimum_cut();
    std::vector<const Value*> boundary = saved_;
    boundary.insert(boundary.end(), g_.inputs.begin() + std::ptrdiff_t(inputs_), g_.inputs.end());
    backward_nodes_ = needed(g_, gradients_, boundary);
    // Keeps only saved values that are still read.
    std::vector<bool> read(count_);
    for (auto* v : gradients_)
      if (v) read[id(v)] = true;
    for (auto& n : g_.nodes)
      if (backward_nodes_.has(*n)) each_operand(*n, [&](const Value* v) { read[id(v)] = true; });
    std::erase_if(saved_, [&](const Value* v) { return !is_random(v) && !read[id(v)]; });
  }

  // Sizes that the backward graph mentions, but that no input of it has, are passed as a value of that size without
  // elements.
  std::vector<SymInt> sizes_to_carry() const {
    std::unordered_set<int64_t> available, mentioned;
    auto read_off = [&](const Value* v) {
      for (auto s : v->tensor.sizes())
        if (s.is_symbol()) available.insert(s.node()->value);
    };
    for (auto* v : saved_) read_off(v);
    for (size_t k = inputs_; k < g_.inputs.size(); ++k) read_off(g_.inputs[k]);
    for (auto& n : g_.nodes) {
      if (!backward_nodes_.has(*n)) continue;
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
      if (!available.count(s)) carried.push_back(g_.shapes->symbol(int(s)));
    std::sort(carried.begin(), carried.end(),
              [](SymInt a, SymInt b) { return a.node()->value < b.node()->value; });
    return carried;
  }

  void copy_forward() {
    for (size_t k = 0; k < inputs_; ++k) forward_.input(g_.inputs[k]);
    std::vector<const Value*> targets = forward_targets_;
    targets.insert(targets.end(), saved_.begin(), saved_.end());
    for (auto& n : g_.nodes)  // calls that communicate remain, whether or not their results are read
      if (n->op->effects.ordered)
        for (auto* r : n->results)
          if (!behind_[id(r)]) targets.push_back(r);
    auto nodes = needed(g_, targets, {});
    for (auto& n : g_.nodes)
      if (nodes.has(*n)) forward_.node(*n);
    for (int k = 0; k < outputs_; ++k)
      forward_.to.outputs.push_back(g_.outputs[size_t(k)] ? forward_.value(g_.outputs[size_t(k)]) : nullptr);
    for (auto& [i, v] : g_.mutated) forward_.to.mutated.push_back({i, forward_.value(v)});
  }
  void save(const Value* v) {
    if (is_random(v)) p_.random.push_back({int(p_.saved_inputs.size()), v});
    auto input = std::find(g_.inputs.begin(), g_.inputs.end(), v) - g_.inputs.begin();
    auto output = std::find(g_.outputs.begin(), g_.outputs.begin() + outputs_, v) - g_.outputs.begin();
    bool is_input = input < std::ptrdiff_t(inputs_), is_written = written_.count(v) > 0;
    p_.saved_inputs.push_back(is_input && !is_written ? int(input) : -1);
    p_.saved_outputs.push_back(output < outputs_ && !is_input ? int(output) : -1);
    Value* mine = forward_.value(v);
    if (is_written) {  // the function overwrites it: save a copy
      op::Value args[] = {mine->tensor};
      auto& t = v->tensor;
      auto* copy = forward_.to.add_value(t.sizes(), t.strides(), t.dtype(), t.device());
      forward_.to.add_node(op::get("_copied"), args, {copy});
      mine = copy;
    }
    if (is_saved_wide(v)) return save_wide(v, mine);
    forward_.to.outputs.push_back(mine);
    backward_.input(v);
  }
  // True for 16-bit values that are much smaller than the inputs (sums, and what follows from them): they take little
  // memory, and the backward pass reads them in full precision. False if the converted value would have other
  // strides.
  bool is_saved_wide(const Value* v) const {
    DType d = v->tensor.dtype();
    if (v->held || !is_16_bit_float(d)) return false;
    if (p_.saved_inputs.back() >= 0 || p_.saved_outputs.back() >= 0 || written_.count(v)) return false;
    auto& t = v->tensor;
    Dims converted = t.is_contiguous() ? contiguous_strides(t.sizes())
                                       : dense_strides_like(t.sizes(), std::span<const Tensor>(&t, 1));
    if (!std::ranges::equal(converted, t.strides(), SymInt::surely_equal)) return false;
    return std::any_of(g_.inputs.begin(), g_.inputs.begin() + std::ptrdiff_t(inputs_),
                       [&](const Value* in) { return v->tensor.numel().hint() < in->tensor.numel().hint(); });
  }
  void save_wide(const Value* v, Value* mine) {
    auto& t = v->tensor;
    auto converted = [&](Graph& to, const Tensor& from, DType d) {
      op::Value args[] = {from, d};
      auto* y = to.add_value(t.sizes(), t.strides(), d, t.device());
      to.add_node(op::get("_unrounded"), args, {y});
      return y;
    };
    forward_.to.outputs.push_back(converted(forward_.to, mine->tensor, DType::Float32));
    auto* wide = backward_.to.add_value(t.sizes(), t.strides(), DType::Float32, t.device());
    backward_.to.inputs.push_back(wide);
    backward_.stand_in(v, [=, this] { return converted(backward_.to, wide->tensor, t.dtype()); });
  }
  void carry(SymInt s) {
    auto* one = forward_.to.add_constant(Tensor::empty(IntSpan(), DType::Bool));
    Dims sizes{s}, strides{SymInt(int64_t(0))};
    auto* wide = forward_.to.add_value(sizes, strides, DType::Bool);
    auto& expand = op::get("expand");
    std::vector<op::Value> args(expand.schema.parameters.size());
    args[0] = one->tensor;
    args[1] = SymSpan(sizes);
    forward_.to.add_node(expand, args, {wide});
    forward_.to.outputs.push_back(wide);
    p_.saved_inputs.push_back(-1);
    p_.saved_outputs.push_back(-1);
    backward_.to.inputs.push_back(backward_.to.add_value(sizes, strides, DType::Bool));
  }
  void copy_backward() {
    for (size_t k = inputs_; k < g_.inputs.size(); ++k) backward_.input(g_.inputs[k]);
    backward_.fill_in();
    for (auto& n : g_.nodes)
      if (backward_nodes_.has(*n)) backward_.node(*n);
    for (auto* v : gradients_) backward_.to.outputs.push_back(v ? backward_.value(v) : nullptr);
  }

  const Graph& g_;
  size_t count_ = g_.values().size();
  size_t inputs_;  // number of the function's inputs; the tangents follow after them
  int outputs_;    // number of the function's outputs; the gradients follow after them
  std::vector<const Value*> forward_targets_, gradients_;
  std::unordered_set<const Value*> written_;  // inputs that the function writes
  std::vector<bool> behind_ = std::vector<bool>(count_), wanted_ = std::vector<bool>(count_);
  std::vector<int> distance_ = std::vector<int>(count_, 100);
  std::vector<const Value*> saved_;
  Nodes backward_nodes_{count_};
  Copier forward_{g_}, backward_{g_};
  Partition p_;
};

}  // namespace

Partition partition(const Joint& j) {
  auto& g = j.graph;
  if (std::none_of(g.nodes.begin(), g.nodes.end(), [](auto& n) { return function_of(*n->op); }))
    return Cutter(j).run();
  // The calls that stand for users' functions have served their gradient: they become identities.
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
  Partition p = Cutter({std::move(plain.to), j.forward_outputs, j.tangent_of, j.wrt}).run();
  for (auto& [k, v] : p.random) v = original.at(v);
  return p;
}

}  // namespace facula::graph
