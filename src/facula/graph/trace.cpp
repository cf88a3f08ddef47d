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
thread_local bool keep_rules = false;

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
    if (v->id < frozen_) return v;
    auto it = memory_.find(base_of(v));
    return it == memory_.end() || it->second->now == it->first ? v
                                                               : seen_through(v, it->first, it->second->now);
  }

 private:
  struct Memory {
    Value* now;
  };
  Results inlined(const Operator& o, std::span<const op::Value> values) {
    if (o.vjp && keep_rules && o.calls())
      if (auto node = one_node(o, values)) return *node;
    Inside here(this);
    KeepRules within(keep_rules && !o.is<op::Composite>());
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
      KeepRules off(false);
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
    if (!memory) memory = std::make_shared<Memory>();
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
  int depth_ = 0;   // of calls that are made for a call of the function
  int frozen_ = 0;  // values with smaller numbers stand for themselves
  std::unordered_map<const TensorImpl*, Value*> constants_;
  std::unordered_map<Value*, std::shared_ptr<Memory>>
      memory_;  // written ones, by every value that was their base
};

// Gradients of a user's function while it is traced: calls of the graph, and what becomes of gradient slots.
class Gradients final : public autograd::Tracing {
 public:
  Gradients(Tracer& t, Graph* g, std::vector<Tensor> arguments)
      : tracer_(t), graph_(g), arguments_(std::move(arguments)) {}
  ~Gradients() {
    for (auto& s : slots_)
      if (s.argument < 0) set_slot(s.leaf, s.before);
  }
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
    Tracer::Frozen then(&tracer_);  // what the calls read
    propagate_back(*graph_, nodes, active, grads, [](Value* v) { return handle(v); });
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
  remove_dead(g);
  if (capture) close_checkpoints(g);
  if (settings().verify) verify(g);
  return g;
}

}  // namespace

KeepRules::KeepRules(bool keep) : outer_(std::exchange(keep_rules, keep)) {}
KeepRules::~KeepRules() { keep_rules = outer_; }

Graph trace(std::shared_ptr<sym::Shapes> shapes, std::span<const InputSpec> inputs, const Function& f,
            const char*) {
  KeepRules off(false);
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
  return trace(std::move(shapes), specs, calls, "expanded");
}

}  // namespace facula::graph
