#include "facula/autograd/forward.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <numeric>
#include <optional>

#include "facula/autograd/autograd.h"
#include "facula/autograd/batch.h"
#include "facula/autograd/calls.h"

namespace facula::autograd {

namespace {

std::atomic<uint64_t> last_level{0};

class ForwardMode final : public op::Mode {
 public:
  op::Results take(const op::Operator& o, std::span<const op::Value> args, op::Form form,
                   std::span<const Tensor> out) override;
  uint64_t level = ++last_level;
  bool paused = false;
  Mode* beneath = Mode::current();  // takes the calls that this mode makes

 private:
  op::Results functional(const op::Operator& o, std::span<const op::Value> args);
  op::Results view(const op::Operator& o, std::span<const op::Value> args);
};

// Beneath every level of vmap, whichever was entered first: tangents are those of physical tensors, as the tape is.
struct Level {
  Level() {
    if (outermost) {
      mode.beneath = outermost->beneath();
      outermost->put_beneath(&mode);
    } else {
      active.emplace(&mode);
    }
  }
  ~Level() {
    if (outermost) outermost->put_beneath(mode.beneath);
  }
  BatchLevel* outermost = BatchLevel::outermost();
  ForwardMode mode;
  std::optional<op::Mode::With> active;
  // Tangents of results on the tape, because a node saves its results detached. They are stored here and not in the node, since
  // their history refers to it.
  std::map<std::pair<const Node*, int>, std::pair<Ref<Node>, Tensor>> results;
};
thread_local std::unique_ptr<Level> current;  // by pointer: memory of a thread itself is scarce
// Asked by every node that unpacks a result.
__attribute__((tls_model("initial-exec"))) thread_local bool entered = false;

Tensor share(TensorImpl* t) { return Tensor(Ref<TensorImpl>::share(t)); }

Tensor tangent(const TensorImpl* t) {
  Meta* m = t && current ? t->grad_slot.get() : nullptr;
  return m && m->level == current->mode.level ? m->tangent : Tensor();
}
bool has_tangent(std::span<const op::Value> args) {
  return op::any_tensor(args, [](const TensorImpl* t) { return tangent(t).defined(); });
}

void keep(const Tensor& t, const Tensor& tangent) {
  if (!tangent.defined() && !meta_of(t)) return;
  Meta& m = ensure_meta(t);
  m.tangent = tangent;
  m.level = current->mode.level;
  if (m.node) current->results[{m.node.get(), m.result}] = {m.node, tangent};
}

// Makes the tangent of `t` one that may be written. That of a view is a view of its base's, so that all views
// see it.
void ensure_tangent(const Tensor& t) {
  if (tangent_of(t).defined()) return;
  Meta* m = meta_of(t);
  if (!m || !m->base.defined()) return keep(t, invoke("zeros_like", {t}));
  Tensor base = m->base;
  if (!tangent_of(base).defined()) {
    Tensor zeros = Tensor::empty_strided(base.sizes(), base.strides(), base.dtype(), base.device());
    invoke("zero", {zeros}, op::Form::in_place);
    keep(base, zeros);
  }
  Tensor whole = tangent_of(base);
  Tensor part =
      invoke("as_strided", {whole, t.sizes(), t.strides(), whole.offset() + t.offset() - base.offset()});
  if (t.impl()->conj != base.impl()->conj) part = invoke("_conj", {part});
  if (t.impl()->neg != base.impl()->neg) part = invoke("_neg_view", {part});
  keep(t, part);
}

// A tangent in memory as what it belongs to, so that views of one are views of the other.
Tensor lying_as(const Tensor& t, const Tensor& tangent) {
  bool same = std::equal(t.strides().begin(), t.strides().end(), tangent.strides().begin());
  if (same || !t.is_non_overlapping_and_dense() || t.is_traced()) return tangent;
  std::vector<int> order(size_t(t.dim()));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return t.stride(a) > t.stride(b); });
  Dims there, back(order.size());
  for (size_t k = 0; k < order.size(); ++k) {
    there.push_back(int64_t(order[k]));
    back[size_t(order[k])] = int64_t(k);
  }
  Tensor rows = invoke("contiguous", {invoke("permute", {tangent, SymSpan(there)})});
  return invoke("permute", {rows, SymSpan(back)});
}

// The results of a call, and their tangents from its gradient.
op::Results ForwardMode::functional(const op::Operator& o, std::span<const op::Value> args) {
  if (!o.differentiable || o.effects.draws) return op::call(o, args);
  bool recorded = needs_record(args);  // is the result on the caller's tape? Then so is its tangent
  bool taped = recorded;
  op::Args primal(args);
  std::vector<Tensor> inputs, directions, outputs, weights;
  std::vector<int> at;
  op::Results results;
  std::vector<Tensor> tangents;
  {
    bool outer = grad_enabled();
    GradMode on(true);
    primal.each_tensor([&](size_t, Tensor& t) {
      Tensor v = tangent_of(t);
      if (!v.defined()) {
        if (!recorded && t.defined()) t = autograd::detach(t);
        return;
      }
      taped |= outer && v.requires_grad();
      bool follows = recorded && t.requires_grad();
      t = follows ? invoke("view_as", {t, t}) : autograd::detach(t);
      if (!follows) set_requires_grad(t, true);
      keep(t, v);  // what the tape saves has its tangent too
      inputs.push_back(t);
      directions.push_back(v);
    });
    results = op::call(o, primal.values());
    for (size_t k = 0; k < results.size(); ++k) {
      if (!results[k].defined() || !results[k].requires_grad()) continue;
      outputs.push_back(results[k]);
      Tensor u = invoke("zeros_like", {results[k]});
      set_requires_grad(u, true);
      weights.push_back(u);
      at.push_back(int(k));
    }
    std::vector<Tensor> pulled, linear, given;
    if (!outputs.empty()) pulled = autograd::grad(outputs, inputs, weights, true, true, true);
    for (size_t k = 0; k < pulled.size(); ++k)
      if (pulled[k].defined() && pulled[k].requires_grad()) {
        linear.push_back(pulled[k]);
        given.push_back(directions[k]);
      }
    if (!linear.empty()) tangents = autograd::grad(linear, weights, given, taped, taped, true);
  }
  tangents.resize(outputs.size());
  if (!recorded)
    for (size_t k = 0; k < results.size(); ++k)
      if (results[k].defined()) results[k] = autograd::detach(results[k]);
  for (size_t j = 0; j < outputs.size(); ++j) {
    Tensor& result = results[size_t(at[j])];
    Tensor tangent = tangents[j].defined() ? lying_as(result, tangents[j]) : invoke("zeros_like", {result});
    keep(result, taped ? tangent : autograd::detach(tangent));
  }
  return results;
}

op::Results ForwardMode::view(const op::Operator& o, std::span<const op::Value> args) {
  op::Results results = op::call(o, args);
  op::Args direction(args);
  bool first = true;
  direction.each_tensor([&](size_t, Tensor& t) {
    if (std::exchange(first, false)) t = tangent_of(t);
  });
  op::Results tangents = op::call(o, direction.values());
  for (size_t k = 0; k < results.size(); ++k) keep(results[k], tangents[k]);
  return results;
}

op::Results ForwardMode::take(const op::Operator& o, std::span<const op::Value> args, op::Form form,
                              std::span<const Tensor> out) {
  With outer(beneath);
  if (paused || !has_tangent(args)) return op::call(o, args, form, out);
  runtime_check(form != op::Form::out, o.name())
      << "functions with out=... arguments don't support automatic differentiation, but one of the arguments has a tangent"
      << hint("call it without out=");
  if (form == op::Form::in_place) {
    // The value that the call would write, then the writing of it.
    Tensor self = share(args[0].tensor);
    With on(this);
    Tensor value = op::call(o, args)[0];
    With off(beneath);
    Tensor tangent = tangent_of(value);
    invoke("copy", {self, value}, op::Form::in_place);
    ensure_tangent(self);
    if (tangent.defined()) invoke("copy", {tangent_of(self), tangent}, op::Form::in_place);
    else invoke("zero", {tangent_of(self)}, op::Form::in_place);
    return self;
  }
  if (o.is<op::View>()) return view(o, args);
  if (o.effects.writes && !o.calls()) return op::call(o, args, form, out);
  if (auto* body = o.calls(); body && !o.vjp) {
    With on(this);
    op::Results results = (*body)(op::Call(o, args));
    for (size_t k = 0; k < results.size(); ++k)
      if (!o.carries_gradient(k) && tangent_of(results[k]).defined())
        results[k] = autograd::detach(results[k]);
    return results;
  }
  return functional(o, args);
}

}  // namespace

void enter_forward_level() {
  runtime_check(!current, "forward_ad") << "Nested forward mode AD is not supported at the moment";
  current = std::make_unique<Level>();
  entered = true;
}
void exit_forward_level() {
  runtime_check(bool(current), "forward_ad") << "Trying to exit a forward AD level but no level is entered";
  auto results = std::move(current->results);
  entered = false;
  current.reset();
}
bool forward_level() { return entered; }

void restore_tangent(const Tensor& t, const Node& node, int k) {
  auto it = current->results.find({&node, k});
  if (it != current->results.end()) keep(t, it->second.second);
}

Tensor tangent_of(const Tensor& t) { return tangent(t.impl()); }

void set_tangent(const Tensor& t, const Tensor& tangent) {
  runtime_check(bool(current), "forward_ad") << "Trying to set a tangent outside of a dual level"
                                             << hint("with facula.autograd.forward_ad.dual_level(): ...");
  if (tangent.defined()) {
    runtime_check(is_differentiable(t.dtype()), "make_dual")
        << "Expected tensor to be floating point or complex, got " << t.dtype();
    bool same =
        t.dim() == tangent.dim() && std::equal(t.sizes().begin(), t.sizes().end(), tangent.sizes().begin());
    runtime_check(same, "make_dual")
        << "Trying to set a forward gradient that has a different size than that of the original Tensor, this is not supported. "
        << "Tensor is of size " << to_string(t.sizes()) << " while the given forward gradient is of size "
        << to_string(tangent.sizes()) << ".";
    runtime_check(t.dtype() == tangent.dtype() && t.device() == tangent.device(), "make_dual")
        << "expected the tangent to have the dtype and device of the tensor, " << t.dtype() << " on "
        << t.device() << ", but it is " << tangent.dtype() << " on " << tangent.device();
  }
  keep(t, tangent);
}

ForwardPaused::ForwardPaused() : paused_(current && current->mode.paused) {
  if (current) current->mode.paused = true;
}
ForwardPaused::~ForwardPaused() {
  if (current) current->mode.paused = paused_;
}

}  // namespace facula::autograd
