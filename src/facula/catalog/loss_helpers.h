// Helpers of the families loss and cross_entropy.
#pragma once
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

namespace facula::catalog::loss_helpers {

using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

// Class axis of a classification input: 0 for [C], 1 for [N, C, ...].
inline int class_axis(int rank) { return rank == 1 ? 0 : 1; }
inline void check_same_dtype(const char* name, const Tensor& input, const Tensor& other) {
  runtime_check(other.dtype() == input.dtype(), name)
      << "found dtype " << other.dtype() << " but expected " << input.dtype() << " as the input's"
      << hint("other.to(input.dtype) converts");
}

}  // namespace facula::catalog::loss_helpers
