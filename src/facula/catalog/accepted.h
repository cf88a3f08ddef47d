// Checks of elements in traces, where the host cannot look at them.
#pragma once
#include "facula/op/helpers.h"
#include "facula/ops.h"

namespace facula::catalog {

// t, for a trace whose program must refuse its call where `good`, of bools, is False: compiled functions then raise the error
// of the eager call.
inline Tensor accepted(const Tensor& t, const Tensor& good) {
  return _accepted(t, sub(to_dtype(good, DType::Int64), 1));
}

}  // namespace facula::catalog
