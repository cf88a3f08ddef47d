#include "facula/run/lazy.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "facula/autograd/autograd.h"
#include "facula/autograd/calls.h"
#include "facula/op/operands.h"

namespace facula::run {

using autograd::invoke;
using op::Form;
using op::Operator;
using op::Results;
using op::Value;

namespace {

bool is_lazy(const TensorImpl* t) { return t && t->is_lazy(); }

Tensor resolved(const Tensor& t) { return invoke(t.impl()->conj ? "resolve_conj" : "resolve_neg", {t}); }

// Writes the elements of `value` to those of a lazy tensor.
void write_back(const Tensor& lazy, const Tensor& value) {
  Tensor memory = lazy, stored = value;
  if (lazy.impl()->conj) {
    memory = invoke("_conj", {memory});
    stored = invoke("conj_physical", {stored});
  }
  if (lazy.impl()->neg) {
    memory = invoke("_neg_view", {memory});
    stored = invoke("neg", {stored});
  }
  invoke("copy", {memory, stored}, Form::in_place);
}

// By tensor slot: whether the call writes it.
std::vector<bool> written_slots(const Operator& o, std::span<const Value> args, Form form) {
  std::vector<bool> slots;
  op::each_operand(op::Call(o, args), [&](const op::Operand& x) {
    if (x.tensor < 0) return;
    slots.push_back(o.schema.parameters[x.parameter].written || (form == Form::in_place && x.parameter == 0));
  });
  return slots;
}

}  // namespace

bool takes_lazy(const Operator& o, Form form) {
  using op::Mode;
  bool aliases = !o.schema.returns.empty() && o.schema.returns[0].alias;
  if (!aliases || (Mode::current() && Mode::current()->records())) return false;
  return form == Form::functional || (form == Form::in_place && o.is<op::View>());
}

bool any_lazy(std::span<const Value> args, std::span<const Tensor> out) {
  return op::any_tensor(args, is_lazy) ||
         std::ranges::any_of(out, [](const Tensor& t) { return is_lazy(t.impl()); });
}

Results call_resolved(const Operator& o, std::span<const Value> args, Form form,
                      std::span<const Tensor> out) {
  op::Mode* mode = op::Mode::current();
  op::Args resolved_args(args, o.schema);
  std::vector<std::pair<Tensor, Tensor>>
      written;  // a lazy tensor, and the resolved one that is written in its place
  std::vector<Tensor> into(out.begin(), out.end());
  auto writes = written_slots(o, args, form);
  bool recording = autograd::needs_record(args);
  {
    op::Mode::With unless_traced(mode && mode->records() ? nullptr : mode);
    resolved_args.each_tensor([&](size_t slot, Tensor& t) {
      if (!t.defined() || !is_lazy(t.impl())) return;
      if (writes[slot]) autograd::check_in_place(o.name(), t, recording);
      Tensor own = resolved(t);
      if (writes[slot]) written.push_back({t, own});
      t = own;
    });
    for (auto& t : into)
      if (is_lazy(t.impl())) {
        written.push_back({t, resolved(t)});
        t = written.back().second;
      }
  }
  Results results = op::call(o, resolved_args.values(), form, into);
  for (auto& [lazy, own] : written) {
    runtime_check(Dims(lazy.sizes()) == Dims(own.sizes()), o.name())
        << "out= has shape " << to_string(lazy.sizes()) << " but the result has " << to_string(own.sizes())
        << hint("a view that conj() made cannot be resized");
    write_back(lazy, own);
    for (size_t k = 0; k < results.size(); ++k)
      if (results[k].is_same(own)) results[k] = lazy;
  }
  return results;
}

}  // namespace facula::run
