// The gradient slot of a tensor: .grad, requires_grad, hooks.
#include <atomic>
#include <mutex>

#include "facula/autograd/accumulate.h"
#include "facula/autograd/autograd.h"
#include "facula/autograd/batch.h"
#include "facula/autograd/calls.h"
#include "facula/autograd/tracing.h"
#include "facula/base/fork.h"
#include "facula/base/thread_state.h"

namespace facula::autograd {
namespace {

TableMutex& accumulator_lock() {
  static TableMutex m;
  return m;
}
std::atomic<int> next_hook{0};

Node& node_for_hooks(const Tensor& t, int& result) {
  user_check(t.requires_grad(), "register_hook")
      << "cannot register a hook on a tensor that doesn't require gradient";
  if (t.is_traced() && thread_state.tracing) return *thread_state.tracing->hooks_of(t);
  Edge e = edge_of(t);
  result = e.input;
  return *e.node;
}

}  // namespace

Tracing* Tracing::current() { return thread_state.tracing; }
Tracing::With::With(Tracing* t) : outer_(std::exchange(thread_state.tracing, t)) {}
Tracing::With::~With() { thread_state.tracing = outer_; }

Tensor grad_of(const Tensor& t) {
  if (thread_state.tracing) [[unlikely]]
    thread_state.tracing->slot_is_read(t);
  Meta* m = meta_of(t);
  if (!m) return {};
  return m->retained ? m->retained->grad : m->grad;
}

void set_grad(const Tensor& t, const Tensor& g) {
  if (thread_state.tracing) [[unlikely]]
    thread_state.tracing->slot_changes(t);
  if (!g.defined()) {
    if (Meta* m = meta_of(t)) (m->retained ? m->retained->grad : m->grad) = {};
    return;
  }
  runtime_check(!g.is_same(t), "grad") << "can't assign Variable as its own grad";
  auto dtype = is_leaf(t) ? grad_dtype(t) : t.dtype();
  runtime_check(!dtype || g.dtype() == *dtype, "grad")
      << "assigned grad has data of a different type: " << g.dtype() << " for a tensor of " << t.dtype()
      << (dtype && *dtype != t.dtype() ? " whose grad_dtype is " + std::string(name(*dtype)) : "");
  runtime_check(g.device() == t.device(), "grad")
      << "assigned grad has data located on a different device: " << g.device() << " for a tensor on "
      << t.device();
  bool same = g.dim() == t.dim() && std::equal(g.sizes().begin(), g.sizes().end(), t.sizes().begin());
  runtime_check(same, "grad") << "assigned grad has data of a different size: " << to_string(g.sizes())
                              << " for a tensor of " << to_string(t.sizes());
  Meta& m = ensure_meta(t);
  (m.retained ? m.retained->grad : m.grad) = g;
}

void set_requires_grad(const Tensor& t, bool value) {
  if (value == t.requires_grad()) return;
  if (batch_level(t)) set_requires_grad(physical(t), value);
  runtime_check(is_leaf(t), "requires_grad_")
      << "you can only change requires_grad flags of leaf variables."
      << (value
              ? ""
              : " If you want to use a computed variable in a subgraph that doesn't require differentiation use var_no_grad = var.detach().");
  runtime_check(!value || is_differentiable(t.dtype()), "requires_grad_")
      << "only Tensors of floating point and complex dtype can require gradients, not " << t.dtype();
  runtime_check(!value || !t.impl()->inference || inference_enabled(), "requires_grad_")
      << "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.";
  if (thread_state.tracing && t.is_traced()) [[unlikely]]
    thread_state.tracing->becomes_leaf(t);
  t.impl()->requires_grad = value;
}

bool is_leaf(const Tensor& t) {
  if (thread_state.tracing && t.is_traced()) [[unlikely]]
    return thread_state.tracing->is_leaf(t);
  return batch_level(t) ? is_leaf(physical(t)) : !node_of(t);
}

void retain_grad(const Tensor& t) {
  runtime_check(t.requires_grad(), "retain_grad")
      << "can't retain_grad on Tensor that has requires_grad=False";
  if (thread_state.tracing && t.is_traced()) [[unlikely]]
    return thread_state.tracing->retain_grad(t);
  auto node = node_of(t);
  if (!node) return;
  Meta& m = ensure_meta(t);
  if (m.retained) return;
  m.retained = make_ref<RetainedGrad>();
  node->retained.push_back({m.result, m.retained});
}

bool retains_grad(const Tensor& t) {
  Meta* m = meta_of(t);
  return m && m->retained && (m->node || t.is_traced());
}

Tensor detach(const Tensor& t) { return t.is_traced() ? invoke("detach", {t}) : t.detached(); }

void detach_(const Tensor& t) {
  if (t.is_traced()) {
    invoke(op::get("detach"), {t}, op::Form::in_place);
    return;
  }
  Meta* m = meta_of(t);
  runtime_check(!m || !m->base.defined(), "detach_") << "Can't detach views in-place. Use detach() instead.";
  t.impl()->requires_grad = t.impl()->has_node = false;
  if (!m) return;
  m->node = nullptr;
  m->result = 0;
  m->retained = nullptr;
  m->tangent = {};
}

int add_hook(const Tensor& t, std::function<Tensor(const Tensor&)> hook, void* foreign) {
  int result = 0;
  Node& node = node_for_hooks(t, result);
  int id = next_hook++;
  node.pre_hooks.push_back(
      {id, result,
       [hook = std::move(hook), result](std::vector<Tensor>& grads) {
         Tensor& g = grads[size_t(result)];
         if (!g.defined()) return;
         Tensor changed = hook(g);
         if (!changed.defined()) return;
         bool same = changed.dim() == g.dim() &&
                     std::equal(changed.sizes().begin(), changed.sizes().end(), g.sizes().begin());
         runtime_check(same, "hook") << "hook has changed the size of value: " << to_string(g.sizes())
                                     << " became " << to_string(changed.sizes());
         runtime_check(changed.dtype() == g.dtype(), "hook")
             << "hook has changed the type of value: " << g.dtype() << " became " << changed.dtype();
         g = std::move(changed);
       },
       foreign});
  if (!node.is_accumulator()) ensure_meta(t).hooks.push_back({id, Ref<Node>::share(&node)});
  return id;
}

int add_accumulated_hook(const Tensor& leaf, std::function<void(const Tensor&)> hook, void* foreign) {
  runtime_check(leaf.requires_grad(), "register_post_accumulate_grad_hook")
      << "cannot register a hook on a tensor that doesn't require gradient";
  runtime_check(is_leaf(leaf), "register_post_accumulate_grad_hook")
      << "post accumulate grad hooks cannot be registered on non-leaf tensors";
  int id = next_hook++;
  static_cast<Accumulator&>(*accumulator_of(leaf)).after.push_back({id, std::move(hook), foreign});
  return id;
}

int add_hook(Node& node, std::function<void(std::vector<Tensor>&)> before, void* foreign) {
  node.pre_hooks.push_back({next_hook++, -1, std::move(before), foreign});
  return node.pre_hooks.back().id;
}

int add_hook(Node& node, std::function<void(std::vector<Tensor>&, const std::vector<Tensor>&)> after,
             void* foreign) {
  node.post_hooks.push_back({next_hook++, std::move(after), foreign});
  return node.post_hooks.back().id;
}

void remove_hook(Node& node, int id) {
  std::erase_if(node.pre_hooks, [&](auto& h) { return h.id == id; });
  std::erase_if(node.post_hooks, [&](auto& h) { return h.id == id; });
  if (node.is_accumulator())
    std::erase_if(static_cast<Accumulator&>(node).after, [&](auto& h) { return h.id == id; });
}

void remove_hook(const Tensor& t, int id) {
  Meta* m = meta_of(t);
  if (!m) return;
  if (m->accumulator) remove_hook(*m->accumulator, id);
  for (auto& [hook, node] : m->hooks)
    if (hook == id) remove_hook(*node, id);
  std::erase_if(m->hooks, [&](auto& h) { return h.first == id; });
}

Ref<Node> accumulator_of(const Tensor& leaf) {
  std::lock_guard lock(accumulator_lock());
  Meta& m = ensure_meta(leaf);
  if (!m.accumulator) { m.accumulator = make_ref<Accumulator>(leaf); }
  auto& accumulator = static_cast<Accumulator&>(*m.accumulator);
  DType dtype = leaf.dtype();
  if (accumulator.own_dtype) [[unlikely]]
    dtype = accumulator.own_dtype->dtype.value_or(dtype);
  auto& of = accumulator.results[0];  // `leaf.data = other` makes it another tensor
  if (of.dtype != dtype || of.device != leaf.device() || of.sizes != leaf.impl()->sizes)
    of = {leaf.impl()->sizes, dtype, leaf.device()};
  return m.accumulator;
}

std::optional<DType> grad_dtype(const Tensor& leaf) {
  runtime_check(is_leaf(leaf), "grad_dtype") << "grad_dtype can only be accessed on leaf tensors.";
  Meta* m = meta_of(leaf);
  if (!m || !m->accumulator) return leaf.dtype();
  auto& own = static_cast<Accumulator&>(*m->accumulator).own_dtype;
  return own ? own->dtype : leaf.dtype();
}

void set_grad_dtype(const Tensor& leaf, std::optional<DType> dtype) {
  runtime_check(is_leaf(leaf), "grad_dtype") << "grad_dtype can only be set on leaf tensors.";
  Meta* m = meta_of(leaf);
  runtime_check(!m || !m->grad.defined() || !dtype || m->grad.dtype() == *dtype, "grad_dtype")
      << "Cannot set grad_dtype to '" << dtype.value_or(leaf.dtype())
      << "' because there is already a gradient with dtype '"
      << (m && m->grad.defined() ? m->grad.dtype() : leaf.dtype())
      << "'. Please clear the gradient (.grad = None) before changing grad_dtype, or ensure the new grad_dtype "
         "matches the existing gradient's dtype.";
  static_cast<Accumulator&>(*accumulator_of(leaf)).own_dtype = Accumulator::OwnDType{dtype};
  accumulator_of(leaf);  // its expectation follows
}

}  // namespace facula::autograd
