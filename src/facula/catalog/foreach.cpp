// Operators over lists: `_foreach_x` is x of item k of every list, for all items. What is no list is the same for all
// of them. PyTorch's names and overloads; a place that writes has the suffix _ and gives nothing.
#include "facula/op/call.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/op/registry.h"
#include "facula/op/repeated_calls.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::op;

namespace {

size_t items(const Call& c) {
  size_t count = c.args()[0].tensors().size();
  runtime_check(count, c.name()) << "expects a list of at least one tensor";
  for (size_t k = 1; k < c.args().size(); ++k) {
    const Value& v = c.args()[k];
    if (v.tag != Tag::tensors && v.tag != Tag::scalars) continue;
    runtime_check(v.list.count == count, c.name())
        << "expects lists of one length: self has " << count << " tensors, "
        << c.op().schema.parameters[k].name << " " << v.list.count;
  }
  return count;
}

// f(arguments of item k, for `op`) for each item: what op does not take is left out, what is not given is its default.
template <class F>
void each_item(const Operator& op, const Call& c, F&& f) {
  size_t count = items(c);
  auto given = c.args().first(std::min(c.args().size(), op.schema.parameters.size()));
  SmallVector<Value, 8> of;
  of.assign(given.data(), given.size());
  while (of.size() < op.schema.parameters.size()) of.push_back(Value());
  for (size_t k = 0; k < count; ++k) {
    for (size_t p = 0; p < given.size(); ++p)
      if (given[p].tag == Tag::tensors) of[p] = Value(given[p].tensors()[k]);
      else if (given[p].tag == Tag::scalars) of[p] = Value(given[p].scalars()[k]);
    f(std::span<const Value>(of.data(), of.size()));
  }
}

CompositeBody gives(const char* name) {
  return [name](const Call& c) {
    const Operator& op = get(name);
    Results all;
    RepeatedCalls calls(op, Form::functional);
    each_item(op, c, [&](std::span<const Value> args) { all.push_back(std::move(calls(args)[0])); });
    return all;
  };
}
// Writes each item of self.
CompositeBody writes(const char* name) {
  return [name](const Call& c) {
    const Operator& op = get(name);
    RepeatedCalls calls(op, Form::in_place);
    each_item(op, c, [&](std::span<const Value> args) { calls(args); });
    return Results();
  };
}

void unary(const char* name) {
  define(std::string("_foreach_") + name + "(Tensor[] self) -> Tensor[]")
      .doc("The operator of that name, of each tensor.")
      .bind(function)
      .procedure(gives(name))
      .samples({"self{[3, 2](0.3, 0.9), [4](0.3, 0.9)}"});
  define(std::string("_foreach_") + name + "_(Tensor(a!)[] self) -> ()")
      .doc("The operator of that name, of each tensor, in its place.")
      .bind(function)
      .procedure(writes(name))
      .samples({"self{[3, 2](0.3, 0.9), [4](0.3, 0.9)}"});
}

// `of` is the operator, or its overload, that is called with each item.
void with(const char* name, const char* of, const char* overload, const char* parameters,
          const char* sample) {
  define(std::string("_foreach_") + name + "." + overload + "(Tensor[] self, " + parameters + ") -> Tensor[]")
      .doc("The operator of that name, of each tensor of self.")
      .bind(function)
      .procedure(gives(of))
      .samples({sample});
  define(std::string("_foreach_") + name + "_." + overload + "(Tensor(a!)[] self, " + parameters + ") -> ()")
      .doc("The operator of that name, of each tensor of self, in its place.")
      .bind(function)
      .procedure(writes(of))
      .samples({sample});
}

// addcmul and addcdiv with the elements of a tensor as numbers.
CompositeBody with_elements(std::string numbers) {
  return [numbers](const Call& c) {
    Tensor scalars = c.tensor("scalars");
    runtime_check(scalars.dim() == 1, c.name())
        << "expects scalars in one dimension, got " << to_string(scalars.sizes());
    std::vector<Scalar> list;
    for (auto& x : unbind(scalars)) list.push_back(x.item());
    std::vector<Value> args(c.args().begin(), c.args().end());
    args[3] = Value(std::span<const Scalar>(list));
    return call(get(numbers), args);
  };
}
void by_elements(const char* name) {
  define(std::string("_foreach_") + name +
         ".Tensor(Tensor[] self, Tensor[] tensor1, Tensor[] tensor2, Tensor scalars) -> Tensor[]")
      .doc("The operator of that name, of each tensor of self, with an element of scalars each.")
      .bind(function)
      .reads_data()
      .procedure(with_elements(std::string("_foreach_") + name + ".ScalarList"))
      .samples({"self{[3, 2], [4]}, tensor1{[3, 2], [4]}, tensor2{[3, 2](1, 2), [4](1, 2)}, scalars<4>[2]"});
  define(std::string("_foreach_") + name +
         "_.Tensor(Tensor(a!)[] self, Tensor[] tensor1, Tensor[] tensor2, Tensor scalars) -> ()")
      .doc(
          "The operator of that name, of each tensor of self, in its place, with an element of scalars each.")
      .bind(function)
      .reads_data()
      .procedure(with_elements(std::string("_foreach_") + name + "_.ScalarList"))
      .samples({"self{[3, 2], [4]}, tensor1{[3, 2], [4]}, tensor2{[3, 2](1, 2), [4](1, 2)}, scalars<4>[2]"});
}

// f of each tensor of self.
template <class F>
std::vector<Tensor> of_each(const Call& c, const std::vector<Tensor>& self, F&& f) {
  std::vector<Tensor> all;
  for (size_t k = 0, n = items(c); k < n; ++k) all.push_back(f(self[k]));
  return all;
}

}  // namespace

FACULA_FAMILY(foreach) {
  unary("abs");
  unary("acos");
  unary("asin");
  unary("atan");
  unary("ceil");
  unary("cos");
  unary("cosh");
  unary("erf");
  unary("erfc");
  unary("exp");
  unary("expm1");
  unary("floor");
  unary("frac");
  unary("lgamma");
  unary("log");
  unary("log10");
  unary("log1p");
  unary("log2");
  unary("neg");
  unary("reciprocal");
  unary("round");
  unary("rsqrt");
  unary("sigmoid");
  unary("sign");
  unary("sin");
  unary("sinh");
  unary("sqrt");
  unary("tan");
  unary("tanh");
  unary("trunc");

  // A number before lists of numbers, which one number would be too.
  with("add", "add", "List", "Tensor[] other, *, Scalar alpha=1",
       "self{[3, 2], [4]}, other{[3, 2], [4]}, alpha=2");
  with("add", "add", "Scalar", "Scalar scalar", "self{[3, 2], [4]}, scalar=2.0");
  with("add", "add", "ScalarList", "Scalar[] scalars", "self{[3, 2], [4]}, scalars=[2.0, 3.0]");
  with("add", "add", "Tensor", "Tensor other, *, Scalar alpha=1", "self{[3, 2], [4]}, other[]");
  with("sub", "sub", "List", "Tensor[] other, *, Scalar alpha=1",
       "self{[3, 2], [4]}, other{[3, 2], [4]}, alpha=2");
  with("sub", "sub", "Scalar", "Scalar scalar", "self{[3, 2], [4]}, scalar=2.0");
  with("sub", "sub", "ScalarList", "Scalar[] scalars", "self{[3, 2], [4]}, scalars=[2.0, 3.0]");
  with("mul", "mul", "List", "Tensor[] other", "self{[3, 2], [4]}, other{[3, 2], [4]}");
  with("mul", "mul", "Scalar", "Scalar scalar", "self{[3, 2], [4]}, scalar=2.0");
  with("mul", "mul", "ScalarList", "Scalar[] scalars", "self{[3, 2], [4]}, scalars=[2.0, 3.0]");
  with("mul", "mul", "Tensor", "Tensor other", "self{[3, 2], [4]}, other[]");
  with("div", "div", "List", "Tensor[] other", "self{[3, 2], [4]}, other{[3, 2], [4]}");
  with("div", "div", "Scalar", "Scalar scalar", "self{[3, 2], [4]}, scalar=2.0");
  with("div", "div", "ScalarList", "Scalar[] scalars", "self{[3, 2], [4]}, scalars=[2.0, 3.0]");
  with("div", "div", "Tensor", "Tensor other", "self{[3, 2], [4]}, other[]");
  with("maximum", "maximum", "List", "Tensor[] other", "self{[3, 2], [4]}, other{[3, 2], [4]}");
  with("maximum", "clamp_min", "Scalar", "Scalar scalar", "self{[3, 2], [4]}, scalar=0.5");
  with("maximum", "clamp_min", "ScalarList", "Scalar[] scalars", "self{[3, 2], [4]}, scalars=[0.5, 0.0]");
  with("minimum", "minimum", "List", "Tensor[] other", "self{[3, 2], [4]}, other{[3, 2], [4]}");
  with("minimum", "clamp_max", "Scalar", "Scalar scalar", "self{[3, 2], [4]}, scalar=0.5");
  with("minimum", "clamp_max", "ScalarList", "Scalar[] scalars", "self{[3, 2], [4]}, scalars=[0.5, 0.0]");
  with("clamp_min", "clamp_min.Tensor", "List", "Tensor[] other", "self{[3, 2], [4]}, other{[3, 2], [4]}");
  with("clamp_min", "clamp_min", "Scalar", "Scalar scalar", "self{[3, 2], [4]}, scalar=0.5");
  with("clamp_min", "clamp_min", "ScalarList", "Scalar[] scalars", "self{[3, 2], [4]}, scalars=[0.5, 0.0]");
  with("clamp_max", "clamp_max.Tensor", "List", "Tensor[] other", "self{[3, 2], [4]}, other{[3, 2], [4]}");
  with("clamp_max", "clamp_max", "Scalar", "Scalar scalar", "self{[3, 2], [4]}, scalar=0.5");
  with("clamp_max", "clamp_max", "ScalarList", "Scalar[] scalars", "self{[3, 2], [4]}, scalars=[0.5, 0.0]");
  with("pow", "pow", "List", "Tensor[] exponent", "self{[3, 2](0.5, 2), [4](0.5, 2)}, exponent{[3, 2], [4]}");
  with("pow", "pow", "Scalar", "Scalar exponent", "self{[3, 2], [4]}, exponent=2.0");
  with("pow", "pow", "ScalarList", "Scalar[] exponent", "self{[3, 2], [4]}, exponent=[2.0, 3.0]");
  with("lerp", "lerp", "List", "Tensor[] tensors1, Tensor[] weights",
       "self{[3, 2], [4]}, tensors1{[3, 2], [4]}, weights{[3, 2], [4]}");
  with("lerp", "lerp", "Scalar", "Tensor[] tensors1, Scalar weight",
       "self{[3, 2], [4]}, tensors1{[3, 2], [4]}, weight=0.25");
  with("lerp", "lerp", "ScalarList", "Tensor[] tensors1, Scalar[] weight",
       "self{[3, 2], [4]}, tensors1{[3, 2], [4]}, weight=[0.25, 0.75]");
  with("addcmul", "addcmul", "Scalar", "Tensor[] tensor1, Tensor[] tensor2, Scalar value=1",
       "self{[3, 2], [4]}, tensor1{[3, 2], [4]}, tensor2{[3, 2], [4]}, value=2.0");
  with("addcmul", "addcmul", "ScalarList", "Tensor[] tensor1, Tensor[] tensor2, Scalar[] scalars",
       "self{[3, 2], [4]}, tensor1{[3, 2], [4]}, tensor2{[3, 2], [4]}, scalars=[2.0, 3.0]");
  with("addcdiv", "addcdiv", "Scalar", "Tensor[] tensor1, Tensor[] tensor2, Scalar value=1",
       "self{[3, 2], [4]}, tensor1{[3, 2], [4]}, tensor2{[3, 2](1, 2), [4](1, 2)}, value=2.0");
  with("addcdiv", "addcdiv", "ScalarList", "Tensor[] tensor1, Tensor[] tensor2, Scalar[] scalars",
       "self{[3, 2], [4]}, tensor1{[3, 2], [4]}, tensor2{[3, 2](1, 2), [4](1, 2)}, scalars=[2.0, 3.0]");
  by_elements("addcmul");
  by_elements("addcdiv");

  define("_foreach_pow.ScalarAndTensor(Scalar self, Tensor[] exponent) -> Tensor[]")
      .doc("A number to the power of each tensor.")
      .bind(function)
      .procedure([](const Call&, const Scalar& self, const std::vector<Tensor>& exponents) {
        std::vector<Tensor> all;
        for (auto& x : exponents) all.push_back(pow(self, x));
        return all;
      })
      .samples({"self=2.0, exponent{[3, 2], [4]}"});
  define("_foreach_norm.Scalar(Tensor[] self, Scalar ord=2, dtype? dtype=None) -> Tensor[]")
      .doc("The norm of the elements of each tensor.")
      .bind(function)
      .procedure(
          [](const Call& c, const std::vector<Tensor>& self, const Scalar& ord, std::optional<DType> dtype) {
            return of_each(c, self, [&](const Tensor& x) {
              return linalg_vector_norm(x, ord, std::nullopt, false, dtype);
            });
          })
      .samples({"self{[3, 2], [4]}", "self{[3, 2], [4]}, ord=1.0"});
  define("_foreach_powsum.Scalar(Tensor[] self, Scalar ord=2, dtype? dtype=None) -> Tensor[]")
      .doc("The sum of the magnitudes of each tensor's elements to the power of ord.")
      .bind(function)
      .procedure([](const Call& c, const std::vector<Tensor>& self, const Scalar& ord,
                    std::optional<DType> dtype) {
        return of_each(c, self,
                       [&](const Tensor& x) { return sum(pow(abs(dtype ? to_dtype(x, *dtype) : x), ord)); });
      })
      .samples({"self{[3, 2], [4]}", "self{[3, 2], [4]}, ord=1.0"});
  define("_foreach_max(Tensor[] self) -> Tensor[]")
      .doc("The largest element of each tensor.")
      .bind(function)
      .procedure(gives("max"))
      .samples({"self{[3, 2](0.3, 0.9), [4](0.3, 0.9)}"});
  define("_foreach_mm(Tensor[] self, Tensor[] mat2) -> Tensor[]")
      .doc("The product of each matrix with the one of its place.")
      .bind(function)
      .procedure(gives("mm"))
      .samples({"self{[3, 2], [4, 1]}, mat2{[2, 3], [1, 2]}"});
  define("_foreach_clone(Tensor[] self, *, MemoryFormat? memory_format=None) -> Tensor[]")
      .doc("A copy of each tensor.")
      .bind(function)
      .procedure(gives("clone"))
      .samples({"self{[3, 2](0.3, 0.9), [4](0.3, 0.9)}"});
  define("_foreach_copy_(Tensor(a!)[] self, Tensor[] src, bool non_blocking=False) -> ()")
      .doc("Writes each tensor of src into that of its place.")
      .bind(function)
      .procedure(writes("copy"))
      .samples({"self{[3, 2], [4]}, src{[3, 2], [4]}"});
  define("_foreach_zero_(Tensor(a!)[] self) -> ()")
      .doc("Makes each tensor zero.")
      .bind(function)
      .procedure(writes("zero"))
      .samples({"self{[3, 2](0.3, 0.9), [4](0.3, 0.9)}"});
}
