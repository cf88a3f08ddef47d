// Operator: everything that is known about one operator, and `define`, which makes it. An operator is of one
// of six kinds; the kind decides what the definition gives and what is derived (docs/architecture.md, "One
// definition").
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "facula/op/call.h"
#include "facula/op/geometry.h"
#include "facula/op/samples.h"

namespace facula::op {

enum class OpKind : uint8_t { pointwise, loop, view, composite, library, data_dependent };

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
  inherit,  // nothing; calls that an unfused composite makes are looked at one by one
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
// as it finds it, or at its best in channels_last, so that its results lie so whatever they show.
enum class ChannelsLast : uint8_t { no, reads, chooses };

using PointwiseBody = std::function<std::vector<loop::Expr>(const LoopCall&, std::span<const loop::Expr>)>;
using ShapeRule = std::function<std::vector<Dims>(const Call&)>;
using DTypeRule = std::function<std::vector<DType>(const Call&)>;
using LoopBody = std::function<loop::Definition(const LoopCall&)>;
using ViewRule = std::function<Views(const Call&, Geometry&&)>;
using CompositeBody = std::function<Results(const Call&)>;
using VjpRule = std::function<Grads(const Vjp&)>;

class Operator {
 public:
  Schema schema;
  OpKind kind = OpKind::composite;
  std::string doc;
  uint32_t namespaces = function | method;
  std::vector<std::string> aliases;       // further names (absolute for abs)
  DTypeSet dtypes = facula::dtypes::any;  // computing dtypes accepted
  Promote promote = Promote::same;
  // The first operand (or dtype=) has one of `dtypes` itself: nothing is promoted to one.
  bool strict = false;
  ResultType result_type = ResultType::same;
  DTypeRule dtype_rule;  // ResultType::custom
  Autocast autocast = Autocast::inherit;
  ShapeRule shape_rule;  // loop, library, data-dependent (upper bound)
  std::vector<std::string>
      format_of;  // loop, library: results are channels_last if one of these arguments is, or all of a list
  std::string strides_of;  // loop, library: results of this argument's sizes lie as it lies
  ChannelsLast channels_last = ChannelsLast::no;
  PointwiseBody body;
  LoopBody loop;
  ViewRule view;
  CompositeBody composite;
  bool fused = true;    // composite: run as a fused program
  std::string library;  // name in the backend's table; also data-dependent operators'
  // Library: the slow definition, by one element or by calls of other operators. Tests compare with it, and a
  // backend without the library runs it.
  LoopBody reference;
  CompositeBody composed_reference;
  VjpRule vjp;
  bool differentiable = true;           // results carry gradients (per result: see non_differentiable)
  std::vector<int> non_differentiable;  // results that never do (indices)
  bool random = false;
  // Looks at the values of numbers before each call (other rules see types and sizes, and are not asked again
  // for equal ones); raises what is wrong with them.
  std::function<void(const Call&)> check;
  ErrorType bad_index = ErrorType::IndexError;  // what an element of an index tensor that does not fit raises
  bool uniform = false;     // self gets one number everywhere: in place it may overlap itself
  bool overwrites = false;  // elements of self become others or stay: in place self may be expanded
  // Must out= have the dtype of the result, or is the result converted? Unset: as most of the kind
  // (run/dispatch.cpp).
  std::function<bool(const Call&)> exact_out;
  Samples samples;
  // Where results differ from PyTorch's on purpose, and why (docs/robustness.md, "Edges").
  struct Difference {
    std::string where, why;
  };
  std::vector<Difference> differences;
  // Derived: the out= form of an operator whose results are Tensors, and the form name_ of one on `Tensor
  // self` with one Tensor result; neither of an operator that is a view or writes. A loop or library operator
  // with a shape rule of its own has no in-place form unless it says in_place(); nor has a view, whose
  // in-place form changes how the tensor lies over its memory.
  bool in_place_form = false, out_form = false;
  std::optional<bool> wants_in_place;
  CompositeBody
      in_place_body;  // unfused composite: its in-place form, where that is more than a copy of the result
  // Composite: bit k is set if the body takes parameter k, a run-time Scalar, as a number and not as a
  // Tensor. Such numbers are baked into the fused program.
  uint64_t baked_numbers = 0;
  // Composite: bit k is set if the body takes parameter k, a float, as a Tensor: an operand then.
  uint64_t operand_floats = 0;
  const Operator* parent = nullptr;  // of a derived gradient operator

  const char* name() const { return schema.name.c_str(); }
  bool has_number_operands() const;              // a run-time Scalar among the parameters
  int slots(std::span<const Value> args) const;  // operands: tensors, list items, run-time Scalars
  mutable std::shared_ptr<void> cache;           // run/'s per-operator caches
};

// Fluent definition. Each setter is named as the field it sets.
class Definer {
 public:
  explicit Definer(Operator* op) : op_(op) {}
  Definer& doc(std::string text);
  Definer& dtypes(DTypeSet set);
  Definer& strict();
  Definer& bind(uint32_t namespaces);
  Definer& alias(std::string name);
  Definer& promote(Promote p);
  Definer& result(ResultType t);
  Definer& result(DTypeRule rule);
  Definer& autocast(Autocast a);
  Definer& random();
  Definer& check(std::function<void(const Call&)> rule);
  Definer& bad_index(ErrorType type);
  Definer& uniform();
  Definer& overwrites();
  Definer& exact_out();
  Definer& exact_out(std::function<bool(const Call&)> rule);
  Definer& converting_out();
  Definer& in_place();
  template <class F>
  Definer& in_place(F body);  // as unfused, writing into self
  Definer& no_in_place();
  Definer& non_differentiable();  // no result does
  Definer& non_differentiable(std::vector<int> results);
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
  Definer& unfused(F f);  // a composite that is never fused: it writes, or reads data
  Definer& library(std::string name);
  Definer& data_dependent(std::string name);
  template <class F>
  Definer& reference(F f);  // as loop, or as unfused
  Definer& vjp(VjpRule rule);

 private:
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
