#include "facula/autograd/forward.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <numeric>
#include <optional>

#include "facula/autograd/autograd.h"
#include "facula/autograd/batch.h"
#include "facula/autograd/calls.h"
#include "facula/base/thread_state.h"
#include "facula/op/written.h"

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
  op::Results view(const op::Operator& o, std::span<const op::Value> args, op::Form form);
  op::Results in_place(const op::Operator& o, std::span<const op::Value> args);
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
    if (auto* alive = BatchLevel::find(outermost_id)) alive->put_beneath(mode.beneath);
  }
  BatchLevel* outermost = BatchLevel::outermost();
  uint64_t outermost_id = outermost ? outermost->id() : 0;
  ForwardMode mode;
  std::optional<op::Mode::With> active;
  // Tangents of results on the tape, because a node saves its results detached. They are stored here and not in the node, since
  // their history refers to it.
  std::map<std::pair<const Node*, int>, std::pair<Ref<Node>, Tensor>> results;
};
thread_local std::unique_ptr<Level> current;  // by pointer: memory of a thread itself is scarce

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

// The tensor that has the elements of all batches.
const Tensor& in_memory(const Tensor& t) { return batch_level(t) ? in_memory(physical(t)) : t; }
bool share_memory(const Tensor& a, const Tensor& b) {
  auto& storage = in_memory(a).impl()->storage;
  return storage && storage == in_memory(b).impl()->storage;
}

BatchLevel* level_of(const Tensor& t) { return t.defined() ? BatchLevel::find(batch_level(t)) : nullptr; }
// True if `t` belongs to every level that `other` belongs to.
bool is_batched_as(const Tensor& t, const Tensor& other) {
  if (!batch_level(other)) return true;
  if (!batch_level(t)) return false;
  return is_batched_as(physical(t), batch_level(t) == batch_level(other) ? physical(other) : other);
}
// One of the innermost level that any of these belongs to; undefined: none belongs to one.
Tensor innermost(std::span<const Tensor> tangents) {
  Tensor innermost_tangent;
  for (auto& t : tangents)
    if (auto* level = level_of(t);
        level && (!innermost_tangent.defined() || level->number() > level_of(innermost_tangent)->number()))
      innermost_tangent = t;
  return innermost_tangent;
}

// A scope for calls on these tangents. Such calls see no tangents themselves, and take the way through the levels of
// vmap that a tangent belongs to though its tensor does not.
class OnTangents {
 public:
  explicit OnTangents(std::span<const Tensor> tangents) {
    auto* level = level_of(innermost(tangents));
    if (level) mode_.emplace(level);
  }

 private:
  ForwardPaused paused_;
  std::optional<op::Mode::With> mode_;
};

// Zeros with the strides of t, for each call of the batches that the tangent `like` belongs to.
Tensor zeros_as(const Tensor& t, const Tensor& like) {
  if (t.is_traced()) return invoke("zeros_like", {t});
  Dims strides = t.has_overlap() ? contiguous_strides(t.sizes()) : Dims(t.strides());
  Tensor zeros = empty_for_each(like, t.sizes(), strides, t.dtype(), t.device());
  return invoke("zero", {zeros}, op::Form::in_place);
}

// Gives `t` a tangent that may be written, if it has none. That of a view is a view of its base's, so that all views
// see it. `like`: a tangent that will be written to it; undefined: none.
void ensure_tangent(const Tensor& t, const Tensor& like) {
  if (tangent_of(t).defined()) return;
  Meta* m = meta_of(t);
  if (!m || !m->base.defined()) return keep(t, zeros_as(t, like));
  Tensor base = m->base;
  if (!tangent_of(base).defined()) keep(base, zeros_as(base, like));
  Tensor base_tangent = tangent_of(base);
  Tensor part = invoke("as_strided", {base_tangent, t.sizes(), t.strides(),
                                      in_memory(base_tangent).offset() + t.offset() - base.offset()});
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

// The tangent for `t`, copied if it shares memory with one of `others`: a write to `t` overwrites its tangent.
Tensor owned(const Tensor& t, const Tensor& tangent, std::span<const Tensor> others) {
  Tensor like = lying_as(t, tangent);
  bool shared = std::any_of(others.begin(), others.end(), [&](auto& o) { return share_memory(like, o); });
  return shared ? invoke("clone", {like}) : like;
}

// The product of the Jacobian of `outputs` with `directions`: for g(u) = J^T u, the gradient of g along them. `weights`:
// an arbitrary u. Undefined where it is zero.
std::vector<Tensor> pushed(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
                           const std::vector<Tensor>& weights, const std::vector<Tensor>& directions,
                           bool create_graph) {
  std::vector<Tensor> pulled, linear, pushed_directions, tangents;
  if (!outputs.empty()) pulled = autograd::grad(outputs, inputs, weights, true, true, true);
  for (size_t k = 0; k < pulled.size(); ++k)
    if (pulled[k].defined() && pulled[k].requires_grad()) {
      linear.push_back(pulled[k]);
      pushed_directions.push_back(directions[k]);
    }
  OnTangents on(pushed_directions);
  if (!linear.empty())
    tangents = autograd::grad(linear, weights, pushed_directions, create_graph, create_graph, true);
  tangents.resize(outputs.size());
  return tangents;
}

// The results of a call, and their tangents from its gradient.
op::Results ForwardMode::functional(const op::Operator& o, std::span<const op::Value> args) {
  if (!o.differentiable || o.effects.draws) return op::call(o, args);
  bool recorded = needs_record(args);  // is the result on the caller's tape? Then so is its tangent
  bool taped = recorded;
  op::Args primal(args);
  std::vector<Tensor> inputs, directions, outputs, weights, tangents;
  std::vector<int> at;
  op::Results results;
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
    tangents = pushed(inputs, outputs, weights, directions, taped);
  }
  if (!recorded)
    for (size_t k = 0; k < results.size(); ++k)
      if (results[k].defined()) results[k] = autograd::detach(results[k]);
  OnTangents on(directions);
  for (size_t j = 0; j < outputs.size(); ++j) {
    Tensor& result = results[size_t(at[j])];
    Tensor tangent = tangents[j].defined() ? owned(result, tangents[j], directions)
                                           : zeros_as(result, innermost(directions));
    directions.push_back(tangent);  // two results may have the same tangent
    keep(result, taped ? tangent : autograd::detach(tangent));
  }
  return results;
}

// A view's tangent is the same view of the tangent.
op::Results ForwardMode::view(const op::Operator& o, std::span<const op::Value> args, op::Form form) {
  Tensor tangent = tangent_of(share(args[0].tensor));
  op::Results results = op::call(o, args, form);
  if (!tangent.defined()) return results;
  if (!o.differentiable) {
    if (form == op::Form::in_place) keep(results[0], {});
    return results;
  }
  OnTangents on(std::span(&tangent, 1));
  op::Args direction(args);
  bool first = true;
  direction.each_tensor([&](size_t, Tensor& t) {
    if (std::exchange(first, false)) t = tangent;
  });
  op::Results tangents = op::call(o, direction.values());
  for (size_t k = 0; k < results.size(); ++k) keep(results[k], tangents[k]);
  return results;
}

// Computes the value that the call would write, and writes it with its tangent.
op::Results ForwardMode::in_place(const op::Operator& o, std::span<const op::Value> args) {
  Tensor self = share(args[0].tensor), value;
  if (!self.is_contiguous() && self.has_overlap()) {  // it is written slice by slice
    With on(this);
    return op::perform(o, args, op::Form::in_place, {});
  }
  {
    With on(this);
    op::Args read(args);
    bool first = true;
    read.each_tensor([&](size_t, Tensor& t) {  // the tape may need the value that will be overwritten
      if (std::exchange(first, false) && needs_record(args)) t = invoke("clone", {t});
    });
    value = op::call(o, read.values())[0];
  }
  Tensor tangent = tangent_of(value);
  op::check_written(o, value, self);
  invoke("copy", {self, value}, op::Form::in_place);
  std::array both{tangent, tangent_of(self)};
  OnTangents on(both);
  ensure_tangent(self, tangent);
  Tensor own = tangent_of(self);
  if (!tangent.defined()) {
    invoke("zero", {own}, op::Form::in_place);
    return self;
  }
  runtime_check(is_batched_as(own, tangent), o.name())
      << "writes a tangent that differs in each call of the batch into a tensor whose tangent is the same in all"
      << hint("compute a new tensor out of place");
  invoke("copy", {own, tangent}, op::Form::in_place);
  return self;
}

op::Results ForwardMode::take(const op::Operator& o, std::span<const op::Value> args, op::Form form,
                              std::span<const Tensor> out) {
  With outer(beneath);
  if (paused || !has_tangent(args)) return op::call(o, args, form, out);
  runtime_check(form != op::Form::out, o.name())
      << "functions with out=... arguments don't support automatic differentiation, but one of the arguments has a tangent"
      << hint("call it without out=");
  if (o.is<op::View>()) return view(o, args, form);
  if (form == op::Form::in_place) return in_place(o, args);
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
  thread_state.has_forward_level = true;
}
void exit_forward_level() {
  runtime_check(bool(current), "forward_ad") << "Trying to exit a forward AD level but no level is entered";
  auto results = std::move(current->results);
  thread_state.has_forward_level = false;
  current.reset();
}
bool forward_level() { return thread_state.has_forward_level; }

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
  if (!tangent.defined()) return keep(t, tangent);
  OnTangents on(std::span(&tangent, 1));
  GradMode on_tape(true);
  keep(t, owned(t, tangent, std::span(&tangent, 1)));
}

ForwardPaused::ForwardPaused() : paused_(current && current->mode.paused) {
  if (current) current->mode.paused = true;
}
ForwardPaused::~ForwardPaused() {
  if (current) current->mode.paused = paused_;
}

}  // namespace facula::autograd
