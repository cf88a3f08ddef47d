// Helpers of the families factor, inverse and cholesky.
#pragma once
#include "facula/catalog/matrices.h"
#include "facula/catalog/no_derivative.h"

namespace facula::catalog::factor_helpers {

using namespace facula::op;
using namespace facula::catalog::matrices;

inline Dims pivot_sizes(SymSpan sizes, SymInt count) {
  Dims to = batch_of(sizes);
  to.push_back(count);
  return to;
}
inline Tensor as_codes(const Tensor& like) { return zeros(batch_of(like.sizes()), DType::Int32); }
inline Tensor expanded_to(const Tensor& t, const Dims& batch, int own) {
  Dims to(batch);
  for (int k = t.dim() - own; k < t.dim(); ++k) to.push_back(t.size(k));
  return std::equal(to.begin(), to.end(), t.sizes().begin(), t.sizes().end()) ? t : expand(t, to);
}
// A factor, its pivots and a right-hand side, of one batch shape.
inline std::tuple<Tensor, Tensor, Tensor> one_batch(const char* name, const Tensor& lu, const Tensor& pivots,
                                                    const Tensor& b) {
  Dims batch_a = batch_of(lu.sizes()), batch_b = batch_of(b.sizes());
  Dims batch = broadcast_sizes(shown(name), std::vector<SymSpan>{batch_a, batch_b});
  return {expanded_to(lu, batch, 2), expanded_to(pivots, batch, 1), expanded_to(b, batch, 2)};
}
inline void check_system(const char* name, const Tensor& a, const Tensor& b, bool left) {
  check_matrices(name, "B", b);
  runtime_check(a.dtype() == b.dtype(), shown(name))
      << "expected A and B to have the same dtype, but found A of type " << a.dtype() << " and B of type "
      << b.dtype();
  runtime_check(a.size(-1) == b.size(left ? -2 : -1), shown(name))
      << "incompatible shapes of A and B for the equation " << (left ? "AX = B" : "XA = B") << ": A "
      << to_string(a.sizes()) << ", B " << to_string(b.sizes());
}
// Samples: pivots count from 1, and factors have nothing near 0 on their diagonal.
inline SampleArg pivots_of(std::vector<int64_t> sizes) {
  SampleArg a = op::index(sizes, sizes.back() + 1);
  a.low = 1;
  return a;
}
inline SampleArg divisible(std::vector<int64_t> sizes = {3, 3}) {
  SampleArg a = op::tensor(std::move(sizes));
  a.positive_definite = true;
  return a;
}
// Checks a factor, its pivots and a right-hand side of equal batch and dtype; returns the sizes of the solution.
inline Dims right_sizes(const Call& c) {
  const char* factor = c.op().schema.index_of("LU") >= 0 ? "LU" : "LD";
  Tensor a = c.tensor(factor), b = c.tensor("B");
  check_square(c.name(), factor, a);
  check_system(c.name(), a, b, true);
  runtime_check(c.size("pivots", -1) == a.size(-1) &&
                    std::equal(a.sizes().begin(), a.sizes().end() - 2, b.sizes().begin()),
                shown(c.name()))
      << "shapes do not fit: " << factor << " " << to_string(a.sizes()) << ", pivots "
      << to_string(c.sizes("pivots")) << ", B " << to_string(b.sizes());
  return Dims(b.sizes());
}

}  // namespace facula::catalog::factor_helpers
