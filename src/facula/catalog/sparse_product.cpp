// Products of matrices of which some are sparse.
#include "facula/catalog/sparse.h"
#include "facula/op/helpers.h"
#include "facula/ops.h"

using namespace facula::op;

namespace facula::catalog::sparse {
namespace {

void check_matrices(const Call& c, const Tensor& a, const Tensor& b) {
  runtime_check(a.dim() == 2 && b.dim() == 2, c.name())
      << "expected matrices, got shapes " << to_string(a.sizes()) << " and " << to_string(b.sizes());
  runtime_check(a.size(1) == b.size(0), c.name())
      << "mat1 and mat2 shapes cannot be multiplied (" << a.size(0) << "x" << a.size(1) << " and "
      << b.size(0) << "x" << b.size(1) << ")";
  runtime_check(a.dtype() == b.dtype(), c.name())
      << "expected both matrices to have the same dtype, but got " << a.dtype() << " and " << b.dtype();
}
bool is_of_elements(const Tensor& s) { return !is_sparse(s) || sparse_parts(s).sparse_dims() == 2; }

Tensor transposed(const Tensor& s) {
  auto& p = sparse_parts(s);
  return coo(flip(p.indices, Dims{kZero}), values_of(s), Dims{s.size(1), s.size(0)});
}

// Each element of a meets the row of b that its column names.
Tensor sparse_product(const Tensor& given, const Tensor& other) {
  Tensor a = coalesced(coo_of(given)), b = coalesced(coo_of(other));
  auto &p = sparse_parts(a), &q = sparse_parts(b);
  Dims sizes{a.size(0), b.size(1)};
  Tensor starts =
      searchsorted(contiguous(select(q.indices, 0, kZero)), arange(Scalar(b.size(0).concrete() + 1)));
  Tensor columns = select(p.indices, 0, kOne);
  Tensor first = facula::index_select(starts, 0, columns),
         end = facula::index_select(starts, 0, facula::add(columns, Scalar(int64_t(1))));
  auto [mine, theirs] = ranges(first, facula::sub(end, first));
  Tensor values =
      facula::mul(facula::index_select(values_of(a), 0, mine), facula::index_select(values_of(b), 0, theirs));
  Tensor rows = facula::index_select(select(p.indices, 0, kZero), 0, mine);
  return coalesced(
      coo(stack({rows, facula::index_select(select(q.indices, 0, kOne), 0, theirs)}, 0), values, sizes));
}

Tensor product_of(const Call& c, const Tensor& a, const Tensor& b) {
  if (!is_sparse(a) && !is_sparse(b)) return {};
  check_matrices(c, a, b);
  if (!is_of_elements(a) || !is_of_elements(b)) return {};
  if (is_sparse(a) && is_sparse(b)) {
    Tensor y = sparse_product(a, b);
    return is_csr(a) && is_csr(b) ? csr_of(y) : y;
  }
  if (is_sparse(b))
    return facula::transpose(product_of(c, transposed(pattern(coo_of(b))), facula::transpose(a, 0, 1)), 0, 1);
  Tensor s = pattern(a), indices = indices_of(sparse_parts(s));
  return _sparse_mm(select(indices, 0, kZero), select(indices, 0, kOne), values_of(s), b, a.size(0));
}

Results mm(const Call& c, Form) {
  Tensor y = product_of(c, c.tensor("self"), c.tensor("mat2"));
  return y.defined() ? Results(y) : Results();
}
Results mv(const Call& c, Form) {
  Tensor s = c.tensor("self"), v = c.tensor("vec");
  if (is_sparse(v)) return {};
  runtime_check(v.dim() == 1, c.name()) << "expected a vector, got shape " << to_string(v.sizes());
  Tensor y = product_of(c, s, facula::unsqueeze(v, 1));
  return y.defined() ? Results(squeeze(y, 1)) : Results();
}
Results addmm(const Call& c, Form) {
  Tensor y = product_of(c, c.tensor("mat1"), c.tensor("mat2")), self = c.tensor("self");
  if (!y.defined()) return {};
  Scalar alpha = c.number("alpha"), beta = c.number("beta");
  if (beta.to_complex() == 0.0) return times(y, alpha);
  Tensor first = times(self, beta);
  runtime_check(is_sparse(y) || !is_sparse(self), c.name()) << "a sparse `self` needs two sparse matrices";
  if (!is_sparse(self)) first = facula::expand(first, Dims{y.size(0), y.size(1)});
  return facula::add(first, y, alpha);
}

}  // namespace

std::span<const run::SparseRules> product_rules() {
  static const run::SparseRules rules[] = {
      {"mm", mm},
      {"mv", mv},
      {"matmul", by_body},
      {"addmm", addmm},
  };
  return rules;
}

}  // namespace facula::catalog::sparse
