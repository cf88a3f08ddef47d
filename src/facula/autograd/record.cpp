// The tape's node of one operator call, and how calls are put on the tape.
#include <algorithm>
#include <array>
#include <mutex>

#include "facula/autograd/autograd.h"
#include "facula/autograd/call_node.h"
#include "facula/autograd/calls.h"
#include "facula/autograd/formula.h"
#include "facula/base/fork.h"

namespace facula::autograd {

namespace {

// Guards what nodes saved: one backward may free it while another reads.
TableMutex& lock_of(const void* node) {
  static std::array<TableMutex, 64> locks;
  return locks[reinterpret_cast<uintptr_t>(node) / 64 % locks.size()];
}

// Sizes, strides and dtype of a tensor, without its data.
Tensor shell(const Tensor& t) {
  Tensor s(make_ref<TensorImpl>(Storage(), t.sizes(), t.strides(), t.offset(), t.dtype(), t.device()));
  s.impl()->wrapped_number = t.impl()->wrapped_number;
  return s;
}

bool differentiable_result(const op::Operator& o, size_t k, const Tensor& t) {
  return t.defined() && is_differentiable(t.dtype()) && o.carries_gradient(k);
}

bool requires_gradient(TensorImpl* t) {
  return t && (t->requires_grad || t->has_node || (t->grad_slot && Borrowed(t)->requires_grad()));
}
bool wants_gradient(TensorImpl* t) { return t && is_differentiable(t->dtype) && requires_gradient(t); }

// By tensor, as operands_of counts them: does its gradient matter?
Flags wanted_by(const op::Operator& o, std::span<const op::Value> args) {
  Flags wanted;
  op::each_operand(op::Call(o, args), [&](const op::Operand& x) {
    if (x.tensor >= 0) wanted.push_back(x.value.tag == op::Tag::tensor && wants_gradient(x.value.tensor));
  });
  return wanted;
}

class OperatorNode final : public Node, public CallNode, public detail::Recycled<OperatorNode> {
 public:
  OperatorNode(const op::Operator& o, std::span<const op::Value> args, std::span<const Tensor> outputs,
               const Tensor& original)
      : Node(int(outputs.size())), op_(o), args_(args, o.schema) {
    Flags wanted = wanted_by(o, args);
    GradTypes grads;
    for (size_t k = 0; k < outputs.size(); ++k) {
      results.push_back({Dims(outputs[k].sizes()), outputs[k].dtype(), outputs[k].device()});
      grads.push_back(differentiable_result(o, k, outputs[k]) ? std::optional(outputs[k].dtype())
                                                              : std::nullopt);
    }
    if (has_formula(o)) formula_ = formula_of(op::Call(o, args), wanted, grads);
    if (formula_ && is_gradient(o))
      for (int tensor : formula_->constant) wanted[size_t(tensor)] = false;
    edges_.reserve(wanted.size());
    bool in_place = !outputs.empty() && args[0].tag == op::Tag::tensor && outputs[0].impl() == args[0].tensor;
    Tensor written = in_place ? outputs[0] : Tensor();
    args_.each_tensor([&](size_t slot, Tensor& t) {
      if (slot < wanted.size() && wanted[slot]) add_edge(t);
      else edges_.emplace_back();
      if (!t.defined()) return;
      if (formula_ && formula_->reads[slot]) {
        saved_.resize(wanted.size());
        if (slot == 0 && original.defined()) saved_[slot] = Saved(original, false);
        else
          saved_[slot] = written.defined() && t.impl()->storage == written.impl()->storage
                             ? Saved::overwritten(t)
                             : Saved(t, false);
      }
      t = shell(t);
    });
    if (!formula_) return;
    for (size_t k = 0; k < outputs.size(); ++k)
      if (formula_->reads_result[k]) {
        saved_results_.resize(outputs.size());
        saved_results_[k] = Saved(outputs[k], differentiable_result(o, k, outputs[k]), int(k));
      }
  }

  std::string own_name() const override { return node_name(op_, args_.values()); }

  std::vector<Tensor> apply(std::vector<Tensor> grads, bool) override {
    Vjp v(*this, std::move(grads));
    if (op_.vjp) {
      auto out = op_.vjp(v);
      if (out.size() < edges_.size()) out.resize(edges_.size());  // a rule may leave out trailing ones
      return out;
    }
    if (op_.is<op::View>()) return view_gradient(v.call(), v);
    if (formula_) return autograd::apply(*formula_, v.call(), v);
    return gradient(op_, v);
  }

  void release_saved() override {
    std::vector<Saved> dropped, dropped_results;
    {
      std::lock_guard lock(lock_of(this));
      released_ = released_ || !saved_.empty() || !saved_results_.empty();
      dropped.swap(saved_);
      dropped_results.swap(saved_results_);
    }
  }

  void each_saved(const std::function<void(Saved&)>& f) override {
    std::lock_guard lock(lock_of(this));
    for (auto& s : saved_) f(s);
  }

  Tensor saved_named(std::string_view name) override {
    auto [slot, result] = slot_named(name);
    if (result >= 0)
      return size_t(result) < saved_results_.size() && saved_results_[size_t(result)].defined()
                 ? saved_result(result)
                 : alive_or_nothing();
    return slot >= 0 && size_t(slot) < saved_.size() && saved_[size_t(slot)].defined() ? saved(slot)
                                                                                       : alive_or_nothing();
  }
  void read_call(const Reader& f) const override {
    f(op::Call(op_, args_.values()), [](size_t) { return true; });
  }
  bool saves(std::string_view name) override {
    auto [slot, result] = slot_named(name);
    if (!formula_) return false;
    return result >= 0 ? size_t(result) < results.size() && formula_->reads_result[size_t(result)]
                       : slot >= 0 && formula_->reads[size_t(slot)];
  }
  bool pack_saved(std::string_view name, const PackHook& hook) override {
    check_alive();
    auto [slot, result] = slot_named(name);
    auto& list = result >= 0 ? saved_results_ : saved_;
    size_t at = size_t(result >= 0 ? result : slot);
    if ((slot < 0 && result < 0) || at >= list.size() || !list[at].defined()) return false;
    list[at].pack(hook);
    return true;
  }

 private:
  Tensor alive_or_nothing() const {
    check_alive();
    return {};
  }
  // (tensor, -1) of a parameter, (-1, number) of a result.
  std::pair<int, int> slot_named(std::string_view name) {
    auto& returns = op_.schema.returns;
    if (name == "result") return {-1, 0};
    for (size_t k = 0; k < returns.size(); ++k)
      if (returns[k].name == name || name == "result" + std::to_string(k)) return {-1, int(k)};
    for (auto& o : operands_of(op::Call(op_, args_.values())))
      if (o.name == name && o.item <= 0) return {o.tensor, -1};
    return {-1, -1};
  }

  class Vjp final : public op::Vjp {
   public:
    Vjp(OperatorNode& n, std::vector<Tensor> grads)
        : n_(n), grads_(std::move(grads)), call_(n.op_, n.args_.values()) {}
    // A formula that was derived for all results needs them all.
    Tensor grad(int r) const override {
      auto& g = grads_[size_t(r)];
      if (g.defined() || n_.op_.vjp || grads_.size() == 1 || n_.op_.is<op::View>()) return g;
      return zeros_of(n_.results[size_t(r)]);
    }
    Tensor operator[](op::ParameterName arg) const override { return n_.saved(call_.tensor_slot(arg)); }
    Tensor item(op::ParameterName arg, int k) const override { return n_.saved(call_.tensor_slot(arg, k)); }
    Tensor result(int k) const override { return n_.saved_result(k); }
    bool needs(op::ParameterName arg, int item) const override {
      return n_.needs(size_t(call_.tensor_slot(arg, item)));
    }
    const op::Call& call() const override { return call_; }

   private:
    OperatorNode& n_;
    std::vector<Tensor> grads_;
    op::Call call_;
  };

  void check_alive() const {
    if (released_) raise_freed(op_.name());
  }
  Tensor saved(int slot) {
    Saved s;
    {
      std::lock_guard lock(lock_of(this));
      check_alive();
      if (size_t(slot) < saved_.size()) s = saved_[size_t(slot)];
    }
    // A number given for a tensor is kept in the arguments; None stays None.
    if (!s.defined()) {
      for (auto& o : operands_of(op::Call(op_, args_.values())))
        if (o.tensor == slot && (o.value.tag == op::Tag::scalar || o.value.tag == op::Tag::integer))
          return op::wrapped_number(o.value.number());
      internal_check(!args_.tensors()[size_t(slot)].defined())
          << op_.schema.full_name() << ": its gradient reads argument " << slot << ", which was not saved";
      return {};
    }
    return s.unpack(Ref<Node>::share(this));
  }
  Tensor saved_result(int k) {
    Saved s;
    {
      std::lock_guard lock(lock_of(this));
      check_alive();
      if (size_t(k) < saved_results_.size()) s = saved_results_[size_t(k)];
    }
    internal_check(s.defined()) << op_.schema.full_name() << ": its gradient reads result " << k
                                << ", which was not saved";
    return s.unpack(Ref<Node>::share(this));
  }

  const op::Operator& op_;
  op::Args args_;  // tensors without data
  std::shared_ptr<const Formula> formula_;
  std::vector<Saved> saved_, saved_results_;  // by tensor, by result; empty if none
  bool released_ = false;
};

// An operator without a gradient has overwritten the tensor: what it was before no longer matters.
class OverwrittenNode final : public Node {
 public:
  OverwrittenNode(const op::Operator& o, std::span<const op::Value> args, const Tensor& target)
      : Node(1), op_(o), args_(args, o.schema) {
    results.push_back({Dims(target.sizes()), target.dtype(), target.device()});
    add_edge(target);
    args_.each_tensor([](size_t, Tensor& t) { t = t.defined() ? shell(t) : t; });
  }
  std::string own_name() const override { return node_name(op_, args_.values()); }
  std::vector<Tensor> apply(std::vector<Tensor>, bool) override { return {zeros_of(results[0])}; }

 private:
  const op::Operator& op_;
  op::Args args_;  // tensors without data
};

}  // namespace

bool needs_record(std::span<const op::Value> args) {
  if (!grad_enabled()) return false;
  return op::any_tensor(args, requires_gradient);
}

Ref<Node> make_node(const op::Operator& o, std::span<const op::Value> args, std::span<const Tensor> results,
                    const Tensor& original) {
  return make_ref<OperatorNode>(o, args, results, original);
}

void record(const op::Operator& o, std::span<const op::Value> args, op::Form form, op::Results& results,
            const Tensor& original) {
  auto outputs = results.all();
  bool any = false;
  for (size_t k = 0; k < outputs.size(); ++k)
    any = any || (o.differentiable && differentiable_result(o, k, outputs[k]));
  if (!any) {
    if (form == op::Form::in_place && wants_gradient(outputs[0].impl()))
      rebase_history(outputs[0], make_ref<OverwrittenNode>(o, args, outputs[0]));
    return;
  }
  auto node = make_node(o, args, outputs, original);
  auto& edges = node->edges();
  if (std::none_of(edges.begin(), edges.end(), [](auto& e) { return bool(e); })) return;
  if (form == op::Form::in_place) {
    rebase_history(outputs[0], node);
    return;
  }
  for (size_t k = 0; k < outputs.size(); ++k)
    if (differentiable_result(o, k, outputs[k])) set_history(outputs[k], node, int(k));
}

Tensor original_of(const op::Operator& o, std::span<const op::Value> args) {
  if (!o.differentiable || !has_formula(o) || args.empty() || args[0].tag != op::Tag::tensor) return {};
  auto* self = args[0].tensor;
  if (!is_differentiable(self->dtype)) return {};
  auto f = formula_of(op::Call(o, args), wanted_by(o, args), {self->dtype});
  return f->reads[0] ? copy_with_history(Tensor(Ref<TensorImpl>::share(self))) : Tensor();
}

Tensor copy_with_history(const Tensor& t) {
  GradMode off(false);
  Tensor copy = invoke("clone", {t});
  if (auto node = node_of(t)) set_history(copy, node, meta_of(t)->result);
  return copy;
}

op::Grads gradient(const op::Operator& o, const op::Vjp& v) {
  if (o.vjp) return o.vjp(v);
  auto& c = v.call();
  if (o.is<op::View>()) return view_gradient(c, v);
  supported_check(has_formula(o), o.name())
      << "has no gradient" << hint("its definition needs a .vjp(...), or .non_differentiable(...)");
  Flags wanted;
  for (auto& operand : operands_of(c))
    if (operand.tensor >= 0)
      wanted.push_back(operand.value.tag == op::Tag::tensor &&
                       is_differentiable(operand.value.tensor->dtype) &&
                       v.needs(operand.name, std::max(operand.item, 0)));
  GradTypes grads;
  size_t count = std::max<size_t>(o.schema.returns.size(), 1);
  for (size_t k = 0; k < count; ++k) {
    Tensor g = v.grad(int(k));
    grads.push_back(g.defined() ? std::optional(g.dtype()) : std::nullopt);
  }
  return apply(*formula_of(c, wanted, grads), c, v);
}

}  // namespace facula::autograd
