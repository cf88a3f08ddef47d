// PyTorch's type promotion: tensors with dimensions take precedence over 0-d tensors, and these over Python numbers,
// unless the lower rank has a higher category (bool < integral < floating < complex).
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
  // Numbers are stored in the widest dtype of their category, but promote as its default dtype.
  static DType number_dtype(DType stored) {
    return is_floating(stored) ? default_dtype() : is_complex(stored) ? complex_of(default_dtype()) : stored;
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
// True if a result of dtype `from` may be written to a tensor of dtype `to` (out=, in place): the category must not
// become lower.
bool can_cast(DType from, DType to);
// True if `value` is out of the range of `d`. As in PyTorch, an unsigned dtype accepts negative numbers that fit its
// bits, bool accepts everything, and floating dtypes accept infinities and NaN.
bool overflows(const Scalar& value, DType d);
}  // namespace facula
