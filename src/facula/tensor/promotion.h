// PyTorch's type promotion: dimensioned tensors outrank 0-d tensors, which outrank Python numbers, unless the lower
// rank brings a higher category (bool < integral < floating < complex).
#pragma once
#include "facula/tensor/tensor.h"

namespace facula {
class Promotion {
 public:
  void add(const Tensor& t) { add(t.dtype(), t.impl()->wrapped_number ? 2 : t.dim() == 0 ? 1 : 0); }
  void add(const Scalar& s) { add(s.dtype(), 2); }
  DType result() const;

 private:
  void add(DType d, int priority) {
    if (any_[priority]) types_[priority] = promote(types_[priority], d);
    else { types_[priority] = d; any_[priority] = true; }
  }
  DType types_[3] = {};
  bool any_[3] = {};
};
// May a result of type `from` be written into a tensor of type `to` (out=, in place)? Categories may not go down.
bool can_cast(DType from, DType to);
}  // namespace facula
