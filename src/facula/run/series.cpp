#include "facula/op/series.h"

#include <optional>

#include "facula/autograd/autograd.h"
#include "facula/base/log.h"
#include "facula/op/operator.h"
#include "facula/profile/profile.h"
#include "facula/run/below.h"
#include "facula/run/entry.h"
#include "facula/run/layout.h"

namespace facula::op {

using namespace facula::run;

namespace {

// Does nothing but kernels see calls?
bool is_plain() {
  return !TensorImpl::lazy_exist.load(std::memory_order_relaxed) && !Mode::current() && !profile::on() &&
         !log_on(Log::ops) && !below_in_use.load(std::memory_order_relaxed) &&
         !devices_in_use.load(std::memory_order_relaxed) && !autograd::inference_enabled();
}

bool lie_alike(const TensorImpl& a, const TensorImpl& b) {
  if (&a == &b) return true;
  if (a.dtype != b.dtype || a.device != b.device || a.wrapped_number != b.wrapped_number ||
      a.sizes.size() != b.sizes.size())
    return false;
  for (size_t d = 0; d < a.sizes.size(); ++d)
    if (a.sizes[d].identity() != b.sizes[d].identity() || a.strides[d].identity() != b.strides[d].identity())
      return false;
  return true;
}

}  // namespace

struct Series::State {
  const Operator& o;
  Form form;
  bool suits;                    // may calls be made past call()?
  SmallVector<Value, 8> before;  // the call before
  std::optional<EntryHandle> found;
  bool looked = false;        // `found` is of calls as `before`, if there is one
  bool all_operands = false;  // arguments are operands as they are

  // By their arguments' kinds and layouts; what is written is read as self alone.
  bool alike(std::span<const Value> args) const {
    if (before.size() != args.size()) return false;
    auto* self = form == Form::in_place ? args[0].tensor : nullptr;
    for (size_t k = 0; k < args.size(); ++k) {
      const Value &a = before[k], &b = args[k];
      if (a.tag != b.tag) return false;
      if (a.tag == Tag::tensor) {
        if (!lie_alike(*a.tensor, *b.tensor) || has_physical_layout(b.tensor)) return false;
        if (self && k > 0 && b.tensor->storage == self->storage) return false;
      } else if (a.tag != Tag::none) {
        if (!is_run_time_number(o, k, b) || operand_dtype(a) != operand_dtype(b)) return false;
      }
    }
    return true;
  }
  void look(std::span<const Value> args) {
    looked = true;
    Tensor self;
    if (form == Form::in_place) {
      self = Tensor(Ref<TensorImpl>::share(args[0].tensor));
      if (!self.is_contiguous()) return;
    }
    Key key;
    Operands operands;
    key_of(o, args, Purpose(form), key, operands);
    if (self.defined()) append(key, self, operands.values);
    found.emplace(o, key, [](Entry&) { return false; });
    if (!(*found)->plan) found.reset();
    all_operands = true;
    for (auto& v : args) all_operands &= v.tag == Tag::tensor || v.tag == Tag::scalar;
  }
  Results again(std::span<const Value> args) {
    if (o.check) o.check(Call(o, args));
    SmallVector<Value, 8> operands;
    for (size_t k = 0; !all_operands && k < args.size(); ++k)
      if (args[k].tag != Tag::none) operands.push_back(as_operand(args[k]));
    auto values = all_operands ? args : std::span<const Value>(operands);
    auto& entry = *found;
    if (form == Form::functional) return entry->program->execute(*entry->plan, values, {});
    Tensor self(Ref<TensorImpl>::share(args[0].tensor));
    autograd::check_in_place(o.name(), self, false);
    Results results = entry->program->execute(*entry->plan, values, {&self, 1});
    self.bump_version();
    return results;
  }
};

Series::Series(const Operator& op, Form form) : state_(new State{op, form, false}) {
  state_->suits = op.is<Pointwise>() && !op.effects.writes && is_plain();
}
Series::~Series() = default;

Results Series::operator()(std::span<const Value> args) {
  State& s = *state_;
  if (!s.suits) return call(s.o, args, s.form);
  bool alike = s.alike(args);
  if (!alike) {
    s.found.reset();
    s.looked = false;
  }
  s.before.assign(args.data(), args.size());
  if (!alike || autograd::needs_record(args)) return call(s.o, args, s.form);
  if (!s.looked) s.look(args);
  return s.found ? s.again(args) : call(s.o, args, s.form);
}

}  // namespace facula::op
