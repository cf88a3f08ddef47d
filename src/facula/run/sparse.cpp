#include "facula/run/sparse.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "facula/autograd/autograd.h"
#include "facula/autograd/calls.h"
#include "facula/op/operands.h"
#include "facula/op/registry.h"
#include "facula/op/written.h"
#include "facula/tensor/promotion.h"
#include "facula/tensor/sparse.h"

namespace facula::run {

using autograd::invoke;
using op::Form;
using op::Operator;
using op::Results;
using op::Tag;
using op::Value;

namespace {

std::vector<std::span<const SparseRules>> registered;

const SparseRule* rule_of(const Operator& o) {
  static const auto& rules = *[] {
    auto* all = new std::unordered_map<const Operator*, const SparseRule*>;
    for (auto& rules : registered)
      for (auto& r : rules) all->emplace(&op::get(r.op), &r.rule);
    return all;
  }();
  auto it = rules.find(&o);
  return it == rules.end() ? nullptr : it->second;
}

bool sparse(const TensorImpl* t) { return is_sparse(t); }

// The parameter of the only tensor of a pointwise call; -1 if it has several.
int only_tensor(const Operator& o, std::span<const Value> args) {
  int parameter = -1;
  if (!o.is<op::Pointwise>() || o.effects.writes || o.effects.draws) return -1;
  for (size_t k = 0; k < args.size(); ++k) {
    if (args[k].tag == Tag::tensors) return -1;
    if (args[k].tag != Tag::tensor || !args[k].tensor || args[k].tensor->wrapped_number) continue;
    if (parameter >= 0) return -1;
    parameter = int(k);
  }
  return parameter;
}

// Applies the operator to the values, if it maps zero to zero.
Results of_values(const Operator& o, std::span<const Value> args, int k) {
  Tensor self(Ref<TensorImpl>::share(args[size_t(k)].tensor));
  std::vector<Value> all(args.begin(), args.end());
  Tensor zero = Tensor::scalar(Scalar(int64_t(0)), self.dtype(), self.device());
  all[size_t(k)] = Value(zero);
  {
    autograd::GradMode off(false);
    Results at_zero = op::call(o, all);
    if (at_zero.size() != 1 || at_zero[0].item().to_complex() != 0.0) return {};
  }
  Tensor coalesced = is_coo(self) ? invoke("coalesce", {self}) : self,
         values = invoke("_sparse_values", {coalesced});
  all[size_t(k)] = Value(values);
  Tensor new_values = op::call(o, all)[0];
  return invoke("_sparse_with_values", {coalesced, new_values});
}

[[noreturn]] void refuse(const Operator& o, std::span<const Value> args, std::span<const Tensor> out) {
  std::string operands;
  auto describe = [&](const TensorImpl* t) {
    if (!t) return false;
    operands += (operands.empty() ? "" : ", ") + std::string(name(layout_of(t))) + " " + name(t->dtype) +
                to_string(SymSpan(t->sizes));
    return false;
  };
  op::any_tensor(args, describe);
  for (auto& t : out) describe(t.impl());
  supported_check(false, o.name()) << "does not take tensors of a sparse layout like these: " << operands
                                   << hint("to_dense() gives a tensor that every operator takes");
  __builtin_unreachable();
}

// Gives self the parts or elements and the history of a result.
Tensor placed(const Operator& o, const Tensor& self, const Tensor& result) {
  if (result.is_same(self)) return self;
  runtime_check(Dims(self.sizes()) == Dims(result.sizes()), o.name())
      << "output with shape " << to_string(self.sizes()) << " doesn't match the broadcast shape "
      << to_string(result.sizes());
  runtime_check(can_cast(result.dtype(), self.dtype()), o.name())
      << "result type " << result.dtype() << " can't be cast to the desired output type " << self.dtype();
  Tensor value = result.dtype() == self.dtype() ? result : invoke("to_dtype", {result, self.dtype()});
  runtime_check(layout_of(value) == layout_of(self), o.name())
      << "a result of layout " << name(layout_of(value)) << " cannot be written to a tensor of layout "
      << name(layout_of(self)) << hint(o.name(), " without the underscore");
  if (!is_sparse(self)) return invoke("copy", {self, value}, Form::in_place);
  self.impl()->storage = value.impl()->storage;  // aliases keep the old parts
  if (auto node = autograd::node_of(value))
    autograd::set_history(self, node, autograd::meta_of(value)->result);
  self.bump_version();
  return self;
}

}  // namespace

void add_sparse_rules(std::span<const SparseRules> rules) { registered.push_back(rules); }

void check_no_trace_of_sparse(const char* op) {
  auto* mode = op::Mode::current();
  supported_check(!mode || !mode->records(), op)
      << "cannot be traced with tensors of a sparse layout"
      << hint("call it outside of the function, or with to_dense()");
}

bool any_sparse(std::span<const Value> args, std::span<const Tensor> out) {
  return op::any_tensor(args, sparse) ||
         std::ranges::any_of(out, [](const Tensor& t) { return sparse(t.impl()); });
}

Results call_sparse(const Operator& o, std::span<const Value> args, Form form, std::span<const Tensor> out) {
  check_no_trace_of_sparse(o.name());
  if (!op::any_tensor(args, sparse)) refuse(o, args, out);  // only out= is sparse
  bool recording = autograd::needs_record(args);
  Tensor self = form == Form::in_place ? Tensor(Ref<TensorImpl>::share(args[0].tensor)) : Tensor();
  if (self.defined()) autograd::check_in_place(o.name(), self, recording);
  Results results;
  if (auto* rule = rule_of(o)) {
    results = (*rule)(op::Call(o, args), form);
  } else if (int k = only_tensor(o, args); k >= 0) {
    results = of_values(o, args, k);
  }
  if (!results.size()) refuse(o, args, out);
  if (self.defined()) return placed(o, self, results[0]);
  out = out.first(std::min(out.size(), results.size()));
  op::check_out_without_gradients(o.name(), out, recording);
  for (size_t k = 0; k < out.size(); ++k) results[k] = placed(o, out[k], results[k]);
  return results;
}

}  // namespace facula::run
