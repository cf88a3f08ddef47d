#include "facula/run/composite.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <unordered_set>

#include "facula/autograd/autograd.h"
#include "facula/autograd/batch.h"
#include "facula/autograd/call_node.h"
#include "facula/autograd/node.h"
#include "facula/base/settings.h"
#include "facula/codegen/background.h"
#include "facula/graph/passes.h"
#include "facula/op/registry.h"
#include "facula/profile/profile.h"
#include "facula/run/call_cache.h"
#include "facula/run/gradient_parts.h"
#include "facula/run/graph_body.h"
#include "facula/run/interpose.h"
#include "facula/run/layout.h"
#include "facula/run/operands.h"
#include "facula/run/pipeline.h"
#include "facula/run/trace_call.h"

namespace facula::run {

using op::Operator;
using op::Results;
using op::Tag;
using op::Value;

namespace {

bool is_dynamic(const graph::Graph& g) {
  return std::ranges::any_of(g.inputs, [](auto* v) { return any_symbolic(v->tensor.sizes()); });
}

// The programs of users have calls of libraries that read packed weights.
Packed packed_operands_of(const Operator& o) { return graph_body(o) ? Packed::kept : Packed::restored; }

// By tangent: whether the program of the gradient learns a size from it that no saved value has. Such a gradient has to be passed
// where it is undefined, too.
std::vector<bool> tangents_with_sizes(const graph::Partition& p) {
  std::unordered_set<int64_t> symbols;
  auto shows_more = [&](const graph::Value* v) {
    return std::ranges::any_of(v->tensor.sizes(),
                               [&](SymInt n) { return n.is_symbol() && !symbols.count(n.node()->value); });
  };
  auto& inputs = p.backward.inputs;
  size_t saved = p.saved_inputs.size();
  for (size_t k = 0; k < saved; ++k)
    for (SymInt n : inputs[k]->tensor.sizes())
      if (n.is_symbol()) symbols.insert(n.node()->value);
  std::vector<bool> all;
  for (size_t k = saved; k < inputs.size(); ++k) all.push_back(shows_more(inputs[k]));
  return all;
}

// A composite with its gradient, traced for one combination of attributes, dtypes and ranks.
struct Compiled final : TracedCall {
  Compiled(graph::Joint j, graph::Partition p, const Operator& o, std::span<const Value> args)
      : joint(std::move(j)),
        op(o),
        attributes(args, o.schema),
        node_name(autograd::node_name(o, args)),
        outputs(p.outputs),
        parts(graph_body(o) && !is_dynamic(p.backward) ? gradient_parts(p, joint) : GradientParts()),
        shows_sizes(tangents_with_sizes(p)),
        saved_inputs(p.saved_inputs),
        saved_outputs(p.saved_outputs),
        random(std::move(p.random)),
        forward(std::move(p.forward), o.name(), keeper_of(o)),
        backward{all_saved(), Program(std::move(p.backward), o.name(), keeper_of(o))} {
    attributes.each_tensor([](size_t, Tensor& t) { t = {}; });
  }
  bool accepts(std::span<const Value> operands) const override { return forward.accepts(operands); }
  graph::Joint joint;  // for gradients of gradients: interpreted on the tape
  const Operator& op;
  op::Args attributes;  // of the call that was compiled, without its tensors
  std::string node_name;
  int outputs;
  GradientParts parts;
  std::vector<bool> shows_sizes;  // by tangent: see tangents_with_sizes()
  std::vector<int> saved_inputs, saved_outputs;
  std::vector<std::pair<int, const graph::Value*>> random;  // saved value, value of the joint graph
  Program forward;
  struct Backward {
    std::vector<size_t> saved;  // the numbers of the saved values that it takes, in order
    Program program;
  };
  Backward backward;  // of all gradients

  int part_of(size_t tangent) const { return parts.count == 1 ? 0 : parts.of_tangent[tangent]; }
  // Whether the k-th differentiated input gets a gradient from a part.
  bool gets_gradient(size_t k, int part) const {
    return parts.count == 1 ? bool(joint.graph.outputs[size_t(joint.forward_outputs) + k])
                            : parts.of_gradient[k][size_t(part)];
  }
  // The backward program where some gradients are `absent`, by tangent: see graph::without_gradients.
  const Backward& backward_without(const std::vector<bool>& absent) const {
    std::lock_guard lock(mutex_);
    auto& partial = partial_[absent];
    if (partial) return *partial;
    if (!partition_) partition_.emplace(pipeline::partition(joint, op.name()));  // the same values are saved
    auto rest = graph::without_gradients(partition_->backward, saved_inputs.size(), absent);
    auto saved = parts.count > 1 ? keep_read(rest) : all_saved();
    partial.reset(new Backward{std::move(saved), Program(std::move(rest), op.name(), keeper_of(op))});
    return *partial;
  }
  const Backward& backward_of_part(int part) const {
    if (parts.count == 1) return backward;
    std::vector<bool> absent;
    for (int p : parts.of_tangent) absent.push_back(p != part);
    return backward_without(absent);
  }
  // The calls of the joint graph that compute gradients in the same case, the random values that it draws, and whether it reads
  // each operand.
  struct Rest {
    graph::Graph graph;
    std::vector<std::pair<int, const graph::Value*>> random;
    std::vector<bool> reads;
  };
  const Rest& joint_without(const std::vector<bool>& absent) const {
    std::lock_guard lock(mutex_);
    auto& rest = rest_[absent];
    if (rest) return *rest;
    rest = std::make_unique<Rest>();
    size_t operands = joint.graph.inputs.size() - joint.tangent_of.size();
    rest->graph = graph::without_gradients(joint.graph, operands, absent);
    rest->graph.outputs.erase(rest->graph.outputs.begin(),
                              rest->graph.outputs.begin() + joint.forward_outputs);
    graph::remove_dead(rest->graph);
    auto read = values_read(rest->graph);
    for (size_t k = 0; k < operands; ++k) rest->reads.push_back(read.count(rest->graph.inputs[k]) > 0);
    auto drawn = draws(joint.graph), again = draws(rest->graph);
    internal_check(drawn.size() == again.size()) << op.name() << ": some random values are drawn no longer";
    for (auto& [k, v] : random) {
      auto at = std::ranges::find(drawn, v->producer) - drawn.begin();
      rest->random.emplace_back(k, again[size_t(at)]->results[size_t(v->result)]);
    }
    return *rest;
  }

 private:
  std::vector<size_t> all_saved() const {
    std::vector<size_t> numbers(saved_inputs.size());
    std::iota(numbers.begin(), numbers.end(), size_t(0));
    return numbers;
  }
  static std::unordered_set<const graph::Value*> values_read(const graph::Graph& g) {
    std::unordered_set<const graph::Value*> read(g.outputs.begin(), g.outputs.end());
    for (auto& n : g.nodes) graph::each_operand(*n, [&](graph::Value* v) { read.insert(v); });
    return read;
  }
  // Removes inputs that are saved values which no call reads; gives the numbers of the others. The node of a part saves no others.
  std::vector<size_t> keep_read(graph::Graph& g) const {
    auto read = values_read(g);
    std::vector<size_t> numbers;
    std::vector<graph::Value*> inputs;
    for (size_t k = 0; k < g.inputs.size(); ++k) {
      bool is_saved = k < saved_inputs.size();
      if (is_saved && !read.count(g.inputs[k])) continue;
      inputs.push_back(g.inputs[k]);
      if (is_saved) numbers.push_back(k);
    }
    g.inputs = std::move(inputs);
    return numbers;
  }
  static std::vector<graph::Node*> draws(const graph::Graph& g) {
    std::vector<graph::Node*> all;
    for (auto& n : g.nodes)
      if (n->op->effects.draws) all.push_back(n.get());
    return all;
  }

  mutable std::mutex mutex_;
  mutable std::optional<graph::Partition> partition_;
  mutable std::map<std::vector<bool>, std::unique_ptr<Backward>> partial_;
  mutable std::map<std::vector<bool>, std::unique_ptr<Rest>> rest_;
};

class CompositeNode final : public autograd::Node,
                            public autograd::CallNode,
                            public detail::Recycled<CompositeNode> {
 public:
  // `part`: the number of the part of the gradient that the node computes.
  CompositeNode(std::shared_ptr<const Compiled> c, int part, std::span<const Value> operands,
                const Results& all)
      : Node(c->outputs), compiled_(std::move(c)) {
    edges_.reserve(compiled_->joint.wrt.size());
    values_.reserve(operands.size() + compiled_->saved_inputs.size());
    for (size_t k = 0; k < compiled_->joint.wrt.size(); ++k)
      if (compiled_->gets_gradient(k, part))
        add_edge(Borrowed(operands[size_t(compiled_->joint.wrt[k])].tensor));
      else add_edge(autograd::Edge());
    for (auto& v : operands) {
      auto& saved = values_.emplace_back();
      if (v.tag != Tag::tensor) {
        saved.number = v.number();
        continue;
      }
      Borrowed t(v.tensor);
      saved.tensor = autograd::Saved(t, false);
      saved.shows_plain = t->is_contiguous();
    }
    auto& taken = compiled_->backward_of_part(part).saved;
    // Random values are necessary to run the whole function again.
    auto is_random = [&](size_t k) {
      return std::ranges::any_of(compiled_->random, [&](auto& r) { return r.first == int(k); });
    };
    for (size_t k = 0; k < compiled_->saved_inputs.size(); ++k) {
      auto& saved = values_.emplace_back();
      if (compiled_->saved_inputs[k] >= 0 || !(std::ranges::binary_search(taken, k) || is_random(k)))
        continue;
      int output = compiled_->saved_outputs[k];
      saved.tensor = output >= 0 ? autograd::Saved(all[size_t(output)], true, output)
                                 : autograd::Saved(all[size_t(compiled_->outputs) + k], false);
    }
    results.reserve(size_t(compiled_->outputs));
    for (int k = 0; k < compiled_->outputs; ++k)
      results.push_back({Dims(all[size_t(k)].sizes()), all[size_t(k)].dtype(), all[size_t(k)].device()});
  }

  std::string own_name() const override { return compiled_->node_name; }
  void read_call(const Reader& f) const override {
    auto& parameters = compiled_->op.schema.parameters;
    f(op::Call(compiled_->op, compiled_->attributes.values()),
      [&](size_t k) {  // the attributes that are part of the trace's key
        auto& p = parameters[k];
        return (p.type == op::Type::Int && !p.symbolic) || p.type == op::Type::Bool ||
               p.type == op::Type::String;
      });
  }

  std::vector<Tensor> apply(std::vector<Tensor> grads, bool create_graph) override {
    if (released_) raise_freed();
    std::vector<Tensor> tangents;
    auto& tangent_of = compiled_->joint.tangent_of;
    for (size_t k = 0; k < tangent_of.size(); ++k) {
      auto result = size_t(tangent_of[k]);
      if (!grads[result].defined() && compiled_->shows_sizes[k])
        grads[result] = autograd::zeros_of(results[result]);
      if (grads[result].defined()) tangents.push_back(grads[result]);
    }
    if (create_graph || is_interposed(tangents)) return differentiable(grads);
    bool all_present = tangents.size() == tangent_of.size();
    auto& [read, backward] =
        all_present ? compiled_->backward : compiled_->backward_without(absent_of(grads));
    if (autograd::any_batched(tangents)) return call_by_call(backward, read, tangents);
    std::vector<Tensor> alive;
    std::vector<Value> values;
    auto& wrt = compiled_->joint.wrt;
    alive.reserve(read.size());
    values.reserve(read.size() + tangents.size());
    for (size_t k : read) values.push_back(saved(k).unpack(*this, alive));
    for (auto& t : tangents) values.push_back(t);
    InMemory memory(values, {}, packed_operands_of(compiled_->op));
    values.assign(memory.args().begin(), memory.args().end());
    std::vector<Tensor> copies;
    if (!backward.accepts(values)) {
      // The trace assumed that gradients have the strides of the results, and that saved values kept theirs.
      for (size_t k = 0; k < values.size(); ++k) {
        if (values[k].tag != Tag::tensor) continue;
        copies.push_back(
            laid_out(Tensor(Ref<TensorImpl>::share(values[k].tensor)), backward.graph().inputs[k]->tensor));
        values[k] = Value(copies.back());
      }
    }
    auto all = backward.run(values).to_vector();
    for (size_t k = 0; k < all.size() && k < wrt.size(); ++k) {
      if (!all[k].defined()) continue;
      for (auto& v : values)
        if (v.tag == Tag::tensor && v.tensor == all[k].impl()) {  // the gradient is an operand
          auto* original = memory.original(v.tensor);
          if (original) all[k] = Tensor(Ref<TensorImpl>::share(original));
          break;
        }
      if (values_[size_t(wrt[k])].shows_plain && all[k].impl()->use_count() == 1 &&
          all[k].is_non_overlapping_and_dense())
        all[k] = with_logical_strides(std::move(all[k]), contiguous_strides(all[k].sizes()));
    }
    return all;
  }

  void each_saved(const std::function<void(autograd::Saved&)>& f) override {
    for (auto& v : values_) f(v.tensor);
  }

  void release_saved() override {
    values_.clear();
    released_ = true;
  }

 private:
  // `t` with the strides that the trace expects, copied if need be.
  static Tensor laid_out(const Tensor& t, const Tensor& expected) {
    Dims sizes(t.sizes()), strides(t.sizes().size());
    Ints order;
    for (int d = 0; d < t.dim(); ++d) order.push_back(d);
    auto hints = expected.strides();
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return hints[size_t(a)].hint() > hints[size_t(b)].hint(); });
    SymInt next = int64_t(1);
    for (int k = t.dim(); k-- > 0; next *= max(sizes[size_t(order[size_t(k)])], SymInt(int64_t(1))))
      strides[size_t(order[size_t(k)])] = next;
    bool same = true;
    for (size_t d = 0; d < strides.size(); ++d)
      same &= sizes[d].concrete() == 1 || strides[d] == t.strides()[d];
    if (same) return t;
    Tensor copy = Tensor::empty_strided(t.sizes(), strides, t.dtype(), t.device());
    Value args[] = {copy, t};
    op::call(op::get("copy"), args, op::Form::in_place);
    return copy;
  }

  struct SavedValue {
    autograd::Saved tensor;
    Scalar number;
    bool shows_plain = false;  // an operand that is contiguous
    Value unpack(const CompositeNode& n, std::vector<Tensor>& alive) const {
      if (!tensor.defined()) return Value(number);
      alive.push_back(tensor.unpack(Ref<Node>::share(const_cast<CompositeNode*>(&n))));
      return Value(alive.back());
    }
  };

  const SavedValue& saved(size_t k) const {
    int input = compiled_->saved_inputs[k];
    return values_[input >= 0 ? size_t(input) : operands() + k];
  }

  // By tangent: whether its gradient is undefined.
  std::vector<bool> absent_of(std::span<const Tensor> grads) const {
    std::vector<bool> absent;
    for (int k : compiled_->joint.tangent_of) absent.push_back(!grads[size_t(k)].defined());
    return absent;
  }

  size_t operands() const { return compiled_->forward.graph().inputs.size(); }

  // Runs the backward program call by call. Under vmap each call then takes its own batching rule.
  std::vector<Tensor> call_by_call(const Program& backward, std::span<const size_t> read,
                                   const std::vector<Tensor>& tangents) {
    std::vector<Tensor> arguments;
    for (size_t k : read) {
      std::vector<Tensor> alive;
      Value v = saved(k).unpack(*this, alive);
      arguments.push_back(v.tag == Tag::tensor ? alive[0] : op::wrapped_number(v.number()));
    }
    arguments.insert(arguments.end(), tangents.begin(), tangents.end());
    return graph::interpret(backward.graph(), arguments);
  }

  // Whether an interposer sees calls with these gradients (interpose.h).
  static bool is_interposed(const std::vector<Tensor>& tangents) {
    return is_in_use(Interceptor::interposed) && find_interposer({}, tangents);
  }

  // Computes the gradients call by call, so that the tape records them. Operands that they do not depend on may have been written.
  std::vector<Tensor> differentiable(const std::vector<Tensor>& grads) {
    auto& rest = compiled_->joint_without(absent_of(grads));
    std::vector<Tensor> arguments;
    for (size_t i = 0; i < operands(); ++i) {
      std::vector<Tensor> alive;
      if (!rest.reads[i] && values_[i].tensor.defined()) {
        arguments.push_back(values_[i].tensor.shape_alone());
        continue;
      }
      Value v = values_[i].unpack(*this, alive);
      arguments.push_back(v.tag == Tag::tensor ? alive[0] : op::wrapped_number(v.number()));
    }
    for (int k : compiled_->joint.tangent_of)
      if (grads[size_t(k)].defined()) arguments.push_back(grads[size_t(k)]);
    std::vector<std::pair<const graph::Value*, Tensor>> drawn;
    for (auto& [k, v] : rest.random) {
      std::vector<Tensor> alive;
      saved(size_t(k)).unpack(*this, alive);
      drawn.push_back({v, alive[0]});
    }
    return graph::interpret(rest.graph, arguments, drawn);
  }

  std::shared_ptr<const Compiled> compiled_;
  std::vector<SavedValue> values_;  // operands, followed by saved values that are not operands
  bool released_ = false;
};

}  // namespace

bool wants_gradient(const Value& v) {
  return v.tag == Tag::tensor && is_differentiable(v.tensor->dtype) &&
         (v.tensor->requires_grad || Borrowed(v.tensor)->requires_grad());
}

namespace {

// `wrt`: the operands that get a gradient.
std::shared_ptr<const Compiled> compiled_of(const Operator& o, std::span<const Value> args,
                                            std::span<const Value> operands, const std::vector<int>& wrt) {
  Key key = trace_key(o, args, {}, Purpose::recorded);
  for (int i : wrt) key.push_back(uint64_t(i));
  return traced_call<Compiled>(o, std::move(key), operands, [&] {
    auto joint = pipeline::differentiate(trace_call(o, args, {}), wrt, o.name());
    auto parts = pipeline::partition(joint, o.name());
    return std::make_shared<const Compiled>(std::move(joint), std::move(parts), o, args);
  });
}

// Appends which operands require a gradient.
void append_wanted(Key& key, std::span<const Value> logical_operands) {
  uint64_t wanted = 1;
  for (auto& v : logical_operands) {
    wanted = wanted << 1 | uint64_t(wants_gradient(v));
    if (wanted >> 63) {
      key.push_back(wanted);
      wanted = 1;
    }
  }
  key.push_back(wanted);
}

// Fills in the cache entry of a call that is recorded. `physical`: the arguments over their physical layouts, if these differ
// from the logical ones; then `operands` are its operands and `logical_operands` those of `args`.
void compile(const Operator& o, std::span<const Value> args, const InMemory* lying,
             std::span<const Value> logical_operands, std::span<const Value> operands, CacheEntry& entry) {
  profile::Scope scope(profile::Category::compile, "plan ", o.name());
  auto call_args = lying ? lying->args() : args;
  std::vector<int> wrt;
  for (size_t i = 0; i < logical_operands.size(); ++i)
    if (wants_gradient(logical_operands[i])) wrt.push_back(int(i));
  try {
    auto compiled = compiled_of(o, call_args, operands, wrt);
    if (codegen::background_threads())  // compile the gradient's kernels while the forward pass runs
      for (int part = 0; part < compiled->parts.count; ++part) {
        auto& backward = compiled->backward_of_part(part).program;
        if (auto prepare = backward.preparation(operands, compiled->forward.graph()))
          codegen::run_in_background([compiled, prepare] { prepare(); });
      }
    if (lying && needs_logical_inputs(compiled->forward.graph())) entry.needs_logical = true;
    else entry.plan = compiled->forward.plan(operands, {});
    entry.recorded = std::move(compiled);
    if (lying) entry.logical_strides = logical_strides(trace_call(o, args, {}));
  } catch (const Error&) {
    if (!lying) throw;
    entry.needs_logical = true;
  }
}

// The logical operand that a result is, if the composite returned one of its operands; else null. The operand keeps its own
// history, so the result becomes another tensor over the same memory.
const Value* input_of(const Tensor& t, std::span<const Value> operands,
                      std::span<const Value> logical_operands) {
  for (size_t i = 0; i < logical_operands.size(); ++i)
    if (operands[i].tag == Tag::tensor && operands[i].tensor == t.impl()) return &logical_operands[i];
  return nullptr;
}

}  // namespace

Results run_composite(const Operator& o, std::span<const Value> args) {
  Key key;
  Operands shown, in_memory;
  key_of(o, args, Purpose::recorded, key, shown);
  std::span<const Value> logical_operands = shown.values, operands = logical_operands;
  append_wanted(key, logical_operands);
  std::optional<InMemory> physical;  // the arguments over their physical layouts, if there are any
  bool logical = !any_physical_layout(args);
  if (!logical) [[unlikely]] {
    physical.emplace(args, std::span<const Tensor>(), packed_operands_of(o));
    if (physical->any()) {
      key_of(o, physical->args(), Purpose::recorded, key, in_memory);
      operands = in_memory.values;
    } else {
      physical.reset();
    }
  }
  CachedCall entry(o, key, [&](CacheEntry& filled) {
    compile(o, args, physical ? &*physical : nullptr, logical_operands, operands, filled);
    return true;
  });
  if (entry->needs_logical) {
    physical->restore();
    return run_composite(o, args);
  }
  auto* compiled = static_cast<const Compiled*>(entry->recorded.get());
  auto all = compiled->forward.execute(*entry->plan, operands, {}, logical);
  for (int k = 0; k < compiled->outputs; ++k) {
    auto& t = all[size_t(k)];
    if (auto* input = input_of(t, operands, logical_operands))
      t = Tensor(Ref<TensorImpl>::share(input->tensor)).detached();
    else if (physical) t = with_logical_strides(std::move(t), entry->logical_strides[size_t(k)]);
  }
  std::vector<Ref<CompositeNode>> nodes;
  for (int part = 0; part < compiled->parts.count; ++part)
    nodes.push_back(make_ref<CompositeNode>(std::static_pointer_cast<const Compiled>(entry->recorded), part,
                                            logical_operands, all));
  Results results;
  for (int k = 0; k < compiled->outputs; ++k) {
    Tensor t = std::move(all[size_t(k)]);
    auto& tangents = compiled->joint.tangent_of;
    if (auto at = std::find(tangents.begin(), tangents.end(), k); at != tangents.end()) {
      auto tangent = size_t(at - tangents.begin());
      autograd::set_history(t, nodes[size_t(compiled->part_of(tangent))], k);
    }
    results.push_back(std::move(t));
  }
  return results;
}

}  // namespace facula::run
