#include "facula/run/layout.h"

#include <algorithm>

#include "facula/op/call.h"
#include "facula/op/registry.h"

namespace facula::run {

using op::Tag;
using op::Value;

bool InMemory::replace(std::span<const Value> args, std::span<const Tensor> out) {
  args_.clear();
  out_.clear();
  lists_.clear();
  originals_.clear();
  auto of = [&](TensorImpl* t) {
    if (!is_hidden(t)) return t;
    Tensor there = in_memory(*t);
    if (!there.defined()) return static_cast<TensorImpl*>(nullptr);
    originals_.push_back({there, t});
    return there.impl();
  };
  for (auto& v : args) {
    args_.push_back(v);
    if (v.tag == Tag::tensor) {
      auto* t = of(v.tensor);
      if (!t) return false;
      args_.back().tensor = t;
    } else if (v.tag == Tag::tensors && any_hidden(std::span(&v, 1))) {
      auto& list = lists_.emplace_back();
      for (auto* item : v.tensors()) {
        list.push_back(of(item));
        if (item && !list.back()) return false;
      }
      args_.back() = Value(std::span<TensorImpl* const>(list));
    }
  }
  for (auto& t : out) {
    auto* there = t.defined() ? of(t.impl()) : nullptr;
    if (t.defined() && !there) return false;
    out_.push_back(Tensor(Ref<TensorImpl>::share(there)));
  }
  return true;
}

// Where one operand had to be restored, others may have been read from memory that is no longer theirs: once more.
InMemory::InMemory(std::span<const Value> args, std::span<const Tensor> out) {
  while (!replace(args, out)) {}
}

void InMemory::append(Key& key) const {
  key.push_back(~uint64_t(0));
  for (auto& [t, original] : originals_)
    for (auto s : original->strides) key.push_back(s.identity());
}

TensorImpl* InMemory::original(const TensorImpl* t) const {
  for (auto& [there, original] : originals_) if (there.impl() == t) return original;
  return nullptr;
}

void InMemory::restore() const {
  for (auto& [there, original] : originals_) original->storage->restore_plain();
}

bool needs_plain_inputs(const graph::Graph& g) {
  for (auto& n : g.nodes) if (n->op->kind == op::OpKind::view && n->op->schema.name == "as_strided") return true;
  for (auto* v : g.outputs) {
    if (!v || !v->producer || v->producer->op->kind != op::OpKind::view) continue;
    while (v->producer && v->producer->op->kind == op::OpKind::view) v = graph::operands(*v->producer)[0];
    if (!v->producer) return true;
  }
  return false;
}

Tensor shown(Tensor t, SymSpan strides) {
  if (!t.defined() || is_hidden(t.impl())) return t;
  bool same = true, plain = true;
  Dims contiguous = contiguous_strides(t.sizes());
  for (size_t d = 0; d < strides.size(); ++d) {
    if (t.sizes()[d].concrete() == 1) continue;
    same &= t.strides()[d] == strides[d];
    plain &= contiguous[d] == strides[d];
  }
  if (same) {
    if (t.impl()->use_count() == 1) t.impl()->strides = Dims(strides);
    return t;
  }
  if (plain && t.impl()->use_count() == 1 && hide(t)) return t;
  layout_counts().reordered.fetch_add(1, std::memory_order_relaxed);
  Tensor copy = Tensor::empty_strided(t.sizes(), strides, t.dtype(), t.device());
  Value args[] = {copy, t};
  op::call(op::get("copy"), args, op::Form::in_place);
  return copy;
}

std::vector<Dims> shown_strides(const graph::Graph& g) {
  std::vector<Dims> all;
  for (auto* v : g.outputs) {
    Dims strides;
    if (v) {
      strides = Dims(v->tensor.strides());
      for (auto& s : strides) s = SymInt(s.hint());
    }
    all.push_back(std::move(strides));
  }
  return all;
}

}  // namespace facula::run
