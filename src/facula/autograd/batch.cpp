#include "facula/autograd/batch.h"

#include <algorithm>
#include <atomic>
#include <optional>

#include "facula/autograd/autograd.h"
#include "facula/autograd/calls.h"
#include "facula/autograd/forward.h"
#include "facula/op/batched.h"

namespace facula::autograd {
namespace {

std::atomic<uint64_t> last_level{0};
thread_local std::vector<BatchLevel*> levels;
char stands_for_one;  // what TensorImpl::traced is of a tensor without data that no trace knows

Dims without_first(SymSpan s) { return Dims(s.subspan(1)); }

void reflect(TensorImpl& t, const Tensor& physical) {
  auto& p = *physical.impl();
  t.sizes = without_first(p.sizes);
  t.strides = without_first(p.strides);
  t.dtype = p.dtype;
  t.conj = p.conj;
  t.neg = p.neg;
  t.requires_grad = physical.requires_grad();
}

}  // namespace

BatchLevel::BatchLevel(SymInt size, bool same_variables)
    : size_(size),
      same_variables_(same_variables),
      id_(++last_level),
      number_(int(levels.size()) + 1),
      beneath_(Mode::current()) {
  levels.push_back(this);
}
BatchLevel::~BatchLevel() { std::erase(levels, this); }

BatchLevel* BatchLevel::find(uint64_t id) {
  for (auto* l : levels)
    if (l->id_ == id) return l;
  return nullptr;
}
BatchLevel::Beneath::Beneath() : level_(levels.back()), beneath_(level_->beneath()) { levels.pop_back(); }
BatchLevel::Beneath::~Beneath() { levels.push_back(level_); }
BatchLevel* BatchLevel::outermost() { return levels.empty() ? nullptr : levels.front(); }
BatchLevel* BatchLevel::innermost() { return levels.empty() ? nullptr : levels.back(); }

uint64_t batch_level(const TensorImpl* t) { return t && t->traced && t->grad_slot ? t->grad_slot->batch : 0; }
const Tensor& physical(const Tensor& t) { return t.impl()->grad_slot->physical; }

Tensor one_of(const Tensor& physical, const BatchLevel& level) {
  auto& p = *physical.impl();
  Tensor t(make_ref<TensorImpl>(Storage(), without_first(p.sizes), without_first(p.strides), SymInt(),
                                p.dtype, p.device));
  t.impl()->traced = reinterpret_cast<graph::Value*>(&stands_for_one);
  Meta& m = ensure_meta(t);
  m.physical = physical;
  m.batch = level.id();
  reflect(*t.impl(), physical);
  return t;
}

void set_physical(const Tensor& t, const Tensor& physical) {
  ensure_meta(t).physical = physical;
  reflect(*t.impl(), physical);
}

bool any_batched(std::span<const Tensor> tensors) {
  return std::ranges::any_of(tensors, [](const Tensor& t) { return batch_level(t) != 0; });
}

bool tangent_belongs(const TensorImpl* t, const BatchLevel& level) {
  if (!t || batch_level(t)) return false;
  Tensor tangent = tangent_of(Tensor(Ref<TensorImpl>::share(const_cast<TensorImpl*>(t))));
  return tangent.defined() && batch_level(tangent) == level.id();
}

// The batch of the level that t is one of, or the same in all calls.
static Tensor full_batch(const Tensor& t, const BatchLevel& level) {
  if (batch_level(t) == level.id()) return physical(t);
  if (!forward_level() || !tangent_belongs(t.impl(), level)) return op::with_batch(t, level.size());
  Tensor tangent = physical(tangent_of(t)), batch;
  {
    ForwardPaused paused;
    batch = op::with_batch(t, level.size());
  }
  set_tangent(batch, tangent);
  return batch;
}
Tensor with_its_tangent(const Tensor& t, const BatchLevel& level) {
  op::Mode::With outer(level.beneath());
  return one_of(full_batch(t, level), level);
}

// From the outermost level in: what belongs to an inner level has a physical tensor in the outer ones.
static Tensor in_levels(const Tensor& t, size_t count) {
  if (!count) return t;
  BatchLevel& level = *levels[count - 1];
  if (level.same_variables() && batch_level(t) != level.id()) return in_levels(t, count - 1);
  op::Mode::With outer(level.beneath());
  return one_of(in_levels(full_batch(t, level), count - 1), level);
}
Tensor in_every_level(const Tensor& t) { return in_levels(t, levels.size()); }

static Tensor dual_in_levels(const Tensor& t, const Tensor& tangent, size_t count) {
  if (!count || !batch_level(t)) {
    Tensor dual;
    {
      ForwardPaused paused;
      dual = invoke("view_as", {t, t});
    }
    set_tangent(dual, tangent);
    return dual;
  }
  BatchLevel& level = *levels[count - 1];
  op::Mode::With outer(level.beneath());
  bool batched = batch_level(t) == level.id(), differs = batch_level(tangent) == level.id();
  if (!batched && !differs) return dual_in_levels(t, tangent, count - 1);
  Tensor batch = batched ? physical(t) : op::with_batch(t, level.size());
  Tensor direction = differs ? physical(tangent) : op::with_batch(tangent, level.size());
  return one_of(dual_in_levels(batch, direction, count - 1), level);
}
Tensor make_dual(const Tensor& t, const Tensor& tangent) { return dual_in_levels(t, tangent, levels.size()); }

Tensor tangent_in_levels(const Tensor& t) {
  auto* level = BatchLevel::find(batch_level(t));
  if (!level) return tangent_of(t);
  Tensor tangent = tangent_in_levels(physical(t));
  return tangent.defined() ? one_of(tangent, *level) : tangent;
}
void set_tangent_in_levels(const Tensor& t, const Tensor& tangent) {
  auto* level = BatchLevel::find(batch_level(t));
  if (!level || !tangent.defined()) return set_tangent(t, tangent);
  op::Mode::With outer(level->beneath());
  set_tangent_in_levels(physical(t), full_batch(tangent, *level));
}

Tensor empty_for_each(const Tensor& like, SymSpan sizes, SymSpan strides, DType dtype, Device device) {
  auto* level = like.defined() ? BatchLevel::find(batch_level(like)) : nullptr;
  if (!level) return Tensor::empty_strided(sizes, strides, dtype, device);
  Dims all{level->size()}, steps;
  SymInt room = int64_t(1);  // of one call
  for (size_t k = 0; k < sizes.size(); ++k) {
    all.push_back(sizes[k]);
    room += (sizes[k] - SymInt(int64_t(1))) * strides[k];
  }
  steps.push_back(room);
  for (SymInt s : strides) steps.push_back(s);
  return one_of(empty_for_each(physical(like), all, steps, dtype, device), *level);
}

namespace {

// Seeds of an inner level for outputs of the level `outer`: the batch of the seeds is in front of that of the outputs. Because
// the tape records physical tensors, a third level beneath both stands for the inner one.
class SeedsOfInner {
 public:
  SeedsOfInner(const BatchLevel& inner, const BatchLevel& outer)
      : inner_(inner), outer_(outer), level_(inner.another()) {}
  BatchLevel* level() const { return level_.get(); }

  Tensor seed(const Tensor& g) const {
    if (batch_level(g) != inner_.id())
      return batch_level(g) == outer_.id() ? physical(g) : op::with_batch(g, outer_.size());
    const Tensor& all = physical(g);
    supported_check(!batch_level(all) || batch_level(all) == outer_.id() ||
                        BatchLevel::find(batch_level(all))->number() < outer_.number(),
                    "grad")
        << "cannot take gradients of a batch through a level of vmap between that of the outputs and that of their "
           "gradients";
    if (batch_level(all) == outer_.id()) return one_of(exchanged(physical(all)), *level_);
    return one_of(exchanged(op::with_batch(all, outer_.size())), *level_);
  }
  Tensor seed_gradient(const Tensor& g) const {
    if (batch_level(g) != level_->id()) return one_of(g, outer_);
    return one_of(one_of(exchanged(physical(g)), outer_), inner_);
  }

 private:
  static Tensor exchanged(const Tensor& t) { return invoke("transpose", {t, int64_t(0), int64_t(1)}); }
  const BatchLevel &inner_, &outer_;
  std::unique_ptr<BatchLevel> level_;
};

}  // namespace

std::vector<Tensor> batched_grad(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                                 std::span<const Tensor> grads, bool retain_graph, bool create_graph,
                                 bool allow_unused) {
  BatchLevel* level = nullptr;
  for (auto& t : outputs)
    if (auto* l = BatchLevel::find(batch_level(t)); l && (!level || l->number() > level->number())) level = l;
  runtime_check(level, "grad") << "a tensor has left the function that vmap called with it";
  for (auto& t : inputs)
    runtime_check(batch_level(t) == level->id(), "grad")
        << "differentiates inside of vmap for a tensor that is the same in all calls of the batch, where a gradient "
           "would be the sum over the batch"
        << hint("facula.func.grad, vjp and jacrev give each call a gradient of its own");
  const BatchLevel* inner = nullptr;
  for (auto& g : grads)
    if (auto* l = g.defined() ? BatchLevel::find(batch_level(g)) : nullptr;
        l && l->number() > (inner ? inner : level)->number())
      inner = l;
  op::Mode::With outer(level->beneath());
  std::optional<SeedsOfInner> apart;
  if (inner) apart.emplace(*inner, *level);
  std::vector<Tensor> roots, wanted, seeds;
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (batch_level(outputs[k]) != level->id()) continue;  // depends on no input
    Tensor y = physical(outputs[k]), g = grads.empty() ? Tensor() : grads[k];
    if (g.defined()) {
      g = apart                           ? apart->seed(g)
          : batch_level(g) == level->id() ? physical(g)
                                          : op::with_batch(g, level->size());
    } else {
      runtime_check(outputs[k].numel() == 1, "grad")
          << "grad can be implicitly created only for scalar outputs"
          << hint("output ", k, " has shape ", to_string(outputs[k].sizes()), " in each call of the batch");
      GradMode off(false);
      g = invoke("ones_like", {y});
    }
    roots.push_back(y);
    seeds.push_back(g);
  }
  for (auto& t : inputs) wanted.push_back(physical(t));
  std::vector<Tensor> results;
  {
    op::Mode::With on(apart ? apart->level() : level->beneath());
    results = grad(roots, wanted, seeds, retain_graph, create_graph, allow_unused);
  }
  for (auto& g : results)
    if (g.defined()) g = apart ? apart->seed_gradient(g) : one_of(g, *level);
  return results;
}

}  // namespace facula::autograd
