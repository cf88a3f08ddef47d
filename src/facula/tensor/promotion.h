// PyTorch's type promotion: dimensioned tensors outrank 0-d tensors, which outrank Python numbers, unless the
// lower rank brings a higher category (bool < integral < floating < complex).
#pragma once
#include "facula/tensor/tensor.h"

namespace facula {
class Promotion {
 public:
  void add(const Tensor& t) {
    if (t.impl()->wrapped_number) add(number_dtype(t.dtype()), 2);
    else add(t.dtype(), t.dim() == 0 ? 1 : 0);
  }
  void add(const Scalar& s) { add(s.dtype(), 2); }
  DType result() const;
  // Numbers are kept in the widest dtype of their category, but promote as the default one.
  static DType number_dtype(DType kept) {
    return is_floating(kept) ? default_dtype() : is_complex(kept) ? complex_of(default_dtype()) : kept;
  }

 private:
  void add(DType d, int priority) {
    if (any_[priority]) types_[priority] = promote(types_[priority], d);
    else {
      types_[priority] = d;
      any_[priority] = true;
    }
  }
  DType types_[3] = {};
  bool any_[3] = {};
};
// May a result of type `from` be written into a tensor of type `to` (out=, in place)? Categories may not go
// down.
bool can_cast(DType from, DType to);
// Is `value` out of the range of `d`? As in PyTorch an unsigned dtype takes negative numbers that fit its
// bits, bool takes all, infinities fit floating dtypes, and NaN as well.
bool overflows(const Scalar& value, DType d);
}  // namespace facula
