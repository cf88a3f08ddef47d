#include "facula/op/batched.h"

#include <deque>

#include "facula/op/registry.h"

namespace facula::op {

Tensor with_batch(const Tensor& t, SymInt size) {
  static const Operator& expand = get("expand");
  Dims sizes{size};
  for (SymInt n : t.sizes()) sizes.push_back(n);
  std::vector<Value> args{t, SymSpan(sizes)};
  args.resize(expand.schema.parameters.size());
  return op::call(expand, args)[0];
}

Tensor Batched::whole(ParameterName arg) const {
  Tensor t = physical_.tensor(arg);
  return !t.defined() || is_batched(arg) ? t : with_batch(t, size_);
}

Results batched_in_front(const Batched& b) {
  auto& o = b.logical().op();
  std::vector<Value> args(b.physical().args().begin(), b.physical().args().end());
  // A number has no dimension, but `dim` may be passed for it; it then gets a dimension temporarily.
  bool numbers = o.schema.index_of("dim") >= 0 && o.schema.parameters[0].type == Type::Tensor &&
                 !o.schema.parameters[0].list && b.logical().rank(o.schema.parameters[0].name) == 0;
  static const Operator &unsqueeze = get("unsqueeze"), &squeeze = get("squeeze.dims");
  auto changed = [](const Operator& by, const Tensor& t) {
    Value arguments[] = {t, int64_t(1)};
    return op::call(by, arguments)[0];
  };
  std::vector<Tensor> alive;
  std::deque<std::vector<TensorImpl*>> lists;
  std::deque<Dims> dims;
  size_t slot = 0;
  auto physical = [&](TensorImpl* t, bool batched) {
    if (!t || (batched && !numbers)) return t;
    Tensor physical(Ref<TensorImpl>::share(t));
    if (!batched) physical = with_batch(physical, b.size());
    alive.push_back(numbers ? changed(unsqueeze, physical) : physical);
    return alive.back().impl();
  };
  for (size_t k = 0; k < args.size(); ++k) {
    auto& p = o.schema.parameters[k];
    if (p.type == Type::Tensor && !p.list) {
      if (args[k].tag == Tag::tensor) args[k] = Value(physical(args[k].tensor, b.batched()[slot]));
      ++slot;
    } else if (p.type == Type::Tensor && args[k].tag == Tag::tensors) {
      auto& list = lists.emplace_back();
      for (auto* t : args[k].tensors()) list.push_back(physical(t, b.batched()[slot++]));
      args[k] = Value(std::span<TensorImpl* const>(list));
    } else if (p.type == Type::Int && p.name == "dim") {
      auto& shifted = dims.emplace_back();
      if (p.list) {
        for (int64_t d : b.logical().dims("dim")) shifted.push_back(SymInt(d + 1));
        args[k] = Value(SymSpan(shifted));
      } else if (!b.logical().at(k).is_none()) {
        args[k] = Value(int64_t(b.logical().dim("dim")) + 1);
      }
    }
  }
  Results results = op::call(o, args);
  for (size_t k = 0; numbers && k < results.size(); ++k) results[k] = changed(squeeze, results[k]);
  return results;
}

}  // namespace facula::op
