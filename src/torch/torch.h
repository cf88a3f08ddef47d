// PyTorch's C++ front end, as far as Facula has it: docs/cpp.md.
#pragma once
#include "facula/catalog/torch_random.h"
#include "torch/all.h"

extern "C" int Py_IsInitialized(void) __attribute__((weak));

namespace torch::detail {
// Programs expect the numbers that a seed gives in PyTorch. In a process of Python, its program decides.
[[maybe_unused]] static const bool draws_torch_numbers =
    (Py_IsInitialized && Py_IsInitialized()) || (facula::catalog::torch_random::use(true), true);
}  // namespace torch::detail
