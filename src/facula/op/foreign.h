// Forms of user's operators that write to their arguments for graphs, which must not write.
#pragma once
#include "facula/op/operator.h"

namespace facula::op {
// The tensors that a call writes according to its schema, (a!).
std::vector<Tensor> written_tensors(const Call& c);
// The operator that computes the same without writing: after the results it returns the new values of the written
// arguments. `o` must be a foreign operator that writes; the result is always the same operator.
const Operator& functional_form(const Operator& o);
}  // namespace facula::op
