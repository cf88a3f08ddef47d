// Calls with sparse operands (tensor/sparse.h). An operator takes the sparse operands that its rule accepts. An elementwise
// operator that maps zero to zero takes a single sparse tensor and computes on its values. Every other call raises before
// anything reads memory that a sparse tensor does not have.
#pragma once
#include <functional>
#include <span>

#include "facula/op/call.h"

namespace facula::run {

// Computes a call with sparse operands by calls on their parts. An in-place rule may write self and return it; if it returns
// another tensor, self takes its parts. No results: the rule does not accept these operands.
using SparseRule = std::function<op::Results(const op::Call&, op::Form)>;
struct SparseRules {
  const char* op;  // full name
  SparseRule rule;
};
// The catalog registers its rules before the first call; they live as long as the process.
void add_sparse_rules(std::span<const SparseRules> rules);

// Raises NotImplementedError while a function is traced, because graphs have no sparse tensors.
void check_no_trace_of_sparse(const char* op);
bool any_sparse(std::span<const op::Value> args, std::span<const Tensor> out);
op::Results call_sparse(const op::Operator& o, std::span<const op::Value> args, op::Form form,
                        std::span<const Tensor> out);

}  // namespace facula::run
