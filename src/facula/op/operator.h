// Operator: everything that is known about one operator, and `define`, which makes it. An operator is an
// identity, a definition of one of eight kinds, and its effects; the kind decides what the definition gives and
// what is derived (docs/architecture.md, "One definition").
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

// Where users find an operator. `function` (facula.x) is bound unless it is hidden or a method alone.
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

// How operands become the computing dtype.
enum class Promote : uint8_t {
  same,          // PyTorch's promotion of all operands
  int_to_float,  // then integers and bool become the default floating dtype
  none,          // operands keep their dtypes (bodies cast)
};
enum class ResultType : uint8_t { same, boolean, real, int64, custom };
// What autocast makes of an operator's floating operands (run/autocast.h); float64 is left alone.
enum class Autocast : uint8_t {
  inherit,  // nothing; calls that a procedure makes are looked at one by one
  lower,    // float32 becomes the lower dtype: products, convolutions
  fp32,     // 16-bit floats become float32: losses, decompositions, transforms
  promote,  // 16-bit floats become float32 if another operand is float32
  as_is,    // nothing, and neither in what it calls
};

// What a gradient formula sees. Reading a tensor through [] or result() means it is saved; sizes and dtypes
// are free.
class Vjp {
 public:
  virtual ~Vjp() = default;
  virtual Tensor grad(int result = 0) const = 0;  // undefined if no gradient arrived
  virtual Tensor operator[](ParameterName arg) const = 0;
  virtual Tensor item(ParameterName arg, int k) const = 0;  // of a list
  virtual Tensor result(int k = 0) const = 0;
  virtual bool needs(ParameterName arg, int item = 0) const = 0;
  virtual const Call& call() const = 0;  // attributes, sizes and dtypes; its tensors hold no data
};
// Gradients by slot (tensors and list items in order); undefined: none.
using Grads = std::vector<Tensor>;
template <class... T>
Grads grads(T... t) {
  return Grads{std::move(t)...};
}

// Whether a library operator works on memory in another order than users see (docs/layouts.md): not at all,
// as it finds it, or at its best in channels_last, so that its results lie so whatever they show. One that packs reads as
// it finds it, and what it makes may come to lie in an order of the library's own if nobody else holds it.
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

// ---- what the definition of each kind gives
struct Pointwise {
  PointwiseBody body;
};
// The rules of results, where neither operands nor calls tell them.
struct Shaped {
  ShapeRule shape;  // data-dependent: an upper bound
  // Results are channels_last if one of these arguments is, or all of a list.
  std::vector<std::string> format_of;
  std::string strides_of;  // results of this argument's sizes have its dimensions in its order in memory
};
struct Loop : Shaped {
  LoopBody body;
};
struct View {
  ViewRule rule;
};
// Calls of operators that run as one fused program, forward and backward.
struct Composite {
  CompositeBody body;
  // Bit k is set if the body takes parameter k, a run-time Scalar, as a number and not as a Tensor. Such numbers
  // are baked into the program.
  uint64_t baked_numbers = 0;
  // Bit k is set if the body takes parameter k, a float, as a Tensor: an operand then.
  uint64_t operand_floats = 0;
  // The body has sizes of its own as numbers: it is traced with those of its operands, not with symbols.
  bool exact_sizes = false;
};
// Calls of operators that run one by one: the body writes, reads data, or passes on to one operator.
struct Procedure {
  CompositeBody body;
  CompositeBody in_place;  // writes into self, where that is more than a copy of the result
};
struct Backed : Shaped {
  std::string name;  // in the backend's table
  // The slow definition, by one element or by calls of other operators. Tests compare with it, and a backend
  // without the library runs it.
  LoopBody reference;
  CompositeBody composed_reference;
};
struct Library : Backed {
  ChannelsLast channels_last = ChannelsLast::no;
};
struct DataDependent : Backed {};
// What a user's function does, which nothing here looks into. Its parts may be given after the schema.
class ForeignFunctions {
 public:
  virtual ~ForeignFunctions() = default;
  // Results, in memory of their own, of operands with data. What it calls is not recorded.
  virtual Results run(const Call& c) = 0;
  // What results will be, of operands that may have no data; raises where nobody said it.
  virtual std::vector<Meta> infer(const Call& c) = 0;
  virtual Results record(const Call& c) = 0;  // as run, with history: some operand requires a gradient
  virtual Grads gradient(const Vjp& v) = 0;   // while a trace is recorded
  // Is it made of operators, so that the tape and traces see those in place of it?
  virtual bool is_composite() const = 0;
  // Sets what runs for a dispatch key (extend/library.h); raises where kernels cannot be given.
  virtual void set_kernel(const std::string& key, CompositeBody kernel);
};
struct Foreign {
  std::shared_ptr<ForeignFunctions> functions;
};

// What a call does besides computing its results from its operands.
struct Effects {
  bool reads_data = false;  // the host looks at elements: what is called, or a size, depends on them
  bool writes = false;      // arguments that the schema marks (a!)
  bool draws = false;       // takes random numbers from a generator's sequence
  bool ordered = false;     // communicates: such calls keep their order
  bool checks = false;      // may refuse what elements or numbers are
  bool moves = false;       // brings operands over from other devices
  // Equal calls are one call: they may be merged, repeated or moved.
  bool repeatable() const { return !writes && !draws && !ordered; }
};

// What an in-place form does to a self whose elements share memory.
enum class Overlap : uint8_t {
  in_order,    // goes through it in order: an element that is there several times takes part as often
  uniform,     // gives one number to all of it, so that it may overlap in any way
  overwrites,  // elements become others or stay: of several that share memory the last that changed counts
};

// How results reach memory that is there already.
struct Forms {
  // Derived: the out= form of an operator whose results are Tensors, and the form name_ of one on `Tensor
  // self` with one Tensor result; neither of an operator that is a view or writes. A loop or library operator
  // with a shape rule of its own has no in-place form unless it says in_place(); nor has a view, whose
  // in-place form changes how the tensor lies over its memory.
  bool in_place = false, out = false;
  std::optional<bool> wants_in_place;
  Overlap overlap = Overlap::in_order;
  // Must out= have the dtype of the result, or is the result converted? Unset: as most of the kind
  // (run/write.h).
  std::function<bool(const Call&)> exact_out;
  // Refuses out= tensors that the call has no use for, and gives the dtype that the first operand is converted to before a
  // call that computes in that of `out`.
  std::function<DType(const Call&, std::span<const Tensor> out)> for_out;
  // What self is called where, in place, it must have the dtype of the result; empty: it is converted to.
  std::string exact_self;
  // What a destination raises whose dtype cannot hold the results.
  ErrorType bad_conversion = ErrorType::RuntimeError;
  // Does an out= tensor with as many elements as the result keep its shape, filled in order?
  bool keeps_out_shape = false;
  // Has it an out= form although it returns a list of tensors, or writes arguments beside?
  bool wants_out = false;
  // Strides of an out= tensor that takes its shape, `sizes`, from result k; unset or empty: by rows.
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
  std::string called;                // how errors call a hidden operator: the function that users wrote
  struct ParameterAlias {
    std::string parameter, also;
  };
  std::vector<ParameterAlias> parameter_aliases;  // further names of parameters, for Python users

  Definition definition = Composite{};
  Effects effects;

  // ---- dtypes
  DTypeSet dtypes = facula::dtypes::any;  // computing dtypes accepted
  Promote promote = Promote::same;
  // The first operand (or dtype=) has one of `dtypes` itself: nothing is promoted to one.
  bool strict = false;
  ResultType result_type = ResultType::same;
  DTypeRule dtype_rule;  // ResultType::custom
  Autocast autocast = Autocast::inherit;
  std::function<Autocast(const Call&, DType lower)> autocast_rule;  // where the call decides

  // ---- gradient
  VjpRule vjp;
  // Of an operator that is linear in its first operand: the one that computes its gradient, its transpose, and whose
  // gradient it computes itself (docs/adding_an_operator.md).
  std::string transpose;
  bool differentiable = true;                  // results carry gradients (per result: see non_differentiable)
  std::vector<int> non_differentiable;         // results that never do (indices)
  bool carries_gradient(size_t result) const;  // by these; its dtype may still forbid it
  // Why differences of values do not show the gradient, so that tests do not compare them; empty: they do.
  std::string undifferenced;
  // What grad_fn is called, which programs print and read, where PyTorch's formula belongs to another operator: to a part
  // of this one, to a variant of PyTorch's own, or to the last step of a function that PyTorch writes in steps. Unset, or
  // where it gives an empty text: after the operator.
  GradName grad_name;

  // How one call does the work of a batch of calls (vmap), where the kind does not tell.
  BatchRule batched;

  // Looks at the values of numbers before each call (other rules see types and sizes, and are not asked again
  // for equal ones); raises what is wrong with them.
  std::function<void(const Call&)> check;
  ErrorType bad_index = ErrorType::IndexError;  // what an element of an index tensor that does not fit raises
  // What an element that a body does not accept (op/refusal.h) raises; bad_index is the type then.
  std::vector<std::string> refusals;
  Forms forms;
  Samples recipes;  // of samples()
  // Where results differ from PyTorch's on purpose, and why (docs/robustness.md, "Edges").
  struct Difference {
    std::string where, why;
  };
  std::vector<Difference> differences;

  const Operator* parent = nullptr;     // of a derived gradient operator
  mutable std::shared_ptr<void> cache;  // run/'s per-operator caches

  const char* name() const { return schema.name.c_str(); }
  // InternalError where one names no parameter.
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
  bool has_number_operands() const;  // a run-time Scalar among the parameters
};

// A definition in the making. What belongs to one kind alone is gathered beside it, because the kind is often
// said last, and put into its place when the definition ends; there it must have one.
struct Draft {
  Operator op;
  Backed backed;
  ChannelsLast channels_last = ChannelsLast::no;
  CompositeBody in_place;
};

Grads transposed(const Vjp& v);  // by the operator that is the transpose

// Fluent definition. Each setter is named as the field it sets.
class Definer {
 public:
  explicit Definer(Draft* draft) : draft_(draft), op_(&draft->op) {}
  Definer& doc(std::string text);
  Definer& dtypes(DTypeSet set);
  Definer& strict();
  Definer& bind(uint32_t namespaces);
  Definer& alias(std::string name);
  Definer& also(std::string parameter, std::string name);  // a further name of a parameter
  // The function of nn.functional where PyTorch's has parameters that are Python's alone, "relu(input, inplace=False)",
  // and statements before the call. op/generate.py writes it.
  template <class... Statement>
  Definer& python(std::string_view form, Statement...) {
    return called(form.substr(0, form.find('(')));
  }
  Definer& called(std::string_view name);  // the first name given stays
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
  Definer& in_place();
  template <class F>
  Definer& in_place(F body);  // of a procedure: writes into self
  Definer& no_in_place();
  Definer& non_differentiable();  // no result does
  Definer& non_differentiable(std::vector<int> results);
  Definer& undifferenced(std::string why);
  Definer& grad_name(std::string stem, int number = 0);  // as the function of that name
  Definer& grad_name(GradName rule);                     // by the call
  Definer& samples(Samples s);
  Definer& samples(std::initializer_list<const char*> lines) { return samples(op::samples(lines)); }
  // `where`: a regular expression for the beginning of a line of tests/edges, "float64 value: finite for inf".
  Definer& differs(std::string where, std::string why);
  Definer& shape(std::function<Dims(const Call&)> rule);  // one result, or all alike
  Definer& shapes(ShapeRule rule);
  // Results with the rank of one of these arguments are channels_last in memory if that argument is.
  Definer& format_of(std::vector<std::string> arguments);
  // Results, of this argument's sizes, have its dimensions in its order in memory.
  Definer& strides_of(std::string argument);
  Definer& channels_last(ChannelsLast use);
  // Bodies: f(Expr...) or f(const LoopCall&, Expr...), giving Expr or std::vector<Expr>. Run-time Scalars are
  // operands too, in the computing dtype.
  template <class F>
  Definer& pointwise(F f);
  // f(const LoopCall&, Index at): Expr or std::vector<Expr> (one a result); or f(const LoopCall&):
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
  Definer& procedure(F f);  // as composite
  Definer& library(std::string name);
  Definer& data_dependent(std::string name);
  Definer& foreign(std::shared_ptr<ForeignFunctions> functions);
  template <class F>
  Definer& reference(F f);  // as loop, or as procedure
  Definer& vjp(VjpRule rule);
  // Is linear in its first operand, and `other` is its transpose: each computes the gradient of the other. Parameters of
  // the same name mean the same; what the other one has besides are sizes of this one's first operand: all of them, the
  // last n (SymInt[n]), or that of `dim`.
  Definer& transposed_by(std::string other);
  Definer& batched(BatchRule rule);
  // Dimensions in front of those that the operator works on are a batch for it already; `dim` counts them.
  Definer& batched_in_front();

 private:
  Draft* draft_;
  Operator* op_;
};

// The dtype that a pointwise (or promoting) operator computes in.
DType computing_dtype(const Operator& op, std::span<const Value> args);
// NotImplementedError unless the operator takes the dtype.
void check_accepted(const Operator& op, DType d);

// The default shape rule of a loop: that of its first tensor. A rule shared by many families: helpers.h,
// `reduced`.
std::vector<Dims> shape_of_first(const Call& c);

// Starts the definition of an operator. Only inside FACULA_FAMILY functions (and tests, through
// `define_late`).
Definer define(std::string_view schema);

// catalog/<family>.cpp: FACULA_FAMILY(activation) { define(...)...; }. The generator lists the families.
#define FACULA_FAMILY(family) namespace facula::catalog { void define_##family(); } void facula::catalog::define_##family()

}  // namespace facula::op
#include "facula/op/typed.h"
