// Gradients of operands that are repeated along dimensions of the result: sums of many numbers, which are not rounded
// to 16 bits first.
#pragma once
#include <algorithm>

#include "facula/autograd/calls.h"

namespace facula::catalog {

// The gradient of the result, in the dtype of sums if that of operand `name` will be one.
inline Tensor wide_if_repeated(const op::Vjp& v, const char* name) {
  Tensor g = v.grad();
  DType wide = compute_type(g.dtype());
  auto sizes = v.call().sizes(name);
  bool same = g.dim() == int(sizes.size()) && std::equal(sizes.begin(), sizes.end(), g.sizes().begin());
  return same || wide == g.dtype() ? g : autograd::invoke("to_dtype", {g, wide});
}

}  // namespace facula::catalog
