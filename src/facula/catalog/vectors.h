// Vectors of whole numbers that a definition counted itself.
#pragma once
#include <algorithm>
#include <span>

#include "facula/ops.h"
#include "facula/tensor/tensor.h"

namespace facula::catalog {

inline Tensor vector_of(std::span<const int64_t> x) {
  Tensor t = Tensor::empty(IntSpan(Ints{int64_t(x.size())}), DType::Int64);
  std::copy(x.begin(), x.end(), t.data<int64_t>());
  return _to_device(t, default_device());  // that of the call
}

}  // namespace facula::catalog
