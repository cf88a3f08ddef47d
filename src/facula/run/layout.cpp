#include "facula/run/layout.h"

#include <algorithm>

#include "facula/base/settings.h"
#include "facula/graph/passes.h"
#include "facula/graph/trace.h"
#include "facula/op/call.h"
#include "facula/op/registry.h"
#include "facula/tensor/change_strides.h"

namespace facula::run {

using op::Tag;
using op::Value;

// Whether the first dimension is not the outermost in memory. Weights in library layouts are like that; images never are.
static bool is_weight_layout(const Tensor& t) {
  for (int d = 1; d < t.dim(); ++d)
    if (t.size(d).concrete() != 1 && t.stride(0).concrete() < t.stride(d).concrete())
      return t.size(0).concrete() != 1;
  return false;
}

bool InMemory::replace(std::span<const Value> args, std::span<const Tensor> out) {
  args_.clear();
  out_.clear();
  lists_.clear();
  originals_.clear();
  auto of = [&](TensorImpl* t) {
    if (!has_physical_layout(t)) return t;
    Tensor there = in_memory(*t, packed_ == Packed::restored);
    if (packed_ == Packed::kept && there.defined() && is_weight_layout(there)) return t;
    if (!there.defined()) {
      if (packed_ == Packed::kept) return t;
      t->storage->restore_logical();
      return static_cast<TensorImpl*>(nullptr);
    }
    originals_.push_back({there, t});
    return there.impl();
  };
  for (auto& v : args) {
    args_.push_back(v);
    if (v.tag == Tag::tensor) {
      auto* t = of(v.tensor);
      if (!t) return false;
      args_.back().tensor = t;
    } else if (v.tag == Tag::tensors && any_physical_layout(std::span(&v, 1))) {
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

// Restoring one operand may have moved memory that operands replaced before refer to, so replace all of them again.
InMemory::InMemory(std::span<const Value> args, std::span<const Tensor> out, Packed packed)
    : packed_(packed) {
  while (!replace(args, out)) {}
}

void InMemory::append(Key& key) const {
  key.push_back(~uint64_t(0));
  for (auto& [t, original] : originals_)
    for (auto s : original->strides) key.push_back(s.identity());
}

TensorImpl* InMemory::original(const TensorImpl* t) const {
  for (auto& [there, original] : originals_)
    if (there.impl() == t) return original;
  return nullptr;
}

void InMemory::restore() const {
  for (auto& [there, original] : originals_) original->storage->restore_logical();
}

std::vector<Tensor> in_one_order(std::span<TensorImpl* const> operands, const std::vector<bool>& fresh,
                                 PhysicalOrder& order) {
  bool movable = false;
  for (size_t k = 0; k < operands.size() && !movable; ++k)
    movable = !fresh[k] && has_physical_layout(operands[k]) && flat_in_memory(*operands[k], order).defined();
  std::vector<Tensor> flat;
  for (size_t k = 0; k < operands.size() && movable; ++k) {
    auto* t = operands[k];
    PhysicalOrder wanted = order, own;
    wanted.itemsize = uint8_t(itemsize(t->dtype));
    if (fresh[k]) {
      flat.push_back(Tensor(Ref<TensorImpl>::share(t)));
      movable = fills_storage(*t);
      continue;
    }
    Tensor over_memory = has_physical_layout(t) ? flat_in_memory(*t, own) : Tensor();
    if (!over_memory.defined() || own != wanted) {
      t->storage->restore_logical();
      movable = fills_storage(*t) && t->storage->reorder(wanted);
      if (movable) over_memory = flat_in_memory(*t, own);
      movable = over_memory.defined();  // if not, a reader in another thread restored it meanwhile
    }
    flat.push_back(std::move(over_memory));
  }
  return movable ? flat : std::vector<Tensor>();
}

// Whether the view reinterprets memory (as_strided, view as another dtype) instead of selecting elements.
static bool addresses_memory(const graph::Node& n) {
  const Tensor& base = n.args.tensors()[0];
  if (n.results[0]->tensor.dtype() != base.dtype()) return true;
  auto views = n.op->as<op::View>()->rule(op::Call(*n.op, n.args.values()), op::Geometry(n.op->name(), base));
  return std::ranges::any_of(views[0].steps(),
                             [](const op::ViewStep& s) { return s.kind == op::ViewStep::Kind::strided; });
}

bool needs_logical_inputs(const graph::Graph& g) {
  for (auto& n : g.nodes) {
    if (n->op->is<op::View>() && addresses_memory(*n)) return true;
  }
  for (auto* v : g.outputs) {
    if (!v || !v->producer || !v->producer->op->is<op::View>()) continue;
    while (v->producer && v->producer->op->is<op::View>()) v = graph::operands(*v->producer)[0];
    if (!v->producer) return true;
  }
  return false;
}

bool chooses_order(const graph::Node& n) {
  auto* library = n.op->as<op::Library>();
  return library && library->channels_last == op::ChannelsLast::chooses;
}

namespace {

// Infers the results of a node. If its view is not possible with the new strides of its base, the base is noted in `as_traced`.
class Placement {
 public:
  Placement(const graph::Graph& g, IntSpan symbols, std::vector<Tensor>& at, size_t shown)
      : g_(g),
        symbols_(symbols),
        at_(at),
        as_traced_(g.values().size()),
        keeps_traced_strides_(g.values().size()) {
    for (auto& v : g.values())
      if (auto& t = at[size_t(v->id)]; t.defined())
        keeps_traced_strides_[size_t(v->id)] = Dims(t.strides()) == traced(v->tensor.strides());
    chooses_ = settings().libraries &&
               std::any_of(g.nodes.begin(), g.nodes.end(), [](auto& n) { return chooses_order(*n); });
    if (!chooses_) return;
    for (auto* v : std::span(g.outputs).first(std::min(shown, g.outputs.size())))
      if (v) keep(v);
    for (auto& n : g.nodes)
      if (n->op->is<op::View>() && addresses_memory(*n)) keep(graph::operands(*n)[0]);
  }
  bool keeps_traced_strides() const {
    return std::ranges::all_of(g_.values(), [&](auto& v) {
      return keeps_traced_strides_[size_t(v->id)] || !at_[size_t(v->id)].defined();
    });
  }
  // False if the placement has to start again.
  bool place(const graph::Node& n, const std::function<op::Args(const graph::Node&)>& args_of) {
    if (follows_trace(n)) {
      for (auto* v : n.results) {
        auto& t = v->tensor;
        put(*v, {traced(t.sizes()), t.dtype(), t.device(), traced(t.strides())});
        keeps_traced_strides_[size_t(v->id)] = true;
      }
      if (settings().verify) check_against_rule(n, args_of(n));
      return true;
    }
    op::Args args = args_of(n);
    std::vector<op::Meta> metas;
    try {
      metas = graph::infer(*n.op, args.values());
    } catch (const Error&) {
      if (chooses_ && n.op->is<op::View>() && keep(graph::operands(n)[0])) return false;
      throw;
    }
    for (size_t k = 0; k < metas.size(); ++k) {
      auto* v = n.results[k];
      auto& m = metas[k];
      if (chooses_ && !n.op->is<op::View>()) {
        if (as_traced_[size_t(v->id)]) m.strides = traced(v->tensor.strides());
        else if (chooses_order(n) && m.sizes.size() == 4 && is_floating(m.dtype) && itemsize(m.dtype) <= 4)
          m.strides = channels_last_strides(m.sizes);
      }
      if (m.strides.size() != m.sizes.size()) m.strides = contiguous_strides(m.sizes);
      put(*v, m);
    }
    return true;
  }

 private:
  // Whether the results keep their traced strides because all operands do.
  bool follows_trace(const graph::Node& n) const {
    if (chooses_order(n)) return false;
    auto operands = graph::operands(n);
    return std::ranges::all_of(operands, [&](auto* v) { return !v || keeps_traced_strides_[size_t(v->id)]; });
  }
  void check_against_rule(const graph::Node& n, const op::Args& args) const {
    auto metas = graph::infer(*n.op, args.values());
    for (size_t k = 0; k < metas.size(); ++k) {
      auto& t = at_[size_t(n.results[k]->id)];
      Dims strides = metas[k].strides.size() == metas[k].sizes.size() ? metas[k].strides
                                                                      : contiguous_strides(metas[k].sizes);
      internal_check(metas[k].sizes == Dims(t.sizes()) && strides == Dims(t.strides()))
          << n.op->name() << ": traced as " << to_string(t.sizes()) << " with strides "
          << to_string(t.strides()) << ", and its rule gives " << to_string(SymSpan(metas[k].sizes))
          << " with strides " << to_string(SymSpan(strides));
    }
  }
  void put(const graph::Value& v, const op::Meta& m) {
    at_[size_t(v.id)] =
        Tensor(make_ref<TensorImpl>(Storage(), m.sizes, m.strides, SymInt(), m.dtype, m.device));
  }
  // True if it was not noted before.
  bool keep(const graph::Value* v) {
    while (v->producer && v->producer->op->is<op::View>()) v = graph::operands(*v->producer)[0];
    if (!v->producer || as_traced_[size_t(v->id)]) return false;
    return as_traced_[size_t(v->id)] = true;
  }
  // The traced tensor of a value, with the sizes of this plan or over their symbols.
  Dims traced(SymSpan dims) const {
    Dims concrete(dims);
    for (auto& s : concrete)
      if (s.is_symbolic() && !symbols_.empty()) s = SymInt(sym::evaluate(s, symbols_));
    return concrete;
  }

  const graph::Graph& g_;
  IntSpan symbols_;
  std::vector<Tensor>& at_;
  std::vector<bool> as_traced_;             // by value number: must keep its traced strides
  std::vector<bool> keeps_traced_strides_;  // by value number: keeps them
  bool chooses_ = false;
};

}  // namespace

bool place_values(const graph::Graph& g, IntSpan symbols, std::vector<Tensor>& at,
                  const std::function<op::Args(const graph::Node&)>& args_of, size_t shown) {
  Placement placement(g, symbols, at, shown);
  for (size_t k = 0; k < g.nodes.size();)
    if (placement.place(*g.nodes[k], args_of)) ++k;
    else k = 0;
  return placement.keeps_traced_strides();
}

namespace {

// The values of a graph of fixed sizes as place_values() lays them, by number. `inputs` replaces those that are defined.
std::vector<Tensor> placed(const graph::Graph& g, size_t shown, std::span<const Tensor> inputs) {
  std::vector<Tensor> at(g.values().size());
  for (auto& v : g.values())
    if (!v->producer) at[size_t(v->id)] = v->constant.defined() ? v->constant : v->tensor;
  for (size_t k = 0; k < inputs.size(); ++k)
    if (inputs[k].defined()) at[size_t(g.inputs[k]->id)] = inputs[k];
  auto args_of = [&](const graph::Node& n) {
    op::Args args = n.args.clone();
    args.each_tensor([&](size_t, Tensor& t) {
      if (t.defined()) t = at[size_t(graph::value_of(t)->id)];
    });
    return args;
  };
  place_values(g, {}, at, args_of, shown);
  return at;
}

void set_strides(graph::Graph& g, std::span<const Tensor> at) {
  for (auto& v : g.values())
    if (auto& t = at[size_t(v->id)]; !v->constant.defined() && t.defined())
      v->tensor.impl()->strides = Dims(t.strides());
  for (auto& n : g.nodes)
    n->args.each_tensor([](size_t, Tensor& t) {
      if (t.defined()) t.impl()->strides = Dims(graph::value_of(t)->tensor.strides());
    });
}

}  // namespace

void place_saved_values(graph::Partition& p) {
  auto is_dynamic = [](auto* v) { return any_symbolic(v->tensor.sizes()); };
  auto& inputs = p.backward.inputs;
  if (std::ranges::any_of(p.forward.inputs, is_dynamic) || std::ranges::any_of(inputs, is_dynamic)) return;
  auto forward = placed(p.forward, size_t(p.outputs), {});
  std::vector<Tensor> saved(p.saved_inputs.size());
  for (size_t k = 0; k < saved.size(); ++k) {
    bool is_random = std::ranges::any_of(p.random, [&](auto& r) { return r.first == int(k); });
    auto* v = p.forward.outputs[size_t(p.outputs) + k];
    if (p.saved_inputs[k] < 0 && p.saved_outputs[k] < 0 && !is_random) saved[k] = forward[size_t(v->id)];
  }
  std::vector<Tensor> backward;
  try {
    backward = placed(p.backward, SIZE_MAX, saved);
  } catch (const Error&) {  // a view that the other strides do not allow
    return;
  }
  set_strides(p.forward, forward);
  set_strides(p.backward, backward);
}

Tensor with_logical_strides(Tensor t, SymSpan strides) {
  if (!t.defined() || has_physical_layout(t.impl())) return t;
  bool same = true, row_major = true;
  Dims contiguous = contiguous_strides(t.sizes());
  for (size_t d = 0; d < strides.size(); ++d) {
    if (t.sizes()[d].concrete() == 1) continue;
    same &= t.strides()[d] == strides[d];
    row_major &= contiguous[d] == strides[d];
  }
  if (same) {
    if (t.impl()->use_count() == 1) t.impl()->strides = Dims(strides);
    return t;
  }
  if (row_major && t.impl()->use_count() == 1 && change_strides(t, contiguous)) return t;
  layout_counts().reordered.fetch_add(1, std::memory_order_relaxed);
  Tensor copy = Tensor::empty_strided(t.sizes(), strides, t.dtype(), t.device());
  Value args[] = {copy, t};
  op::call(op::get("copy"), args, op::Form::in_place);
  return copy;
}

std::vector<Dims> logical_strides(const graph::Graph& g) {
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
