// Operator: all information about one operator, and `define`, which creates it. An operator is an identity, a
// definition of one of eight kinds, and its effects; the kind determines what the definition consists of and what is
// derived (docs/architecture.md, "One definition").
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "facula/op/call.h"
#include "facula/op/geometry.h"
#include "facula/op/samples.h"

namespace facula::op {

// In the order of Operator::Definition.
enum class OpKind : uint8_t { pointwise, loop, view, composite, procedure, library, data_dependent, foreign };

// The namespaces in which users find an operator. `function` (facula.x) is bound unless it is hidden or a method
// only.
enum Namespace : uint32_t {
  function = 1,
  method = 2,
  nn_functional = 4,
  fft = 8,
  linalg = 16,
  special = 32,
  property = 64,
  hidden = 128,
};

// How operands are converted to the compute dtype.
enum class Promote : uint8_t {
  same,          // PyTorch's promotion of all operands
  int_to_float,  // then integers and bool become the default floating dtype
  none,          // operands keep their dtypes (bodies cast)
};
enum class ResultType : uint8_t { same, boolean, real, int64, custom };
// How autocast converts an operator's floating-point operands (run/autocast.h); float64 is left unchanged.
enum class Autocast : uint8_t {
  inherit,  // no conversion; calls that a procedure makes are treated separately
  lower,    // float32 becomes the lower dtype: products, convolutions
  fp32,     // 16-bit floats become float32: losses, decompositions, transforms
  promote,  // 16-bit floats become float32 if another operand is float32
  as_is,    // no conversion, neither here nor in calls that it makes
};

// The view of a call for a gradient formula. Reading a tensor through [] or result() causes it to be saved; sizes and
// dtypes cost nothing.
class Vjp {
 public:
  virtual ~Vjp() = default;
  virtual Tensor grad(int result = 0) const = 0;  // undefined if the gradient is undefined
  virtual Tensor operator[](ParameterName arg) const = 0;
  virtual Tensor item(ParameterName arg, int k) const = 0;  // an item of a list
  virtual Tensor result(int k = 0) const = 0;
  virtual bool needs(ParameterName arg, int item = 0) const = 0;
  virtual const Call& call() const = 0;  // attributes, sizes and dtypes; its tensors have no data
};
// Gradients by slot (tensors and list items in order); undefined: no gradient.
using Grads = std::vector<Tensor>;
template <class... T>
Grads grads(T... t) {
  return Grads{std::move(t)...};
}

// How a library operator treats physical layouts (docs/layouts.md). no: operands are converted to the logical layout;
// reads: operands are read in any order; chooses: it is fastest in channels_last, and its results get that physical
// layout whatever their strides say; packs: reads in any order, and a result that nothing else refers to may get the
// library's packed layout.
enum class ChannelsLast : uint8_t { no, reads, chooses, packs };

using PointwiseBody = std::function<std::vector<loop::Expr>(const LoopCall&, std::span<const loop::Expr>)>;
using ShapeRule = std::function<std::vector<Dims>(const Call&)>;
using DTypeRule = std::function<std::vector<DType>(const Call&)>;
using LoopBody = std::function<loop::Definition(const LoopCall&)>;
using ViewRule = std::function<Views(const Call&, Geometry&&)>;
using CompositeBody = std::function<Results(const Call&)>;
using VjpRule = std::function<Grads(const Vjp&)>;
class Batched;  // op/batched.h
using BatchRule = std::function<Results(const Batched&)>;
using GradName = std::function<std::string(const Call&)>;
// "AddmmBackward0".
std::string grad_name(std::string stem, int number = 0);

// ---- the definition of each kind
struct Pointwise {
  PointwiseBody body;
};
// Rules for results that do not follow from the operands or the definition.
struct Shaped {
  ShapeRule shape;  // for data-dependent operators: an upper bound
  // Results are channels_last if one of these arguments is, or if all items of a list are.
  std::vector<std::string> format_of;
  std::string strides_of;  // results with this argument's sizes have its order of dimensions in memory
};
struct Loop : Shaped {
  LoopBody body;
};
struct View {
  ViewRule rule;
};
// An operator defined by calls of operators, which run as one fused program, forward and backward.
struct Composite {
  CompositeBody body;
  // Bit k is set if the body takes parameter k, a run-time Scalar, as a number instead of a Tensor. Such numbers are
  // constants of the program.
  uint64_t baked_numbers = 0;
  // Bit k is set if the body takes parameter k, a float, as a Tensor: it is then a scalar operand.
  uint64_t operand_floats = 0;
  // The body uses sizes as numbers: it is traced with concrete sizes instead of symbols.
  bool exact_sizes = false;
  // Dispatch modes see the calls of the body, as PyTorch's function of this name is no operator to them.
  bool in_parts = false;
};
// An operator defined by calls that run one by one (docs/architecture.md says when).
struct Procedure {
  CompositeBody body;
  CompositeBody in_place;  // writes to self, if that is more than a copy of the result
};
struct Backed : Shaped {
  std::string name;  // in the backend's table
  // The slow reference definition, by one element or by calls of other operators. Tests compare with it, and backends
  // without the library run it.
  LoopBody reference;
  CompositeBody composed_reference;
};
struct Library : Backed {
  ChannelsLast channels_last = ChannelsLast::no;
};
struct DataDependent : Backed {};
// The opaque functions of a user's operator. Its parts may be supplied after the schema.
class ForeignFunctions {
 public:
  virtual ~ForeignFunctions() = default;
  // The results, in separate memory, for operands with data. Calls that it makes are not recorded.
  virtual Results run(const Call& c) = 0;
  // The metadata of the results for operands that may have no data; raises if the user did not define it.
  virtual std::vector<Meta> infer(const Call& c) = 0;
  virtual Results record(const Call& c) = 0;  // like run, with history: some operand requires a gradient
  virtual Grads gradient(const Vjp& v) = 0;   // while a trace is recorded
  // True if it consists of operators, so that the tape and traces see those instead.
  virtual bool is_composite() const = 0;
  // Sets the function for a dispatch key (extend/library.h); raises if it cannot be set.
  virtual void set_kernel(const std::string& key, CompositeBody kernel);
};
struct Foreign {
  std::shared_ptr<ForeignFunctions> functions;
};

// The effects of a call in addition to computing its results from its operands.
struct Effects {
  bool reads_data = false;       // the host reads elements: calls or sizes depend on them
  bool writes = false;           // writes arguments that the schema marks (a!)
  bool draws = false;            // draws random numbers from a generator's sequence
  bool ordered = false;          // communicates: such calls keep their order
  bool checks = false;           // may refuse values of elements or numbers
  bool checks_elements = false;  // of elements, in its body
  bool moves = false;            // brings operands over from other devices
  // Equal calls are interchangeable: they may be merged, repeated or moved.
  bool repeatable() const { return !writes && !draws && !ordered; }
};

// How an in-place form treats a self whose elements share memory.
enum class Overlap : uint8_t {
  in_order,    // processes elements in order: a shared element takes part several times
  uniform,     // assigns one number everywhere, so any overlap is fine
  overwrites,  // elements are replaced or stay: of several that share memory the last replaced one counts
};

// How results are written to existing memory.
struct Forms {
  // The operator has the form name_, which writes the result to `self`; that of a view changes the geometry of the
  // tensor. It needs `Tensor self` as the first parameter and one Tensor as the result.
  bool in_place = false;
  // Derived: an operator whose results are Tensors has an out= form; views and operators that write have none.
  bool out = false;
  Overlap overlap = Overlap::in_order;
  // True if out= must have the dtype of the result; false if the result is converted. Unset: the default of the kind
  // (run/write.h).
  std::function<bool(const Call&)> exact_out;
  // Refuses unsuitable out= tensors, and gives the dtype to which the first operand is converted before a call that
  // computes in the dtype of `out`.
  std::function<DType(const Call&, std::span<const Tensor> out)> for_out;
  // The name of self in errors, if in place its dtype must be that of the result; empty: the result is converted.
  std::string exact_self;
  // The error if the dtype of a destination cannot hold the results.
  ErrorType bad_conversion = ErrorType::RuntimeError;
  // An out= tensor with as many elements as the result keeps its shape, and is filled in order.
  bool keeps_out_shape = false;
  // The operator has an out= form although it returns a list of tensors, or also writes arguments.
  bool wants_out = false;
  // The strides of an out= tensor that takes its shape, `sizes`, from result k; unset or empty: contiguous.
  std::function<Dims(const Call&, size_t k, const Tensor& out, SymSpan sizes)> resized;
};

class Operator {
 public:
  using Definition =
      std::variant<Pointwise, Loop, View, Composite, Procedure, Library, DataDependent, Foreign>;

  // ---- identity
  Schema schema;
  std::string doc;
  uint32_t namespaces = function | method;
  std::vector<std::string> aliases;  // further names (absolute for abs)
  std::string called;  // the name of a hidden operator in errors: the function that users called
  struct ParameterAlias {
    std::string parameter, also;
  };
  std::vector<ParameterAlias> parameter_aliases;  // further names of parameters, for Python users

  Definition definition = Composite{};
  Effects effects;

  // ---- dtypes
  DTypeSet dtypes = facula::dtypes::any;  // the compute dtypes that are accepted
  Promote promote = Promote::same;
  // The first operand (or dtype=) must have one of `dtypes` itself, without promotion.
  bool strict = false;
  ResultType result_type = ResultType::same;
  DTypeRule dtype_rule;  // ResultType::custom
  Autocast autocast = Autocast::inherit;
  std::function<Autocast(const Call&, DType lower)> autocast_rule;  // if the treatment depends on the call

  // ---- gradient
  VjpRule vjp;
  // For an operator that is linear in its first operand: the operator that computes its gradient, its transpose, and
  // vice versa (docs/adding_an_operator.md).
  std::string transpose;
  bool differentiable = true;           // results carry gradients (for single results: non_differentiable)
  std::vector<int> non_differentiable;  // numbers of results that never do
  bool carries_gradient(size_t result) const;  // according to these two; the dtype may still forbid it
  // Why results carry no gradient, or, if they do, why it is not their derivative, which finite differences show.
  std::string undifferenced;
  // The name of grad_fn, which programs print and read, if PyTorch's formula belongs to another operator: a part of
  // this one, a variant that PyTorch has, or the last step of a function that PyTorch writes in steps. Unset or
  // empty: the operator's name.
  GradName grad_name;

  // How one call computes a batch of calls (vmap), if the kind does not determine it.
  BatchRule batched;

  // Checks the values of numbers before each call, and raises errors about them. (The other rules see types and
  // sizes, and their results are cached for equal ones.)
  std::function<void(const Call&)> check;
  // The error for an element of an index tensor that is out of range.
  ErrorType bad_index = ErrorType::IndexError;
  // The errors for elements that a body does not accept (op/refusal.h); their type is bad_index.
  std::vector<std::string> refusals;
  Forms forms;
  Samples recipes;  // of samples()

  const Operator* parent = nullptr;     // of a derived gradient operator
  mutable std::shared_ptr<void> cache;  // run/'s per-operator caches

  const char* name() const { return schema.name.c_str(); }
  // InternalError if a sample names an unknown parameter.
  const std::vector<Sample>& samples() const;
  OpKind kind() const { return OpKind(definition.index()); }
  template <class K>
  const K* as() const {  // null if it is of another kind
    return std::get_if<K>(&definition);
  }
  template <class K>
  bool is() const {
    return std::holds_alternative<K>(definition);
  }
  template <class K>
  K* as() {
    return std::get_if<K>(&definition);
  }
  const Shaped* shaped() const {  // of a loop, library or data-dependent operator; else null
    if (auto* loop = as<Loop>()) return loop;
    return backed();
  }
  const Backed* backed() const {  // of a library or data-dependent operator; else null
    if (auto* library = as<Library>()) return library;
    return as<DataDependent>();
  }
  const CompositeBody* calls() const {  // the body of a composite or procedure; else null
    if (auto* composite = as<Composite>()) return &composite->body;
    auto* procedure = as<Procedure>();
    return procedure ? &procedure->body : nullptr;
  }
  bool has_number_operands() const;  // true if a parameter is a run-time Scalar
};

// A definition under construction. Properties of a single kind are collected separately, because the kind is often
// set last. They are moved into the definition when it ends; if the kind does not have such a property, that is an
// error.
struct Draft {
  Operator op;
  Backed backed;
  ChannelsLast channels_last = ChannelsLast::no;
  CompositeBody in_place;
  bool in_parts = false;
  std::string forwards_to;  // the operator that the body calls, if it does nothing else
  size_t added = 0;         // the number of arguments that it adds to its own
};

Grads transposed(const Vjp& v);  // calls the operator that is the transpose

// Fluent definition. Each setter has the name of the field that it sets.
class Definer {
 public:
  explicit Definer(Draft* draft) : draft_(draft), op_(&draft->op) {}
  Definer& doc(std::string text);
  Definer& dtypes(DTypeSet set);
  Definer& strict();
  Definer& bind(uint32_t namespaces);
  Definer& alias(std::string name);
  Definer& also(std::string parameter, std::string name);  // a further name of a parameter
  // The function of nn.functional, if PyTorch's has parameters that only exist in Python, "relu(input,
  // inplace=False)", with statements to run before the call. op/generate.py writes it.
  template <class... Statement>
  Definer& python(std::string_view form, Statement...) {
    return called(form.substr(0, form.find('(')));
  }
  Definer& called(std::string_view name);  // the first name that is set remains
  Definer& promote(Promote p);
  Definer& result(ResultType t);
  Definer& result(DTypeRule rule);
  Definer& autocast(Autocast a);
  Definer& autocast(std::function<Autocast(const Call&, DType lower)> rule);
  Definer& draws();
  Definer& reads_data();
  Definer& moves();
  Definer& checks();
  Definer& check(std::function<void(const Call&)> rule);
  Definer& bad_index(ErrorType type);
  Definer& refuses(ErrorType type, std::vector<std::string> texts);
  Definer& overlap(Overlap o);
  Definer& exact_out();
  Definer& exact_out(std::function<bool(const Call&)> rule);
  Definer& converting_out();
  Definer& for_out(std::function<DType(const Call&, std::span<const Tensor> out)> rule);
  Definer& keeps_out_shape();
  Definer& with_out();
  Definer& resized(std::function<Dims(const Call&, size_t k, const Tensor& out, SymSpan sizes)> strides);
  Definer& exact_self(std::string called);
  Definer& bad_conversion(ErrorType type);
  Definer& in_place();  // the form name_
  template <class F>
  Definer& in_place(F body);  // for a procedure: writes to self
  // No result carries a gradient, or none of these. Results that are not floating point carry none anyway.
  Definer& non_differentiable(std::string why);
  Definer& non_differentiable(std::vector<int> results, std::string why);
  Definer& undifferenced(std::string why);
  Definer& grad_name(std::string stem, int number = 0);  // the name of that function's node
  Definer& grad_name(GradName rule);                     // a name that depends on the call
  Definer& samples(Samples s);
  Definer& samples(std::initializer_list<const char*> lines) { return samples(op::samples(lines)); }
  Definer& shape(std::function<Dims(const Call&)> rule);  // for one result, or for several equal ones
  Definer& shapes(ShapeRule rule);
  // Results with the rank of one of these arguments are channels_last in memory if that argument is.
  Definer& format_of(std::vector<std::string> arguments);
  // Results with this argument's sizes have its order of dimensions in memory.
  Definer& strides_of(std::string argument);
  Definer& channels_last(ChannelsLast use);
  // Bodies: f(Expr...) or f(const LoopCall&, Expr...), giving Expr or std::vector<Expr>. Run-time Scalars are
  // operands as well, in the compute dtype.
  template <class F>
  Definer& pointwise(F f);
  // f(const LoopCall&, Index at), giving Expr or std::vector<Expr> (one per result); or f(const LoopCall&), giving
  // loop::Definition.
  template <class F>
  Definer& loop(F f);
  template <class F>
  Definer& view(F f);  // f(const Call&, Geometry): Geometry or std::vector<Geometry>
  // f takes the schema's parameters as C++ values (see typed.h): Tensor, std::optional<Tensor>,
  // std::vector<Tensor>, SymSpan, SymInt, int64_t, double, bool, Scalar, std::string_view,
  // std::optional<...>; gives Tensor, a std::tuple of Tensors, std::vector<Tensor> or Results.
  template <class F>
  Definer& composite(F f);
  template <class F>
  Definer& procedure(F f);  // like composite
  // A procedure that only calls the operator `name`: with its own arguments in order, followed by `rest`. In place it
  // writes with that operator's form.
  Definer& forwards(std::string name, std::vector<Value> rest = {});
  Definer& in_parts();
  Definer& library(std::string name);
  Definer& data_dependent(std::string name);
  Definer& foreign(std::shared_ptr<ForeignFunctions> functions);
  template <class F>
  Definer& reference(F f);  // like loop, or like procedure
  Definer& vjp(VjpRule rule);
  // Declares that it is linear in its first operand, and that `other` is its transpose: each one computes the
  // gradient of the other. Parameters with the same name correspond; the other parameters of `other` are sizes of
  // this operator's first operand: all of them, the last n (SymInt[n]), or that of `dim`.
  Definer& transposed_by(std::string other);
  Definer& batched(BatchRule rule);
  // Leading dimensions, in front of those that the operator works on, are a batch already; `dim` counts them.
  Definer& batched_in_front();

 private:
  Draft* draft_;
  Operator* op_;
};

// The compute dtype of a pointwise (or promoting) operator.
DType computing_dtype(const Operator& op, std::span<const Value> args);
// NotImplementedError unless the operator accepts the dtype.
void check_accepted(const Operator& op, DType d);

// The default shape rule of a loop: the shape of its first tensor. helpers.h has a rule for many families, `reduced`.
std::vector<Dims> shape_of_first(const Call& c);

// Starts the definition of an operator. Only inside FACULA_FAMILY functions (and tests, through
// `define_late`).
Definer define(std::string_view schema);

// catalog/<family>.cpp: FACULA_FAMILY(activation) { define(...)...; }. The generator lists the families.
#define FACULA_FAMILY(family) namespace facula::catalog { void define_##family(); } void facula::catalog::define_##family()

}  // namespace facula::op
#include "facula/op/typed.h"
