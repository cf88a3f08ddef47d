#include "facula/op/operands.h"
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
  DTypeSet set{o.dtypes.bits & dtypes::any.bits};  // limited dtypes cannot be converted to
  if (const char* accepted_names = accepted(set)) names = accepted_names;
  else if (set.bits == dtypes::any.bits) names = "the dtypes that all operators share (x.to(dtype) converts)";
  else
    for (int i = 0; i < kDTypeCount; ++i)
      if (set.has(DType(i))) names += std::string(names.empty() ? "" : ", ") + name(DType(i));
  supported_check(false, o.name()) << "not implemented for '" << d << "'" << hint("it takes ", names);
}

DType computing_dtype(const Operator& o, std::span<const Value> args) {
  auto tensor = [](TensorImpl* t) { return Tensor(Ref<TensorImpl>::share(t)); };
  const TensorImpl* first = nullptr;
  Promotion p;
  each_operand(Call(o, args), [&](const Operand& x) {
    if (x.parameter >= args.size() || args[x.parameter].is_none()) return;  // a default does not promote
    auto& v = x.value;
    if (v.tag == Tag::tensor && x.item < 0 && !first) first = v.tensor;
    if (o.promote == Promote::none && first) return;
    if (x.tensor < 0 && o.schema.parameters[x.parameter].keyword_only)
      return;  // alpha does not promote either
    if (v.tag == Tag::tensor) p.add(tensor(v.tensor));
    else if (v.tag == Tag::scalar) p.add(v.scalar);
    else if (v.tag == Tag::integer) p.add(Scalar(int64_t(0)));
  });
  if (o.promote == Promote::none && first) return first->dtype;
  DType d = p.result();
  return o.promote == Promote::int_to_float && !is_differentiable(d) ? default_dtype() : d;
}

}  // namespace facula::op
