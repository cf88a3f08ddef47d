// What grad_fn is called where PyTorch's is not called after the operator: programs print tensors, and read the names.
#pragma once

#include <span>
#include <string>

#include "facula/op/call.h"

namespace facula::autograd {

struct ShownName {
  const char* op;    // full name
  const char* stem;  // without "Backward" and its number: "Addmm" of a linear layer
  // The whole, where the arguments decide; empty: after the operator.
  std::string (*of)(const op::Call&, const char* stem) = nullptr;
};
// The catalog gives all before the first call; they live as long as the process.
void set_shown_names(std::span<const ShownName> all);

// "AddmmBackward0".
std::string shown_name(const op::Operator& o, std::span<const op::Value> args);

}  // namespace facula::autograd
