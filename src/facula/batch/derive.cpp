#include "facula/batch/derive.h"

#include <map>
#include <memory>
#include <mutex>

#include "facula/autograd/calls.h"
#include "facula/base/fork.h"
#include "facula/batch/level.h"
#include "facula/batch/replaced.h"
#include "facula/op/batched.h"
#include "facula/op/operands.h"
#include "facula/op/origin.h"
#include "facula/op/registry.h"

namespace facula::batch {

using loop::Expr;
using op::Operator;
using op::Tag;
using op::Type;
using op::Value;

Logical::Logical(const Operator& o, const Mask& mask, std::span<const Value> physical)
    : op_(&o), args_(physical.begin(), physical.end()) {
  size_t slot = 0;
  for (size_t k = 0; k < args_.size(); ++k) {
    auto& p = o.schema.parameters[k];
    if (p.type != Type::Tensor) continue;
    if (args_[k].tag == Tag::tensors) {
      auto& list = lists_.emplace_back();
      for (auto* t : args_[k].tensors()) list.push_back(mask[slot++] ? one(t) : t);
      args_[k] = Value(std::span<TensorImpl* const>(list));
    } else if (!p.list || args_[k].tag == Tag::tensor) {
      if (mask[slot++] && args_[k].tag == Tag::tensor) args_[k] = Value(one(args_[k].tensor));
    }
  }
}

TensorImpl* Logical::one(TensorImpl* t) {
  if (!t) return t;
  size_ = t->sizes[0];
  Dims sizes(SymSpan(t->sizes).subspan(1)), strides(SymSpan(t->strides).subspan(1));
  shells_.push_back(Tensor(make_ref<TensorImpl>(Storage(), sizes, strides, t->offset, t->dtype, t->device)));
  return shells_.back().impl();
}

namespace {

Dims in_front(SymInt size, SymSpan sizes) {
  Dims all{size};
  for (SymInt n : sizes) all.push_back(n);
  return all;
}

// ---- loops

// By operand, which counts numbers too.
std::vector<bool> operand_mask(const op::Call& c, const Mask& mask) {
  std::vector<bool> all;
  op::each_operand(c, [&](const op::Operand& x) { all.push_back(x.tensor >= 0 && mask[size_t(x.tensor)]); });
  return all;
}

// The definition of one call as that of all: the batch is a variable in front of the others, and the first index of
// every operand that has one.
loop::Definition for_all(loop::Definition d, const std::vector<bool>& operands, SymInt size, SymInt one) {
  std::vector<Expr> all = d.values;
  if (d.scatter) {
    all.push_back(d.scatter->value);
    all.insert(all.end(), d.scatter->target.begin(), d.scatter->target.end());
  }
  Expr batch = loop::index(loop::fresh_var(all));
  loop::Rewrite indexed = [&](Expr e) -> Expr {
    if (e->kind == loop::Kind::position) return e - batch * loop::size(one);
    if (e->kind != loop::Kind::load || !operands[size_t(e->slot)]) return {};
    std::vector<Expr> at{batch};
    for (auto& i : e->args) at.push_back(loop::rewrite(i, indexed));
    return loop::load(e->slot, e->memory, std::move(at), e->part);
  };
  size_t rank = d.scatter ? d.scatter->domain.size() : size_t(d.rank);
  std::vector<std::pair<int, Expr>> later{{batch->slot, loop::index(0)}};
  for (size_t v = 0; v < rank; ++v) later.push_back({int(v), loop::index(int(v) + 1)});
  auto moved = [&](Expr e) { return loop::substitute(loop::rewrite(e, indexed), later); };
  for (auto& v : d.values) v = moved(v);
  if (auto& s = d.scatter) {
    s->value = moved(s->value);
    for (auto& t : s->target) t = moved(t);
    s->target.insert(s->target.begin(), loop::index(0));
    s->domain = in_front(size, s->domain);
  }
  ++d.rank;
  return d;
}

op::Loop loop_of(const Operator& o, const Mask& mask) {
  op::Loop all;
  all.shape = [&o, mask](const op::Call& c) {
    Logical one(o, mask, c.args());
    auto shapes = o.as<op::Loop>()->shape(one.call());
    for (auto& s : shapes) s = in_front(one.size(), s);
    return shapes;
  };
  all.body = [&o, mask](const op::LoopCall& c) {
    Logical one(o, mask, c.args());
    op::LoopCall call(o, one.args());
    auto d = o.as<op::Loop>()->body(call);
    auto shapes = o.as<op::Loop>()->shape(call);
    return for_all(std::move(d), operand_mask(call, mask), one.size(),
                   shapes.empty() ? SymInt(int64_t(1)) : product(shapes[0]));
  };
  return all;
}

// ---- views

void replay(op::Geometry& g, const op::ViewStep& s, DType base, DType result) {
  using Kind = op::ViewStep::Kind;
  switch (s.kind) {
    case Kind::permute: {
      Ints order{0};
      for (int64_t d : s.order) order.push_back(d + 1);
      g.permute(order);
      break;
    }
    case Kind::slice: g.slice(s.dim + 1, s.start, s.length, s.step); break;
    case Kind::select: g.select(s.dim + 1, s.start); break;
    case Kind::expand:
      for (size_t added = s.sizes.size() - s.before.size(); added--;) g.insert(1);
      g.expand(in_front(g.size(0), s.sizes));
      break;
    case Kind::insert: g.insert(s.dim + 1); break;
    case Kind::erase: g.erase(s.dim + 1); break;
    case Kind::reshape: g.reshape(in_front(g.size(0), s.sizes)); break;
    case Kind::strided:
      g.strided(in_front(g.size(0), s.sizes), in_front(g.strides()[0], s.strides), s.start);
      break;
    case Kind::diagonal: g.diagonal(s.dim + 1, s.dim2 + 1, s.start); break;
    case Kind::as_real: g.as_real(g.dtype(base)); break;
    case Kind::as_complex: g.as_complex(g.dtype(base)); break;
    case Kind::as_dtype: g.as_dtype(g.dtype(base), result); break;
    case Kind::conj: g.conj(); break;
    case Kind::neg: g.neg(); break;
  }
}

op::View view_of(const Operator& o, const Mask& mask) {
  return {[&o, mask](const op::Call& c, op::Geometry&& g) {
    Logical one(o, mask, c.args());
    DType base = c.args()[0].tensor->dtype;
    op::Geometry inner(o.name(), g.sizes().subspan(1), g.strides().subspan(1), g.offset());
    std::vector<op::Geometry> all;
    for (auto& v : o.as<op::View>()->rule(one.call(), std::move(inner))) {
      op::Geometry whole = g;
      for (auto& s : v.steps()) replay(whole, s, base, v.dtype(base));
      all.push_back(std::move(whole));
    }
    return op::Views(std::move(all));
  }};
}

// ---- gradients by rule

// The view of one call's rule on the gradient of the batch.
class OfOne final : public op::Vjp {
 public:
  OfOne(const op::Vjp& all, const Operator& o, const Mask& mask, const Level& level)
      : all_(all),
        logical_(o, mask, all.call().args()),
        call_(o, logical_.args()),
        mask_(mask),
        level_(level) {}
  Tensor grad(int r) const override { return one(all_.grad(r), true); }
  Tensor operator[](op::ParameterName arg) const override { return item(arg, 0, all_[arg]); }
  Tensor item(op::ParameterName arg, int k) const override { return item(arg, k, all_.item(arg, k)); }
  Tensor result(int k) const override { return one(all_.result(k), true); }
  bool needs(op::ParameterName arg, int k) const override { return all_.needs(arg, k); }
  const op::Call& call() const override { return call_; }

 private:
  Tensor item(op::ParameterName arg, int k, const Tensor& t) const {
    return one(t, mask_[size_t(call_.tensor_slot(arg, k))]);
  }
  Tensor one(const Tensor& t, bool batched) const {
    return t.defined() && batched ? autograd::one_of(t, level_) : t;
  }
  const op::Vjp& all_;
  Logical logical_;
  op::Call call_;
  const Mask& mask_;
  const Level& level_;
};

op::VjpRule vjp_of(const Operator& o, const Mask& mask) {
  return [&o, mask](const op::Vjp& v) {
    Level level(Logical(o, mask, v.call().args()).size(), Randomness::same);
    op::Grads grads;
    {
      op::Mode::With on(&level);
      OfOne one(v, o, mask, level);
      grads = o.vjp(one);
    }
    for (size_t k = 0; k < grads.size(); ++k) {
      Tensor& g = grads[k];
      if (!g.defined()) continue;
      g = level.leave(g, 0);
      if (k < mask.size() && !mask[k])
        g = autograd::invoke("sum", {g, SymSpan(Dims{SymInt(int64_t(0))}), false});
    }
    return grads;
  };
}

// ---- composites: the body's calls in a level of their own, fused as those of one call are

op::Composite composite_of(const Operator& o, const Mask& mask) {
  op::Composite all = *o.as<op::Composite>();
  all.body = [&o, mask](const op::Call& c) {
    Logical one(o, mask, c.args());
    Level level(one.size(), Randomness::same);
    Replaced args(o, c.args(),
                  [&](size_t slot, const Tensor& t) { return mask[slot] ? autograd::one_of(t, level) : t; });
    op::Results results;
    {
      op::Mode::With on(&level);
      results = o.as<op::Composite>()->body(op::Call(o, args.values()));
    }
    for (size_t k = 0; k < results.size(); ++k)
      if (results[k].defined()) results[k] = level.leave(results[k], 0);
    return results;
  };
  return all;
}

}  // namespace

int base_of_scatter(const Operator& o, std::span<const Value> args) {
  op::LoopCall call(o, args);
  auto d = o.as<op::Loop>()->body(call);
  if (!d.scatter || d.scatter->base < 0) return -1;
  int base = -1;
  op::each_operand(call, [&](const op::Operand& x) {
    if (x.slot == d.scatter->base) base = x.tensor;
  });
  return base;
}

const Operator& batched(const Operator& o, const Mask& mask) {
  static TableMutex mutex;
  static std::map<std::pair<const Operator*, Mask>, const Operator*> known;
  {
    std::lock_guard lock(mutex);
    if (auto it = known.find({&o, mask}); it != known.end()) return *it->second;
  }
  auto all = std::make_unique<Operator>();
  all->schema = op::parse_schema(o.schema.text);
  all->schema.overload = o.schema.overload;
  all->schema.overload += o.schema.overload.empty() ? "vmap_" : "+vmap_";
  for (bool b : mask) all->schema.overload += b ? '1' : '0';
  all->doc = "A batch of " + o.schema.full_name() + ".";
  all->namespaces = op::hidden;
  all->effects = o.effects;
  all->dtypes = o.dtypes;
  all->promote = o.promote;
  all->strict = o.strict;
  all->result_type = o.result_type;
  if (o.dtype_rule)
    all->dtype_rule = [&o, mask](const op::Call& c) {
      return o.dtype_rule(Logical(o, mask, c.args()).call());
    };
  all->autocast = o.autocast;
  all->autocast_rule = o.autocast_rule;
  all->differentiable = o.differentiable;
  all->non_differentiable = o.non_differentiable;
  if (o.check) all->check = [&o, mask](const op::Call& c) { o.check(Logical(o, mask, c.args()).call()); };
  all->bad_index = o.bad_index;
  all->refusals = o.refusals;
  all->parent = &o;
  if (o.is<op::View>()) all->definition = view_of(o, mask);
  else if (o.is<op::Composite>()) all->definition = composite_of(o, mask);
  else all->definition = loop_of(o, mask);
  if (o.vjp && !o.is<op::View>()) all->vjp = vjp_of(o, mask);
  // Only a registered operator is identified by its name.
  bool named = op::is_found(o);
  std::lock_guard lock(mutex);
  auto& found = known[{&o, mask}];
  if (!found) found = named ? &op::register_derived(std::move(all)) : all.release();
  return *found;
}

const Operator* by_name(std::string_view full_name) {
  auto at = full_name.rfind("vmap_");
  if (at == full_name.npos || at == 0 || (full_name[at - 1] != '.' && full_name[at - 1] != '+'))
    return nullptr;
  auto* o = op::find(full_name.substr(0, at - 1));
  Mask mask;
  for (char c : full_name.substr(at + 5)) {
    if (c != '0' && c != '1') return nullptr;
    mask.push_back(c == '1');
  }
  bool derives = o && (o->is<op::View>() || o->is<op::Composite>() || o->is<op::Loop>());
  return derives && !mask.empty() ? &batched(*o, mask) : nullptr;
}

}  // namespace facula::batch
