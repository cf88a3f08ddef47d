#include "facula/batch/level.h"

#include <algorithm>
#include <deque>

#include "facula/autograd/autograd.h"
#include "facula/autograd/calls.h"
#include "facula/autograd/forward.h"
#include "facula/base/random.h"
#include "facula/base/thread_state.h"
#include "facula/batch/derive.h"
#include "facula/batch/replaced.h"
#include "facula/graph/trace.h"
#include "facula/op/batched.h"
#include "facula/op/written.h"
#include "facula/tensor/promotion.h"

namespace facula::batch {

using autograd::invoke;
using autograd::one_of;
using autograd::physical;
using op::Form;
using op::Operator;
using op::Results;
using op::Tag;
using op::Type;
using op::Value;

namespace {

Tensor share(TensorImpl* t) { return Tensor(Ref<TensorImpl>::share(t)); }

constexpr const char* kDynamic =
    "vmap: We do not support batching operators that can output dynamic shape. Attempted to vmap over ";

// `t` with dimensions of size 1 inserted behind the batch, so that each example has `rank` dimensions.
Tensor aligned(const Tensor& t, int rank) {
  int missing = rank - (t.dim() - 1);
  if (missing <= 0) return t;
  Dims sizes{t.size(0)};
  for (; missing; --missing) sizes.push_back(SymInt(int64_t(1)));
  for (int d = 1; d < t.dim(); ++d) sizes.push_back(t.size(d));
  return invoke("view", {t, SymSpan(sizes)});
}

}  // namespace

uint64_t calls_one_by_one() { return thread_state.calls_one_by_one; }

void Level::refuse_write(const Operator& o, const Tensor& target) {
  refused_ = target.impl()->storage.get();
  runtime_check(false, o.name())
      << "vmap: inplace arithmetic(self, *extra_args) is not possible because there exists a Tensor `other` in extra_args that has more "
         "elements than `self`. This happened due to `other` being vmapped over but `self` not being vmapped over in a vmap. Please try to "
         "use out-of-place operators instead of inplace arithmetic."
      << hint(
             "`", o.schema.parameters[0].name,
             "` is one tensor for all calls of the batch, but what is written to it differs from call to call");
  __builtin_unreachable();
}

bool Level::any(std::span<const Value> args) const {
  return op::any_tensor(args, [this](const TensorImpl* t) { return has(t); });
}

Tensor Level::enter(const Tensor& t, int dim) const {
  op::Mode::With outer(beneath());
  Dims order{SymInt(int64_t(dim))};
  for (int d = 0; d < t.dim(); ++d)
    if (d != dim) order.push_back(SymInt(int64_t(d)));
  return one_of(dim ? invoke("permute", {t, SymSpan(order)}) : invoke("view_as", {t, t}), *this);
}

Tensor Level::leave(const Tensor& t, int dim) const {
  op::Mode::With outer(beneath());
  Tensor whole = has(t) ? physical(t) : op::with_batch(t, size());
  if (dim == 0) return whole;
  Dims order;
  for (int d = 1; d < whole.dim(); ++d) order.push_back(SymInt(int64_t(d)));
  order.insert(size_t(dim), SymInt(int64_t(0)));
  return invoke("permute", {whole, SymSpan(order)});
}

Results Level::wrapped(Results all) const {
  for (size_t k = 0; k < all.size(); ++k)
    if (all[k].defined()) all[k] = one_of(all[k], *this);
  return all;
}

// Results of calls on tensors of the level belong to the level, so that batched values can be written to them.
Results Level::as_batch(Results results) const {
  for (size_t k = 0; k < results.size(); ++k) {
    if (!results[k].defined() || has(results[k])) continue;
    With outer(beneath());
    results[k] = one_of(invoke("clone", {op::with_batch(results[k], size())}), *this);
  }
  return results;
}

Results Level::inside(const std::function<Results(const op::Call&)>& body, const Operator& o,
                      std::span<const Value> args) {
  With on(caller_);
  return body(op::Call(o, args));
}

Results Level::take(const Operator& o, std::span<const Value> args, Form form, std::span<const Tensor> out) {
  struct Caller {
    explicit Caller(Level* l) : level(l), outer(std::exchange(l->caller_, Mode::current())) {}
    ~Caller() { level->caller_ = outer; }
    Level* level;
    Mode* outer;
  } caller(this);
  With outer(beneath());
  bool draws = o.effects.draws, by_body = o.calls() && !o.effects.reads_data;  // then its calls tell
  if (draws) final_ = !by_body && randomness_ == Randomness::error;
  runtime_check(!draws || !final_, o.name())
      << "vmap: called random operation while in randomness error mode. Please either use the 'same' or 'different' randomness flags on vmap "
         "or perform the randomness operation out of vmap";
  if (autograd::forward_level() && tangents_differ(args)) [[unlikely]] {
    Replaced all(o, args, [&](size_t slot, const Tensor& t) {
      bool written = form == Form::in_place && slot == 0;
      return !written && autograd::tangent_belongs(t.impl(), *this) ? autograd::with_its_tangent(t, *this)
                                                                    : t;
    });
    return within(o, all.values(), form, out);
  }
  return within(o, args, form, out);
}

// True if some argument differs in each call of the batch, and of another one the tangent alone does.
bool Level::tangents_differ(std::span<const Value> args) const {
  auto differs = [this](const TensorImpl* t) {
    auto* level = BatchLevel::find(autograd::batch_level(t));
    return level && level->number() <= number();
  };
  return op::any_tensor(args, differs) &&
         op::any_tensor(args, [this](const TensorImpl* t) { return autograd::tangent_belongs(t, *this); });
}

Results Level::within(const Operator& o, std::span<const Value> args, Form form,
                      std::span<const Tensor> out) {
  bool draws = o.effects.draws;
  bool batched = any(args), drawn_apart = draws && randomness_ != Randomness::same;
  if (form == Form::out) {
    bool written = std::ranges::any_of(out, [this](auto& t) { return has(t); });
    runtime_check(!batched && !written && !drawn_apart, o.name())
        << "Batching rule not implemented for " << o.name()
        << ".out; vmap does not work on out=" << hint("call it without out=");
  }
  if (!batched && !drawn_apart) return op::call(o, args, form, out);
  if (form == Form::in_place) return in_place(o, args);
  if (draws) return drawn(o, args);
  return functional(o, args);
}

// By the rule of its kind. What that refuses the calls may do one by one; else they say what is wrong, of one call.
Results Level::functional(const Operator& o, std::span<const Value> args) {
  if (o.effects.writes) return by_kind(o, args);
  std::optional<Error> refused;
  bool retried = final_ = false;
  refused_ = nullptr;
  for (;; retried = true) {
    try {
      if (!retried) return by_kind(o, args);
      Replaced all(o, args, [this](size_t, const Tensor& t) {
        return has(t) ? t : one_of(invoke("clone", {op::with_batch(t, size())}), *this);
      });
      return by_kind(o, all.values());
    } catch (const Error& e) { refused = e; }
    // The destination is shared by all calls of the batch, which no rule can change.
    bool given = refused_ && op::any_tensor(args, [this](const TensorImpl* t) {
                   return t && t->storage.get() == refused_;
                 });
    if (given || final_ || refused->type() == ErrorType::KeyboardInterrupt) throw *refused;
    if (retried || !std::exchange(refused_, nullptr)) break;
  }
  if (o.is<op::DataDependent>() || !(size().hint() > 0)) throw *refused;
  return one_by_one(o, args);
}

Results Level::by_kind(const Operator& o, std::span<const Value> args) {
  if (o.is<op::Pointwise>()) return pointwise(o, args, Form::functional);
  bool composite = o.is<op::Composite>() && !o.effects.writes && !o.effects.draws && !o.effects.reads_data;
  if (composite || o.is<op::Loop>() || o.is<op::View>()) return derived(o, args);
  runtime_check(!o.is<op::DataDependent>(), o.name())
      << kDynamic << o.name() << "." << hint("its result has another size for each call of the batch");
  if (o.batched)
    if (Results results = by_rule(o, args); results.size()) return results;
  if (auto* body = o.calls(); body && !o.effects.reads_data) {
    Results results = inside(*body, o, args);
    return o.effects.writes ? results : as_batch(std::move(results));
  }
  return one_by_one(o, args);
}

// Numbers of the generator's sequence, for each call its own; what is made of them follows.
Results Level::drawn(const Operator& o, std::span<const Value> args) {
  if (auto* body = o.calls(); body && !o.effects.reads_data) {
    Results results = inside(*body, o, args);
    return any(args) && !o.effects.writes ? as_batch(std::move(results)) : results;
  }
  bool counts =
      !any(args) && o.schema.parameters[0].type == Type::Int;  // what takes n numbers of a generator
  if (!counts) { return one_by_one(o, args); }
  std::vector<Value> all(args.begin(), args.end());
  SymInt n = args[0].integer();
  all[0] = Value(n * size());
  Tensor state = op::call(o, all)[0];  // seed and first counter
  Tensor calls = autograd::invoke_named("arange", {{"end", Scalar(size().concrete())}});
  Tensor step = invoke("mul", {calls, Scalar(n.concrete())});
  Tensor seed = invoke("select", {state, int64_t(0), int64_t(0)}),
         first = invoke("select", {state, int64_t(0), int64_t(1)});
  Tensor counters = invoke("add", {step, first}),
         seeds = invoke("add", {invoke("mul", {step, Scalar(int64_t(0))}), seed});
  std::vector<Tensor> both{seeds, counters};
  return one_of(invoke("stack", {Value(std::span<const Tensor>(both)), int64_t(1)}), *this);
}

Results Level::pointwise(const Operator& o, std::span<const Value> args, Form form) {
  int rank = 0;
  bool any_number = false;
  size_t tensors = 0;
  op::any_tensor(args, [&](const TensorImpl* t) {
    if (!t) return false;
    rank = std::max(rank, int(t->sizes.size()));
    any_number |= has(t) && t->sizes.empty();
    ++tensors;
    return false;
  });
  Replaced all(o, args, [&](size_t, const Tensor& t) { return has(t) ? aligned(physical(t), rank) : t; });
  // A tensor without dimensions promotes less than others, but has one here.
  if (any_number && tensors > 1 && o.promote != op::Promote::none) {
    DType wanted = op::computing_dtype(o, args);
    if (op::computing_dtype(o, all.values()) != wanted) {
      bool in_place = form == Form::in_place;
      Replaced cast(o, all.values(), [&](size_t slot, const Tensor& t) {
        bool keep = t.dtype() == wanted || (in_place && slot == 0) || !can_cast(t.dtype(), wanted);
        return keep ? t : invoke("to_dtype", {t, wanted});
      });
      return wrapped(op::call(o, cast.values(), form));
    }
  }
  if (form == Form::in_place) {
    op::call(o, all.values(), form);
    return {};
  }
  return wrapped(op::call(o, all.values()));
}

Results Level::in_place(const Operator& o, std::span<const Value> args) {
  Tensor self = share(args[0].tensor);
  if (o.is<op::View>()) {
    if (!has(self)) return op::call(o, args, Form::in_place);
    autograd::set_physical(self, physical(derived(o, args)[0]));
    return self;
  }
  runtime_check(has(self) || any(args), o.name())
      << "vmap: Cannot ask for different inplace randomness on an unbatched tensor. This will appear like same randomness."
      << hint("make the tensor of one of the batch: x.new_empty(size), empty_like(x)");
  if (!has(self)) refuse_write(o, self);
  if (o.is<op::Pointwise>()) {
    Dims shape;
    std::vector<SymSpan> sizes;
    op::any_tensor(args, [&](const TensorImpl* t) {
      if (t) sizes.push_back(t->sizes);
      return false;
    });
    shape = broadcast_sizes(o.name(), sizes);
    runtime_check(shape == Dims(self.sizes()), o.name())
        << "output with shape " << to_string(self.sizes()) << " doesn't match the broadcast shape "
        << to_string(SymSpan(shape)) << hint("of each call of the batch");
    pointwise(o, args, Form::in_place);
  } else if (auto* procedure = o.as<op::Procedure>(); procedure && procedure->in_place) {
    inside(procedure->in_place, o, args);
  } else {
    Replaced read(o, args,
                  [&](size_t slot, const Tensor& t) {  // the tape may need the value that will be overwritten
                    return slot == 0 && autograd::needs_record(args)
                               ? one_of(invoke("clone", {physical(t)}), *this)
                               : t;
                  });
    Tensor value = o.effects.draws ? drawn(o, read.values())[0] : functional(o, read.values())[0];
    op::check_written(o, value, self, "of each call of the batch");
    Tensor whole = has(value) ? physical(value) : value;
    invoke("copy", {physical(self), whole}, Form::in_place);
  }
  autograd::set_physical(self, physical(self));
  return self;
}

Results Level::derived(const Operator& o, std::span<const Value> args) {
  bool view = o.is<op::View>();
  Mask mask;
  int base = o.is<op::Loop>() ? base_of_scatter(o, args) : -1;
  Replaced all(o, args, [&](size_t slot, const Tensor& t) {
    mask.resize(slot);  // None before it
    bool batched = has(t) && (!view || slot == 0);
    bool expanded = !view && int(slot) == base && !has(t);
    mask.push_back(batched || expanded);
    return batched ? physical(t) : expanded ? op::with_batch(t, size()) : t;
  });
  mask.resize(all.slots());
  if (std::ranges::none_of(mask, [](bool b) { return b; })) return op::call(o, args);
  return wrapped(op::call(batched(o, mask), all.values()));
}

Results Level::by_rule(const Operator& o, std::span<const Value> args) {
  std::unique_ptr<bool[]> mask;
  std::vector<bool> marks;
  Replaced all(o, args, [&](size_t slot, const Tensor& t) {
    marks.resize(slot);
    marks.push_back(has(t));
    return has(t) ? physical(t) : t;
  });
  mask = std::make_unique<bool[]>(all.slots() + 1);
  for (size_t k = 0; k < marks.size(); ++k) mask[k] = marks[k];
  return wrapped(o.batched(op::Batched(o, args, all.values(), std::span(mask.get(), all.slots()), size())));
}

Results Level::one_by_one(const Operator& o, std::span<const Value> args) {
  int64_t n = size().concrete();
  if (n == 0) {
    Results none;
    for (auto& m : graph::infer(o, args)) {
      Dims sizes{SymInt(int64_t(0))};
      for (SymInt s : m.sizes) sizes.push_back(s);
      none.push_back(Tensor::empty(sizes, m.dtype, m.device));
    }
    return wrapped(std::move(none));
  }
  ++thread_state.calls_one_by_one;
  Generator* generator = &default_generator();
  for (auto& v : args)
    if (v.tag == Tag::generator) generator = v.generator;
  auto seed = generator->seed(), offset = generator->offset();
  std::vector<std::vector<Tensor>> columns;  // by result
  for (int64_t i = 0; i < n; ++i) {
    if (i && o.effects.draws && randomness_ == Randomness::same) generator->set_state(seed, offset);
    Replaced one(o, args, [&](size_t, const Tensor& t) {
      return has(t) ? invoke("select", {physical(t), int64_t(0), i}) : t;
    });
    Results results = op::call(o, one.values());
    columns.resize(std::max(columns.size(), results.size()));
    runtime_check(columns.size() == results.size(), o.name()) << kDynamic << o.name() << ".";
    for (size_t k = 0; k < results.size(); ++k) columns[k].push_back(results[k]);
  }
  Results stacked;
  for (auto& c : columns) {
    if (!c[0].defined()) {
      stacked.push_back({});
      continue;
    }
    for (auto& t : c)
      runtime_check(Dims(t.sizes()) == Dims(c[0].sizes()), o.name())
          << kDynamic << o.name() << "."
          << hint("its result has shape ", to_string(c[0].sizes()), " in one call of the batch and ",
                  to_string(t.sizes()), " in another");
    stacked.push_back(invoke("stack", {Value(std::span<const Tensor>(c)), int64_t(0)}));
  }
  return wrapped(std::move(stacked));
}

}  // namespace facula::batch
