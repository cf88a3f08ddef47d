#include "facula/extend/method_operator.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <mutex>

#include "facula/op/foreign.h"
#include "facula/op/registry.h"

namespace facula::extend {
namespace {

using op::Tag;
using op::Type;

constexpr const char *kSizes = "result_sizes", *kTypes = "result_types";

std::string operator_name(const Class& c, const Method& m) { return c.ns + "::" + c.name + "." + m.name; }

std::string schema_of(const Class& c, const Method& m) {
  std::string text = operator_name(c, m) + "(";
  for (auto& p : m.parameters) text += p.type() + " " + (&p == &m.parameters[0] ? "self" : p.name) + ", ";
  std::string result = m.result();
  bool number = result == "int" || result == "float" || result == "bool";  // returned as a tensor
  return text + "*, SymInt[] " + kSizes + "=[], str " + kTypes + "=\"\") -> " + (number ? "Tensor" : result);
}

// ---- arguments and results

io::Value item_of(Type type, const Scalar& s) {
  if (type == Type::Bool) return s.to_bool();
  if (type == Type::Int) return s.to_int();
  return type == Type::Float || s.category() == Category::floating ? io::Value(s.to_double())
                                                                   : io::Value(s.to_int());
}

template <class Items, class F>
io::Value list_of(const Items& items, F&& f) {
  io::List list;
  for (auto&& x : items) list.push_back(f(x));
  return list;
}

io::Value value_of(const op::Parameter& p, const op::Value& v) {
  auto tensor = [](TensorImpl* t) { return t ? io::Value(Tensor(Ref<TensorImpl>::share(t))) : io::Value(); };
  switch (v.tag) {
    case Tag::none: return {};
    case Tag::tensor: return tensor(v.tensor);
    case Tag::tensors: return list_of(v.tensors(), tensor);
    case Tag::scalar: return item_of(p.type, v.scalar);
    case Tag::scalars: return list_of(v.scalars(), [&](const Scalar& s) { return item_of(p.type, s); });
    case Tag::string: return io::Value(v.string());
    case Tag::dtype: return v.dtype;
    case Tag::object: return Ref<CustomClassHolder>::share(v.object);
    case Tag::integer:
      if (!p.list) return v.integer().guard_int();
      [[fallthrough]];
    case Tag::ints: return list_of(v.ints(), [](SymInt n) { return io::Value(n.guard_int()); });
    default: break;
  }
  type_check(false, p.name) << "is of a type that methods of classes do not take";
  __builtin_unreachable();
}

op::Results results_of(const io::Value& v) {
  op::Results results;
  if (v.is_none()) return results;
  if (v.is_tensor()) return op::Results(v.tensor());
  using Kind = io::Value::Kind;
  if (v.kind() == Kind::boolean) return op::Results(Tensor::scalar(v.boolean(), DType::Bool));
  if (v.kind() == Kind::integer) return op::Results(Tensor::scalar(v.integer(), DType::Int64));
  if (v.kind() == Kind::real) return op::Results(Tensor::scalar(v.number(), DType::Float64));
  for (auto& x : v.list()) results.push_back(x.tensor());
  return results;
}

// The method as the functions of its operator.
class MethodFunctions final : public op::KeepsOperands {
 public:
  explicit MethodFunctions(const Method& m) : method_(m) {}
  op::Results run(const op::Call& c) override {
    io::List arguments;
    for (size_t k = 0; k < method_.parameters.size(); ++k)
      arguments.push_back(value_of(c.op().schema.parameters[k], c.at(k)));
    return results_of(method_(arguments));
  }
  op::Results record(const op::Call& c) override { return run(c); }  // operators of the method are recorded
  op::Grads gradient(const op::Vjp& v) override {
    op::check_gradients_pass(v.call().op());
    __builtin_unreachable();
  }
  bool is_composite() const override { return false; }

  std::vector<op::Meta> infer(const op::Call& c) override {
    std::vector<op::Meta> metas;
    auto sizes = c[kSizes].ints();
    size_t at = 0;
    each_type(c, [&](DType dtype, size_t rank) {
      value_check(at + rank <= sizes.size(), c.name()) << kSizes << " has fewer sizes than " << kTypes;
      metas.push_back({Dims(sizes.subspan(at, rank)), dtype, Device(), {}});
      at += rank;
    });
    auto& returns = c.op().schema.returns;
    bool list = returns.size() == 1 && returns[0].list;
    value_check(list || metas.size() == returns.size(), c.name())
        << kTypes << " names " << metas.size() << " results of " << returns.size()
        << hint("call the method of the object instead of its operator");
    return metas;
  }

 private:
  // Calls f(dtype, rank) for each entry of "float32[2], int64[0]".
  template <class F>
  static void each_type(const op::Call& c, F&& f) {
    std::string_view rest = c[kTypes].tag == Tag::string ? c[kTypes].string() : "";
    while (!rest.empty()) {
      size_t open = rest.find('['), close = rest.find(']');
      size_t rank = 0;
      bool good = open != rest.npos && close != rest.npos && open < close;
      if (good) {
        auto [end, error] = std::from_chars(rest.data() + open + 1, rest.data() + close, rank);
        good = error == std::errc() && end == rest.data() + close && rank <= 64;
      }
      value_check(good, c.name()) << kTypes << " is no list of dtypes and ranks: " << rest;
      f(dtype_from_name(std::string(rest.substr(0, open))), rank);
      rest.remove_prefix(close + 1);
      while (!rest.empty() && (rest[0] == ',' || rest[0] == ' ')) rest.remove_prefix(1);
    }
  }
  const Method& method_;  // of a class, which lives as long as the process
};

// The schema of a method's operator, or what prevents it.
std::string problem_of(const Class& c, const Method& m) {
  try {
    auto s = op::parse_schema(schema_of(c, m));
    for (auto& r : s.returns)
      if (r.type != Type::Tensor) return "it returns " + m.result();
    return "";
  } catch (const Error& e) { return e.message(); }
}

struct Defined {
  std::mutex mutex;
  std::map<const Class*, std::vector<std::string>> names;
};

}  // namespace

const std::vector<std::string>& method_operators(const Class& c) {
  static auto& defined = *new Defined;
  std::lock_guard guard(defined.mutex);
  auto [it, fresh] = defined.names.try_emplace(&c);
  if (!fresh) return it->second;
  op::define_late([&] {
    for (auto& m : c.methods) {
      if (!problem_of(c, m).empty() || op::find(operator_name(c, m))) continue;
      op::define(schema_of(c, m)).bind(op::hidden).foreign(std::make_shared<MethodFunctions>(m));
      it->second.push_back(operator_name(c, m));
    }
  });
  return it->second;
}

std::string method_operator(const Class& c, const Method& m) {
  std::string problem = problem_of(c, m);
  supported_check(problem.empty(), c.full_name() + "." + m.name)
      << "a program cannot call this method: " << problem
      << hint(
             "methods that programs call take tensors, numbers, strings and objects, and return tensors; the "
             "method is ",
             m.schema());
  method_operators(c);
  return operator_name(c, m);
}

}  // namespace facula::extend
