#include "facula/op/written.h"

#include <algorithm>

#include "facula/tensor/promotion.h"

namespace facula::op {

bool takes_exact_out(const Operator& o, std::span<const Value> args) {
  if (o.schema.returns.size() > 1) return !o.forms.exact_out || o.forms.exact_out(op::Call(o, args));
  bool of_tensor = !args.empty() && args[0].tag == Tag::tensor;
  if (int k = o.schema.index_of("dtype"); k >= 0 && !(of_tensor && o.calls()))
    return !of_tensor && !args[size_t(k)].is_none();
  if (o.forms.exact_out) return o.forms.exact_out(op::Call(o, args));
  return !o.is<op::Pointwise>() && !(o.calls() && o.effects.draws);
}

void check_conversion(const Operator& o, DType from, DType to, std::span<const Value> args, bool out) {
  if (int k = out ? -1 : o.schema.index_of("dtype"); k >= 0 && args[size_t(k)].tag == Tag::dtype) {
    runtime_check(args[size_t(k)].dtype == to, o.name())
        << "Bad in-place call: input tensor dtype " << to << " and output tensor dtype "
        << args[size_t(k)].dtype << " should match";
  }
  if (from == to) return;
  check_as(!out || !takes_exact_out(o, args), o.forms.bad_conversion, o.name())
      << "expected out tensor to have dtype " << from << ", but got " << to << " instead";
  runtime_check(out || o.result_type != op::ResultType::real || !is_complex(to), o.name())
      << "in-place " << o.name() << " is not supported for complex tensors: its result has dtype " << from
      << hint(o.name(), "() without the underscore");
  runtime_check(out || o.forms.exact_self.empty(), o.name())
      << "the " << o.forms.exact_self << " has dtype " << to << " but the operation's result requires dtype "
      << from;
  check_as(can_cast(from, to), o.forms.bad_conversion, o.name())
      << "result type " << from << " can't be cast to the desired output type " << to;
}

void check_out_without_gradients(const char* op, std::span<const Tensor> out, bool recording) {
  for (auto& t : out)
    runtime_check(!recording && !t.requires_grad(), op)
        << "functions with out=... arguments don't support automatic differentiation, but one of the arguments requires grad";
}

void check_written(const Operator& o, const Tensor& value, const Tensor& self, const std::string& where) {
  bool same = value.dim() == self.dim() &&
              std::equal(value.sizes().begin(), value.sizes().end(), self.sizes().begin());
  runtime_check(same, o.name()) << "output with shape " << to_string(self.sizes())
                                << " doesn't match the broadcast shape " << to_string(value.sizes())
                                << hint(where);
  check_as(can_cast(value.dtype(), self.dtype()), o.forms.bad_conversion, o.name())
      << "result type " << value.dtype() << " can't be cast to the desired output type " << self.dtype();
}

}  // namespace facula::op
