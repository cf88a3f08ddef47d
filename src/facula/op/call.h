// A call of an operator, as its rules see it, and `call`, through which every call goes (implemented in run/).
#pragma once
#include <optional>
#include <string_view>

#include "facula/loop/definition.h"
#include "facula/op/schema.h"

namespace facula::op {

class Operator;

// Shape, dtype and device of one result.
struct Meta {
  Dims sizes;
  DType dtype;
  Device device{};
  Dims strides{};  // empty: contiguous
};

// The arguments of a call by name, with PyTorch's conversions. All lookups raise internal errors for unknown names.
//
// Slots: a Tensor parameter has one slot, even if it is None; a list of tensors has one slot per item (including
// None); a run-time Scalar has one, even if it is None. `tensor_slot` and Grads count tensors only; LoopCall::slot
// and operands of kernels count Scalars as well, in the order of the parameters (op/operands.h).
class Call {
 public:
  Call(const Operator& op, std::span<const Value> args) : op_(&op), args_(args) {}
  const Operator& op() const { return *op_; }
  const char* name() const;  // as the user wrote it
  std::span<const Value> args() const { return args_; }
  const Value& operator[](ParameterName arg) const;  // the value, or its default
  const Value& at(size_t parameter) const;           // the same by position
  bool has(ParameterName arg) const { return !(*this)[arg].is_none(); }
  Tensor tensor(ParameterName arg) const;                // undefined if None
  std::vector<Tensor> tensors(ParameterName arg) const;  // of a list; None items are undefined
  std::vector<Tensor> all_tensors() const;               // by tensor slot; numbers become 0-d wrapped tensors
  int tensor_slot(ParameterName arg, int item = 0) const;
  SymSpan sizes(ParameterName arg) const;       // of a tensor; a number has none
  SymInt size(ParameterName arg, int d) const;  // d may be negative
  int rank(ParameterName arg) const { return int(sizes(arg).size()); }
  DType dtype(ParameterName arg) const;  // of a tensor, or the value of a dtype argument
  std::optional<DType> maybe_dtype(ParameterName arg) const;
  int dim(ParameterName arg, ParameterName of = "self") const;  // wrapped; IndexError
  Ints dims(ParameterName arg,
            ParameterName of = "self") const;  // wrapped, unique, sorted; empty or None: all
  Ints every_dim(ParameterName of = "self") const;
  SymSpan ints(ParameterName arg) const { return (*this)[arg].ints(); }
  Dims ints(ParameterName arg,
            int n) const;  // a list of n; a single integer is repeated; RuntimeError otherwise
  SymInt integer(ParameterName arg) const { return (*this)[arg].integer(); }
  bool flag(ParameterName arg) const { return (*this)[arg].number().to_bool(); }
  double real(ParameterName arg) const { return (*this)[arg].number().to_double(); }
  Scalar number(ParameterName arg) const { return (*this)[arg].number(); }
  std::string_view str(ParameterName arg) const { return (*this)[arg].string(); }

 protected:
  size_t index_of(ParameterName arg) const;

 private:
  const Operator* op_;
  std::span<const Value> args_;
};

// A Call inside a pointwise body or a loop, which loads its operands. Slots number operands: every tensor, list item
// and run-time Scalar, in order.
using Index = std::vector<loop::Expr>;
class LoopCall : public Call {
 public:
  using Call::Call;
  int slot(ParameterName arg, int item = 0) const;
  loop::Expr load(ParameterName arg, Index at, int item = 0) const;
  // An element of an integer tensor, checked to be in [0, n).
  loop::Expr index_load(ParameterName arg, Index at, SymInt n) const;
  // A scalar operand as an expression of compute_type(d): a load of its operand_dtype with a cast.
  loop::Expr scalar(ParameterName arg, DType d) const;
  // A loop variable that is not used otherwise in this call, for reductions and scans.
  int fresh() const { return next_var_++; }

 private:
  mutable int next_var_ = 64;
};

// How a result is returned.
enum class Form : uint8_t { functional, in_place, out };

// Runs an operator. Every call, from Python, C++, a gradient or a composite, goes through here. `out`: one
// destination per result for Form::out. Raises Error.
Results call(const Operator& op, std::span<const Value> args, Form form = Form::functional,
             std::span<const Tensor> out = {});

// Runs the call without asking the current mode of the thread. The mode still receives calls made by it.
Results perform(const Operator& op, std::span<const Value> args, Form form, std::span<const Tensor> out);

// A mode receives the calls of its thread (tracing, for example). Modes nest; the innermost one receives a call
// first, and is switched off while it handles the call.
class Mode {
 public:
  virtual ~Mode() = default;
  virtual Results take(const Operator& op, std::span<const Value> args, Form form,
                       std::span<const Tensor> out) = 0;
  virtual bool records() const { return false; }  // a trace, which only records calls
  static Mode* current();
  class With {
   public:
    explicit With(Mode* m);  // null switches modes off
    ~With();

   private:
    Mode* outer_;
  };
};

}  // namespace facula::op
