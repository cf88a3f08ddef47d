// User's operators that write to their arguments, for who must not write: a graph.
#pragma once
#include "facula/op/operator.h"

namespace facula::op {
// The tensors that a call writes, by its schema: (a!).
std::vector<Tensor> written_tensors(const Call& c);
// The operator that computes the same without writing: behind the results it gives what the written arguments
// become. Always the same one for `o`, which is foreign and writes.
const Operator& functional_form(const Operator& o);
}  // namespace facula::op
