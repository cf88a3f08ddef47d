#include "facula/op/call.h"

#include <algorithm>

#include "facula/base/thread_state.h"
#include "facula/op/operands.h"
#include "facula/tensor/promotion.h"

namespace facula::op {

const char* Call::name() const { return op_->name(); }

[[gnu::cold, gnu::noinline]] static void no_parameter(const Operator& o, ParameterName arg) {
  internal_check(false) << o.schema.full_name() << " has no parameter " << arg.text();
}
size_t Call::index_of(ParameterName arg) const {
  int i = op_->schema.index_of(arg);
  if (i < 0) [[unlikely]]
    no_parameter(*op_, arg);
  return size_t(i);
}

const Value& Call::at(size_t i) const {
  static const Value none;
  if (i < args_.size() && !args_[i].is_none()) [[likely]]
    return args_[i];
  const Parameter& p = op_->schema.parameters[i];
  if (i < args_.size() && (p.optional || !p.has_default)) return args_[i];
  return p.has_default ? p.fallback[0] : none;
}

const Value& Call::operator[](ParameterName arg) const { return at(index_of(arg)); }

Tensor Call::tensor(ParameterName arg) const {
  const Value& v = (*this)[arg];
  if (v.is_none()) return {};
  if (is_number(v)) return wrapped_number(v.number(), default_device());  // the device of the call
  internal_check(v.tag == Tag::tensor) << op_->schema.full_name() << ": " << arg.text() << " is no tensor";
  return Tensor(Ref<TensorImpl>::share(v.tensor));
}

std::vector<Tensor> Call::tensors(ParameterName arg) const {
  const Value& v = (*this)[arg];
  std::vector<Tensor> out;
  if (v.is_none()) return out;
  if (v.tag == Tag::tensor) return {Tensor(Ref<TensorImpl>::share(v.tensor))};
  internal_check(v.tag == Tag::tensors)
      << op_->schema.full_name() << ": " << arg.text() << " is no list of tensors";
  out.reserve(v.list.count);
  for (TensorImpl* t : v.tensors()) out.push_back(Tensor(Ref<TensorImpl>::share(t)));
  return out;
}

std::vector<Tensor> Call::all_tensors() const {
  std::vector<Tensor> out;
  each_operand(*this, [&](const Operand& o) {
    if (o.tensor < 0) return;
    out.push_back(is_number(o.value)           ? wrapped_number(o.value.number(), default_device())
                  : o.value.tag == Tag::tensor ? Tensor(Ref<TensorImpl>::share(o.value.tensor))
                                               : Tensor());
  });
  return out;
}

int Call::tensor_slot(ParameterName arg, int item) const {
  size_t slot = 0;
  for (size_t k = 0, end = index_of(arg); k < end; ++k)
    if (op_->schema.parameters[k].type == Type::Tensor) slot += operand_count(*this, k);
  return int(slot) + item;
}

SymSpan Call::sizes(ParameterName arg) const {
  const Value& v = (*this)[arg];
  if (is_number(v)) return {};
  internal_check(v.tag == Tag::tensor) << op_->schema.full_name() << ": " << arg.text() << " is no tensor";
  return v.tensor->sizes;
}

SymInt Call::size(ParameterName arg, int d) const {
  SymSpan s = sizes(arg);
  int wrapped = wrap_dim(name(), d, int(s.size()));
  index_check(size_t(wrapped) < s.size(), name())
      << "Dimension specified as " << d << " but tensor has no dimensions";
  return s[size_t(wrapped)];
}

DType Call::dtype(ParameterName arg) const {
  const Value& v = (*this)[arg];
  if (v.tag == Tag::dtype) return v.dtype;
  if (v.tag == Tag::tensor)
    return v.tensor->wrapped_number ? Promotion::number_dtype(v.tensor->dtype) : v.tensor->dtype;
  internal_check(is_number(v)) << op_->schema.full_name() << ": " << arg.text() << " has no dtype";
  return v.tag == Tag::integer ? DType::Int64 : v.scalar.dtype();
}

std::optional<DType> Call::maybe_dtype(ParameterName arg) const {
  if (!has(arg)) return std::nullopt;
  return dtype(arg);
}

// The rank to which dimensions refer: that of `of`, or of the first tensor if the operator has no such parameter.
static int rank_for_dims(const Call& c, ParameterName of) {
  auto& parameters = c.op().schema.parameters;
  if (c.op().schema.index_of(of) < 0)
    for (auto& p : parameters)
      if (p.type == Type::Tensor && !p.list) return c.rank(p.name);
  return c.rank(of);
}

int Call::dim(ParameterName arg, ParameterName of) const {
  return wrap_dim(name(), integer(arg).guard_int(), rank_for_dims(*this, of));
}

Ints Call::dims(ParameterName arg, ParameterName of) const {
  int rank = rank_for_dims(*this, of);
  SymSpan values = ints(arg);
  if (values.empty()) return every_dim(of);
  Ints out;
  for (SymInt g : values) {
    int64_t d = wrap_dim(name(), g.guard_int(), rank);
    user_check(std::find(out.begin(), out.end(), d) == out.end(), name())
        << "dim " << d << " appears multiple times in the list of dims";
    out.push_back(d);
  }
  std::sort(out.begin(), out.end());
  if (rank == 0) out.clear();
  return out;
}

Ints Call::every_dim(ParameterName of) const {
  Ints out;
  for (int d = 0, rank = rank_for_dims(*this, of); d < rank; ++d) out.push_back(d);
  return out;
}

Dims Call::ints(ParameterName arg, int n) const {
  SymSpan values = ints(arg);
  if (values.size() == 1) return Dims(size_t(n), values[0]);
  user_check(values.size() == size_t(n), name()) << "expected `" << arg.text() << "` to be one integer or "
                                                 << n << " of them, but got " << to_string(values);
  return Dims(values);
}

int LoopCall::slot(ParameterName arg, int item) const {
  size_t slot = 0;
  for (size_t k = 0, end = index_of(arg); k < end; ++k) slot += operand_count(*this, k);
  return int(slot) + item;
}

loop::Expr LoopCall::load(ParameterName arg, Index at, int item) const {
  const Value& v = (*this)[arg];
  if (is_number(v)) return loop::load(slot(arg), operand_dtype(v), {});
  TensorImpl* t = v.tag == Tag::tensors  ? v.tensors()[size_t(item)]
                  : v.tag == Tag::tensor ? v.tensor
                                         : nullptr;
  internal_check(t) << op().schema.full_name() << ": " << arg.text() << " is no tensor and cannot be loaded";
  // A 0-d tensor counts as a single element, whose index may be given or omitted.
  if (t->sizes.empty() && at.size() == 1) at.clear();
  else if (t->sizes.size() == 1 && at.empty()) at.push_back(loop::constant(Scalar(int64_t(0)), DType::Int64));
  internal_check(at.size() == t->sizes.size())
      << op().schema.full_name() << ": " << arg.text() << " has " << t->sizes.size()
      << " dimensions, loaded at " << at.size() << " indices";
  return loop::load(slot(arg, item), t->dtype, std::move(at));
}

loop::Expr LoopCall::index_load(ParameterName arg, Index at, SymInt n) const {
  return loop::within(loop::cast(load(arg, std::move(at)), DType::Int64), loop::size(n));
}

loop::Expr LoopCall::scalar(ParameterName arg, DType d) const {
  const Value& v = (*this)[arg];
  internal_check(!v.is_none()) << op().schema.full_name() << ": " << arg.text() << " is None";
  return loop::cast(loop::load(slot(arg), operand_dtype(v), {}), compute_type(d));
}

Mode* Mode::current() { return thread_state.mode; }
Mode::With::With(Mode* m) : outer_(thread_state.mode) { thread_state.mode = m; }
Mode::With::~With() { thread_state.mode = outer_; }

}  // namespace facula::op
