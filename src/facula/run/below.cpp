#include "facula/run/below.h"

#include <unordered_map>
#include <vector>

#include "facula/autograd/autograd.h"
#include "facula/op/operator.h"
#include "facula/op/origin.h"
#include "facula/op/registry.h"

namespace facula::run {

using op::Form;
using op::Operator;
using op::Results;
using op::Value;

std::atomic<bool> below_in_use{false};

namespace {
FindBelow find = nullptr;

std::vector<std::span<const Decomposition>> given;

const Decomposition* decomposition_of(const Operator& o) {
  static const auto all = [] {
    std::unordered_map<const Operator*, const Decomposition*> all;
    for (auto& list : given)
      for (auto& s : list) all[&op::get(s.op)] = &s;
    return all;
  }();
  auto it = all.find(&o);
  return it == all.end() ? nullptr : it->second;
}

bool is_operand(const Tensor& t, std::span<const Value> args) {
  return op::any_tensor(args, [&](TensorImpl* given) { return given == t.impl(); });
}
}  // namespace

void set_find_below(FindBelow f) {
  find = f;
  below_in_use.store(true, std::memory_order_relaxed);
}

Below* find_below(std::span<const Value> args, std::span<const Tensor> out) {
  return find ? find(args, out) : nullptr;
}

void set_decompositions(std::span<const Decomposition> all) { given.push_back(all); }

bool seen_whole(const Operator& o, Form form, bool recording, const Parts*& parts) {
  auto* known = decomposition_of(o);
  parts = known && known->parts ? &known->parts : nullptr;
  if (parts && form == Form::functional) return false;
  parts = nullptr;
  if (!o.calls()) return true;
  recording &= o.differentiable;
  bool written = form != Form::functional || o.schema.mutates();
  if (recording && !o.vjp && (written || o.effects.draws)) return false;
  if (o.effects.draws) return known;
  if (o.is<op::Composite>()) return op::is_found(o);  // a program has no name to be called by
  // What cannot be traced has no gradient as one call.
  bool traceable = !o.has_number_operands() && !o.effects.reads_data;
  return known && (!recording || o.vjp || traceable);
}

Results taken(Below& below, const Operator& o, std::span<const Value> args, Form form,
              std::span<const Tensor> out) {
  Results results;
  {
    autograd::GradMode off(false);
    results = below.take(o, args, form, out);
  }
  if (form == Form::functional) {
    // What was given back as it came, or as another call made it, keeps its own history.
    for (size_t k = 0; k < results.size(); ++k)
      if (results[k].defined() && !o.schema.mutates() &&
          (is_operand(results[k], args) || results[k].impl()->has_node || results[k].impl()->requires_grad))
        results[k] = results[k].detached();
    return results;
  }
  results = {};
  if (form == Form::in_place) results.push_back(Tensor(Ref<TensorImpl>::share(args[0].tensor)));
  else
    for (auto& t : out) results.push_back(t);
  return results;
}

}  // namespace facula::run
