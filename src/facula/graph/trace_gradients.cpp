#include "facula/graph/trace_gradients.h"

#include <algorithm>
#include <map>
#include <unordered_set>

#include "facula/autograd/accumulate.h"
#include "facula/graph/history.h"
#include "facula/graph/passes.h"
#include "facula/sym/run_time.h"

namespace facula::graph {

namespace {

// The hooks of a traced tensor. The trace calls them with the gradient of the value.
class ValueHooks final : public autograd::Node {
 public:
  ValueHooks() : Node(1) {}
  std::vector<Tensor> apply(std::vector<Tensor>, bool) override { return {}; }
  std::string own_name() const override { return "TracedValue"; }
};

const autograd::Accumulator* accumulator_of(const Tensor& leaf) {
  auto* m = leaf.is_traced() ? nullptr : autograd::meta_of(leaf);
  return m ? static_cast<const autograd::Accumulator*>(m->accumulator.get()) : nullptr;
}

}  // namespace

// One backward pass: calls hooks and fills retained gradients on the way.
class Gradients::Pass final : public BackwardObserver {
 public:
  Pass(Gradients& owner, std::vector<Tensor>& grads, bool create_graph, const Tracer::SameLine& line)
      : owner_(owner), tracer_(owner.tracer_), grads_(grads), create_graph_(create_graph), line_(line) {
    for (auto& r : owner.retained_)
      if (Value* v = tracer_.current(value_of(r.tensor)); size_t(v->id) < grads.size())
        retained_[v].push_back(r.into.get());
  }

  // Calls f(k) as soon as the gradient of wrt[k] is complete.
  void watch(std::span<Value* const> wrt, size_t nodes, std::function<void(size_t)> f) {
    ready_ = std::move(f);
    std::unordered_map<const Value*, std::vector<size_t>> waiting;
    for (size_t k = 0; k < wrt.size(); ++k) waiting[wrt[k]].push_back(k);
    for (size_t i = 0; i < nodes && !waiting.empty(); ++i)
      each_operand(*owner_.graph_->nodes[i], [&](Value* v) {
        auto it = waiting.find(v);
        if (it == waiting.end() || v->producer) return;
        auto& all = complete_after_[owner_.graph_->nodes[i].get()];
        all.insert(all.end(), it->second.begin(), it->second.end());
        waiting.erase(it);
      });
    for (auto& [v, all] : waiting) last_.insert(last_.end(), all.begin(), all.end());
    std::sort(last_.begin(), last_.end());
    wrt_.assign(wrt.begin(), wrt.end());
  }
  void finish() { complete(last_); }

  Tensor tensor(Value* v) override { return handle(v); }
  void before(const Node& n) override {
    tracer_.continue_line(n, line_);
    for (auto* r : n.results) arrive(r);
  }
  void after(const Node& n) override {
    auto it = complete_after_.find(&n);
    if (it != complete_after_.end()) complete(it->second);
  }
  // Packs and unpacks the value that the gradient formula reads, if saved-tensor hooks were active at the call.
  Tensor read(const Node& n, Value* v, Tensor t) override {
    auto* pack = tracer_.pack_of(n);
    if (!pack || (v->constant.defined() && v->constant.impl()->wrapped_number)) return t;
    auto [it, fresh] = unpacked_.try_emplace({&n, v});
    if (!fresh) return it->second;
    Tensor saved = v->constant.defined() ? v->constant : t;
    if (tracer_.is_written(v)) saved = autograd::invoke("clone", {t});
    Tracer::Outside user(&tracer_);
    Ref<autograd::Packed> packed;
    {
      autograd::GradMode off(false);
      packed = (*pack)(saved);
    }
    autograd::GradMode mode(create_graph_);
    Tensor u = packed->get();
    bool same = u.dtype() == t.dtype() && u.dim() == t.dim() &&
                std::equal(u.sizes().begin(), u.sizes().end(), t.sizes().begin());
    runtime_check(same, "saved_tensors_hooks")
        << "the unpack hook must give a tensor like the one that was packed for " << n.op->name() << ", "
        << t.dtype() << " " << to_string(t.sizes()) << ", not " << u.dtype() << " " << to_string(u.sizes());
    Value* value = tracer_.current_value(u);
    u = create_graph_ ? tracer_.with_history_of(t, handle(value)) : handle(value);
    return it->second = u;
  }

 private:
  // The gradient of v is complete: calls the hooks of v, then retains it.
  void arrive(Value* v) {
    if (size_t(v->id) >= grads_.size()) return;
    Tensor& g = grads_[size_t(v->id)];
    if (!g.defined()) return;
    auto hooks = owner_.hooks_.find(v);
    if (hooks != owner_.hooks_.end()) call(hooks->second->pre_hooks, g);
    if (v->constant.defined())
      if (auto* sums = accumulator_of(v->constant)) call(sums->pre_hooks, g);
    auto retained = retained_.find(v);
    if (retained == retained_.end()) return;
    for (auto* r : retained->second)
      r->grad = r->grad.defined() ? autograd::add(r->grad, g) : autograd::invoke("clone", {g});
  }
  void call(const std::vector<autograd::PreHook>& hooks, Tensor& g) {
    Tracer::Outside user(&tracer_);
    autograd::GradMode mode(create_graph_);
    for (size_t k = 0; k < hooks.size(); ++k) {
      auto hook = hooks[k];  // a hook may remove itself
      std::vector<Tensor> grads{g};
      hook.run(grads);
      owner_.mark_referenced(g);
      g = grads[0];
      owner_.mark_referenced(g);
      if (g.defined()) g = handle(tracer_.current_value(g));
    }
  }
  void complete(const std::vector<size_t>& numbers) {
    for (size_t k : numbers) {
      if (!wrt_[k]->producer) arrive(wrt_[k]);
      if (ready_) ready_(k);
    }
  }

  Gradients& owner_;
  Tracer& tracer_;
  std::vector<Tensor>& grads_;
  bool create_graph_;
  const Tracer::SameLine& line_;
  std::function<void(size_t)> ready_;
  std::vector<Value*> wrt_;
  std::unordered_map<const Node*, std::vector<size_t>> complete_after_;
  std::vector<size_t> last_;
  std::unordered_map<const Value*, std::vector<autograd::RetainedGrad*>> retained_;
  std::map<std::pair<const Node*, const Value*>, Tensor> unpacked_;
};

std::vector<Tensor> Gradients::gradients(const char* op, std::span<const Tensor> outputs,
                                         std::span<const Tensor> seeds, std::span<const Tensor> inputs,
                                         bool create_graph) {
  std::vector<Value*> wrt;
  for (auto& t : inputs) wrt.push_back(tracer_.recorded_value(t));
  check_histories(op, outputs, wrt);
  auto gradients = gradients_of(op, outputs, seeds, wrt, create_graph);
  std::vector<bool> differentiable;
  if (create_graph) differentiable = depend_on_leaves();
  for (auto& t : gradients) {
    if (!t.defined()) continue;
    t.impl()->requires_grad |= create_graph && differentiable[size_t(value_of(t)->id)];
    tracer_.keep(t);
  }
  return gradients;
}

std::vector<Value*> Gradients::roots_of(std::span<const Tensor> outputs) const {
  std::vector<Value*> roots;
  for (auto& t : outputs) roots.push_back(tracer_.recorded_value(t));
  return roots;
}

// Refuses passes that would go on, to the tensors of `wrt`, through the history of a tensor from outside.
void Gradients::check_histories(const char* op, std::span<const Tensor> outputs,
                                std::span<Value* const> wrt) {
  each_in_history(roots_of(outputs), [&](Value* v) {
    bool ends = std::ranges::find(wrt, v) != wrt.end();
    auto& t = v->constant;
    trace_runtime_check(!t.defined() || t.is_traced() || autograd::is_leaf(t) || (ends && wrt.size() == 1),
                        outside_history, op)
        << "reaches a tensor of shape " << to_string(t.sizes())
        << " that was computed outside of the traced function, where its gradients end"
        << hint("detach() it, or compute it inside");
    return !ends;
  });
}

void Gradients::spend(std::span<const Tensor> outputs) {
  each_in_history(roots_of(outputs), [&](Value* v) { return call_behind(v) && spent_.insert(v).second; });
}

bool Gradients::has_history_left(Value* v, const std::vector<bool>& depends) const {
  auto is_active = [&](const Value* x) {
    return x && size_t(x->id) < depends.size() && depends[size_t(x->id)];
  };
  bool is_spent = false, reaches_leaf = false;
  each_in_history({v}, [&](Value* at) {
    is_spent = is_spent || (is_active(at) && spent_.count(at) > 0);
    if (is_spent || !is_active(at)) return false;
    auto* call = call_behind(at);
    reaches_leaf |= !call || std::ranges::none_of(operands(*call), is_active);
    return true;
  });
  return reaches_leaf && !is_spent;
}

std::vector<bool> Gradients::depend_on_leaves() const {
  std::vector<bool> depends(graph_->values().size());
  for (auto& leaf : leaves()) depends[size_t(leaf_value(leaf)->id)] = is_differentiable(leaf.dtype());
  spread_activity(*graph_, graph_->nodes.size(), depends);
  return depends;
}

std::vector<Tensor> Gradients::leaves() const {
  std::vector<Tensor> leaves;
  for (size_t i = 0; i < arguments_.size(); ++i)
    if (required_[i]) leaves.push_back(arguments_[i]);
  for (size_t k = 0; k < graph_->values().size(); ++k)
    if (auto& t = graph_->values()[k]->constant; t.defined() && t.requires_grad()) leaves.push_back(t);
  for (auto& [t, v] : own_leaves_) leaves.push_back(t);
  return leaves;
}

void Gradients::check_leaf(const Tensor& leaf) const {
  trace_runtime_check(autograd::is_leaf(leaf), outside_history, "backward")
      << "reaches a tensor of shape " << to_string(leaf.sizes())
      << " that was computed outside of the traced function, where its gradients end"
      << hint("detach() it, or compute it inside");
}

// Hooks of tensors and hooks after accumulation are called in turn, which two passes over the leaves do not keep.
void Gradients::check_order(std::span<Value* const> wrt) const {
  bool inner = tracer_.packs(), last = false;
  for (auto& [v, node] : hooks_) inner |= !node->pre_hooks.empty();
  for (auto* v : wrt) {
    auto* sums = v->constant.defined() ? accumulator_of(v->constant) : nullptr;
    if (!sums) continue;
    inner |= !sums->pre_hooks.empty();
    last |= !sums->post_hooks.empty() || !sums->after.empty();
  }
  trace_check(!(inner && last), hooks, "backward")
      << "calls hooks of tensors and hooks after the accumulation of gradients in turn";
}

void Gradients::mark_referenced(const Tensor& gradient) {
  if (gradient.defined() && gradient.impl()->py_object)
    referred_.insert(tracer_.first_of(tracer_.current_value(gradient)));
}

bool Gradients::takes_memory_of(const Tensor& gradient) {
  if (!gradient.is_non_overlapping_and_dense()) return false;
  Value* memory = tracer_.first_of(tracer_.current_value(gradient));
  bool is_of_pass = memory->producer && memory->producer->id >= int(pass_begin_);
  return is_of_pass && referred_.insert(memory).second;
}

void Gradients::accumulate(const Tensor& leaf, const Tensor& gradient) {
  slot_of(leaf, true);
  Tracer::Outside user(&tracer_);
  Tensor slot = autograd::ensure_meta(leaf).grad;
  if (slot.defined()) {
    autograd::add_(slot, gradient);
  } else {
    Tensor own = takes_memory_of(gradient) ? gradient : autograd::invoke("clone", {gradient});
    set_slot(leaf, own);
    tracer_.keep(own);
  }
  auto* sums = accumulator_of(leaf);
  if (!sums) return;
  autograd::GradMode off(false);
  for (size_t k = 0; k < sums->after.size(); ++k) {
    auto hook = sums->after[k];  // a hook may remove itself
    hook.run(leaf);
  }
  for (size_t k = 0; k < sums->post_hooks.size(); ++k) {
    auto hook = sums->post_hooks[k];
    std::vector<Tensor> none, grads{gradient};
    hook.run(none, grads);
  }
}

void Gradients::backward(std::span<const Tensor> outputs, std::span<const Tensor> seeds,
                         std::span<const Tensor> inputs, bool retain_graph, bool create_graph) {
  trace_check(!create_graph, gradients, "backward")
      << "with create_graph=True is called while a function is traced, which fills .grad with numbers alone"
      << hint("use autograd.grad(..., create_graph=True)");
  trace_check(!in_backward(), custom_function, "backward")
      << "is called in the backward of a custom function" << hint("use autograd.grad()");
  auto all = inputs.empty() ? leaves() : std::vector<Tensor>(inputs.begin(), inputs.end());
  std::vector<Value*> wrt;
  for (auto& t : all) wrt.push_back(leaf_value(t));
  if (fills_last_) check_order(wrt);
  std::vector<std::pair<size_t, Tensor>> complete;
  std::vector<Tensor> retained;
  for (auto& r : retained_) retained.push_back(r.into->grad);
  bool differentiated = std::exchange(differentiates_, true);
  is_passing_ = fills_last_;
  pass_begin_ = graph_->nodes.size();
  try {
    gradients_of("backward", outputs, seeds, wrt, false, [&](size_t k, Tensor g) {
      check_leaf(all[k]);
      if (fills_last_) complete.emplace_back(k, std::move(g));
      else accumulate(all[k], g);
    });
  } catch (...) {
    is_passing_ = false;
    for (size_t k = 0; k < retained.size(); ++k) retained_[k].into->grad = retained[k];
    if (fills_last_) differentiates_ = differentiated;
    throw;
  }
  is_passing_ = false;
  for (auto& [k, g] : complete) accumulate(all[k], g);
  if (inputs.empty() && !retain_graph) spend(outputs);
}

bool Gradients::has_changed_slot(const Tensor& leaf) const {
  auto it = slot_numbers_.find(leaf.impl());
  if (it == slot_numbers_.end()) return false;
  auto& slot = slots_[it->second];
  Tensor now = autograd::ensure_meta(leaf).grad;
  return !slot.relied || now.defined() != slot.before.defined() ||
         (now.defined() && !now.is_same(slot.before));
}

std::vector<Gradients::Filled> Gradients::filled() const {
  std::vector<Filled> all;
  for (auto& s : slots_)
    if (Tensor now = autograd::ensure_meta(s.leaf).grad; s.argument < 0 && now.defined() && now.is_traced())
      all.push_back({s.leaf, now});
  return all;
}

std::vector<Gradients::Used> Gradients::used() const {
  std::vector<Used> all;
  for (auto& s : slots_)
    if (s.argument < 0) all.push_back({s.leaf, s.before, s.relied});
  return all;
}

void Gradients::finish(Capture& c, const InputNumbers& outside) {
  c.differentiates = differentiates_;
  c.required = required_;
  auto number_of = [&](const Tensor& t) {
    auto it = t.defined() ? outside.find(t.impl()) : outside.end();
    return it == outside.end() ? -1 : it->second;
  };
  for (auto& s : slots_) {
    const Tensor& leaf = s.argument < 0 ? s.leaf : arguments_[size_t(s.argument)];
    Tensor now = autograd::ensure_meta(leaf).grad;
    int input = s.argument >= 0 ? s.argument : number_of(s.leaf);
    c.slots.push_back({input, input < 0 ? s.leaf : Tensor(), s.relied ? s.before : Tensor(), s.relied});
    c.slots.back().hooks = s.hooks;
    c.slots.back().changes_late = s.is_late;
    c.slots.back().before_input = number_of(c.slots.back().before);
    if (now.defined() && tracer_.is_own(now)) {
      c.slots.back().output = int(graph_->outputs.size());
      graph_->outputs.push_back(tracer_.current(value_of(now)));
    } else if (c.slots.back().before_input >= 0 && now.defined() && now.is_same(s.before)) {
      c.slots.back().before = {};  // not held: each call has its own
    } else {
      c.slots.back().after = now;
    }
  }
}

int Gradients::argument_of(const Tensor& t) const {
  for (size_t i = 0; i < arguments_.size(); ++i)
    if (arguments_[i].is_same(t)) return int(i);
  return -1;
}

void Gradients::slot_of(const Tensor& leaf, bool reads) {
  int argument = argument_of(leaf);
  if (argument < 0 && leaf.is_traced()) return;
  trace_check(!in_backward(), custom_function, "backward")
      << "of a custom function looks at .grad" << hint("use autograd.grad()");
  trace_check(!is_passing_, hooks, "backward") << "calls a hook that looks at .grad of another tensor";
  auto [it, fresh] = slot_numbers_.try_emplace(leaf.impl(), slots_.size());
  if (!fresh) return;
  slots_.push_back({argument, leaf, autograd::ensure_meta(leaf).grad, reads,
                    argument < 0 ? autograd::hooks_digest(leaf) : 0, may_refuse_before_now()});
}

// Whether one of the calls so far may raise an error about elements.
bool Gradients::may_refuse_before_now() {
  for (; examined_ < graph_->nodes.size() && !may_refuse_; ++examined_)
    may_refuse_ = may_refuse(*graph_->nodes[examined_]);
  return may_refuse_;
}

Value* Gradients::leaf_value(const Tensor& t) const {
  if (int i = argument_of(t); i >= 0) return graph_->inputs[size_t(i)];
  for (auto& [leaf, v] : own_leaves_)
    if (leaf.is_same(t)) return v;
  return tracer_.recorded_value(t);
}

// ---- hooks and leaves of traced tensors

Ref<autograd::Node> Gradients::hooks_of(const Tensor& t) {
  trace_check(!in_backward(), custom_function, "register_hook")
      << "is called in the backward of a custom function" << hint("compute with the gradient there");
  auto& hooks = hooks_[is_leaf(t) ? leaf_value(t) : tracer_.current_value(t)];
  if (!hooks) hooks = make_ref<ValueHooks>();
  return hooks;
}

void Gradients::retain_grad(const Tensor& t) {
  auto& m = autograd::ensure_meta(t);
  if (is_leaf(t) || m.retained) return;
  m.retained = make_ref<autograd::RetainedGrad>();
  retained_.push_back({t, m.retained});
}

bool Gradients::is_leaf(const Tensor& t) const {
  if (!t.impl()->requires_grad || in_backward()) return true;
  int i = argument_of(t);
  return i >= 0 ? bool(required_[size_t(i)])
                : std::ranges::any_of(own_leaves_, [&](auto& leaf) { return leaf.first.is_same(t); });
}

void Gradients::becomes_leaf(const Tensor& t) {
  if (in_backward()) return;  // the gradients there are recorded as a graph of their own
  trace_check(!tracer_.keeps_handles(), gradients, "requires_grad_")
      << "makes a leaf of a tensor that a trace computes" << hint("detach() it outside of the trace");
  if (t.impl()->requires_grad) std::erase_if(own_leaves_, [&](auto& leaf) { return leaf.first.is_same(t); });
  else own_leaves_.emplace_back(t, tracer_.current_value(t));
}

void Gradients::check_results(std::span<const Tensor> results) const {
  bool any =
      std::ranges::any_of(results, [](auto& t) { return t.defined() && t.is_traced() && t.requires_grad(); });
  if (!any || differentiates_) return;
  check_saved("backward", results);
  bool hooked = std::ranges::any_of(hooks_, [](auto& h) { return !h.second->pre_hooks.empty(); });
  trace_check(!hooked, hooks, "register_hook")
      << "is called on a tensor that a traced function computes, and the gradients of its results would pass "
         "through it outside of the trace"
      << hint("trace the backward pass with the forward pass");
  trace_check(!tracer_.packs(), hooks, "saved_tensors_hooks")
      << "is active in a traced function whose gradients are computed outside of the trace"
      << hint("trace the backward pass with the forward pass, or use the hooks around the call");
  trace_check(retained_.empty(), hooks, "retain_grad")
      << "is called on a tensor that a traced function computes, whose gradient is computed outside of the trace"
      << hint("trace the backward pass with the forward pass");
}

void Gradients::check_histories_spent(std::span<const Tensor> results) const {
  if (!differentiates_) return;
  auto depends = depend_on_leaves();
  for (auto& t : results)
    trace_check(!t.defined() || !t.is_traced() || !t.requires_grad() ||
                    !has_history_left(tracer_.recorded_value(t), depends),
                outside_history, "backward")
        << "is called in a traced function that also gives a tensor of shape " << to_string(t.sizes())
        << " with another history, whose gradients a later pass may compute"
        << hint("detach() it if no gradients are needed");
}

// ---- passes

std::vector<Tensor> Gradients::gradients_of(const char* op, std::span<const Tensor> outputs,
                                            std::span<const Tensor> seeds, std::span<Value* const> wrt,
                                            bool create_graph,
                                            const std::function<void(size_t, Tensor)>& ready) {
  check_saved(op, outputs);
  op::Mode::With on(&tracer_);
  Tracer::Inside here(&tracer_);
  Tracer::SameLine line(&tracer_);
  At::next_phase();
  At outside({At::now().phase, 0});
  std::vector<Value*> roots;
  for (auto& t : outputs) roots.push_back(tracer_.recorded_value(t));
  size_t nodes = graph_->nodes.size(), values = graph_->values().size();
  std::vector<bool> active(values);
  for (auto* v : wrt) active[size_t(v->id)] = is_differentiable(v->tensor.dtype());
  spread_activity(*graph_, nodes, active);
  std::vector<Tensor> grads(values);
  for (size_t k = 0; k < roots.size(); ++k) {
    runtime_check(active[size_t(roots[k]->id)] || outputs[k].requires_grad(), op)
        << "element " << k << " of tensors does not require grad and does not have a grad_fn";
    if (!active[size_t(roots[k]->id)]) continue;  // it depends on leaves outside of `wrt`
    auto& into = grads[size_t(roots[k]->id)];
    into = into.defined() ? autograd::add(into, seeds[k]) : handle(tracer_.recorded_value(seeds[k]));
  }
  auto outdated = tracer_.outdated();
  std::vector<Tensor> gradients(wrt.size());
  Pass pass(*this, grads, create_graph, line);
  pass.watch(wrt, nodes, [&](size_t k) {
    auto g = grads[size_t(wrt[k]->id)];
    if (!g.defined()) return;
    gradients[k] = create_graph ? g : tracer_.without_history(g);
    if (ready) ready(k, gradients[k]);
  });
  {
    Tracer::Frozen then(&tracer_);  // the calls read values of the time of backward()
    // Formulas assume sizes of 2 or more; the resulting shapes are checked when the sizes are known.
    sym::Comparing comparing(op, sym::Comparing::assumes);
    propagate_back(*graph_, nodes, active, grads, pass);
  }
  pass.finish();
  for (auto* n : outdated)
    for (auto* v : n->results)
      if (grads[size_t(v->id)].defined()) Tracer::check_outdated(*n);
  return gradients;
}

}  // namespace facula::graph
