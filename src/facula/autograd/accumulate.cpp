#include "facula/autograd/accumulate.h"

#include "facula/autograd/autograd.h"
#include "facula/autograd/calls.h"
#include "facula/tensor/change_strides.h"
#include "facula/tensor/sparse.h"

namespace facula::autograd {

namespace {

// A gradient has the strides of a dense leaf, else it is contiguous.
Dims strides_for_grad(const Tensor& leaf) {
  return leaf.is_non_overlapping_and_dense() ? Dims(leaf.strides()) : contiguous_strides(leaf.sizes());
}

bool has_strides(const Tensor& t, const Dims& strides) {
  for (size_t d = 0; d < strides.size(); ++d)
    if (t.sizes()[d] != 1 && t.strides()[d] != strides[d]) return false;
  return true;
}

bool only_ours(const Tensor& t) {
  return t.impl()->use_count() == 1 && t.impl()->storage->use_count() == 1 && !t.impl()->py_object;
}

// Whether the gradient, to which nothing else refers, has these strides or was given them. A gradient of a weight of a
// convolution keeps its elements where they are, because libraries choose their order (docs/layouts.md).
bool take_strides(const Tensor& g, const Dims& strides) {
  return has_strides(g, strides) || (g.dim() >= 4 && change_strides(g, strides));
}

// Whether the tensor is a wrapper without memory, of a class with __torch_dispatch__ that holds other tensors.
bool is_wrapper(const Tensor& t) {
  auto& memory = t.impl()->storage;
  return memory && memory->bytes() == 0 && t.numel() > SymInt(int64_t(0)) && !is_sparse(t);
}

// The sum of gradients, at least one of them sparse; a dense gradient is added to in place.
Tensor sparse_sum(const Tensor& old, const Tensor& g) {
  if (is_sparse(old)) return is_sparse(g) ? add(old, g) : add(g, old);
  add_(old, g);
  return old;
}

Tensor copy_of(const Tensor& g, const Dims& strides) {
  Tensor c = Tensor::empty_strided(g.sizes(), strides, g.dtype(), g.device());
  invoke("copy", {c, g}, op::Form::in_place);
  return c;
}

}  // namespace

uint64_t hooks_digest(const Tensor& leaf) {
  auto* m = meta_of(leaf);
  if (!m || !m->accumulator) return 0;
  auto& sums = static_cast<const Accumulator&>(*m->accumulator);
  uint64_t digest = 0;
  auto add = [&](auto& hooks) {
    for (auto& h : hooks) digest = digest * 1000003 + uint64_t(h.id) + 1;
  };
  add(sums.pre_hooks);
  add(sums.post_hooks);
  add(sums.after);
  return digest;
}

Accumulator::Accumulator(const Tensor& leaf) : Node(1), leaf_(leaf.impl()) {
  results.push_back({Dims(leaf.sizes()), leaf.dtype(), leaf.device()});
  sequence_ = UINT64_MAX;  // as early as possible: the gradient's memory is freed
}

Tensor Accumulator::leaf() const {
  std::lock_guard lock(mutex_);
  return leaf_ ? Tensor(Ref<TensorImpl>::share(leaf_)) : Tensor();
}

void Accumulator::forget() {
  std::lock_guard lock(mutex_);
  leaf_ = nullptr;
}

std::vector<Tensor> Accumulator::apply(std::vector<Tensor> grads, bool create_graph) {
  Tensor g = std::move(grads[0]);
  grads.clear();
  if (!g.defined()) return {};
  Tensor leaf = this->leaf();
  if (!leaf.defined()) return {};
  bool sparse = is_sparse(g);
  Dims strides = sparse            ? Dims(g.strides())
                 : is_sparse(leaf) ? contiguous_strides(g.sizes())
                                   : strides_for_grad(leaf);
  Tensor old;  // dropped after the lock: releasing a tensor may run Python
  {
    std::unique_lock lock(mutex_);
    Meta& m = ensure_meta(leaf);
    if (!m.grad.defined()) {
      if (g.is_traced()) m.grad = g;
      else if (is_wrapper(g)) m.grad = create_graph ? g : invoke("detach", {g});
      else if (create_graph) m.grad = only_ours(g) ? g : invoke("clone", {g});
      else if (sparse) m.grad = only_ours(g) ? g.detached() : invoke("clone", {g.detached()});
      else if (only_ours(g) && take_strides(g, strides))
        m.grad = g.requires_grad() ? g.detached() : std::move(g);
      else m.grad = copy_of(g, strides);
    } else if (create_graph) {
      old = m.grad;
      m.grad = is_sparse(old) && !sparse ? add(g, old) : add(old, g);
    } else if (sparse || is_sparse(m.grad)) {
      old = m.grad;
      m.grad = sparse_sum(old, g);
    } else {
      if (only_ours(g) && !g.is_traced() && !is_wrapper(g)) take_strides(g, Dims(m.grad.strides()));
      add_(m.grad, g);
    }
  }
  for (size_t k = 0; k < after.size(); ++k) {
    auto hook = after[k];  // a hook may remove itself
    hook.run(leaf);
  }
  return {};
}

}  // namespace facula::autograd
