// Translates one call into a definition with explicit broadcasting, promotion and conversion to the result's dtype.
#include "facula/graph/trace.h"
#include "facula/op/operands.h"
#include "facula/schedule/fuse.h"

namespace facula::schedule {

using loop::Expr;
using op::Tag;

namespace {

// The index into an operand of `sizes` for element (0..rank-1) of the result; dimensions are aligned at the right. A
// guard may be the only evidence that a size is 1.
std::vector<Expr> broadcast_index(SymSpan sizes, SymSpan result) {
  std::vector<Expr> at;
  for (size_t d = 0; d < sizes.size(); ++d) {
    size_t to = result.size() - sizes.size() + d;
    bool one = SymInt::surely_equal(sizes[d], 1) ||
               (!SymInt::surely_equal(sizes[d], result[to]) && sizes[d] == SymInt(1));
    at.push_back(one ? loop::constant(Scalar(int64_t(0)), DType::Int64) : loop::index(int(to)));
  }
  return at;
}

loop::Definition lower_pointwise(const op::Operator& o, const op::Pointwise& pointwise,
                                 std::span<const op::Value> args) {
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
  op::each_operand(call, [&](const op::Operand& x) {
    DType d = x.value.is_none() ? computing : op::operand_dtype(x.value);
    auto* t = x.value.tag == Tag::tensor ? x.value.tensor : nullptr;
    operands.push_back(x.value.is_none() ? Expr()
                       : t ? converted(loop::load(x.slot, d, broadcast_index(t->sizes, metas[0].sizes)), d,
                                       t->wrapped_number)
                           : converted(loop::load(x.slot, d, {}), d, true));
  });
  loop::Definition def;
  def.rank = int(rank);
  def.values = pointwise.body(call, operands);
  internal_check(def.values.size() == metas.size())
      << o.schema.full_name() << ": the body gives " << def.values.size() << " values, the schema "
      << metas.size();
  for (size_t k = 0; k < metas.size(); ++k)
    def.values[k] = loop::cast(def.values[k], compute_type(metas[k].dtype));
  return def;
}

}  // namespace

loop::Definition lower(const op::Operator& o, std::span<const op::Value> args) {
  if (auto* pointwise = o.as<op::Pointwise>()) return lower_pointwise(o, *pointwise, args);
  auto* loop = o.as<op::Loop>();
  internal_check(loop) << o.schema.full_name() << " has no loop definition";
  loop::Definition def = loop->body(op::LoopCall(o, args));
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
