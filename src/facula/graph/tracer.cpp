#include "facula/graph/tracer.h"

#include <algorithm>
#include <unordered_set>

#include "facula/autograd/autograd.h"
#include "facula/autograd/formula.h"
#include "facula/graph/passes.h"
#include "facula/op/foreign.h"
#include "facula/op/registry.h"
#include "facula/op/views.h"

namespace facula::graph {

Tensor handle(Value* v) {
  auto& t = v->tensor;
  Tensor h(
      make_ref<TensorImpl>(Storage(), Dims(t.sizes()), Dims(t.strides()), SymInt(), t.dtype(), t.device()));
  h.impl()->traced = v;
  h.impl()->wrapped_number = t.impl()->wrapped_number;
  return h;
}

namespace {

// Gradients of a view's result alone, for what undoes its steps.
class OfOneResult final : public op::Vjp {
 public:
  OfOneResult(const op::Call& c, int result, Tensor grad)
      : call_(c), result_(result), grad_(std::move(grad)) {}
  Tensor grad(int r) const override { return r == result_ ? grad_ : Tensor(); }
  Tensor operator[](op::ParameterName arg) const override { return call_.tensor(arg); }
  Tensor item(op::ParameterName arg, int k) const override { return call_.tensors(arg)[size_t(k)]; }
  Tensor result(int) const override { return {}; }
  bool needs(op::ParameterName, int) const override { return true; }
  const op::Call& call() const override { return call_; }

 private:
  const op::Call& call_;
  int result_;
  Tensor grad_;
};

}  // namespace

Results Tracer::take(const Operator& o, std::span<const op::Value> args, Form form,
                     std::span<const Tensor> out) {
  runtime_check(!captures_ || !o.effects.reads_data, o.name())
      << "looks at the elements of a tensor, which a traced function has not yet"
      << hint("compute what depends on elements outside of the function, or with where()");
  op::Args owned(args, o.schema);
  bool history = false;  // for who asks whether a gradient is required
  owned.each_tensor([&](size_t, Tensor& t) {
    if (!t.defined()) return;
    history |= t.requires_grad();
    if (t.is_traced()) t.impl()->traced = current(value_of(t));
    else t = handle(current(constant(t)));
  });
  auto values = owned.values();
  bool recorded = !captures_ || depth_ || autograd::grad_enabled();
  history &= recorded && captures_ && !depth_ && o.differentiable;
  auto require = [&](const Tensor& t, size_t k) {
    if (history && t.defined() && is_differentiable(t.dtype()) && o.carries_gradient(k))
      t.impl()->requires_grad = true;
  };
  size_t before = graph_->nodes.size();
  auto* foreign = o.as<op::Foreign>();
  if (foreign && o.effects.writes && !foreign->functions->is_composite())
    return writing(o, values, before, recorded);
  bool calls = o.calls() || (foreign && foreign->functions->is_composite());
  Results results = calls ? inlined(o, values) : record(o, values);
  if (form == Form::functional) {
    for (size_t k = 0; k < results.size(); ++k) {
      if (!recorded && results[k].defined() && !o.is<op::View>()) results[k] = without_history(results[k]);
      require(results[k], k);
    }
    return results;
  }
  for (size_t k = 0; k < (form == Form::in_place ? 1 : out.size()); ++k) {
    Tensor target = form == Form::in_place ? Tensor(Ref<TensorImpl>::share(values[0].tensor)) : out[k];
    if (form == Form::in_place && o.is<op::View>()) {  // t_(): another view of the same memory
      auto *to = target.impl(), *from = results[0].impl();
      to->sizes = from->sizes;
      to->strides = from->strides;
      to->traced = from->traced;
      require(target, 0);
      return Results(target);
    }
    if (!target.is_traced()) target = handle(current(constant(target)));
    else target.impl()->traced = current(value_of(target));
    write(o, target, results[k], before, recorded);
    if (target.is_traced()) require(target, k);
    results[k] = target;
  }
  return results;
}

Value* Tracer::constant(const Tensor& t) {
  auto& known = constants_[t.impl()];
  if (!known) {
    internal_check(!t.is_traced()) << "a value of another trace";
    known = graph_->add_constant(t);
  }
  return known;
}

Tensor Tracer::without_history(const Tensor& t) {
  if (!is_differentiable(t.dtype())) return t;
  op::Value args[] = {t};
  return record(op::get("detach"), args)[0];
}

Value* Tracer::current(Value* v) {
  supported_check(size_t(v->id) >= gone_.size() || !gone_[size_t(v->id)], "trace")
      << "a tensor of shape " << to_string(v->tensor.sizes())
      << " from the backward of a custom function is read outside of it";
  if (v->id < frozen_) return v;
  Value* base = base_of(v);
  Value* now = now_of(base);
  return now == base ? v : seen_through(v, base, now);
}

Value* Tracer::now_of(Value* base) {
  if (auto it = memory_.find(base); it != memory_.end()) return it->second->now;
  auto it = aliases_.find(base);
  Value* now = it == aliases_.end() ? nullptr : current(it->second);
  if (!now || now == it->second) return base;
  op::Value args[] = {base->tensor, now->tensor};
  return value_of(record(op::get("_with_history"), args)[0]);
}

Value* Tracer::first_of(Value* v) const {
  Value* base = base_of(v);
  auto it = memory_.find(base);
  return it == memory_.end() ? base : it->second->first;
}

Results Tracer::inlined(const Operator& o, std::span<const op::Value> values) {
  auto rules = KeepRules::now();
  if (o.vjp && o.calls() && (rules == KeepRules::all || (rules && function_of(o))))
    if (auto node = one_node(o, values)) return *node;
  Inside here(this);
  KeepRules within(o.is<op::Composite>() ? KeepRules::none : rules);
  if (auto* foreign = o.as<op::Foreign>()) {
    op::Mode::With on(this);
    return foreign->functions->run(op::Call(o, values));
  }
  return (*o.calls())(op::Call(o, values));
}

Results Tracer::writing(const Operator& o, std::span<const op::Value> values, size_t before, bool recorded) {
  Results all = record(op::functional_form(o), values), given;
  std::vector<Tensor> targets = op::written_tensors(op::Call(o, values));
  size_t results = all.size() - targets.size();
  for (size_t k = 0; k < results; ++k) given.push_back(all[k]);
  for (size_t k = 0; k < targets.size(); ++k) {
    targets[k].impl()->traced = current(value_of(targets[k]));
    write(o, targets[k], all[results + k], before, recorded);
  }
  return given;
}

std::optional<Results> Tracer::one_node(const Operator& o, std::span<const op::Value> values) {
  op::Args args(values, o.schema);
  std::vector<InputSpec> specs;
  args.each_tensor([&](size_t, Tensor& t) {
    if (t.defined()) specs.push_back(spec_of(t));
  });
  auto call = [&](std::span<const Tensor> given) {
    size_t k = 0;
    args.each_tensor([&](size_t, Tensor& t) {
      if (t.defined()) t = given[k++];
    });
    KeepRules off(KeepRules::none);
    return op::call(o, args.values()).to_vector();
  };
  Graph calls = traced(graph_->shapes, specs, call, nullptr);
  if (!calls.mutated.empty()) return {};
  std::vector<Value*> made;
  for (auto* v : calls.outputs) {
    if (!v) return {};
    auto& t = v->tensor;
    made.push_back(graph_->add_value(t.sizes(), t.strides(), t.dtype(), t.device()));
  }
  graph_->add_node(o, values, made);
  Results results;
  for (auto* v : made) results.push_back(handle(v));
  return results;
}

Value* Tracer::base_of(Value* v) const {
  while (!memory_.count(v) && v->producer && v->producer->op->is<op::View>()) v = operands(*v->producer)[0];
  return v;
}

Value* Tracer::seen_through(Value* v, Value* base, Value* now) {
  if (v == base) return now;
  auto& n = *v->producer;
  op::Args args = n.args.clone();
  Tensor of = handle(seen_through(operands(n)[0], base, now));
  args.each_tensor([&](size_t slot, Tensor& t) {
    if (slot == 0) t = of;
  });
  return value_of(record(*n.op, args.values())[size_t(v->result)]);
}

void Tracer::write(const Operator& o, const Tensor& target, Tensor value, size_t before, bool recorded) {
  bool fits = value.dim() == target.dim() &&
              std::equal(target.sizes().begin(), target.sizes().end(), value.sizes().begin());
  runtime_check(fits, o.name()) << "the result of shape " << to_string(value.sizes())
                                << " does not fit in place into " << to_string(target.sizes());
  Value* v = value_of(target);
  supported_check(!aliases_.count(base_of(v)), o.name())
      << "writes to a result of a custom function that shares its memory with another tensor"
      << hint("clone() it");
  auto* first = first_of(v);
  supported_check(dormant_ < 0 || (first->id >= dormant_ && !first->constant.defined()), o.name())
      << "writes, in the backward of a custom function, to a tensor from outside of it" << hint("clone() it");
  for (int d = 0; d < target.dim(); ++d)
    runtime_check(!SymInt::surely_equal(target.stride(d), int64_t(0)) ||
                      SymInt::surely_equal(target.size(d), int64_t(1)),
                  o.name())
        << "writes into " << to_string(target.sizes()) << " with strides " << to_string(target.strides())
        << ", where elements share memory, which a trace cannot record" << hint("clone() it first");
  if (value.dtype() != target.dtype()) value = invoke("to_dtype", {value, target.dtype()});
  auto* w = value_of(value);
  if (!w->producer || w->producer->op->is<op::View>() || w->producer->id < int(before))
    value = invoke("clone", {value});  // memory of its own
  if (!recorded) value = with_history(handle(v), value);
  Value* base = base_of(v);
  for (; v != base; v = operands(*v->producer)[0]) value = put_back(o, *v->producer, v->result, value);
  bool lies_alike = true;  // memory stays as it lies, whatever is written
  for (int d = 0; d < value.dim(); ++d)
    lies_alike &= SymInt::surely_equal(value.stride(d), base->tensor.stride(d)) ||
                  SymInt::surely_equal(value.size(d), int64_t(1));
  if (!lies_alike) value = invoke("copy", {handle(base), value});
  auto& memory = memory_[base];
  if (!memory) memory = std::make_shared<Memory>(base, base);
  memory->now = value_of(value);
  memory_[memory->now] = memory;
  target.impl()->traced = current(value_of(target));
}

Tensor Tracer::put_back(const Operator& by, const Node& view, int result, const Tensor& value) {
  Tensor base = handle(operands(view)[0]);
  if (!view.op->differentiable) {  // detach(): the base keeps its history, and the view has none
    supported_check(!carries_gradient(value_of(value)), by.name())
        << "writes what may carry a gradient through detach(), which a trace cannot record"
        << hint("write it under no_grad(), or detach() it too");
    return with_history(base, value);
  }
  op::Args args = view.args.clone();
  args.each_tensor([&](size_t slot, Tensor& t) {
    if (slot == 0) t = base;
  });
  op::Call c(*view.op, args.values());
  op::Mode::With on(this);
  Inside here(this);
  auto placed = [&](Tensor t) { return autograd::view_gradient(c, OfOneResult(c, result, std::move(t)))[0]; };
  auto steps = view.op->as<op::View>()->rule(c, op::Geometry(view.op->name(), base))[size_t(result)].steps();
  bool part = false;
  for (auto& s : steps) {
    using Kind = op::ViewStep::Kind;
    supported_check(s.kind != Kind::as_dtype, by.name())
        << "writes through view(dtype), which a trace cannot record yet";
    part |= s.kind == Kind::slice || s.kind == Kind::select || s.kind == Kind::diagonal ||
            s.kind == Kind::strided;
  }
  if (!part) return placed(value);
  Tensor ones = invoke("full", {value.sizes(), Scalar(true), DType::Bool});
  return invoke("where", {placed(ones), placed(value), base});
}

bool Tracer::carries_gradient(const Value* of) const {
  std::unordered_set<const Value*> seen;
  std::vector<const Value*> todo{of};
  while (!todo.empty()) {
    auto* v = todo.back();
    todo.pop_back();
    if (!v || !is_differentiable(v->tensor.dtype()) || !seen.insert(v).second) continue;
    if (!v->producer && (!v->constant.defined() || v->constant.requires_grad())) return true;
    if (!v->producer || !v->producer->op->carries_gradient(size_t(v->result))) continue;
    auto read = operands(*v->producer);
    todo.insert(todo.end(), read.begin(), read.end());
  }
  return false;
}

Results Tracer::record(const Operator& o, std::span<const op::Value> values) {
  runtime_check(!o.schema.mutates(), o.name()) << "writes to its arguments, which a trace cannot record";
  runtime_check(int64_t(graph_->nodes.size()) < op::CallLimit::now(), o.name())
      << "is the last of " << graph_->nodes.size() << " calls, and no more are traced here";
  std::vector<Value*> made;
  for (auto& m : infer(o, values))
    made.push_back(
        graph_->add_value(m.sizes,
                          m.strides.size() == m.sizes.size() ? m.strides : contiguous_strides(m.sizes),
                          m.dtype, m.device));
  graph_->add_node(o, values, made);
  Results results;
  for (auto* v : made) results.push_back(handle(v));
  return results;
}

}  // namespace facula::graph
