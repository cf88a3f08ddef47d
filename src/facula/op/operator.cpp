#include "facula/op/operator.h"

#include <algorithm>
#include <atomic>

#include "facula/op/batched.h"
#include "facula/op/grad_name.h"
#include "facula/op/operands.h"
#include "facula/op/registry.h"

namespace facula::op {

const std::vector<Sample>& Operator::samples() const {
  for (auto& sample : recipes.list())
    for (auto& [arg, value] : sample.args)
      internal_check(schema.index_of(arg) >= 0)
          << schema.full_name() << ": a sample names `" << arg << "`, which is no parameter";
  return recipes.list();
}
void ForeignFunctions::set_kernel(const std::string& key, CompositeBody) {
  runtime_check(false, "impl") << "this operator takes no kernel for " << key;
}

std::string grad_name(std::string stem, int number) {
  return std::move(stem) + "Backward" + std::to_string(number);
}

bool Operator::carries_gradient(size_t result) const {
  return differentiable && std::ranges::find(non_differentiable, int(result)) == non_differentiable.end();
}

std::vector<Operand> operands_of(const Call& c) {
  std::vector<Operand> out;
  out.reserve(c.op().schema.parameters.size());
  each_operand(c, [&](const Operand& o) { out.push_back(o); });
  return out;
}

bool Operator::has_number_operands() const {
  return std::ranges::any_of(schema.parameters, &Parameter::is_number_operand);
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
Definer& Definer::also(std::string parameter, std::string name) {
  op_->parameter_aliases.push_back({std::move(parameter), std::move(name)});
  return *this;
}
Definer& Definer::called(std::string_view name) {
  if (op_->called.empty()) op_->called = name;
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
Definer& Definer::autocast(std::function<Autocast(const Call&, DType lower)> rule) {
  op_->autocast_rule = std::move(rule);
  return *this;
}
Definer& Definer::draws() {
  op_->effects.draws = true;
  return *this;
}
Definer& Definer::moves() {
  op_->effects.moves = true;
  return *this;
}
Definer& Definer::reads_data() {
  op_->effects.reads_data = true;
  return *this;
}
Definer& Definer::checks() {
  op_->effects.checks = op_->effects.checks_elements = true;
  return *this;
}
Definer& Definer::check(std::function<void(const Call&)> rule) {
  internal_check(!op_->check) << op_->schema.full_name() << ": two checks";
  op_->check = std::move(rule);
  return *this;
}
Definer& Definer::bad_index(ErrorType type) {
  op_->bad_index = type;
  return *this;
}
Definer& Definer::refuses(ErrorType type, std::vector<std::string> texts) {
  op_->bad_index = type;
  op_->refusals = std::move(texts);
  return checks();
}
Definer& Definer::overlap(Overlap o) {
  op_->forms.overlap = o;
  return *this;
}
Definer& Definer::exact_out() {
  return exact_out([](const Call&) { return true; });
}
Definer& Definer::exact_out(std::function<bool(const Call&)> rule) {
  op_->forms.exact_out = std::move(rule);
  return *this;
}
Definer& Definer::converting_out() {
  return exact_out([](const Call&) { return false; });
}
Definer& Definer::for_out(std::function<DType(const Call&, std::span<const Tensor> out)> rule) {
  op_->forms.for_out = std::move(rule);
  return *this;
}
Definer& Definer::keeps_out_shape() {
  op_->forms.keeps_out_shape = true;
  return *this;
}
Definer& Definer::with_out() {
  op_->forms.wants_out = true;
  return *this;
}
Definer& Definer::resized(
    std::function<Dims(const Call&, size_t k, const Tensor& out, SymSpan sizes)> strides) {
  op_->forms.resized = std::move(strides);
  return *this;
}
Definer& Definer::exact_self(std::string called) {
  op_->forms.exact_self = std::move(called);
  return *this;
}
Definer& Definer::bad_conversion(ErrorType type) {
  op_->forms.bad_conversion = type;
  return *this;
}
Definer& Definer::in_place() {
  op_->forms.in_place = true;
  return *this;
}
Definer& Definer::non_differentiable(std::string why) {
  op_->differentiable = false;
  return undifferenced(std::move(why));
}
Definer& Definer::non_differentiable(std::vector<int> results, std::string why) {
  op_->non_differentiable = std::move(results);
  return undifferenced(std::move(why));
}
Definer& Definer::samples(Samples s) {
  op_->recipes = std::move(s);
  return *this;
}
Definer& Definer::undifferenced(std::string why) {
  internal_check(op_->undifferenced.empty())
      << op_->schema.full_name() << ": two reasons why the gradient is not the derivative";
  op_->undifferenced = std::move(why);
  return *this;
}
Definer& Definer::grad_name(std::string stem, int number) {
  return grad_name(FixedGradName{op::grad_name(std::move(stem), number)});
}
Definer& Definer::grad_name(GradName rule) {
  op_->grad_name = std::move(rule);
  return *this;
}
Definer& Definer::shape(std::function<Dims(const Call&)> rule) {
  draft_->backed.shape = [rule = std::move(rule)](const Call& c) {
    return std::vector<Dims>(std::max<size_t>(c.op().schema.returns.size(), 1), rule(c));
  };
  return *this;
}
Definer& Definer::format_of(std::vector<std::string> arguments) {
  draft_->backed.format_of = std::move(arguments);
  return *this;
}
Definer& Definer::strides_of(std::string argument) {
  draft_->backed.strides_of = std::move(argument);
  return *this;
}
Definer& Definer::channels_last(ChannelsLast use) {
  draft_->channels_last = use;
  return *this;
}
Definer& Definer::shapes(ShapeRule rule) {
  draft_->backed.shape = std::move(rule);
  return *this;
}
Definer& Definer::library(std::string name) {
  op_->definition = Library();
  draft_->backed.name = std::move(name);
  return *this;
}
Definer& Definer::data_dependent(std::string name) {
  op_->definition = DataDependent();
  draft_->backed.name = std::move(name);
  return *this;
}
Definer& Definer::forwards(std::string name, std::vector<Value> rest) {
  struct Target {  // which may be defined later
    std::string name;
    std::vector<Value> rest;
    std::atomic<const Operator*> op = nullptr;
  };
  auto to = std::make_shared<Target>(std::move(name), std::move(rest));
  auto forward = [to](const Call& c, Form form) {
    const Operator* target = to->op.load(std::memory_order_relaxed);
    if (!target) to->op = target = &get(to->name);
    SmallVector<Value, 8> args;
    for (size_t k = 0; k < c.op().schema.parameters.size(); ++k) args.push_back(c.at(k));
    for (auto& v : to->rest) args.push_back(v);
    args.resize(target->schema.parameters.size());
    return call(*target, args, form);
  };
  op_->definition = Procedure{[forward](const Call& c) { return forward(c, Form::functional); }, {}};
  draft_->in_place = [forward](const Call& c) { return forward(c, Form::in_place); };
  draft_->forwards_to = to->name;
  draft_->added = to->rest.size();
  return *this;
}
Definer& Definer::in_parts() {
  draft_->in_parts = true;
  return *this;
}
Definer& Definer::batched(BatchRule rule) {
  op_->batched = std::move(rule);
  return *this;
}
Definer& Definer::batched_in_front() { return batched(op::batched_in_front); }
Definer& Definer::foreign(std::shared_ptr<ForeignFunctions> functions) {
  op_->effects.ordered = true;  // equal calls may behave differently
  op_->promote = Promote::none;
  op_->vjp = [f = functions.get()](const Vjp& v) { return f->gradient(v); };
  op_->definition = Foreign{std::move(functions)};
  return *this;
}
Definer& Definer::vjp(VjpRule rule) {
  op_->vjp = std::move(rule);
  return *this;
}
Definer& Definer::transposed_by(std::string other) {
  op_->transpose = std::move(other);
  return *this;
}

Grads transposed(const Vjp& v) {
  auto& c = v.call();
  auto& own = c.op().schema;
  auto& other = get(c.op().transpose);
  auto& parameters = other.schema.parameters;
  const std::string& operand = own.parameters[0].name;
  std::vector<Tensor> saved;
  std::vector<Value> args;
  saved.reserve(parameters.size());
  args.reserve(parameters.size());
  args.push_back(saved.emplace_back(v.grad()));
  for (size_t k = 1; k < parameters.size(); ++k) {
    auto& p = parameters[k];
    if (int at = own.index_of(p.name); at > 0) {
      if (p.name == "dim" && c.integer("dim") < SymInt(int64_t(0)))  // ranks may differ
        args.push_back(int64_t(c.dim("dim", operand)));
      else if (p.type != Type::Tensor) args.push_back(c.at(size_t(at)));
      else args.push_back(c.has(p.name) ? Value(saved.emplace_back(v[p.name])) : Value());
      continue;
    }
    SymSpan sizes = c.sizes(operand);
    if (!p.list) args.push_back(sizes[size_t(c.dim("dim", operand))]);
    else args.push_back(p.list_size ? sizes.last(size_t(p.list_size)) : sizes);
  }
  return grads(call(other, args)[0]);
}

namespace typed {

void check_operand_count(const Schema& schema, size_t count) {
  size_t operands = 0;
  for (auto& p : schema.parameters) {
    if (p.list && p.is_operand()) return;
    operands += p.is_operand();
  }
  runtime_check(operands == count, "define")
      << schema.full_name() << ": the schema has " << operands
      << " operands (tensors and run-time Scalars), but the body takes " << count;
}

Index result_index(const LoopCall& c) {
  size_t rank = c.op().shaped()->shape(c).at(0).size();
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
    case Tag::integer: return wrapped_number(v.number(), default_device());
    default: wrong_value(c, k, "a tensor");
  }
}

std::vector<Tensor> read_tensors(const Call& c, size_t k) {
  return c.tensors(c.op().schema.parameters[k].name);
}

Scalar read_number(const Call& c, size_t k) {
  const Value& v = c.at(k);
  supported_check(v.tag != Tag::tensor, c.name())
      << "computes with `" << c.op().schema.parameters[k].name
      << "` as a number, and a traced function does not know yet which one this tensor has";
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

Composite check_composite(const Schema& schema, std::span<const BodyParameter> parameters, int results) {
  Composite composite;
  size_t k = 0;
  bool takes_call = false;
  for (auto& b : parameters) {
    if (b.is_call) {
      takes_call = true;
      continue;
    }
    runtime_check(k < schema.parameters.size(), "define")
        << schema.full_name() << ": the body takes more parameters than the schema's "
        << schema.parameters.size();
    const Parameter& p = schema.parameters[k];
    runtime_check(b.fits(p), "define") << schema.full_name() << ": the C++ type of the body's parameter for `"
                                       << p.name << "` does not fit the schema " << schema.text;
    if (p.is_number_operand() && b.by_value) composite.baked_numbers |= uint64_t(1) << k;
    if (p.type == Type::Float && !p.list && !b.by_value) composite.operand_floats |= uint64_t(1) << k;
    ++k;
  }
  runtime_check(k == schema.parameters.size() || takes_call, "define")
      << schema.full_name() << ": the body takes " << k << " of the schema's " << schema.parameters.size()
      << " parameters";
  // Numbers that a body reads from the Call are constants.
  for (; k < schema.parameters.size(); ++k)
    if (schema.parameters[k].is_number_operand()) composite.baked_numbers |= uint64_t(1) << k;
  bool list = schema.returns.size() == 1 && schema.returns[0].list;
  runtime_check(results < 0 || (!list && size_t(results) == schema.returns.size()), "define")
      << schema.full_name() << ": the body gives " << results << " results, the schema " << schema.text;
  return composite;
}

}  // namespace typed
}  // namespace facula::op
