// Differentiates a traced function: traces it again, then the gradient of each call in reverse order, by the formulas
// of the tape (autograd::gradient).
#include <algorithm>
#include <unordered_map>

#include "facula/autograd/autograd.h"
#include "facula/autograd/calls.h"
#include "facula/autograd/formula.h"
#include "facula/autograd/probing.h"
#include "facula/autograd/tracing.h"
#include "facula/graph/node_formula.h"
#include "facula/graph/passes.h"
#include "facula/graph/trace.h"
#include "facula/op/foreign.h"
#include "facula/op/registry.h"
#include "facula/sym/run_time.h"

namespace facula::graph {

namespace {

bool carries_gradient(const op::Operator& o, size_t result, DType d) {
  return is_differentiable(d) && o.carries_gradient(result);
}

// By tensor: whether it is an active operand.
autograd::Flags wanted_by(const Node& n, const std::vector<bool>& active) {
  autograd::Flags wanted;
  for (auto* v : operands(n)) wanted.push_back(v && active[size_t(v->id)]);
  return wanted;
}

// The view of a call that a gradient formula gets while it is traced: all tensors are available.
class TracedVjp final : public op::Vjp {
 public:
  TracedVjp(const op::Operator& o, std::span<const op::Value> args, std::vector<Tensor> results,
            std::vector<Tensor> grads, autograd::Flags wanted)
      : call_(o, args), results_(std::move(results)), grads_(std::move(grads)), wanted_(std::move(wanted)) {}
  Tensor grad(int r) const override { return grads_[size_t(r)]; }
  Tensor operator[](op::ParameterName arg) const override {
    return read(call_.tensor_slot(arg), call_.tensor(arg));
  }
  Tensor item(op::ParameterName arg, int k) const override {
    return read(call_.tensor_slot(arg, k), call_.tensors(arg)[size_t(k)]);
  }
  Tensor result(int k) const override {
    if (read_results.size() <= size_t(k)) read_results.resize(size_t(k) + 1);
    read_results[size_t(k)] = true;
    return reader ? reader(-1, k, results_[size_t(k)]) : results_[size_t(k)];
  }
  bool needs(op::ParameterName arg, int item) const override {
    auto slot = size_t(call_.tensor_slot(arg, item));
    return slot < wanted_.size() && wanted_[slot];
  }
  const op::Call& call() const override { return call_; }
  mutable std::vector<bool> read_operands, read_results;
  // May replace what is read: an operand, by slot, or a result, by number.
  std::function<Tensor(int slot, int result, Tensor)> reader;

 private:
  Tensor read(int slot, Tensor t) const {
    if (read_operands.size() <= size_t(slot)) read_operands.resize(size_t(slot) + 1);
    read_operands[size_t(slot)] = true;
    return reader && t.defined() ? reader(slot, -1, std::move(t)) : t;
  }
  op::Call call_;
  std::vector<Tensor> results_, grads_;
  autograd::Flags wanted_;
};

void accumulate(Tensor& into, const Tensor& g) {
  if (!into.defined()) {
    into = g;
    return;
  }
  into = autograd::add(into, g);
}

// Converts a gradient to the sizes and dtype of the tensor that it belongs to.
Tensor fitted(Tensor g, const Tensor& to) {
  bool same = g.dim() == to.dim() && std::equal(to.sizes().begin(), to.sizes().end(), g.sizes().begin());
  using autograd::invoke;
  if (!same) g = invoke("sum_to_size", {g, to.sizes()});
  if (is_complex(g.dtype()) && !is_complex(to.dtype())) g = invoke("real", {g});
  if (g.dtype() != to.dtype()) g = invoke("to_dtype", {g, to.dtype()});
  return g;
}

}  // namespace

std::shared_ptr<const autograd::Formula> formula_of(const Node& n, const std::vector<bool>& active) {
  autograd::GradTypes grads;
  for (auto* r : n.results) {
    DType d = r->tensor.dtype();
    grads.push_back(carries_gradient(*n.op, grads.size(), d) ? std::optional(d) : std::nullopt);
  }
  op::Mode::With no_mode(nullptr);
  autograd::Tracing::With no_tape(nullptr);
  sym::Comparing comparing(n.op->name(), sym::Comparing::assumes);
  return autograd::formula_of(op::Call(*n.op, n.args.values()), wanted_by(n, active), grads);
}

namespace {

// Whether a derived gradient has a gradient by one of its active operands: it has none by those that it only steps with.
bool follows(const Node& n, const std::vector<bool>& active) {
  if (!autograd::is_gradient(*n.op) || !(n.op->is<op::Pointwise>() || n.op->is<op::Loop>())) return true;
  auto wanted = wanted_by(n, active);
  for (int tensor : formula_of(n, active)->constant) wanted[size_t(tensor)] = false;
  return std::ranges::find(wanted, true) != wanted.end();
}

}  // namespace

void spread_activity(const Graph& g, size_t nodes, std::vector<bool>& active) {
  for (size_t i = 0; i < nodes; ++i) {
    auto& n = *g.nodes[i];
    auto args = operands(n);
    if (std::none_of(args.begin(), args.end(), [&](Value* v) { return v && active[size_t(v->id)]; }))
      continue;
    if (!follows(n, active)) continue;
    op::check_gradients_pass(*n.op);
    for (size_t k = 0; k < n.results.size(); ++k)
      if (carries_gradient(*n.op, k, n.results[k]->tensor.dtype())) active[size_t(n.results[k]->id)] = true;
  }
}

namespace {

// Adds up the gradients of values, and rounds as eager mode does. The nodes of an inlined composite are one call there: what
// they add to the gradient of a held value is summed up in the precision in which it is computed, and rounded once.
class GradientSums {
 public:
  GradientSums(const Graph& g, std::vector<Tensor>& grads) : g_(g), grads_(grads) {}

  // Nodes come in reverse order; node i is the last one of a call.
  void begin_call(size_t i) { is_composite_ = !begins_call(i); }
  bool ends_call(size_t i) const {
    return std::ranges::any_of(g_.nodes[i]->results, [](auto* r) { return r->held; });
  }
  bool begins_call(size_t i) const { return i == 0 || ends_call(i - 1); }
  void add(const Value* v, Tensor gradient) {
    if (!v->held) return accumulate(grads_[size_t(v->id)], gradient);
    auto it = std::ranges::find(sums_, v, &Sum::first);
    if (it != sums_.end()) return accumulate(it->second, gradient);
    sums_.emplace_back(v, std::move(gradient));
    if (!is_composite_) end_call();
  }
  void end_call() {
    for (auto& [v, gradient] : sums_) {
      auto& total = grads_[size_t(v->id)];
      hold(gradient);
      accumulate(total, gradient);
      hold(total);
    }
    sums_.clear();
  }

 private:
  using Sum = std::pair<const Value*, Tensor>;
  const Graph& g_;
  std::vector<Tensor>& grads_;
  std::vector<Sum> sums_;  // of the call whose nodes are passed
  bool is_composite_ = false;
};

// Adds the gradients of the operands of n to `sums`.
void pass_back(const Node& n, const std::vector<bool>& active, const std::vector<Tensor>& grads,
               GradientSums& sums, BackwardObserver& observer) {
  std::vector<Tensor> incoming;
  bool any = false;
  for (size_t k = 0; k < n.results.size(); ++k) {
    auto* r = n.results[k];  // it may be active as a leaf, behind a call that carries no gradient
    bool carries = active[size_t(r->id)] && carries_gradient(*n.op, k, r->tensor.dtype());
    incoming.push_back(carries ? grads[size_t(r->id)] : Tensor());
    any = any || incoming.back().defined();
  }
  auto read = operands(n);
  autograd::Flags wanted;
  for (auto* v : read) wanted.push_back(v && active[size_t(v->id)]);
  if (!any || std::find(wanted.begin(), wanted.end(), true) == wanted.end()) return;
  op::Args args = n.args.clone();
  args.each_tensor([&](size_t, Tensor& t) {
    if (t.defined()) t = observer.tensor(value_of(t));
  });
  std::vector<Tensor> results;
  for (auto* r : n.results) results.push_back(observer.tensor(r));
  TracedVjp v(*n.op, args.values(), results, incoming, wanted);
  v.reader = [&](int slot, int result, Tensor t) {
    return observer.read(n, result >= 0 ? n.results[size_t(result)] : read[size_t(slot)], std::move(t));
  };
  auto out = autograd::gradient(*n.op, v);
  for (size_t s = 0; s < read.size() && s < out.size(); ++s)
    if (wanted[s] && out[s].defined()) sums.add(read[s], fitted(out[s], read[s]->tensor));
}

}  // namespace

void propagate_back(const Graph& g, size_t nodes, const std::vector<bool>& active, std::vector<Tensor>& grads,
                    BackwardObserver& observer) {
  GradientSums sums(g, grads);
  for (size_t i = nodes, last = nodes; i-- > 0;) {
    auto& n = *g.nodes[i];  // the node does not move when calls append nodes
    if (i + 1 == last) sums.begin_call(i);
    observer.before(n);
    pass_back(n, active, grads, sums, observer);
    if (!sums.begins_call(i)) continue;
    sums.end_call();
    for (size_t k = last; k-- > i;) observer.after(*g.nodes[k]);
    last = i;
  }
}

namespace {

// Represents values by tensors, and does nothing else.
class Represented final : public BackwardObserver {
 public:
  explicit Represented(const std::function<Tensor(const Value*)>& f) : of_(f) {}
  Tensor tensor(Value* v) override { return of_(v); }

 private:
  const std::function<Tensor(const Value*)>& of_;
};

// The inputs of the joint graph: those of the function, then the gradients of these outputs.
std::vector<InputSpec> joint_inputs(const Graph& forward, const std::vector<int>& tangent_of) {
  std::vector<InputSpec> specs;
  for (auto* v : forward.inputs) specs.push_back(spec_of(v->tensor));
  for (int k : tangent_of) {
    auto& t = forward.outputs[size_t(k)]->tensor;
    // The gradient of a dense result has the same layout.
    bool dense = !t.is_contiguous() && t.is_non_overlapping_and_dense();
    specs.push_back({t.dtype(), Dims(t.sizes()), dense ? Dims(t.strides()) : Dims()});
  }
  return specs;
}

}  // namespace

Joint differentiate(const Graph& forward, const std::vector<int>& wrt) {
  Joint joint;
  joint.forward_outputs = int(forward.outputs.size());
  joint.wrt = wrt;

  // By number: the value depends on an input in `wrt`.
  std::vector<bool> active(forward.values().size());
  for (int i : wrt)
    active[size_t(forward.inputs[size_t(i)]->id)] =
        is_differentiable(forward.inputs[size_t(i)]->tensor.dtype());
  spread_activity(forward, forward.nodes.size(), active);

  for (size_t k = 0; k < forward.outputs.size(); ++k)
    if (auto* v = forward.outputs[k]; v && active[size_t(v->id)]) joint.tangent_of.push_back(int(k));
  auto specs = joint_inputs(forward, joint.tangent_of);

  joint.graph = trace(
      forward.shapes, specs,
      [&](std::span<const Tensor> arguments) {
        KeepRules keep;  // for gradients of this gradient
        std::unordered_map<const Value*, Tensor> at;
        auto represent = [&](const Value* v, const Tensor& t) {
          at[v] = t;
          if (v->held) hold(t);
        };
        for (size_t i = 0; i < forward.inputs.size(); ++i) represent(forward.inputs[i], arguments[i]);
        const std::function<Tensor(const Value*)> value = [&](const Value* v) {
          return !v ? Tensor() : v->constant.defined() ? v->constant : at.at(v);
        };
        for (auto& n : forward.nodes) {
          op::Args args = n->args.clone();
          args.each_tensor([&](size_t, Tensor& t) {
            if (t.defined()) t = value(value_of(t));
          });
          At inside({0, n->place.checkpoint});
          auto results = op::call(*n->op, args.values());
          for (size_t k = 0; k < n->results.size(); ++k) represent(n->results[k], results[k]);
        }

        std::vector<Tensor> grads(forward.values().size());  // by number of the value
        for (size_t k = 0; k < joint.tangent_of.size(); ++k) {
          auto* of = forward.outputs[size_t(joint.tangent_of[k])];
          if (of->held) hold(arguments[forward.inputs.size() + k]);
          accumulate(grads[size_t(of->id)], arguments[forward.inputs.size() + k]);
        }
        Represented observer(value);
        propagate_back(forward, forward.nodes.size(), active, grads, observer);

        std::vector<Tensor> outputs;
        for (auto* v : forward.outputs) outputs.push_back(value(v));
        for (int i : wrt) outputs.push_back(grads[size_t(forward.inputs[size_t(i)]->id)]);
        std::vector<Tensor> written;
        for (auto& [i, v] : forward.mutated) written.push_back(value(v));
        write_back(forward, arguments, written, outputs);
        return outputs;
      },
      "joint");
  return joint;
}

}  // namespace facula::graph

namespace facula::autograd {

namespace {

thread_local bool probing = false;

struct Probing {
  Probing() { probing = true; }
  ~Probing() { probing = false; }
};

}  // namespace

bool is_probing() { return probing; }

Reads probe(const op::Call& c, const Flags& wanted, size_t results) {
  Reads reads;
  reads.shapes = std::make_shared<sym::Shapes>();
  auto& o = c.op();
  op::Args args(c.args(), o.schema);
  std::vector<graph::InputSpec> specs;
  std::vector<size_t> slots;
  args.each_tensor([&](size_t slot, Tensor& t) {
    if (!t.defined()) return;
    specs.push_back(graph::symbolic_spec(t, *reads.shapes));
    slots.push_back(slot);
  });
  reads.operands.resize(args.tensors().size());
  reads.results.resize(results);
  graph::trace(
      reads.shapes, specs,
      [&](std::span<const Tensor> arguments) {
        args.each_tensor([&](size_t slot, Tensor& t) {
          for (size_t k = 0; k < slots.size(); ++k)
            if (slots[k] == slot) t = arguments[k];
        });
        // One node, or inlined calls: only the values that the rule reads matter.
        auto call_results = op::call(o, args.values());
        std::vector<Tensor> outputs = call_results.to_vector(), grads;
        for (size_t k = 0; k < outputs.size(); ++k) {
          Tensor g;
          if (graph::carries_gradient(o, k, outputs[k].dtype())) {
            op::Value add[] = {outputs[k], outputs[k], op::Value()};
            g = op::call(op::get("add"), add)[0];
          }
          grads.push_back(g);
        }
        graph::TracedVjp v(o, args.values(), outputs, grads, wanted);
        {
          Probing scope;
          o.vjp(v);
        }
        for (size_t k = 0; k < v.read_operands.size() && k < reads.operands.size(); ++k)
          reads.operands[k] = v.read_operands[k];
        for (size_t k = 0; k < v.read_results.size() && k < reads.results.size(); ++k)
          reads.results[k] = v.read_results[k];
        return outputs;
      },
      o.name());
  return reads;
}

}  // namespace facula::autograd
