// PyTorch's C++ front end, as far as Facula has it: docs/cpp.md.
#pragma once
#include "facula/catalog/torch_random.h"
#include "torch/all.h"

namespace torch::detail {
// Programs expect the numbers that a seed gives in PyTorch.
[[maybe_unused]] static const bool draws_torch_numbers = (facula::catalog::torch_random::use(true), true);
}  // namespace torch::detail
