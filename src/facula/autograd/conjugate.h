// The conjugate of complex numbers is computed, where PyTorch's is a view that writes reach through. So that no
// write is lost, what conj() gave may not be written to: the mark lies with the version, which views share.
#pragma once
#include "facula/base/error.h"
#include "facula/tensor/tensor.h"

namespace facula::autograd {

inline constexpr char kConjugate[] = "conj";
inline void mark_conjugate(const Tensor& t) { t.version_counter()->writer = kConjugate; }
inline void check_not_conjugate(const char* op, const Tensor& t) {
  auto* i = t.impl();
  if (!is_complex(i->dtype) || !i->version) [[likely]]
    return;
  runtime_check(i->version->writer.load(std::memory_order_relaxed) != kConjugate, op)
      << "cannot write to the result of conj(): it holds numbers of its own, where a write has to reach the "
         "tensor that it is the conjugate of"
      << hint("conj_physical() or resolve_conj().clone() give numbers that may be written");
}

}  // namespace facula::autograd
