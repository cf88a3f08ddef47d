// The gradient of softmax, which `_safe_softmax` shares.
#pragma once
#include "facula/catalog/widened.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

namespace facula::catalog {

// The result, of 16 bits computed anew by `f`: they say less than the gradient needs.
template <class F>
Tensor unrounded(const op::Vjp& v, F f) {
  auto& c = v.call();
  DType given = c.maybe_dtype("dtype").value_or(c.dtype("self")), computed = compute_type(given);
  return given == computed ? v.result() : f(narrowed(v["self"], given), c.dim("dim"), computed);
}
// By the result; derived, the maximum has a gradient too, which is 0 but for rounding. `safe`: lines of -inf are 0, and so
// is their gradient.
inline op::VjpRule gradient_of_softmax(bool safe) {
  return [safe](const op::Vjp& v) {
    auto& c = v.call();
    Tensor y = unrounded(v, [&](const Tensor& x, int64_t dim, DType t) {
      return safe ? _safe_softmax(x, dim, t) : softmax(x, dim, t);
    });
    return op::grads(_softmax_backward_data(v.grad(), y, c.dim("dim"), c.dtype("self")));
  };
}

}  // namespace facula::catalog
