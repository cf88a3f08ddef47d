#include "facula/run/destination.h"

#include <algorithm>

#include "facula/base/warning.h"
#include "facula/op/operator.h"
#include "facula/tensor/promotion.h"

namespace facula::run {

using op::Form;
using op::Operator;
using op::Tag;
using op::Value;

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

bool check_destination(const Operator& o, size_t k, const op::Meta& m, const Tensor& out,
                       std::span<const Value> args, Form form) {
  bool same_size =
      m.sizes.size() == out.sizes().size() && std::equal(m.sizes.begin(), m.sizes.end(), out.sizes().begin());
  if (form == Form::in_place) {
    runtime_check(same_size, o.name()) << "output with shape " << to_string(out.sizes())
                                       << " doesn't match the broadcast shape " << to_string(SymSpan(m.sizes))
                                       << hint("an in-place operator cannot grow its first argument; use ",
                                               o.name(), " without the underscore");
  } else if (!same_size) {
    auto* t = out.impl();
    if (product(out.sizes()) != SymInt(int64_t(0)))
      warn(
          "An output with one or more elements was resized since it had shape " + to_string(out.sizes()) +
          ", which does not match the required output shape " + to_string(SymSpan(m.sizes)) +
          ". This behavior is deprecated, and in a future PyTorch release outputs will not be resized unless they have zero "
          "elements. You can explicitly reuse an out tensor t by resizing it, inplace, to zero elements with t.resize_(0).");
    // Others compute elsewhere before they write.
    bool direct = o.is<op::Pointwise>() || o.is<op::Loop>();
    runtime_check(!direct || !op::any_tensor(args, [&](const TensorImpl* x) { return x == t; }), o.name())
        << "output with shape " << to_string(out.sizes()) << " doesn't match the broadcast shape "
        << to_string(SymSpan(m.sizes)) << hint("out= is an operand too, which cannot grow while it is read");
    Dims strides;
    if (o.forms.resized) strides = o.forms.resized(op::Call(o, args), k, out, m.sizes);
    if (strides.empty()) strides = contiguous_strides(m.sizes);
    SymInt extent(int64_t(1));  // of elements that may lie apart
    for (size_t d = 0; d < strides.size(); ++d) extent += (m.sizes[d] - SymInt(int64_t(1))) * strides[d];
    int64_t count = product(m.sizes).concrete();
    int64_t bytes = (count ? extent.concrete() : 0) * itemsize(t->dtype);
    runtime_check(t->offset == 0, o.name()) << "out= has shape " << to_string(out.sizes())
                                            << " but the result has " << to_string(SymSpan(m.sizes));
    bool fits = int64_t(t->storage->bytes()) >= bytes;
    runtime_check(fits || !t->storage->is_foreign(), o.name())
        << "trying to resize storage that is not resizable: out= has shape " << to_string(out.sizes())
        << " over memory that is not the library's own, and the result has " << to_string(SymSpan(m.sizes))
        << hint("give out= a tensor of the result's shape");
    if (!fits) t->storage = make_ref<StorageImpl>(size_t(bytes), t->device);
    t->sizes = m.sizes;
    t->strides = std::move(strides);
  }
  check_conversion(o, m.dtype, out.dtype(), args, form == Form::out);
  return !same_size;
}

}  // namespace facula::run
