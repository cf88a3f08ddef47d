// Formula: how the gradient of one kind of call is computed and what it needs kept, derived once from the
// operator's definition and remembered. Two calls with equal attributes, dtypes, ranks and wanted gradients
// share one.
//   pointwise: the body is differentiated; all gradients come from one derived pointwise operator, which reads results
//              instead of operands where that keeps less
//   loop:      the loops are transposed; each part of each gradient is a derived loop operator
//              (derived operators are registered, op/origin.h, under full names that say what they follow from)
//   rule:      the definition's .vjp; what it reads is found by tracing it once (probe)
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "facula/op/operands.h"

namespace facula::autograd {

using op::Operand;
using op::operands_of;

struct Formula {
  std::vector<bool> reads;  // by tensor: its data is read
  std::vector<bool> reads_result;

  // Operand: position in operands_of.
  struct Source {
    enum Kind : uint8_t { grad, operand, result } kind;
    int index;
  };
  const op::Operator* derived = nullptr;    // pointwise
  const op::Operator* summed = nullptr;     // the same with sums to the operands' sizes, of 16-bit ones
  std::vector<Source> sources;              // its arguments
  std::vector<int> targets;                 // tensor that each of its results belongs to
  std::vector<std::pair<int, int>> passed;  // tensor and result whose gradient it takes as it is

  struct Piece {
    const op::Operator* derived;
    int tensor;
    int result;
    std::vector<bool> kept;
  };
  std::vector<Piece> pieces;  // loop
  // Tensors that the result only steps with (signs, places of the nearest element). Their gradients are zeros; but a
  // derived gradient does not depend on them, as PyTorch's do not on masks: zeros times infinite slopes would be NaN.
  std::vector<int> constant;
};

using Flags = SmallVector<bool, 16>;
using GradTypes = SmallVector<std::optional<DType>, 8>;
// `wanted`: by tensor. `grads`: dtypes of the gradients that arrive, by result.
std::shared_ptr<const Formula> formula_of(const op::Call& c, const Flags& wanted, const GradTypes& grads);
// Whether the operator has a gradient by a rule or by its body.
bool has_formula(const op::Operator& o);
// Gradients by tensor.
op::Grads apply(const Formula& f, const op::Call& c, const op::Vjp& v);

// The call whose gradient a derived operator is, the same in every process; the tensors of its arguments have no data.
struct Derivation {
  const op::Operator* of;
  op::Args args;
  Flags wanted;
  GradTypes grads;
  int piece;  // of a loop operator; -1: pointwise
};
const Derivation* derivation_of(const op::Operator& o);  // null: `o` is not derived
const op::Operator* gradient_of(const Derivation& d);    // null: the call has no such gradient
bool is_gradient(const op::Operator& o);                 // is it derived, or a batch of one that is?

// The gradient of a view: its steps undone on the gradient of the view.
op::Grads view_gradient(const op::Call& c, const op::Vjp& v);

// The operands and results that the .vjp rule of a call reads, determined by graph/joint.cpp, which traces the rule.
struct Reads {
  std::vector<bool> operands, results;
  std::shared_ptr<sym::Shapes> shapes;  // guards under which this holds
};
Reads probe(const op::Call& c, const Flags& wanted, size_t results);

}  // namespace facula::autograd
