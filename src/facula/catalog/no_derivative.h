// Gradients that PyTorch does not implement. Results of such operators require a gradient like all others; the backward
// pass raises when it reaches them, in place of a zero that nobody has computed.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "facula/op/grad_name.h"
#include "facula/op/operator.h"

namespace facula::catalog {

// The .vjp(...) of an operator without a derivative. `of` is the name in the error: "geqrf", or "aten::heaviside" for an
// operator whose derivative PyTorch's tables do not mention, which its error spells so. Without a name it is the rule of
// `_without_derivative`, which hands the gradient of its first operand on and is told the name.
struct NoDerivative {
  std::string of;
  op::Grads operator()(const op::Vjp& v) const;
};

// How tapes call the node of an operator that PyTorch's tables do not mention.
inline op::GradName not_implemented() { return op::FixedGradName{"NotImplemented"}; }

// The gradient of one operand, if it is asked for, in a rule that has those of others.
Tensor no_derivative(const op::Vjp& v, op::ParameterName operand, std::string_view of);

// `result`, which procedures have computed of `operands` without history, as the result of a call without a derivative.
Tensor without_derivative(const Tensor& result, const std::vector<Tensor>& operands, std::string_view of);

}  // namespace facula::catalog
