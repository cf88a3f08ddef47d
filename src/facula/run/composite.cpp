#include "facula/run/composite.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <set>

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

// By tangent: the number of the part of the forward computation that leads to it from the differentiated inputs. Results of one
// part share intermediate values, so that a backward pass from one of them spends the history of all; results of different parts
// share nothing but inputs.
std::vector<int> parts_of(const graph::Joint& j) {
  auto& g = j.graph;
  std::vector<bool> active(g.values().size());
  for (int i : j.wrt) active[size_t(g.inputs[size_t(i)]->id)] = true;
  graph::spread_activity(g, g.nodes.size(), active);
  std::vector<int> parts;
  std::map<const graph::Value*, int> part_of;
  for (int k : j.tangent_of) {
    int own = int(parts.size());
    std::vector<graph::Value*> todo{g.outputs[size_t(k)]};
    while (!todo.empty()) {
      auto* v = todo.back();
      todo.pop_back();
      if (!v || !v->producer || !active[size_t(v->id)]) continue;
      auto [it, fresh] = part_of.try_emplace(v, own);
      if (!fresh && it->second != own) {
        int from = own, into = it->second;
        for (int& p : parts)
          if (p == from) p = into;
        for (auto& [value, p] : part_of)
          if (p == from) p = into;
        own = into;
      }
      if (!fresh) continue;
      auto read = graph::operands(*v->producer);
      todo.insert(todo.end(), read.begin(), read.end());
    }
    parts.push_back(own);
  }
  return parts;
}

// Removes those of the first `count` inputs that no call reads and that are no output; gives which of them remain.
std::vector<bool> without_unread(graph::Graph& g, size_t count) {
  std::set<const graph::Value*> read(g.outputs.begin(), g.outputs.end());
  for (auto& n : g.nodes)
    for (auto* v : graph::operands(*n)) read.insert(v);
  std::vector<bool> remain(count);
  for (size_t k = count; k-- > 0;) {
    remain[k] = read.count(g.inputs[k]) > 0;
    if (!remain[k]) g.inputs.erase(g.inputs.begin() + std::ptrdiff_t(k));
  }
  return remain;
}

// A composite with its gradient, traced for one combination of attributes, dtypes and ranks.
struct Compiled final : TracedCall {
  Compiled(graph::Joint j, graph::Partition p, const Operator& o, std::span<const Value> args)
      : joint(std::move(j)),
        op(o),
        attributes(args, o.schema),
        node_name(autograd::node_name(o, args)),
        outputs(p.outputs),
        saved_inputs(p.saved_inputs),
        saved_outputs(p.saved_outputs),
        random(std::move(p.random)),
        forward(std::move(p.forward), o.name(), keeper_of(o)),
        backward(std::move(p.backward), o.name(), keeper_of(o)),
        parts(parts_of(joint)),
        has_parts(std::set<int>(parts.begin(), parts.end()).size() > 1) {
    attributes.each_tensor([](size_t, Tensor& t) { t = {}; });
  }
  bool accepts(std::span<const Value> operands) const override { return forward.accepts(operands); }
  graph::Joint joint;  // for gradients of gradients: interpreted on the tape
  const Operator& op;
  op::Args attributes;  // of the call that was compiled, without its tensors
  std::string node_name;
  int outputs;
  std::vector<int> saved_inputs, saved_outputs;
  std::vector<std::pair<int, const graph::Value*>> random;  // saved value, value of the joint graph
  Program forward, backward;
  std::vector<int> parts;  // see parts_of()
  bool has_parts;          // more than one
  bool has_gradient(size_t k) const { return joint.graph.outputs[size_t(joint.forward_outputs) + k]; }

  // The backward program where some gradients (`grads`, by output) are undefined: see graph::without_gradients. `reads`: by saved
  // value, whether it is an input; the others may have been written since.
  struct Partial {
    Partial(graph::Graph g, size_t saved, const Operator& o)
        : reads(without_unread(g, saved)), program(std::move(g), o.name(), keeper_of(o)) {}
    std::vector<bool> reads;
    Program program;
  };
  const Partial& backward_of(std::span<const Tensor> grads) const {
    std::vector<bool> absent;
    for (int k : joint.tangent_of) absent.push_back(!grads[size_t(k)].defined());
    std::lock_guard lock(mutex_);
    auto& partial = partial_[absent];
    if (!partial) {
      auto parts = pipeline::partition(joint, op.name());  // the same values are saved
      auto rest = graph::without_gradients(parts.backward, saved_inputs.size(), absent);
      partial = std::make_unique<Partial>(std::move(rest), saved_inputs.size(), op);
    }
    return *partial;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::map<std::vector<bool>, std::unique_ptr<Partial>> partial_;
};

class CompositeNode final : public autograd::Node,
                            public autograd::CallNode,
                            public detail::Recycled<CompositeNode> {
 public:
  CompositeNode(std::shared_ptr<const Compiled> c, std::span<const Value> operands, const Results& all)
      : Node(c->outputs), compiled_(std::move(c)) {
    edges_.reserve(compiled_->joint.wrt.size());
    values_.reserve(operands.size() + compiled_->saved_inputs.size());
    auto& wrt = compiled_->joint.wrt;
    for (size_t k = 0; k < wrt.size(); ++k) {
      if (compiled_->has_gradient(k)) add_edge(Borrowed(operands[size_t(wrt[k])].tensor));
      else add_edge(autograd::Edge());
    }
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
    for (size_t k = 0; k < compiled_->saved_inputs.size(); ++k) {
      auto& saved = values_.emplace_back();
      if (compiled_->saved_inputs[k] >= 0) continue;
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
    std::vector<Tensor> tangents;
    auto& tangent_of = compiled_->joint.tangent_of;
    std::set<int> parts;
    for (size_t k = 0; k < tangent_of.size(); ++k) {
      auto& g = grads[size_t(tangent_of[k])];
      if (!g.defined()) continue;
      tangents.push_back(g);
      if (compiled_->has_parts) parts.insert(compiled_->parts[k]);
    }
    if (released_ || std::ranges::any_of(parts, [&](int p) { return spent_.count(p) > 0; })) raise_freed();
    passed_ = std::move(parts);
    if (create_graph || is_interposed(tangents)) return differentiable(grads);
    bool all_present = tangents.size() == compiled_->joint.tangent_of.size();
    auto* partial = all_present ? nullptr : &compiled_->backward_of(grads);
    auto& backward = partial ? partial->program : compiled_->backward;
    auto reads = [&](size_t k) { return !partial || partial->reads[k]; };
    if (autograd::any_batched(tangents)) return call_by_call(backward, tangents, reads);
    std::vector<Tensor> alive;
    std::vector<Value> values;
    auto& wrt = compiled_->joint.wrt;
    size_t saved_count = compiled_->saved_inputs.size();
    alive.reserve(saved_count);
    values.reserve(saved_count + tangents.size());
    for (size_t k = 0; k < saved_count; ++k)
      if (reads(k)) values.push_back(saved(k).unpack(*this, alive));
    for (auto& t : tangents) values.push_back(t);
    InMemory memory(values);
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

  // The results of parts that the pass before has not reached still need what was saved.
  void release_saved() override {
    spent_.insert(passed_.begin(), passed_.end());
    auto is_spent = [&](int part) { return spent_.count(part) > 0; };
    if (compiled_->has_parts && !std::ranges::all_of(compiled_->parts, is_spent)) return;
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

  size_t operands() const { return compiled_->forward.graph().inputs.size(); }

  // Runs the backward program call by call. Under vmap each call then takes its own batching rule.
  template <class F>
  std::vector<Tensor> call_by_call(const Program& backward, const std::vector<Tensor>& tangents, F&& reads) {
    std::vector<Tensor> arguments;
    for (size_t k = 0; k < compiled_->saved_inputs.size(); ++k) {
      if (!reads(k)) continue;
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

  // Runs the joint graph call by call, so that the tape records the gradient.
  std::vector<Tensor> differentiable(const std::vector<Tensor>& grads) {
    std::vector<Tensor> arguments;
    for (size_t i = 0; i < operands(); ++i) {
      std::vector<Tensor> alive;
      Value v = values_[i].unpack(*this, alive);
      arguments.push_back(v.tag == Tag::tensor ? alive[0] : op::wrapped_number(v.number()));
    }
    for (int k : compiled_->joint.tangent_of)
      arguments.push_back(grads[size_t(k)].defined() ? grads[size_t(k)]
                                                     : autograd::zeros_of(results[size_t(k)]));
    std::vector<std::pair<const graph::Value*, Tensor>> drawn;
    for (auto& [k, v] : compiled_->random) {
      std::vector<Tensor> alive;
      saved(size_t(k)).unpack(*this, alive);
      drawn.push_back({v, alive[0]});
    }
    auto all = graph::interpret(compiled_->joint.graph, arguments, drawn);
    return {all.begin() + compiled_->joint.forward_outputs, all.end()};
  }

  std::shared_ptr<const Compiled> compiled_;
  std::vector<SavedValue> values_;  // operands, followed by saved values that are not operands
  bool released_ = false;
  std::set<int> passed_, spent_;  // parts: of the last pass, and of those that retained no graph
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
      if (auto prepare = compiled->backward.preparation(operands, compiled->forward.graph()))
        codegen::run_in_background([compiled, prepare] { prepare(); });
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
    physical.emplace(args);
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
  auto node = make_ref<CompositeNode>(std::static_pointer_cast<const Compiled>(entry->recorded),
                                      logical_operands, all);
  Results results;
  for (int k = 0; k < compiled->outputs; ++k) {
    Tensor t = std::move(all[size_t(k)]);
    auto& tangents = compiled->joint.tangent_of;
    if (std::find(tangents.begin(), tangents.end(), k) != tangents.end()) autograd::set_history(t, node, k);
    results.push_back(std::move(t));
  }
  return results;
}

}  // namespace facula::run
