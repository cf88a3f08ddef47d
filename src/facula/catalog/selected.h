// Gradients of operators whose results are elements of `self`, which several definitions share.
#pragma once
#include "facula/op/operator.h"
#include "facula/ops.h"

namespace facula::catalog {

// Result `t` with the dimensions put back that `dim` reduced, so that it broadcasts against `self`.
inline Tensor put_back(const op::Vjp& v, Tensor t) {
  auto& c = v.call();
  auto& schema = c.op().schema;
  bool keep = schema.index_of("keepdim") >= 0 && c.flag("keepdim");
  if (keep || c.rank("self") == 0 || schema.index_of("dim") < 0) return t;
  for (int k : c.dims("dim")) t = unsqueeze(t, k);
  return t;
}
inline Ints reduced_dims(const op::Vjp& v) {
  return v.call().op().schema.index_of("dim") < 0 ? Ints{} : v.call().dims("dim");
}

// Spread evenly over the elements that are equal to the result. Where it is NaN it is over the NaNs, as in PyTorch's max(),
// min() and medians of all elements; unless `over_nan` no element is equal, and their count of 0 makes all NaN, as in its
// amax and amin.
inline op::VjpRule even_over_ties(bool over_nan) {
  return [over_nan](const op::Vjp& v) {
    Tensor x = v["self"], y = put_back(v, v.result()), g = put_back(v, v.grad()), mask = eq(x, y);
    if (over_nan) mask = logical_or(mask, logical_and(ne(x, x), ne(y, y)));
    Tensor count = to_dtype(sum(mask, reduced_dims(v), true), g.dtype());
    return op::grads(over_nan ? where(mask, div(g, count), zeros_like(g))
                              : div(where(mask, g, zeros_like(g)), count));
  };
}

// The first result is `self` at the second one along `dim`, or in the plane of the last two dimensions; several may be of
// one place.
inline op::Grads to_places(const op::Vjp& v) {
  auto& c = v.call();
  Tensor g = v.grad(0);
  if (!g.defined()) return op::Grads(1);
  if (c.rank("self") == 0) return op::grads(g);
  if (c.op().schema.index_of("dim") < 0) {
    Dims lines(c.sizes("self").first(size_t(c.rank("self")) - 2));
    lines.push_back(c.size("self", -2) * c.size("self", -1));
    Tensor planes = scatter_add(zeros(lines, g.dtype()), -1, flatten(v.result(1), -2), flatten(g, -2));
    return op::grads(view(planes, c.sizes("self")));
  }
  int k = c.dim("dim");
  bool one = c.op().schema.index_of("keepdim") >= 0;
  if (one) return op::grads(put_along(g, v.result(1), c.sizes("self"), k, c.flag("keepdim")));
  return op::grads(scatter_add(zeros(c.sizes("self"), g.dtype()), k, v.result(1), g));
}

}  // namespace facula::catalog
