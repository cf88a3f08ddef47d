// Visits the operands of a call, which are the inputs of kernels: every Tensor parameter (even if it is None), every
// item of a list of tensors (including None), and every run-time Scalar, in the order of the schema.
#pragma once
#include <string_view>
#include <vector>

#include "facula/op/operator.h"

namespace facula::op {

inline bool is_number(const Value& v) { return v.tag == Tag::scalar || v.tag == Tag::integer; }

struct Operand {
  std::string_view name;  // of the parameter
  int item = -1;          // index in a list
  int slot = 0;           // index among all operands, as LoopCall counts
  int tensor = -1;        // index among tensors, as Grads counts; -1: a Scalar parameter
  Value value;
  size_t parameter = 0;
};

// The number of operands of parameter k.
inline size_t operand_count(const Call& c, size_t k) {
  const Parameter& p = c.op().schema.parameters[k];
  if (!p.is_operand()) return 0;
  if (!p.list) return 1;
  const Value& v = c.at(k);
  return v.tag == Tag::tensors ? v.list.count : v.tag == Tag::tensor;
}

// Calls f(const Operand&) for every operand in order.
template <class F>
void each_operand(const Call& c, F&& f) {
  auto& parameters = c.op().schema.parameters;
  int slot = 0, tensors = 0;
  for (size_t k = 0; k < parameters.size(); ++k) {
    auto& p = parameters[k];
    if (!p.is_operand()) continue;
    const Value& v = c.at(k);
    bool tensor = p.type == Type::Tensor;
    for (size_t i = 0, n = operand_count(c, k); i < n; ++i)
      f(Operand{p.name, p.list ? int(i) : -1, slot++, tensor ? tensors++ : -1,
                v.tag == Tag::tensors ? Value(v.tensors()[i]) : v, k});
  }
}
std::vector<Operand> operands_of(const Call& c);

}  // namespace facula::op
