#include "facula/op/operator.h"

namespace facula::op {

int Operator::slots(std::span<const Value> args) const {
  Call c(*this, args);
  int n = 0;
  for (size_t i = 0; i < schema.parameters.size(); ++i) {
    const Parameter& p = schema.parameters[i];
    if (p.type == Type::Tensor) n += p.list ? int(c.at(i).tensors().size()) : 1;
    else if (p.type == Type::Scalar && !p.list) ++n;
  }
  return n;
}

bool Operator::has_number_operands() const {
  for (auto& p : schema.parameters)
    if (p.type == Type::Scalar && !p.list) return true;
  return false;
}

std::vector<Dims> shape_of_first(const Call& c) {
  for (auto& p : c.op().schema.parameters)
    if (p.type == Type::Tensor && !p.list)
      return std::vector<Dims>(c.op().schema.returns.size(), Dims(c.sizes(p.name)));
  internal_check(false) << c.op().schema.full_name() << " has no tensor to take its shape from";
  __builtin_unreachable();
}

Definer& Definer::doc(std::string text) {
  op_->doc = std::move(text);
  return *this;
}
Definer& Definer::dtypes(DTypeSet set) {
  op_->dtypes = set;
  return *this;
}
Definer& Definer::strict() {
  op_->strict = true;
  return *this;
}
Definer& Definer::bind(uint32_t namespaces) {
  op_->namespaces = namespaces;
  return *this;
}
Definer& Definer::alias(std::string name) {
  op_->aliases.push_back(std::move(name));
  return *this;
}
Definer& Definer::promote(Promote p) {
  op_->promote = p;
  return *this;
}
Definer& Definer::result(ResultType t) {
  op_->result_type = t;
  return *this;
}
Definer& Definer::result(DTypeRule rule) {
  op_->result_type = ResultType::custom;
  op_->dtype_rule = std::move(rule);
  return *this;
}
Definer& Definer::autocast(Autocast a) {
  op_->autocast = a;
  return *this;
}
Definer& Definer::random() {
  op_->random = true;
  return *this;
}
Definer& Definer::check(std::function<void(const Call&)> rule) {
  op_->check = std::move(rule);
  return *this;
}
Definer& Definer::bad_index(ErrorType type) {
  op_->bad_index = type;
  return *this;
}
Definer& Definer::uniform() {
  op_->uniform = true;
  return *this;
}
Definer& Definer::overwrites() {
  op_->overwrites = true;
  return *this;
}
Definer& Definer::exact_out() {
  return exact_out([](const Call&) { return true; });
}
Definer& Definer::exact_out(std::function<bool(const Call&)> rule) {
  op_->exact_out = std::move(rule);
  return *this;
}
Definer& Definer::converting_out() {
  return exact_out([](const Call&) { return false; });
}
Definer& Definer::in_place() {
  op_->wants_in_place = true;
  return *this;
}
Definer& Definer::no_in_place() {
  op_->wants_in_place = false;
  return *this;
}
Definer& Definer::non_differentiable() {
  op_->differentiable = false;
  return *this;
}
Definer& Definer::non_differentiable(std::vector<int> results) {
  op_->non_differentiable = std::move(results);
  return *this;
}
Definer& Definer::samples(Samples s) {
  op_->samples = std::move(s);
  return *this;
}
Definer& Definer::differs(std::string where, std::string why) {
  op_->differences.push_back({std::move(where), std::move(why)});
  return *this;
}
Definer& Definer::shape(std::function<Dims(const Call&)> rule) {
  op_->shape_rule = [rule = std::move(rule)](const Call& c) {
    return std::vector<Dims>(std::max<size_t>(c.op().schema.returns.size(), 1), rule(c));
  };
  return *this;
}
Definer& Definer::format_of(std::vector<std::string> arguments) {
  op_->format_of = std::move(arguments);
  return *this;
}
Definer& Definer::strides_of(std::string argument) {
  op_->strides_of = std::move(argument);
  return *this;
}
Definer& Definer::channels_last(ChannelsLast use) {
  op_->channels_last = use;
  return *this;
}
Definer& Definer::shapes(ShapeRule rule) {
  op_->shape_rule = std::move(rule);
  return *this;
}
Definer& Definer::library(std::string name) {
  op_->kind = OpKind::library;
  op_->library = std::move(name);
  return *this;
}
Definer& Definer::data_dependent(std::string name) {
  op_->kind = OpKind::data_dependent;
  op_->library = std::move(name);
  return *this;
}
Definer& Definer::vjp(VjpRule rule) {
  op_->vjp = std::move(rule);
  return *this;
}

namespace typed {

void check_operand_count(const Operator& op, size_t given) {
  size_t operands = 0;
  for (auto& p : op.schema.parameters) {
    if (p.list && p.type == Type::Tensor) return;
    operands += !p.list && (p.type == Type::Tensor || p.type == Type::Scalar);
  }
  internal_check(operands == given) << op.schema.full_name() << ": the schema has " << operands
                                    << " operands (tensors and run-time Scalars), but the body takes "
                                    << given;
}

Index result_index(const LoopCall& c) {
  size_t rank = c.op().shape_rule(c).at(0).size();
  Index at;
  for (size_t d = 0; d < rank; ++d) at.push_back(loop::index(int(d)));
  return at;
}

void wrong_value(const Call& c, size_t parameter, const char* expected) {
  type_check(false, c.name()) << "argument `" << c.op().schema.parameters[parameter].name << "` must be "
                              << expected << hint("the operator is ", c.op().schema.text);
  __builtin_unreachable();
}

Dims expanded_ints(const Call& c, size_t k) {
  const Parameter& p = c.op().schema.parameters[k];
  return p.list_size > 1 && !c.at(k).ints().empty() ? c.ints(p.name, p.list_size) : Dims(c.at(k).ints());
}

Tensor read_tensor(const Call& c, size_t k) {
  const Value& v = c.at(k);
  switch (v.tag) {
    case Tag::none: return {};
    case Tag::tensor: return Tensor(Ref<TensorImpl>::share(v.tensor));
    case Tag::scalar:
    case Tag::integer: return wrapped_number(v.number());
    default: wrong_value(c, k, "a tensor");
  }
}

std::vector<Tensor> read_tensors(const Call& c, size_t k) {
  return c.tensors(c.op().schema.parameters[k].name);
}

Scalar read_number(const Call& c, size_t k) {
  const Value& v = c.at(k);
  internal_check(v.tag != Tag::tensor)
      << c.op().schema.full_name() << ": the body takes `" << c.op().schema.parameters[k].name
      << "` as a number, but it is an operand here; let the body take a Tensor";
  if (v.tag != Tag::scalar && v.tag != Tag::integer) wrong_value(c, k, "a number");
  return v.number();
}

std::vector<Scalar> read_numbers(const Call& c, size_t k) {
  const Value& v = c.at(k);
  std::vector<Scalar> out;
  switch (v.tag) {
    case Tag::none: break;
    case Tag::scalars: out.assign(v.scalars().begin(), v.scalars().end()); break;
    case Tag::ints:
      for (SymInt i : v.ints()) out.push_back(i.guard_int());
      break;
    case Tag::scalar:
    case Tag::integer: out.push_back(v.number()); break;
    default: wrong_value(c, k, "a list of numbers");
  }
  int n = c.op().schema.parameters[k].list_size;
  if (n > 1 && out.size() == 1) out.resize(size_t(n), out[0]);
  return out;
}

void check_composite(Operator& op, std::span<const BodyParameter> parameters, int results) {
  auto& schema = op.schema;
  auto is_operand_number = [](const Parameter& p) { return p.type == Type::Scalar && !p.list; };
  size_t k = 0;
  bool takes_call = false;
  for (auto& b : parameters) {
    if (b.is_call) {
      takes_call = true;
      continue;
    }
    internal_check(k < schema.parameters.size())
        << schema.full_name() << ": the body takes more parameters than the schema's "
        << schema.parameters.size();
    const Parameter& p = schema.parameters[k];
    internal_check(b.fits(p)) << schema.full_name() << ": the C++ type of the body's parameter for `"
                              << p.name << "` does not fit the schema " << schema.text;
    if (is_operand_number(p) && b.by_value) op.baked_numbers |= uint64_t(1) << k;
    if (p.type == Type::Float && !p.list && !b.by_value) op.operand_floats |= uint64_t(1) << k;
    ++k;
  }
  internal_check(k == schema.parameters.size() || takes_call)
      << schema.full_name() << ": the body takes " << k << " of the schema's " << schema.parameters.size()
      << " parameters";
  // What a body reads from the Call it reads as a number.
  for (; k < schema.parameters.size(); ++k)
    if (is_operand_number(schema.parameters[k])) op.baked_numbers |= uint64_t(1) << k;
  bool list = schema.returns.size() == 1 && schema.returns[0].list;
  internal_check(results < 0 || (!list && size_t(results) == schema.returns.size()))
      << schema.full_name() << ": the body gives " << results << " results, the schema " << schema.text;
}

}  // namespace typed
}  // namespace facula::op
