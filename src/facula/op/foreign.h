// Properties of users' operators: the forms for graphs, which must not write, of those that write to their arguments; and
// those that keep what they are given.
#pragma once
#include "facula/op/operator.h"

namespace facula::op {
// The tensors that a call writes according to its schema, (a!).
std::vector<Tensor> written_tensors(const Call& c);
// The operator that computes the same without writing: after the results it returns the new values of the written
// arguments. `o` must be a foreign operator that writes; the result is always the same operator.
const Operator& functional_form(const Operator& o);

// Functions that may keep their operands and return them, or what was computed from them, from a later call, so that
// gradients of a graph cannot follow them.
class KeepsOperands : public ForeignFunctions {};
// Raises NotImplementedError if `o` has such functions; for operators that are given values with gradients.
void check_gradients_pass(const Operator& o);
}  // namespace facula::op
