// Helpers of the families calculus and tensor_product.
#pragma once
#include "facula/autograd/calls.h"
#include "facula/catalog/matrices.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

namespace facula::catalog::calculus_helpers {

using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

inline Tensor conjugate(const Tensor& x) { return is_complex(x.dtype()) ? conj_physical(x) : x; }
// The operations are those of PyTorch, so that what overflows does so there too.
inline Tensor integral(const Tensor& y, const Scalar& dx, int k) {
  SymInt n = y.size(k);
  if (n == SymInt(int64_t(0))) return zeros(without(y.sizes(), k), y.dtype());
  Tensor ends = add(select(y, k, int64_t(0)), select(y, k, n - SymInt(int64_t(1))));
  return mul(sub(sum(y, Sizes{k}), mul(ends, 0.5)), dx);
}

}  // namespace facula::catalog::calculus_helpers
