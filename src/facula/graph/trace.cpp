#include "facula/graph/trace.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "facula/autograd/accumulate.h"
#include "facula/autograd/autograd.h"
#include "facula/autograd/calls.h"
#include "facula/autograd/formula.h"
#include "facula/autograd/tracing.h"
#include "facula/base/settings.h"
#include "facula/graph/function.h"
#include "facula/graph/passes.h"
#include "facula/op/foreign.h"
#include "facula/op/registry.h"

namespace facula::graph {

using op::Form;
using op::Operator;
using op::Results;

InputSpec symbolic_spec(const Tensor& t, sym::Shapes& shapes) {
  InputSpec spec{t.dtype(), {}, {}, t.impl()->wrapped_number};
  for (auto s : t.sizes()) {
    int64_t n = s.hint();
    SymInt size = n;
    if (n > 1) {  // equal hints share a symbol, so that equalities need no guard of their own
      size = SymInt(int64_t(-1));
      for (int k = 0; k < shapes.symbol_count(); ++k)
        if (shapes.symbol(k).hint() == n) size = shapes.symbol(k);
      if (!size.is_symbolic()) size = shapes.fresh("s" + std::to_string(shapes.symbol_count()), n);
    }
    spec.sizes.push_back(size);
  }
  if (t.is_contiguous()) return spec;
  if (!t.is_non_overlapping_and_dense()) {
    spec.strides = Dims(t.strides());
    return spec;
  }
  Ints order;
  for (int d = 0; d < t.dim(); ++d) order.push_back(d);
  auto hints = t.strides();
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return hints[size_t(a)].hint() > hints[size_t(b)].hint(); });
  spec.strides.resize(size_t(t.dim()));
  SymInt next = int64_t(1);
  for (int k = t.dim() - 1; k >= 0; --k) {
    auto d = size_t(order[size_t(k)]);
    spec.strides[d] = next;
    next *= spec.sizes[d];
  }
  return spec;
}

InputSpec spec_of(const Tensor& t) {
  return {t.dtype(), Dims(t.sizes()), Dims(t.strides()), t.impl()->wrapped_number};
}

namespace {
thread_local KeepRules::Which keep_rules = KeepRules::none;

Graph traced(std::shared_ptr<sym::Shapes> shapes, std::span<const InputSpec> inputs, const Function& f,
             Capture* capture);

// A handle for users: re-pointed by in-place calls, while the value's own tensor stays.
Tensor handle(Value* v) {
  auto& t = v->tensor;
  Tensor h(
      make_ref<TensorImpl>(Storage(), Dims(t.sizes()), Dims(t.strides()), SymInt(), t.dtype(), t.device()));
  h.impl()->traced = v;
  h.impl()->wrapped_number = t.impl()->wrapped_number;
  return h;
}

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

class Tracer final : public op::Mode {
 public:
  // `captures`: of a user's function (capture).
  Tracer(Graph* g, bool captures) : graph_(g), captures_(captures) {}
  bool records() const override { return true; }

  Results take(const Operator& o, std::span<const op::Value> args, Form form,
               std::span<const Tensor> out) override {
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

  Value* constant(const Tensor& t) {
    auto& known = constants_[t.impl()];
    if (!known) {
      internal_check(!t.is_traced()) << "a value of another trace";
      known = graph_->add_constant(t);
    }
    return known;
  }
  Value* value_now(const Tensor& t) { return t.is_traced() ? current(value_of(t)) : constant(t); }

  // While a call that is inlined, or that a write or a gradient needs, makes calls of its own.
  struct Inside {
    explicit Inside(Tracer* t) : depth(&t->depth_) { ++*depth; }
    ~Inside() { --*depth; }
    int* depth;
  };
  // While values that are there stand for themselves, though their memory was written since.
  struct Frozen {
    explicit Frozen(Tracer* t) : tracer(t), outer(t->frozen_) {
      t->frozen_ = int(t->graph_->values().size());
    }
    ~Frozen() { tracer->frozen_ = outer; }
    Tracer* tracer;
    int outer;
  };
  Tensor without_history(const Tensor& t) {
    if (!is_differentiable(t.dtype())) return t;
    op::Value args[] = {t};
    return record(op::get("detach"), args)[0];
  }

  // What the memory of a value holds by now, seen through the same views.
  Value* current(Value* v) {
    supported_check(size_t(v->id) >= gone_.size() || !gone_[size_t(v->id)], "trace")
        << "a tensor of shape " << to_string(v->tensor.sizes())
        << " from the backward of a custom function is read outside of it";
    if (v->id < frozen_) return v;
    Value* base = base_of(v);
    Value* now = now_of(base);
    return now == base ? v : seen_through(v, base, now);
  }

  // ---- custom functions (function.h)
  void enter(autograd::TracedFunction& f) {
    f.begun = graph_->nodes.size();
    for (auto& t : f.inputs) f.at_entry.push_back(handle(value_now(t)));
  }
  std::vector<Tensor> function(autograd::TracedFunction& f);
  bool in_backward() const { return dormant_ >= 0; }
  // Calls of functions whose backward read what was written since, by other ways than save_for_backward.
  std::vector<const Node*> outdated() {
    std::vector<const Node*> found;
    for (auto& [node, v] : watched_)
      if (current(v) != v) found.push_back(node);
    return found;
  }
  static void check_outdated(const Node& n) {
    supported_check(false, n.op->name())
        << "has a backward that reads a tensor which is written behind the call"
        << hint("save_for_backward() it");
  }

 private:
  struct Memory {
    Value *first, *now;
  };
  // A backward of a custom function: its calls, taken out of the graph.
  struct Recorded {
    FunctionGradient gradient;
    std::vector<std::unique_ptr<Node>> calls;
    std::vector<Value*> grads, found;
  };
  Value* now_of(Value* base) {
    if (auto it = memory_.find(base); it != memory_.end()) return it->second->now;
    auto it = aliases_.find(base);
    Value* now = it == aliases_.end() ? nullptr : current(it->second);
    if (!now || now == it->second) return base;
    op::Value args[] = {base->tensor, now->tensor};
    return value_of(record(op::get("_with_history"), args)[0]);
  }
  // The value that the memory of v began with.
  Value* first_of(Value* v) const {
    Value* base = base_of(v);
    auto it = memory_.find(base);
    return it == memory_.end() ? base : it->second->first;
  }
  std::vector<std::vector<bool>> choices_of_needs(const autograd::TracedFunction& f) const;
  std::vector<Tensor> results_of(autograd::TracedFunction& f, const Node& call,
                                 const std::vector<Tensor>& carried);
  void take_gradients(autograd::TracedFunction& f, Node& call, const std::vector<std::vector<bool>>& needs,
                      const std::vector<Tensor>& results);
  Recorded record_backward(autograd::TracedFunction& f, const Node& call, std::vector<bool> needs,
                           std::vector<bool> given);
  static std::vector<Value*> reads_of(const std::vector<Recorded>& all, const std::vector<Value*>& results);
  void set_graph(Recorded& r, const std::vector<Value*>& reads, const std::vector<Value*>& results,
                 size_t begun);

  Results inlined(const Operator& o, std::span<const op::Value> values) {
    if (o.vjp && o.calls() && (keep_rules == KeepRules::all || (keep_rules && function_of(o))))
      if (auto node = one_node(o, values)) return *node;
    Inside here(this);
    KeepRules within(o.is<op::Composite>() ? KeepRules::none : keep_rules);
    if (auto* foreign = o.as<op::Foreign>()) {
      op::Mode::With on(this);
      return foreign->functions->run(op::Call(o, values));
    }
    return (*o.calls())(op::Call(o, values));
  }

  // A user's function that writes to arguments: one call that gives what they become, and the writes.
  Results writing(const Operator& o, std::span<const op::Value> values, size_t before, bool recorded) {
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

  // The call as it is; its results are like those of its calls. Not of one that writes, or gives no tensor somewhere.
  std::optional<Results> one_node(const Operator& o, std::span<const op::Value> values) {
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

  Value* base_of(Value* v) const {
    while (!memory_.count(v) && v->producer && v->producer->op->is<op::View>()) v = operands(*v->producer)[0];
    return v;
  }

  // The views that lead from `base` to v, of `now`.
  Value* seen_through(Value* v, Value* base, Value* now) {
    if (v == base) return now;
    auto& n = *v->producer;
    op::Args args = n.args.clone();
    Tensor of = handle(seen_through(operands(n)[0], base, now));
    args.each_tensor([&](size_t slot, Tensor& t) {
      if (slot == 0) t = of;
    });
    return value_of(record(*n.op, args.values())[size_t(v->result)]);
  }

  // `target` is current. Nodes from `before` on were made by the call whose result is written.
  void write(const Operator& o, const Tensor& target, Tensor value, size_t before, bool recorded) {
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
        << "writes, in the backward of a custom function, to a tensor from outside of it"
        << hint("clone() it");
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

  // The base of a view with `value` where the view lies.
  Tensor put_back(const Operator& by, const Node& view, int result, const Tensor& value) {
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
    auto placed = [&](Tensor t) {
      return autograd::view_gradient(c, OfOneResult(c, result, std::move(t)))[0];
    };
    auto steps =
        view.op->as<op::View>()->rule(c, op::Geometry(view.op->name(), base))[size_t(result)].steps();
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

  // May a gradient reach an input of the function from here?
  bool carries_gradient(const Value* of) const {
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

  // The numbers of `value`, with the gradient of `self`: a write that is not recorded leaves history as it was.
  Tensor with_history(const Tensor& self, const Tensor& value) {
    return is_differentiable(value.dtype()) ? invoke("_with_history", {self, value}) : value;
  }

  Tensor invoke(std::string_view name, std::initializer_list<op::Value> args) {
    op::Mode::With on(this);
    Inside here(this);
    return autograd::invoke(name, args);
  }

  Results record(const Operator& o, std::span<const op::Value> values) {
    runtime_check(!o.schema.mutates(), o.name()) << "writes to its arguments, which a trace cannot record";
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

  Graph* graph_;
  bool captures_;
  int depth_ = 0;           // of calls that are made for a call of the function
  int frozen_ = 0;          // values with smaller numbers stand for themselves
  int dormant_ = -1;        // the backward of a custom function is recorded: the number of its first value
  std::vector<bool> gone_;  // by number: values of such a backward that is over
  std::unordered_map<Value*, Value*>
      aliases_;  // results of custom functions, and the value whose memory they share
  std::vector<std::pair<const Node*, Value*>> watched_;
  std::unordered_map<const TensorImpl*, Value*> constants_;
  std::unordered_map<Value*, std::shared_ptr<Memory>>
      memory_;  // written ones, by every value that was their base
};

// Backward is traced for the arguments that require gradients, and for those that may when the program is called.
std::vector<std::vector<bool>> Tracer::choices_of_needs(const autograd::TracedFunction& f) const {
  std::vector<bool> may = f.needs;
  for (size_t k = 0; k < may.size(); ++k) may[k] = may[k] || carries_gradient(value_of(f.at_entry[k]));
  auto any = [](auto& flags) { return std::find(flags.begin(), flags.end(), true) != flags.end(); };
  std::vector<std::vector<bool>> choices;
  if (any(f.needs)) choices.push_back(f.needs);
  if (any(may) && may != f.needs) choices.push_back(may);
  return choices;
}

std::vector<Tensor> Tracer::function(autograd::TracedFunction& f) {
  auto needs = choices_of_needs(f);
  std::vector<Tensor> carried;  // what forward gave, as it gave it
  std::vector<Value*> made;
  for (size_t k = 0; k < f.outputs.size(); ++k) {
    if (!f.outputs[k].defined() || !f.carries[k]) continue;
    carried.push_back(handle(value_now(f.outputs[k])));
    auto& t = carried.back();
    made.push_back(graph_->add_value(t.sizes(), t.strides(), t.dtype(), t.device()));
  }
  if (needs.empty() || made.empty()) {
    if (f.attach) f.attach(f.outputs);
    return f.outputs;
  }
  op::Value args[] = {std::span<const Tensor>(f.at_entry), std::span<const Tensor>(carried),
                      std::span<const Tensor>()};
  Node& call = *graph_->add_node(operator_of({f.name, f.at_entry.size(), made.size()}), args, made);
  auto results = results_of(f, call, carried);
  take_gradients(f, call, needs, results);
  return results;
}

// What callers get: what forward gave, whose history is the call by now.
std::vector<Tensor> Tracer::results_of(autograd::TracedFunction& f, const Node& call,
                                       const std::vector<Tensor>& carried) {
  auto is_input = [&](const Tensor& t) {
    return std::any_of(f.inputs.begin(), f.inputs.end(), [&](auto& x) { return x.is_same(t); });
  };
  std::vector<Value*> memory;
  for (auto& t : f.outputs) memory.push_back(t.defined() ? first_of(value_now(t)) : nullptr);
  auto results = f.outputs;
  for (size_t k = 0, m = 0; k < results.size(); ++k) {
    Tensor& t = results[k];
    if (!t.defined()) continue;
    if (!f.carries[k]) {
      if (f.dirty[k] || !is_differentiable(t.dtype())) continue;
      Value* v = value_of(without_history(handle(value_now(t))));
      if (is_input(t) || !t.is_traced()) t = handle(v);
      else t.impl()->traced = v;
      continue;
    }
    Value* result = call.results[m];
    Value* given = value_of(carried[m++]);
    if (f.dirty[k]) {
      if (!t.is_traced()) t = handle(value_now(t));
      else t.impl()->traced = value_now(t);
      write(*call.op, t, handle(result), 0, true);
    } else {
      bool fresh = memory[k]->producer && memory[k]->producer->id >= int(f.begun) &&
                   std::count(memory.begin(), memory.end(), memory[k]) == 1;
      if (!fresh) aliases_[result] = given;
      if (is_input(t) || !t.is_traced() || t.requires_grad()) t = handle(result);
      else t.impl()->traced = result;
    }
    t.impl()->requires_grad |= std::find(f.needs.begin(), f.needs.end(), true) != f.needs.end();
  }
  return results;
}

// Traces backward, for each choice of what it may be asked for, and gives the call the operator that knows these.
void Tracer::take_gradients(autograd::TracedFunction& f, Node& call,
                            const std::vector<std::vector<bool>>& needs,
                            const std::vector<Tensor>& attached) {
  constexpr size_t kAllChoices = 3;  // of more results: all of them, and each alone
  size_t results = call.results.size();
  std::vector<std::vector<bool>> given{std::vector<bool>(results, true)};
  if (!f.materialize && results > 1) {
    for (size_t bits = 1; results <= kAllChoices && bits + 1 < size_t(1) << results; ++bits) {
      given.emplace_back();
      for (size_t k = 0; k < results; ++k) given.back().push_back(bits >> k & 1);
    }
    for (size_t k = 0; results > kAllChoices && k < results; ++k) {
      given.emplace_back(results);
      given.back()[k] = true;
    }
  }
  std::unordered_set<const Value*> saved;
  for (auto& t : f.attach(attached))
    if (t.defined()) saved.insert(value_now(t));
  std::vector<Value*> outputs;  // by result: an input that was written is what its memory holds
  for (size_t k = 0; k < attached.size(); ++k)
    if (attached[k].defined() && f.carries[k]) outputs.push_back(value_of(attached[k]));
  std::vector<Recorded> all;
  for (auto& n : needs)
    for (auto& g : given) all.push_back(record_backward(f, call, n, g));
  auto reads = reads_of(all, outputs);
  UserFunction made{f.name, f.at_entry.size(), results, reads.size(), f.materialize};
  for (auto& r : all) {
    if (r.gradient.refused.empty()) set_graph(r, reads, outputs, f.begun);
    made.gradients.push_back(std::move(r.gradient));
  }
  std::vector<Tensor> operands = call.args.tensors(), read;
  for (auto* v : reads) {
    supported_check(!v->producer || v->producer->id < call.id, f.name)
        << "has a backward that reads a view of an input that it writes" << hint("clone() the input");
    read.push_back(v->tensor);
    if (!saved.count(v) && !in_backward()) watched_.emplace_back(&call, v);
  }
  call.op = &operator_of(std::move(made));
  op::Value args[] = {std::span<const Tensor>(operands).first(f.at_entry.size()),
                      std::span<const Tensor>(operands).subspan(f.at_entry.size()),
                      std::span<const Tensor>(read)};
  call.args = op::Args(args, call.op->schema);
}

Tracer::Recorded Tracer::record_backward(autograd::TracedFunction& f, const Node& call,
                                         std::vector<bool> needs, std::vector<bool> given) {
  struct Region {
    Region(int& first, int begin) : of(first), outer(std::exchange(first, begin)) {}
    ~Region() { of = outer; }
    int &of, outer;
  };
  Recorded r{{std::move(needs), std::move(given), nullptr}};
  auto& nodes = graph_->nodes;
  size_t begin = nodes.size(), first = graph_->values().size();
  std::vector<Tensor> grads(f.outputs.size());
  for (size_t k = 0, m = 0; k < grads.size(); ++k) {
    if (!f.outputs[k].defined() || !f.carries[k]) continue;
    auto& t = call.results[m]->tensor;
    if (!r.gradient.given[m++]) continue;
    r.grads.push_back(graph_->add_value(t.sizes(), contiguous_strides(t.sizes()), t.dtype(), t.device()));
    grads[k] = handle(r.grads.back());
    grads[k].impl()->requires_grad = true;
  }
  try {
    Region dormant(dormant_, int(first));
    At here(call.place);
    op::Mode::With on(this);
    autograd::GradMode history(true);
    for (auto& t : f.backward(std::move(grads), r.gradient.needs))
      r.found.push_back(t.defined() ? value_now(t) : nullptr);
    internal_check(r.found.size() == f.at_entry.size()) << f.name;
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::internal || e.type() == ErrorType::KeyboardInterrupt) throw;
    r.gradient.refused = e.what();
    r.gradient.type = e.type();
  }
  for (size_t k = begin; k < nodes.size(); ++k) {
    if (nodes[k]->op->effects.draws) r.gradient.refused = "it draws random numbers";
    r.calls.push_back(std::move(nodes[k]));
  }
  nodes.resize(begin);
  gone_.resize(graph_->values().size());
  for (size_t k = first; k < gone_.size(); ++k) gone_[k] = !graph_->values()[k]->constant.defined();
  return r;
}

// What the backwards read that is there already.
std::vector<Value*> Tracer::reads_of(const std::vector<Recorded>& all, const std::vector<Value*>& results) {
  std::vector<Value*> reads;
  std::unordered_set<const Value*> known(results.begin(), results.end());
  for (auto& r : all) {
    if (!r.gradient.refused.empty()) continue;
    known.insert(r.grads.begin(), r.grads.end());
    auto read = [&](Value* v) {
      bool number = v && v->constant.defined() && v->constant.impl()->wrapped_number;
      if (v && !number && known.insert(v).second) reads.push_back(v);
    };
    for (auto& n : r.calls) {
      for (auto* v : operands(*n)) read(v);
      known.insert(n->results.begin(), n->results.end());
    }
    for (auto* v : r.found) read(v);
  }
  return reads;
}

void Tracer::set_graph(Recorded& r, const std::vector<Value*>& reads, const std::vector<Value*>& results,
                       size_t begun) {
  std::vector<Value*> inputs = reads;
  inputs.insert(inputs.end(), results.begin(), results.end());
  inputs.insert(inputs.end(), r.grads.begin(), r.grads.end());
  std::vector<InputSpec> specs;
  bool varies = false;
  for (auto* v : inputs) {
    specs.push_back(spec_of(v->tensor));
    varies |= any_symbolic(v->tensor.sizes());
  }
  for (auto& n : r.calls) n->args.each_size([&](SymInt& s) { varies |= s.is_symbolic(); });
  if (varies) {
    r.gradient.refused = "its sizes vary; trace without dynamic=True";
    r.gradient.type = ErrorType::NotImplementedError;
    return;
  }
  auto calls = [&](std::span<const Tensor> given) {
    std::unordered_map<const Value*, Tensor> at;
    for (size_t k = 0; k < given.size(); ++k) {
      auto* v = inputs[k];
      // What forward made on the way has no history.
      bool made = k < reads.size() && v->producer && v->producer->id >= int(begun);
      at[v] = made ? autograd::invoke("detach", {given[k]}) : given[k];
    }
    auto value = [&](Value* v) { return v->constant.defined() && !at.count(v) ? v->constant : at.at(v); };
    for (auto& n : r.calls) {
      op::Args args = n->args.clone();
      args.each_tensor([&](size_t, Tensor& t) {
        if (t.defined()) t = value(value_of(t));
      });
      auto results = op::call(*n->op, args.values());
      for (size_t k = 0; k < n->results.size(); ++k) at[n->results[k]] = results[k];
    }
    std::vector<Tensor> found;
    for (auto* v : r.found) found.push_back(v ? value(v) : Tensor());
    return found;
  };
  KeepRules keep;
  At nowhere({});
  auto made = std::make_shared<Graph>(traced(std::make_shared<sym::Shapes>(), specs, calls, nullptr));
  made->renumber();
  r.gradient.graph = std::move(made);
}

// Gradients of a user's function while it is traced: calls of the graph, and what becomes of gradient slots.
class Gradients final : public autograd::Tracing {
 public:
  Gradients(Tracer& t, Graph* g, std::vector<Tensor> arguments)
      : tracer_(t), graph_(g), arguments_(std::move(arguments)) {}
  ~Gradients() {
    for (auto& s : slots_)
      if (s.argument < 0) set_slot(s.leaf, s.before);
  }
  void enter(autograd::TracedFunction& call) override { tracer_.enter(call); }
  std::vector<Tensor> function(autograd::TracedFunction& call) override { return tracer_.function(call); }
  bool in_backward() const override { return tracer_.in_backward(); }
  void slot_is_read(const Tensor& leaf) override { slot_of(leaf, true); }
  void slot_changes(const Tensor& leaf) override { slot_of(leaf, false); }
  std::vector<Tensor> gradients(const char* op, std::span<const Tensor> outputs,
                                std::span<const Tensor> seeds, std::span<const Tensor> inputs,
                                bool create_graph) override {
    std::vector<Value*> wrt;
    for (auto& t : inputs) wrt.push_back(tracer_.value_now(t));
    auto found = gradients_of(op, outputs, seeds, wrt, create_graph);
    for (auto& t : found)
      if (t.defined() && create_graph) t.impl()->requires_grad = true;
    return found;
  }
  void backward(std::span<const Tensor> outputs, std::span<const Tensor> seeds,
                std::span<const Tensor> inputs, bool create_graph) override {
    supported_check(!create_graph, "backward")
        << "with create_graph=True is called while a function is traced, which fills .grad with numbers alone"
        << hint("use autograd.grad(..., create_graph=True)");
    supported_check(!in_backward(), "backward")
        << "is called in the backward of a custom function" << hint("use autograd.grad()");
    std::vector<Tensor> leaves(inputs.begin(), inputs.end());
    if (inputs.empty()) {
      for (auto& t : arguments_)
        if (t.requires_grad()) leaves.push_back(t);
      for (size_t k = 0; k < graph_->values().size(); ++k)
        if (auto& t = graph_->values()[k]->constant; t.defined() && t.requires_grad()) leaves.push_back(t);
    }
    std::vector<Value*> wrt;
    for (auto& t : leaves) wrt.push_back(leaf_value(t));
    auto found = gradients_of("backward", outputs, seeds, wrt, false);
    for (size_t k = 0; k < leaves.size(); ++k) {
      if (!found[k].defined()) continue;
      auto& leaf = leaves[k];
      runtime_check(autograd::is_leaf(leaf), "backward")
          << "reaches a tensor of shape " << to_string(leaf.sizes())
          << " that was computed outside of the traced function, where its gradients end"
          << hint("detach() it, or compute it inside");
      check_hooks(leaf);
      slot_of(leaf, true);
      Tensor slot = autograd::ensure_meta(leaf).grad;
      if (!slot.defined()) set_slot(leaf, found[k]);
      else autograd::add_(slot, found[k]);
    }
    differentiates_ = true;
  }

  // What the function left in the slots that it touched; values behind the outputs of the graph.
  void finish(Capture& c) {
    c.differentiates = differentiates_;
    for (auto& t : arguments_) c.required.push_back(t.requires_grad());
    for (auto& s : slots_) {
      const Tensor& leaf = s.argument < 0 ? s.leaf : arguments_[size_t(s.argument)];
      Tensor now = autograd::ensure_meta(leaf).grad;
      c.slots.push_back({s.argument, s.argument < 0 ? s.leaf : Tensor(), s.before, s.relied});
      if (now.defined() && now.is_traced()) {
        c.slots.back().output = int(graph_->outputs.size());
        graph_->outputs.push_back(tracer_.current(value_of(now)));
      } else {
        c.slots.back().after = now;
      }
    }
  }

 private:
  struct Slot {
    int argument;
    Tensor leaf, before;
    bool relied;
  };
  static void set_slot(const Tensor& leaf, const Tensor& grad) { autograd::ensure_meta(leaf).grad = grad; }

  // Notes what the slot held before the function touched it.
  void slot_of(const Tensor& leaf, bool reads) {
    int argument = -1;
    for (size_t i = 0; i < arguments_.size(); ++i)
      if (arguments_[i].is_same(leaf)) argument = int(i);
    if (argument < 0 && leaf.is_traced()) return;
    supported_check(!in_backward(), "backward")
        << "of a custom function looks at .grad" << hint("use autograd.grad()");
    auto [it, fresh] = slot_numbers_.try_emplace(leaf.impl(), slots_.size());
    if (!fresh) return;
    slots_.push_back({argument, leaf, autograd::ensure_meta(leaf).grad, reads});
  }

  // Gradients are those of the leaf, whatever was written to its memory meanwhile.
  Value* leaf_value(const Tensor& t) {
    for (size_t i = 0; i < arguments_.size(); ++i)
      if (arguments_[i].is_same(t)) return graph_->inputs[i];
    return tracer_.value_now(t);
  }

  static void check_hooks(const Tensor& leaf) {
    auto* m = autograd::meta_of(leaf);
    auto* sums = m ? static_cast<autograd::Accumulator*>(m->accumulator.get()) : nullptr;
    bool any = sums && (!sums->pre_hooks.empty() || !sums->post_hooks.empty() || !sums->after.empty());
    supported_check(!any, "backward") << "reaches a tensor of shape " << to_string(leaf.sizes())
                                      << " with hooks, which a traced function does not run"
                                      << hint("remove them, or compute with .grad behind backward()");
  }

  std::vector<Tensor> gradients_of(const char* op, std::span<const Tensor> outputs,
                                   std::span<const Tensor> seeds, std::span<Value* const> wrt,
                                   bool create_graph) {
    op::Mode::With on(&tracer_);
    Tracer::Inside here(&tracer_);
    At::next_phase();
    At outside({At::now().phase, 0});
    std::vector<Value*> roots;
    for (auto& t : outputs) roots.push_back(tracer_.value_now(t));
    size_t nodes = graph_->nodes.size(), values = graph_->values().size();
    std::vector<bool> active(values);
    for (auto* v : wrt) active[size_t(v->id)] = is_differentiable(v->tensor.dtype());
    spread_activity(*graph_, nodes, active);
    std::vector<Tensor> grads(values);
    for (size_t k = 0; k < roots.size(); ++k) {
      runtime_check(active[size_t(roots[k]->id)], op)
          << "element " << k << " of tensors does not require grad and does not have a grad_fn";
      auto& into = grads[size_t(roots[k]->id)];
      into = into.defined() ? autograd::add(into, seeds[k]) : handle(tracer_.value_now(seeds[k]));
    }
    auto outdated = tracer_.outdated();
    Tracer::Frozen then(&tracer_);  // what the calls read
    propagate_back(*graph_, nodes, active, grads, [](Value* v) { return handle(v); });
    for (auto* n : outdated)
      for (auto* v : n->results)
        if (grads[size_t(v->id)].defined()) Tracer::check_outdated(*n);
    std::vector<Tensor> found;
    for (auto* v : wrt) {
      auto& g = grads[size_t(v->id)];
      found.push_back(!g.defined() ? g : create_graph ? g : tracer_.without_history(g));
    }
    return found;
  }

  Tracer& tracer_;
  Graph* graph_;
  std::vector<Tensor> arguments_;  // handles of the function's inputs
  std::vector<Slot> slots_;
  std::unordered_map<const TensorImpl*, size_t> slot_numbers_;
  bool differentiates_ = false;
};

// What leaves a checkpoint is kept: only what is read inside of it alone, and by backward passes, is computed again.
// Numbers are in order, from one.
void close_checkpoints(Graph& g) {
  auto leaves = [](Value* v, int to) {
    if (v && v->producer && v->producer->place.checkpoint != to) v->producer->place.checkpoint = 0;
  };
  for (auto* v : g.outputs) leaves(v, 0);
  for (auto& [i, v] : g.mutated) leaves(v, 0);
  for (auto& n : g.nodes)
    if (n->place.phase == 0)
      for (auto* v : operands(*n)) leaves(v, n->place.checkpoint);
  std::unordered_map<int, int> numbers{{0, 0}};
  for (auto& n : g.nodes)
    n->place.checkpoint = numbers.try_emplace(n->place.checkpoint, int(numbers.size())).first->second;
}

Graph traced(std::shared_ptr<sym::Shapes> shapes, std::span<const InputSpec> inputs, const Function& f,
             Capture* capture) {
  Graph g;
  g.shapes = shapes;
  std::vector<Tensor> given;
  for (auto& spec : inputs) {
    auto* v =
        g.add_value(spec.sizes,
                    spec.strides.size() == spec.sizes.size() ? spec.strides : contiguous_strides(spec.sizes),
                    spec.dtype);
    v->tensor.impl()->wrapped_number = spec.number;
    g.inputs.push_back(v);
    given.push_back(handle(v));
    given.back().impl()->requires_grad = spec.requires_grad;
  }
  Tracer tracer(&g, capture);
  At first({});
  sym::Shapes::With symbols(*shapes);
  op::Mode::With on(&tracer);
  std::optional<Gradients> gradients;
  if (capture) gradients.emplace(tracer, &g, given);
  autograd::Tracing::With tape(gradients ? &*gradients : autograd::Tracing::current());
  for (auto& t : f(given)) {
    auto* v = !t.defined() ? nullptr : t.is_traced() ? value_of(t) : tracer.constant(t);
    g.outputs.push_back(v ? tracer.current(v) : nullptr);
  }
  if (capture) {
    capture->results = g.outputs.size();
    gradients->finish(*capture);
    for (size_t k = 0; k < g.values().size(); ++k) {
      auto* v = g.values()[k].get();
      if (!v->constant.defined() || v->constant.impl()->wrapped_number) continue;
      capture->captured.push_back(std::exchange(v->constant, Tensor()));
      g.inputs.push_back(v);
    }
  }
  for (size_t i = 0; i < g.inputs.size(); ++i) {
    Value* now = tracer.current(g.inputs[i]);
    if (now == g.inputs[i] && i < given.size()) now = value_of(given[i]);
    if (now != g.inputs[i]) g.mutated.push_back({int(i), now});
  }
  auto outdated = capture && !capture->differentiates ? tracer.outdated() : std::vector<const Node*>();
  remove_dead(g);
  for (auto* n : outdated)
    for (auto& alive : g.nodes)
      if (alive.get() == n) Tracer::check_outdated(*n);
  if (capture) close_checkpoints(g);
  if (settings().verify) verify(g);
  return g;
}

}  // namespace

KeepRules::KeepRules(Which which) : outer_(std::exchange(keep_rules, which)) {}
KeepRules::~KeepRules() { keep_rules = outer_; }

Graph trace(std::shared_ptr<sym::Shapes> shapes, std::span<const InputSpec> inputs, const Function& f,
            const char*) {
  KeepRules off(KeepRules::none);
  return traced(std::move(shapes), inputs, f, nullptr);
}

Capture capture(std::shared_ptr<sym::Shapes> shapes, std::span<const InputSpec> inputs, const Function& f,
                const char* name) {
  Capture c;
  KeepRules keep;
  c.graph = traced(std::move(shapes), inputs, f, &c);
  c.graph.renumber();
  // A write to memory that is known by two names would have to be seen under both.
  for (auto& [i, v] : c.graph.mutated) {
    if (size_t(i) < inputs.size()) continue;
    auto& written = c.captured[size_t(i) - inputs.size()];
    for (auto& other : c.captured)
      runtime_check(other.is_same(written) || other.impl()->storage != written.impl()->storage, name)
          << "writes to a captured tensor of shape " << to_string(written.sizes())
          << " whose memory it also reads as another tensor, of shape " << to_string(other.sizes())
          << hint("make the view inside of the function");
  }
  return c;
}

void write_back(const Graph& g, std::span<const Tensor> given, std::span<const Tensor> written,
                std::vector<Tensor>& outputs) {
  for (size_t k = 0; k < written.size(); ++k) {
    auto* input = given[size_t(g.mutated[k].first)].impl();
    for (auto& t : outputs)
      if (t.defined() && t.impl() == input) t = handle(value_of(t));
  }
  for (size_t k = 0; k < written.size(); ++k)
    given[size_t(g.mutated[k].first)].impl()->traced = value_of(written[k]);
}

Graph expanded(const Graph& g, std::shared_ptr<sym::Shapes> shapes) {
  std::vector<InputSpec> specs;
  for (auto* v : g.inputs) specs.push_back(spec_of(v->tensor));
  auto calls = [&](std::span<const Tensor> given) {
    auto outputs = interpret(g, given, {}, true);
    std::vector<Tensor> written(outputs.end() - std::ptrdiff_t(g.mutated.size()), outputs.end());
    outputs.resize(g.outputs.size());
    write_back(g, given, written, outputs);
    return outputs;
  };
  Graph made = trace(std::move(shapes), specs, calls, "expanded");
  made.results = g.results;
  return made;
}

}  // namespace facula::graph
