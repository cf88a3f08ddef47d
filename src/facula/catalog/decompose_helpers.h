// Helpers of the families decompose, householder and eigen.
#pragma once
#include "facula/catalog/matrices.h"
#include "facula/catalog/no_derivative.h"

namespace facula::catalog::decompose_helpers {

using namespace facula::op;
using namespace facula::catalog::matrices;

inline Tensor column(const Tensor& m, int64_t k) { return narrow(m, -1, k, int64_t(1)); }
inline Tensor skew(const Tensor& x) { return sub(x, adjoint_of(x)); }
inline Tensor real_part(const Tensor& x) { return is_complex(x.dtype()) ? _real(x) : x; }
inline Tensor as_dtype_of(const Tensor& x, const Tensor& like) { return to_dtype(x, like.dtype()); }
inline Tensor row_scaled(const Tensor& s, const Tensor& m) { return mul(unsqueeze(s, -1), m); }  // diag(s) m
// diag(s) m
inline Tensor column_scaled(const Tensor& m, const Tensor& s) {
  return mul(m, unsqueeze(s, -2));
}  // m diag(s)
// The matrix with a real diagonal whose Hermitian part the upper triangle represents.
inline Tensor mirrored(const Tensor& upper) {
  Tensor strict = triu(upper, 1), diagonal_only = sub(upper, strict);
  if (is_complex(upper.dtype())) diagonal_only = mul(add(diagonal_only, conjugate(diagonal_only)), 0.5);
  return add(add(strict, adjoint_of(strict)), diagonal_only);
}
// ---- Slow references of spectra

// Cyclic Jacobi rotations of a Hermitian matrix (Golub, Van Loan, 8.5): eigenvalues ascending, vectors.
inline std::pair<Tensor, Tensor> jacobi(Tensor a) {
  int64_t n = a.size(-1).guard_int();
  Tensor v = identity(a), at = arange(n), row = unsqueeze(at, -1);
  for (int sweep = 0; sweep < 12; ++sweep)
    for (int64_t p = 0; p < n; ++p)
      for (int64_t q = p + 1; q < n; ++q) {
        auto element = [&](int64_t i, int64_t j) { return narrow(column(a, j), -2, i, int64_t(1)); };
        Tensor off = element(p, q), r = abs(off), none = eq(r, 0), one = ones_like(r);
        Tensor phase = where(none, ones_like(off), div(off, as_dtype_of(where(none, one, r), a)));
        Tensor tau =
            div(sub(real_part(element(q, q)), real_part(element(p, p))), mul(where(none, one, r), 2));
        Tensor t = div(where(lt(tau, 0), neg(one), one), add(abs(tau), sqrt(add(mul(tau, tau), 1))));
        t = where(none, zeros_like(t), t);
        Tensor c = div(one, sqrt(add(mul(t, t), 1))), s = as_dtype_of(mul(t, c), a),
               cosine = as_dtype_of(c, a);
        auto place = [&](int64_t i, int64_t j) { return logical_and(eq(row, i), eq(at, j)); };
        Tensor j = where(logical_or(place(p, p), place(q, q)), cosine, identity(a));
        j = where(place(p, q), mul(s, phase), where(place(q, p), neg(mul(s, conjugate(phase))), j));
        a = matmul(adjoint_of(j), matmul(a, j));
        v = matmul(v, j);
      }
  auto [values, order] = sort(real_part(diagonal(a, int64_t(0), -2, -1)), -1);
  return {values, gather(v, -1, expand(unsqueeze(order, -2), v.sizes()))};
}
// ---- Gradients of spectra

// l_j - l_i, and 1 on the diagonal.
inline Tensor gaps_of(const Tensor& l) {
  Tensor gaps = sub(unsqueeze(l, -2), unsqueeze(l, -1));
  return where(eye(l.size(-1), nullopt, DType::Bool), ones_like(gaps), gaps);
}
inline std::vector<DType> real_result(const Call& c) { return {real_of(c.all_tensors()[0].dtype())}; }
inline void check_input(const Call& c, const char* arg, bool square = false) {
  Tensor a = c.tensor(arg);
  if (square) check_square(c.name(), arg, a);
  else check_matrices(c.name(), arg, a);
  check_floating(c.name(), a);
}
inline Dims without_columns(SymSpan sizes, SymInt count) {
  Dims to = batch_of(sizes);
  to.push_back(count);
  return to;
}
inline SymInt rank_of(const Call& c, ParameterName arg) { return smaller(c.size(arg, -2), c.size(arg, -1)); }
// Gradients of operators that return values and vectors, or values alone; then the vectors are recomputed.
inline bool gives_vectors(const Vjp& v) { return v.call().op().schema.returns.size() > 1; }

}  // namespace facula::catalog::decompose_helpers
