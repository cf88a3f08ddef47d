// One call as a definition: broadcasting, promotion and the result's dtype made explicit.
#include "facula/graph/trace.h"
#include "facula/schedule/fuse.h"

namespace facula::schedule {

using loop::Expr;
using op::OpKind;
using op::Tag;
using op::Type;

namespace {

// The element of an operand of `sizes` that meets element (0..rank-1) of the result: dimensions align at the
// right.
std::vector<Expr> broadcast_index(SymSpan sizes, size_t rank) {
  std::vector<Expr> at;
  for (size_t d = 0; d < sizes.size(); ++d) {
    bool one = SymInt::surely_equal(sizes[d], 1);
    at.push_back(one ? loop::constant(Scalar(int64_t(0)), DType::Int64)
                     : loop::index(int(rank - sizes.size() + d)));
  }
  return at;
}

loop::Definition lower_pointwise(const op::Operator& o, std::span<const op::Value> args) {
  op::LoopCall call(o, args);
  auto metas = graph::infer(o, args);
  DType computing = graph::compute_dtype(o, args);
  size_t rank = metas.at(0).sizes.size();
  std::vector<Expr> operands;
  auto converted = [&](Expr x, DType memory, bool number) {
    if (o.promote == op::Promote::none) return x;
    x = loop::cast(x, compute_type(computing));
    return number || memory == computing ? x : loop::round_to(x, computing);
  };
  auto tensor = [&](TensorImpl* t) {
    if (!t) return Expr();
    int slot = int(operands.size());
    return converted(loop::load(slot, t->dtype, broadcast_index(t->sizes, rank)), t->dtype,
                     t->wrapped_number);
  };
  for (size_t k = 0; k < o.schema.parameters.size(); ++k) {
    auto& p = o.schema.parameters[k];
    auto& v = call.at(k);
    if (p.type != Type::Tensor && !(p.type == Type::Scalar && !p.list)) continue;
    if (v.tag == Tag::tensors)
      for (auto* t : v.tensors()) operands.push_back(tensor(t));
    else if (p.list) continue;
    else if (v.tag == Tag::tensor) operands.push_back(tensor(v.tensor));
    else if (v.is_none()) operands.push_back(Expr());
    else {
      DType d = op::operand_dtype(v);
      operands.push_back(converted(loop::load(int(operands.size()), d, {}), d, true));
    }
  }
  loop::Definition def;
  def.rank = int(rank);
  def.values = o.body(call, operands);
  internal_check(def.values.size() == metas.size())
      << o.schema.full_name() << ": the body gives " << def.values.size() << " values, the schema "
      << metas.size();
  for (size_t k = 0; k < metas.size(); ++k)
    def.values[k] = loop::cast(def.values[k], compute_type(metas[k].dtype));
  return def;
}

}  // namespace

loop::Definition lower(const op::Operator& o, std::span<const op::Value> args) {
  if (o.kind == OpKind::pointwise) return lower_pointwise(o, args);
  internal_check(o.loop) << o.schema.full_name() << " has no loop definition";
  loop::Definition def = o.loop(op::LoopCall(o, args));
  auto metas = graph::infer(o, args);
  if (!def.scatter) {
    internal_check(def.values.size() == metas.size())
        << o.schema.full_name() << ": the loop gives " << def.values.size() << " values, the schema "
        << metas.size();
    def.rank = int(metas[0].sizes.size());
    for (size_t k = 0; k < metas.size(); ++k)
      def.values[k] = loop::cast(def.values[k], compute_type(metas[k].dtype));
  } else {
    def.scatter->value = loop::cast(def.scatter->value, compute_type(metas.at(0).dtype));
  }
  return def;
}

}  // namespace facula::schedule
