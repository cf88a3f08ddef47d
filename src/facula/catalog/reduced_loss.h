// Helpers of losses.
#pragma once
#include <string_view>

#include "facula/op/operator.h"
#include "facula/ops.h"

namespace facula::catalog {

// ValueError for another `reduction` than these.
inline void check_reduction(const char* name, std::string_view reduction) {
  value_check(reduction == "none" || reduction == "mean" || reduction == "sum", name)
      << "'" << reduction << "' is not a valid value for reduction: 'none', 'mean' or 'sum'";
}
inline Tensor reduced_loss(const char* name, const Tensor& loss, std::string_view reduction) {
  check_reduction(name, reduction);
  return reduction == "none" ? loss : reduction == "mean" ? mean(loss) : sum(loss);
}
// The name of grad_fn: the reduction of the loss, or `each`, its elementwise step.
inline op::GradName loss_name(const char* each) {
  return [each](const op::Call& c) {
    auto reduction = c.str("reduction");
    return op::grad_name(reduction == "mean" ? "Mean" : reduction == "sum" ? "Sum" : each);
  };
}

}  // namespace facula::catalog
