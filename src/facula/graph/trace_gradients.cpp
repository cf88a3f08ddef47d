#include "facula/graph/trace_gradients.h"

#include "facula/autograd/accumulate.h"
#include "facula/graph/passes.h"
#include "facula/sym/run_time.h"

namespace facula::graph {

std::vector<Tensor> Gradients::gradients(const char* op, std::span<const Tensor> outputs,
                                         std::span<const Tensor> seeds, std::span<const Tensor> inputs,
                                         bool create_graph) {
  std::vector<Value*> wrt;
  for (auto& t : inputs) wrt.push_back(tracer_.recorded_value(t));
  auto gradients = gradients_of(op, outputs, seeds, wrt, create_graph);
  for (auto& t : gradients)
    if (t.defined() && create_graph) t.impl()->requires_grad = true;
  return gradients;
}

void Gradients::backward(std::span<const Tensor> outputs, std::span<const Tensor> seeds,
                         std::span<const Tensor> inputs, bool create_graph) {
  supported_check(!create_graph, "backward")
      << "with create_graph=True is called while a function is traced, which fills .grad with numbers alone"
      << hint("use autograd.grad(..., create_graph=True)");
  supported_check(!in_backward(), "backward")
      << "is called in the backward of a custom function" << hint("use autograd.grad()");
  std::vector<Tensor> leaves(inputs.begin(), inputs.end());
  if (inputs.empty()) {
    for (size_t i = 0; i < arguments_.size(); ++i)
      if (required_[i]) leaves.push_back(arguments_[i]);
    for (size_t k = 0; k < graph_->values().size(); ++k)
      if (auto& t = graph_->values()[k]->constant; t.defined() && t.requires_grad()) leaves.push_back(t);
  }
  std::vector<Value*> wrt;
  for (auto& t : leaves) wrt.push_back(leaf_value(t));
  auto gradients = gradients_of("backward", outputs, seeds, wrt, false);
  for (size_t k = 0; k < leaves.size(); ++k) {
    if (!gradients[k].defined()) continue;
    auto& leaf = leaves[k];
    runtime_check(autograd::is_leaf(leaf), "backward")
        << "reaches a tensor of shape " << to_string(leaf.sizes())
        << " that was computed outside of the traced function, where its gradients end"
        << hint("detach() it, or compute it inside");
    check_hooks(leaf);
    slot_of(leaf, true);
    Tensor slot = autograd::ensure_meta(leaf).grad;
    if (!slot.defined()) set_slot(leaf, gradients[k]);
    else autograd::add_(slot, gradients[k]);
  }
  differentiates_ = true;
}

void Gradients::finish(Capture& c) {
  c.differentiates = differentiates_;
  c.required = required_;
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

void Gradients::slot_of(const Tensor& leaf, bool reads) {
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

Value* Gradients::leaf_value(const Tensor& t) {
  for (size_t i = 0; i < arguments_.size(); ++i)
    if (arguments_[i].is_same(t)) return graph_->inputs[i];
  return tracer_.recorded_value(t);
}

void Gradients::check_hooks(const Tensor& leaf) {
  auto* m = autograd::meta_of(leaf);
  auto* sums = m ? static_cast<autograd::Accumulator*>(m->accumulator.get()) : nullptr;
  bool any = sums && (!sums->pre_hooks.empty() || !sums->post_hooks.empty() || !sums->after.empty());
  supported_check(!any, "backward") << "reaches a tensor of shape " << to_string(leaf.sizes())
                                    << " with hooks, which a traced function does not run"
                                    << hint("remove them, or compute with .grad behind backward()");
}

std::vector<Tensor> Gradients::gradients_of(const char* op, std::span<const Tensor> outputs,
                                            std::span<const Tensor> seeds, std::span<Value* const> wrt,
                                            bool create_graph) {
  op::Mode::With on(&tracer_);
  Tracer::Inside here(&tracer_);
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
  Tracer::Frozen then(&tracer_);  // the calls read values of the time of backward()
  {
    // Formulas assume sizes of 2 or more; the resulting shapes are checked when the sizes are known.
    sym::Comparing comparing(op, sym::Comparing::assumes);
    propagate_back(*graph_, nodes, active, grads, [](Value* v) { return handle(v); });
  }
  for (auto* n : outdated)
    for (auto* v : n->results)
      if (grads[size_t(v->id)].defined()) Tracer::check_outdated(*n);
  std::vector<Tensor> gradients;
  for (auto* v : wrt) {
    auto& g = grads[size_t(v->id)];
    gradients.push_back(!g.defined() ? g : create_graph ? g : tracer_.without_history(g));
  }
  return gradients;
}

}  // namespace facula::graph
