#include "facula/run/composite.h"

#include <algorithm>
#include <mutex>
#include <optional>

#include "facula/autograd/autograd.h"
#include "facula/autograd/batch.h"
#include "facula/autograd/call_node.h"
#include "facula/autograd/node.h"
#include "facula/base/caches.h"
#include "facula/base/fork.h"
#include "facula/base/settings.h"
#include "facula/codegen/ahead.h"
#include "facula/graph/passes.h"
#include "facula/op/registry.h"
#include "facula/profile/profile.h"
#include "facula/run/below.h"
#include "facula/run/entry.h"
#include "facula/run/layout.h"

namespace facula::run {

using op::Operator;
using op::Results;
using op::Tag;
using op::Value;

namespace {

// A composite with its gradient, for one class of calls.
struct Compiled {
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
        backward(std::move(p.backward), o.name(), keeper_of(o)) {
    attributes.each_tensor([](size_t, Tensor& t) { t = {}; });
  }
  graph::Joint joint;  // for gradients of gradients: interpreted on the tape
  const Operator& op;
  op::Args attributes;  // of the call that was compiled, without its tensors
  std::string node_name;
  int outputs;
  std::vector<int> saved_inputs, saved_outputs;
  std::vector<std::pair<int, const graph::Value*>> random;  // saved value, value of the joint graph
  Program forward, backward;
};

class CompositeNode final : public autograd::Node,
                            public autograd::CallNode,
                            public detail::Recycled<CompositeNode> {
 public:
  CompositeNode(std::shared_ptr<const Compiled> c, std::span<const Value> operands, const Results& all)
      : Node(c->outputs), compiled_(std::move(c)) {
    edges_.reserve(compiled_->joint.wrt.size());
    values_.reserve(operands.size() + compiled_->saved_inputs.size());
    for (int i : compiled_->joint.wrt) add_edge(Borrowed(operands[size_t(i)].tensor));
    for (auto& v : operands) {
      auto& kept = values_.emplace_back();
      if (v.tag != Tag::tensor) {
        kept.number = v.number();
        continue;
      }
      Borrowed t(v.tensor);
      kept.tensor = autograd::Saved(t, false);
      kept.shows_plain = t->is_contiguous();
    }
    for (size_t k = 0; k < compiled_->saved_inputs.size(); ++k) {
      auto& kept = values_.emplace_back();
      if (compiled_->saved_inputs[k] >= 0) continue;
      int output = compiled_->saved_outputs[k];
      kept.tensor = output >= 0 ? autograd::Saved(all[size_t(output)], true, output)
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
      [&](size_t k) {  // what is part of the trace's key
        auto& p = parameters[k];
        return (p.type == op::Type::Int && !p.symbolic) || p.type == op::Type::Bool ||
               p.type == op::Type::String;
      });
  }

  std::vector<Tensor> apply(std::vector<Tensor> grads, bool create_graph) override {
    if (released_) raise_freed();
    std::vector<Tensor> tangents;
    for (int k : compiled_->joint.tangent_of)
      tangents.push_back(grads[size_t(k)].defined() ? grads[size_t(k)]
                                                    : autograd::zeros_of(results[size_t(k)]));
    if (create_graph || taken_below(tangents)) return differentiable(tangents);
    if (autograd::any_batched(tangents)) return call_by_call(tangents);
    std::vector<Tensor> alive;
    std::vector<Value> values;
    auto& wrt = compiled_->joint.wrt;
    size_t saved_count = compiled_->saved_inputs.size();
    alive.reserve(saved_count);
    values.reserve(saved_count + tangents.size());
    for (size_t k = 0; k < saved_count; ++k) values.push_back(saved(k).unpack(*this, alive));
    for (auto& t : tangents) values.push_back(t);
    InMemory memory(values);
    values.assign(memory.args().begin(), memory.args().end());
    std::vector<Tensor> copies;
    if (!compiled_->backward.accepts(values)) {
      // The trace took gradients to lie as the results do, and saved values as they did.
      for (size_t k = 0; k < values.size(); ++k) {
        if (values[k].tag != Tag::tensor) continue;
        copies.push_back(laid_out(Tensor(Ref<TensorImpl>::share(values[k].tensor)),
                                  compiled_->backward.graph().inputs[k]->tensor));
        values[k] = Value(copies.back());
      }
    }
    auto all = compiled_->backward.run(values).to_vector();
    for (size_t k = 0; k < all.size() && k < wrt.size(); ++k) {
      if (!all[k].defined()) continue;
      for (auto& v : values)
        if (v.tag == Tag::tensor && v.tensor == all[k].impl()) {  // an operand handed back
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
  // t with the strides that a trace expects, copied if need be.
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
    bool shows_plain = false;  // of an operand: is it contiguous?
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

  // The backward program call by call: gradients of a batch (vmap), each call by the rule of its kind.
  std::vector<Tensor> call_by_call(const std::vector<Tensor>& tangents) {
    std::vector<Tensor> given;
    for (size_t k = 0; k < compiled_->saved_inputs.size(); ++k) {
      std::vector<Tensor> alive;
      Value v = saved(k).unpack(*this, alive);
      given.push_back(v.tag == Tag::tensor ? alive[0] : op::wrapped_number(v.number()));
    }
    given.insert(given.end(), tangents.begin(), tangents.end());
    return graph::interpret(compiled_->backward.graph(), given);
  }

  // Are calls with these gradients taken in place of kernels (below.h)?
  static bool taken_below(const std::vector<Tensor>& tangents) {
    return below_in_use.load(std::memory_order_relaxed) && find_below({}, tangents);
  }

  // The joint graph call by call, so that the tape records what the gradient does.
  std::vector<Tensor> differentiable(const std::vector<Tensor>& tangents) {
    std::vector<Tensor> given;
    for (size_t i = 0; i < operands(); ++i) {
      std::vector<Tensor> alive;
      Value v = values_[i].unpack(*this, alive);
      given.push_back(v.tag == Tag::tensor ? alive[0] : op::wrapped_number(v.number()));
    }
    given.insert(given.end(), tangents.begin(), tangents.end());
    std::vector<std::pair<const graph::Value*, Tensor>> drawn;
    for (auto& [k, v] : compiled_->random) {
      std::vector<Tensor> alive;
      saved(size_t(k)).unpack(*this, alive);
      drawn.push_back({v, alive[0]});
    }
    auto all = graph::interpret(compiled_->joint.graph, given, drawn);
    return {all.begin() + compiled_->joint.forward_outputs, all.end()};
  }

  std::shared_ptr<const Compiled> compiled_;
  std::vector<SavedValue> values_;  // operands, and behind them what is saved and none of them
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
                                            std::span<const Value> operands, const std::vector<int>& wrt,
                                            Key key) {
  static TableMutex mutex;
  // Of all operators together.
  static Bounded<Key, std::vector<std::shared_ptr<const Compiled>>, KeyHash> known(kMaxPlans);
  static const Droppable registered([] {
    std::lock_guard lock(mutex);
    known.clear();
  });
  key.push_back(reinterpret_cast<uint64_t>(&o));
  for (int i : wrt) key.push_back(uint64_t(i));
  {
    std::lock_guard lock(mutex);
    if (auto* all = known.find(key))
      for (auto& c : *all)
        if (c->forward.accepts(operands)) return c;
  }
  auto joint = graph::differentiate(trace_call(o, args, {}), wrt);
  auto parts = graph::partition(joint);
  auto made = std::make_shared<const Compiled>(std::move(joint), std::move(parts), o, args);
  std::lock_guard lock(mutex);
  auto* all = known.find(key);
  if (!all) all = &known.put(std::move(key), {});
  if (all->size() >= kMaxPrograms) all->erase(all->begin());
  all->push_back(made);
  return made;
}

// Which operands want a gradient.
void append_wanted(Key& key, std::span<const Value> given) {
  uint64_t wanted = 1;
  for (auto& v : given) {
    wanted = wanted << 1 | uint64_t(wants_gradient(v));
    if (wanted >> 63) {
      key.push_back(wanted);
      wanted = 1;
    }
  }
  key.push_back(wanted);
}

// The program of a call with that of its gradient. `lying`: the arguments as they lie in memory, where that is not as
// `args` show them; `operands` are theirs, `given` those of `args`.
void compile(const Operator& o, std::span<const Value> args, const InMemory* lying,
             std::span<const Value> given, std::span<const Value> operands, Entry& entry) {
  profile::Scope scope(profile::Category::compile, "plan ", o.name());
  auto call_args = lying ? lying->args() : args;
  std::vector<int> wrt;
  for (size_t i = 0; i < given.size(); ++i)
    if (wants_gradient(given[i])) wrt.push_back(int(i));
  try {
    auto compiled = compiled_of(o, call_args, operands, wrt, trace_key(o, call_args, {}));
    if (codegen::ahead_threads())  // the gradient's kernels, beside the forward pass
      if (auto prepare = compiled->backward.preparation(operands, compiled->forward.graph()))
        codegen::ahead([compiled, prepare] { prepare(); });
    if (lying && needs_logical_inputs(compiled->forward.graph())) entry.needs_logical = true;
    else entry.plan = compiled->forward.plan(operands, {});
    entry.recorded = std::move(compiled);
    if (lying) entry.logical_strides = logical_strides(trace_call(o, args, {}));
  } catch (const Error&) {
    if (!lying) throw;
    entry.needs_logical = true;
  }
}

// The input that a result is, if it came back as it was; it keeps its own history, and the result is another tensor over
// the same memory.
const Value* input_of(const Tensor& t, std::span<const Value> operands, std::span<const Value> given) {
  for (size_t i = 0; i < given.size(); ++i)
    if (operands[i].tag == Tag::tensor && operands[i].tensor == t.impl()) return &given[i];
  return nullptr;
}

}  // namespace

Results run_composite(const Operator& o, std::span<const Value> args) {
  Key key;
  Operands logical_operands, in_memory;
  key_of(o, args, Purpose::recorded, key, logical_operands);
  std::span<const Value> given = logical_operands.values, operands = given;
  append_wanted(key, given);
  std::optional<InMemory> physical;  // the arguments as they lie in memory, if that is not the logical layout
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
  EntryHandle found(o, key, [&](Entry& entry) {
    compile(o, args, physical ? &*physical : nullptr, given, operands, entry);
    return true;
  });
  if (found->needs_logical) {
    physical->restore();
    return run_composite(o, args);
  }
  auto* compiled = static_cast<const Compiled*>(found->recorded.get());
  auto all = compiled->forward.execute(*found->plan, operands, {}, logical);
  for (int k = 0; k < compiled->outputs; ++k) {
    auto& t = all[size_t(k)];
    if (auto* input = input_of(t, operands, given))
      t = Tensor(Ref<TensorImpl>::share(input->tensor)).detached();
    else if (physical) t = with_logical_strides(std::move(t), found->logical_strides[size_t(k)]);
  }
  auto node = make_ref<CompositeNode>(std::static_pointer_cast<const Compiled>(found->recorded), given, all);
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
