#include "facula/op/operator.h"
#include "facula/tensor/promotion.h"

namespace facula::op {

static const char* accepted(DTypeSet set) {
  if (set.bits == dtypes::floating.bits) return "floating dtypes (x.float() converts)";
  if (set.bits == (dtypes::floating | dtypes::complex).bits)
    return "floating and complex dtypes (x.float() converts)";
  if (set.bits == dtypes::numeric.bits) return "every dtype but bool";
  if (set.bits == (dtypes::integral | dtypes::boolean).bits) return "integer dtypes and bool";
  if (set.bits == dtypes::real.bits) return "every dtype but complex ones";
  return nullptr;
}

void check_accepted(const Operator& o, DType d) {
  if (o.dtypes.has(d)) return;
  std::string names;
  if (const char* known = accepted(o.dtypes)) names = known;
  else
    for (int i = 0; i < kDTypeCount; ++i)
      if (o.dtypes.has(DType(i))) names += std::string(names.empty() ? "" : ", ") + name(DType(i));
  supported_check(false, o.name()) << "not implemented for '" << d << "'" << hint("it takes ", names);
}

DType computing_dtype(const Operator& o, std::span<const Value> args) {
  auto tensor = [](TensorImpl* t) { return Tensor(Ref<TensorImpl>::share(t)); };
  const TensorImpl* first = nullptr;
  Promotion p;
  for (size_t k = 0; k < args.size(); ++k) {
    auto& v = args[k];
    auto& parameter = o.schema.parameters[k];
    if (parameter.type != Type::Tensor && parameter.type != Type::Scalar) continue;
    if (v.tag == Tag::tensor && !first) first = v.tensor;
    if (parameter.type == Type::Scalar && parameter.keyword_only) continue;  // alpha does not promote
    if (v.tag == Tag::tensor) p.add(tensor(v.tensor));
    else if (v.tag == Tag::scalar) p.add(v.scalar);
    else if (v.tag == Tag::integer) p.add(Scalar(int64_t(0)));
    else if (v.tag == Tag::tensors)
      for (auto* t : v.tensors())
        if (t) p.add(tensor(t));
  }
  if (o.promote == Promote::none && first) return first->dtype;
  DType d = p.result();
  return o.promote == Promote::int_to_float && !is_differentiable(d) ? default_dtype() : d;
}

}  // namespace facula::op
