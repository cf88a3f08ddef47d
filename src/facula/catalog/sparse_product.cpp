// Products of matrices, some of them sparse.
#include "facula/catalog/sparse.h"
#include "facula/catalog/widened.h"
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

// The largest (or smallest) term of each row and column, 0 if there are none; the gradient goes to the first of equal terms.
Tensor extreme_terms(const Tensor& terms, const Tensor& rows, const SymInt& count, bool largest) {
  const SymInt n = terms.size(0), columns = terms.size(1);
  Tensor known = detach(terms);
  Tensor best = index_reduce(zeros(Dims{count, columns}, terms.dtype()), 0, rows, known,
                             largest ? "amax" : "amin", false);
  Tensor mine = facula::index_select(best, 0, rows);
  Tensor takes = logical_or(eq(known, mine), logical_and(isnan(known), isnan(mine)));
  Tensor none = full(Dims{}, Scalar(n.concrete()), DType::Int64);
  Tensor place = where(takes, facula::unsqueeze(arange(Scalar(n.concrete())), 1), none);
  Tensor first = index_reduce(contiguous(facula::expand(none, Dims{count, columns})), 0, rows, place, "amin");
  return gather(cat(std::vector<Tensor>{terms, zeros(Dims{kOne, columns}, terms.dtype())}, 0), 0, first);
}

// Sums are of float32 for 16-bit numbers.
Results mm_reduce(const Call& c, Form) {
  Tensor a = c.tensor("sparse"), b = c.tensor("dense");
  std::string how(c.str("reduce"));
  if (!is_csr(a) || is_sparse(b)) return {};
  check_matrices(c, a, b);
  const DType to = b.dtype();
  supported_check(is_floating(to), c.name())
      << "not implemented for " << to << hint("it takes floating matrices");
  Tensor s = pattern(a), indices = indices_of(sparse_parts(s)), rows = select(indices, 0, kZero),
         columns = select(indices, 0, kOne);
  Tensor values = wide(values_of(s)), dense = wide(b);
  if (how == "amax" || how == "amin") {
    Tensor terms = facula::mul(facula::index_select(dense, 0, columns), facula::unsqueeze(values, 1));
    return narrowed(extreme_terms(terms, rows, a.size(0), how == "amax"), to);
  }
  Tensor y = _sparse_mm(rows, columns, values, dense, a.size(0));
  if (how == "mean") {
    Tensor ones = facula::ones(Dims{rows.size(0)}, y.dtype());
    Tensor counts = index_add(zeros(Dims{a.size(0)}, y.dtype()), 0, rows, ones);
    y = facula::div(y, facula::unsqueeze(clamp_min(counts, 1), 1));
  }
  return narrowed(y, to);
}

// The elements of the product where self has some.
Results sampled_addmm(const Call& c, Form) {
  Tensor self = c.tensor("self"), a = c.tensor("mat1"), b = c.tensor("mat2");
  if (!is_csr(self)) return {};
  for (auto& [name, m] : {std::pair("mat1", a), std::pair("mat2", b)})
    runtime_check(!is_sparse(m), c.name())
        << "expected " << name << " to have strided layout, but got a sparse one";
  check_matrices(c, a, b);
  runtime_check(self.size(0) == a.size(0) && self.size(1) == b.size(1), c.name())
      << "self.shape[-2] must match mat1.shape[-2] and self.shape[-1] mat2.shape[-1], got self of shape "
      << to_string(self.sizes()) << " and a product of shape " << to_string(Dims{a.size(0), b.size(1)});
  runtime_check(self.dtype() == a.dtype(), c.name())
      << "expected self and mat1 to have the same dtype, but got " << self.dtype() << " and " << a.dtype();
  Tensor s = pattern(self), indices = indices_of(sparse_parts(s));
  Tensor left = facula::index_select(a, 0, select(indices, 0, kZero)),
         right = facula::index_select(facula::transpose(b, 0, 1), 0, select(indices, 0, kOne));
  Tensor terms = facula::sum(facula::mul(left, right), Ints{1});
  return csr_of(
      with_values(s, facula::add(times(values_of(s), c.number("beta")), times(terms, c.number("alpha")))));
}

}  // namespace

std::span<const run::SparseRules> product_rules() {
  static const run::SparseRules rules[] = {
      {"mm", mm},
      {"mv", mv},
      {"matmul", by_body},
      {"addmm", addmm},
      {"_sparse_mm.reduce", mm_reduce},
      {"sparse_sampled_addmm", sampled_addmm},
  };
  return rules;
}

}  // namespace facula::catalog::sparse
