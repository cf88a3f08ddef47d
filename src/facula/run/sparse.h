// Calls with sparse operands (tensor/sparse.h). An operator takes those that its rule says, and one that computes element
// by element takes a single sparse tensor where it makes zero of zero: it works on the values. Every other call raises
// here, before anything reads what a sparse tensor does not have. A process that never made one pays for the look at
// a flag that lazy tensors need as well.
#pragma once
#include <functional>
#include <span>

#include "facula/op/call.h"

namespace facula::run {

// How a call computes whose operands are sparse, by calls on their parts. In place it may write self and give it; a
// result that is not self becomes what self holds. No results: these operands are not taken.
using SparseRule = std::function<op::Results(const op::Call&, op::Form)>;
struct SparseRules {
  const char* op;  // full name
  SparseRule rule;
};
// The catalog gives all before the first call; the rules live as long as the process.
void add_sparse_rules(std::span<const SparseRules> rules);

// NotImplementedError while a function is traced: graphs hold no sparse tensors.
void check_no_trace_of_sparse(const char* op);
bool any_sparse(std::span<const op::Value> args, std::span<const Tensor> out);
op::Results call_sparse(const op::Operator& o, std::span<const op::Value> args, op::Form form,
                        std::span<const Tensor> out);

}  // namespace facula::run
