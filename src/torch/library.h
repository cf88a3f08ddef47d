// TORCH_LIBRARY and its kin: facula/extend/library.h under PyTorch's names.
#pragma once
#include "facula/extend/library.h"
#include "torch/custom_class.h"
#include "torch/types.h"

#define TORCH_LIBRARY(ns, m) FACULA_LIBRARY(ns, m)
#define TORCH_LIBRARY_FRAGMENT(ns, m) FACULA_LIBRARY_FRAGMENT(ns, m)
#define TORCH_LIBRARY_IMPL(ns, key, m) FACULA_LIBRARY_IMPL(ns, key, m)
#define TORCH_FN(f) f

namespace c10 {
// Names of dispatch keys.
struct DispatchKey {
  static constexpr const char *CPU = "CPU", *Meta = "Meta", *Autograd = "Autograd",
                              *AutogradCPU = "AutogradCPU",
                              *CompositeImplicitAutograd = "CompositeImplicitAutograd",
                              *CompositeExplicitAutograd = "CompositeExplicitAutograd";
};
}  // namespace c10
namespace torch {
using c10::DispatchKey;
using facula::dispatch;
using facula::Library;
}  // namespace torch
