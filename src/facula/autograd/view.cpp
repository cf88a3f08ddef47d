// Views on the tape. A view remembers its base; an in-place write through it changes the history of the base,
// and all other views find their new history when they are next asked for it.
#include <unordered_set>

#include "facula/autograd/autograd.h"
#include "facula/autograd/batch.h"
#include "facula/autograd/calls.h"

namespace facula::autograd {

namespace {

// True if a tensor without a history requires a gradient all the same: another tensor over the same memory was written, and its
// base requires one or, if it stands for one of a batch, the batch does.
bool base_requires_grad(const TensorImpl& t) {
  auto* m = t.grad_slot.get();
  if (m && m->batch) return m->physical.requires_grad();
  if (!m || !m->base.defined()) return false;
  auto* base = m->base.impl();
  return base->requires_grad || base->has_node;
}

[[maybe_unused]] const bool asked_by_tensors = (TensorImpl::base_requires_grad = &base_requires_grad, true);

// Whether a tensor shows the conjugates or the negatives of the elements in memory.
struct Lazy {
  bool conj = false, neg = false;
  explicit Lazy(const Tensor& t) : conj(t.impl()->conj), neg(t.impl()->neg) {}
  bool operator==(const Lazy&) const = default;
  // A view of t that differs from it so.
  Tensor over(Tensor t) const {
    if (conj) t = invoke("_conj", {t});
    return neg ? invoke("_neg_view", {t}) : t;
  }
};

// The part of `base`, which is not lazy, that a view over its memory shows: sizes, strides and offset as the view
// counts them, in elements of its dtype, which may be of the parts of complex numbers, or complex over such parts.
Tensor part_of(const Tensor& base, SymSpan sizes, SymSpan strides, SymInt offset, DType d) {
  if (is_complex(base.dtype()) == is_complex(d)) return invoke("as_strided", {base, sizes, strides, offset});
  if (is_complex(base.dtype()))
    return invoke("as_strided", {invoke("view_as_real", {base}), sizes, strides, offset});
  Dims pairs(sizes), steps(strides);
  for (auto& s : steps) s *= 2;
  pairs.push_back(2);
  steps.push_back(1);
  return invoke("view_as_complex",
                {invoke("as_strided", {base, SymSpan(pairs), SymSpan(steps), offset * SymInt(2)})});
}
// An offset in elements of `from`, in elements of `to`.
SymInt recounted(SymInt offset, DType from, DType to) {
  return is_complex(from) == is_complex(to) ? offset
         : is_complex(from)                 ? offset * SymInt(2)
                                            : offset / SymInt(2);
}

// The history of a base after a write through a view: the written part goes through the writer's node, the
// rest as is.
class CopySlices final : public Node {
 public:
  CopySlices(const Tensor& base, const Tensor& view, Ref<Node> writer)
      : Node(1),
        base_sizes_(base.sizes()),
        base_strides_(base.strides()),
        sizes_(view.sizes()),
        strides_(view.strides()),
        offset_(view.offset() - recounted(base.offset(), base.dtype(), view.dtype())),
        dtype_(view.dtype()),
        base_lazy_(base),
        lazy_(view),
        writer_(std::move(writer)) {
    results.push_back({base_sizes_, base.dtype(), base.device()});
    edges_.push_back(edge_of(base));
    for (size_t k = 1; k < writer_->edges().size(); ++k) edges_.push_back(writer_->edges()[k]);
  }
  std::string own_name() const override { return "CopySlices"; }
  void release_saved() override { writer_->release_saved(); }
  void each_saved(const std::function<void(Saved&)>& f) override { writer_->each_saved(f); }

  std::vector<Tensor> apply(std::vector<Tensor> grads, bool create_graph) override {
    Tensor memory = empty_for_each(grads[0], base_sizes_, base_strides_, grads[0].dtype(), grads[0].device());
    Tensor whole = base_lazy_.over(memory);
    invoke("copy", {whole, grads[0]}, op::Form::in_place);
    Tensor part =
        lazy_.over(part_of(memory, sizes_, strides_, offset_,
                           is_complex(dtype_) ? complex_of(whole.dtype()) : real_of(whole.dtype())));
    auto out = writer_->apply({invoke("clone", {part})}, create_graph);
    out.resize(edges_.size());
    Tensor inner = out[0].defined() ? out[0] : filled(0, sizes_, part.dtype(), whole.device());
    invoke("copy", {part, inner}, op::Form::in_place);
    out[0] = whole;
    return out;
  }

 private:
  Dims base_sizes_, base_strides_, sizes_, strides_;
  SymInt offset_;
  DType dtype_;
  Lazy base_lazy_, lazy_;
  Ref<Node> writer_;
};

void refuse(const Meta& m, bool indirect) {
  const char* what = indirect
                         ? " is a view and its base or another view of its base has been modified inplace."
                         : " is a view and is being modified inplace.";
  runtime_check(m.origin != Meta::Origin::one_of_many, m.maker)
      << "Output " << m.number << " of " << node_name(m.maker) << what
      << " This view is the output of a function that returns multiple views. Such functions do not allow the output views to be modified "
         "inplace. You should replace the inplace operation by an out-of-place one.";
  runtime_check(m.origin != Meta::Origin::without_grad, m.maker)
      << "A view was created in no_grad mode and "
      << (indirect ? "its base or another view of its base has been modified inplace"
                   : "is being modified inplace")
      << " with grad mode enabled. Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify your code by "
         "moving both the view and the inplace either both inside the no_grad block (if you don't want the inplace to be tracked) or both "
         "outside (if you want the inplace to be tracked).";
}

}  // namespace

void track_view(const Tensor& view, const Tensor& base, bool multi, const char* maker, int number) {
  if (inference_enabled() || !base.impl()->storage) return;
  Meta& m = ensure_meta(view);
  Meta* outer = meta_of(base);
  // A view that asked for gradients later: writes are about it.
  bool leaf = base.impl()->requires_grad && !base.impl()->has_node;
  bool nested = outer && outer->base.defined() && !leaf;
  m.base = nested ? outer->base : base;
  m.origin = !grad_enabled() ? Meta::Origin::without_grad
             : multi         ? Meta::Origin::one_of_many
                             : Meta::Origin::alone;
  m.maker = maker;
  m.number = number;
  if (nested && outer->origin != Meta::Origin::alone) {
    m.origin = outer->origin;
    m.maker = outer->maker;
    m.number = outer->number;
  }
  m.seen = view.version();
}

Ref<Node> node_of(const Tensor& t) {
  Meta* m = meta_of(t);
  if (!m) return nullptr;
  if (!m->base.defined() || m->seen == t.version() || !base_requires_grad(*t.impl())) return m->node;
  // Written since: what the view shows now is a part of its base's new value.
  refuse(*m, true);
  if (t.dtype() != m->base.dtype() || Lazy(t) != Lazy(m->base)) {
    GradMode on(true);
    Tensor memory = Lazy(m->base).over(m->base);
    Tensor again = Lazy(t).over(part_of(memory, t.sizes(), t.strides(), t.offset(), t.dtype()));
    if (auto node = node_of(again)) set_history(t, node, 0);
    return m->node;
  }
  op::Value args[] = {m->base, t.sizes(), t.strides(), t.offset()};
  auto node = make_node(op::get("as_strided"), args, std::span(&t, 1));
  set_history(t, node, 0);
  return m->node;
}

namespace {

// Drops saved tensors that were overwritten, from the nodes that `last` depends on. Such a tensor may have `last` as its history,
// so that it and the node would keep each other alive for ever.
void drop_overwritten(Node* last) {
  std::vector<Node*> todo = {last};
  std::unordered_set<Node*> seen = {last};
  std::vector<Tensor> dropped;  // not while a node is locked
  while (!todo.empty()) {
    Node* node = todo.back();
    todo.pop_back();
    node->each_saved([&](Saved& s) {
      if (Tensor t = s.drop_history_if_overwritten(); t.defined()) dropped.push_back(std::move(t));
    });
    for (auto& e : node->edges())
      if (e && seen.insert(e.node.get()).second) todo.push_back(e.node.get());
  }
}

}  // namespace

void rebase_history(const Tensor& target, const Ref<Node>& node) {
  Meta* m = meta_of(target);
  if (!m || !m->base.defined()) {
    set_history(target, node, 0);
    if (target.impl()->saved) drop_overwritten(node.get());
    return;
  }
  Tensor base = m->base;
  auto slices = make_ref<CopySlices>(base, target, node);
  set_history(base, slices, 0);
  m->seen = target.version() - 1;
  node_of(target);
  if (base.impl()->saved) drop_overwritten(slices.get());
}

void check_in_place(const char* op, const Tensor& target, bool recording) {
  auto* t = target.impl();
  target.version_counter()->writer.store(op, std::memory_order_relaxed);
  runtime_check(!t->inference || inference_enabled(), op)
      << "Inplace update to inference tensor outside InferenceMode is not allowed. You can make a clone to get a normal tensor before doing "
         "inplace update.";
  runtime_check(target.is_contiguous() || !target.has_overlap(), op)
      << "unsupported operation: more than one element of the written-to tensor refers to a single memory location. Please clone() the "
         "tensor before performing the operation."
      << hint("the tensor has sizes ", to_string(target.sizes()), " and strides ",
              to_string(target.strides()));
  if (!recording || !grad_enabled()) return;
  Meta* m = meta_of(target);
  if (m && m->base.defined()) {
    refuse(*m, false);
    runtime_check(!m->base.impl()->requires_grad || m->base.impl()->has_node, op)
        << "a view of a leaf Variable that requires grad is being used in an in-place operation.";
  }
  runtime_check(!t->requires_grad || t->has_node, op)
      << "a leaf Variable that requires grad is being used in an in-place operation."
      << hint("write inside `with no_grad():`, or out of place");
}

}  // namespace facula::autograd
