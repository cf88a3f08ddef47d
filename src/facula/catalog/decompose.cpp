// Decompositions of (batches of) matrices: orthogonal factors, singular values, eigenvalues. Vectors are determined up to
// signs (phases); they are those of LAPACK's routines for the matrix itself.
#include "facula/catalog/decompose_helpers.h"
#include "facula/catalog/matrices.h"
#include "facula/catalog/no_derivative.h"

using namespace facula;
using namespace facula::op;
using namespace facula::catalog::matrices;
using namespace facula::catalog::decompose_helpers;

namespace {
// A V = Q R for V of A^H A has a diagonal R: the singular values but for their phases.
std::tuple<Tensor, Tensor, Tensor> singular_values(const Tensor& a, bool full) {
  SymInt m = a.size(-2), n = a.size(-1), k = smaller(m, n);
  if (m < n) {
    auto [u, s, vh] = singular_values(adjoint_of(a), full);
    return {adjoint_of(vh), s, adjoint_of(u)};
  }
  auto [values, vectors] = jacobi(matmul(adjoint_of(a), a));
  Tensor v = flip(vectors, std::vector<int64_t>{-1});
  auto [q, r] = linalg_qr(matmul(a, v), full ? "complete" : "reduced");
  Tensor d = diagonal(r, int64_t(0), -2, -1), s = abs(d), none = eq(s, 0);
  Tensor turned = where(none, ones_like(d), div(d, as_dtype_of(where(none, ones_like(s), s), a)));
  if (full && m > k) {
    Dims more(turned.sizes());
    more.back() = m - k;
    turned = cat(std::vector<Tensor>{turned, ones(more, a.dtype())}, -1);
  }
  return {column_scaled(q, turned), s, adjoint_of(v)};
}
// Townsend, "Differentiating the singular value decomposition", 2016; Wan, Zhang, "Automatic differentiation for complex
// valued SVD", 2019. Of vectors beyond the k-th nothing arrives.
Tensor svd_gradient(const Tensor& u, const Tensor& s, const Tensor& vh, const Tensor& gu, const Tensor& gs,
                    const Tensor& gvh) {
  if (!gu.defined() && !gvh.defined())
    return gs.defined() ? matmul(u, row_scaled(as_dtype_of(gs, u), vh)) : Tensor();
  SymInt m = u.size(-2), n = vh.size(-1), k = s.size(-1);
  Tensor sigma = as_dtype_of(s, u);
  // Divides by s_j^2 - s_i^2. Its two factors are exact for neighbours and do not underflow where the squares do.
  Tensor sums = as_dtype_of(with_unit_diagonal(add(unsqueeze(s, -2), unsqueeze(s, -1))), u);
  Tensor gaps = as_dtype_of(gaps_of(s), u);
  auto over_gaps = [&](const Tensor& x) { return div(div(x, sums), gaps); };
  Tensor left = gu.defined() ? skew(matmul(adjoint_of(u), gu)) : Tensor();
  Tensor right = gvh.defined() ? skew(matmul(vh, adjoint_of(gvh))) : Tensor();
  Tensor core;
  if (left.defined() && right.defined())
    core = over_gaps(add(column_scaled(left, sigma), row_scaled(sigma, right)));
  else if (left.defined()) core = over_gaps(column_scaled(left, sigma));
  else core = over_gaps(row_scaled(sigma, right));
  if (gs.defined()) core = add(core, diagonal_matrix(as_dtype_of(gs, u)));
  if (is_complex(u.dtype()) && left.defined() && right.defined())
    core = add(core, diagonal_matrix(div(diagonal(left, int64_t(0), -2, -1), mul(sigma, 2.0))));
  if (m > k && gu.defined()) {
    Tensor outer = div(gu, unsqueeze(sigma, -2));
    Tensor whole = sub(add(matmul(u, core), outer), matmul(u, matmul(adjoint_of(u), outer)));
    return matmul(whole, vh);
  }
  if (n > k && gvh.defined()) {
    Tensor outer = div(gvh, unsqueeze(sigma, -1));
    Tensor whole = sub(add(matmul(core, vh), outer), matmul(matmul(outer, adjoint_of(vh)), vh));
    return matmul(u, whole);
  }
  return m >= n ? matmul(u, matmul(core, vh)) : matmul(matmul(u, core), vh);
}
// The strides of U alone: V is an adjoint.
Dims left_by_columns(const Call& c, size_t k, const Tensor& out, SymSpan sizes) {
  return k == 0 ? by_columns("self")(c, k, out, sizes) : Dims{};
}
void check_driver(const Call& c) {
  runtime_check(!c.has("driver"), shown(c.name()))
      << "keyword argument `driver=` is only supported on CUDA inputs with cuSOLVER backend, got driver='"
      << c.str("driver") << "' on the CPU";
}
Grads of_singular_values(const Vjp& v) {
  if (!gives_vectors(v)) {
    auto [u, s, vh] = linalg_svd(v["A"], false);
    return grads(matmul(u, row_scaled(as_dtype_of(v.grad(), u), vh)));
  }
  SymInt k = rank_of(v.call(), "A");
  auto first = [&](const Tensor& t, int dim) { return t.defined() ? narrow(t, dim, int64_t(0), k) : t; };
  return grads(svd_gradient(first(v.result(0), -1), v.result(1), first(v.result(2), -2), first(v.grad(0), -1),
                            v.grad(1), first(v.grad(2), -2)));
}
}  // namespace

FACULA_FAMILY(decompose) {
  define(
      "linalg_svd(Tensor A, bool full_matrices=True, *, str? driver=None) -> (Tensor U, Tensor S, Tensor Vh)")
      .resized(by_columns("A"))
      .doc(
          "A = U diag(S) Vh of each matrix, S descending; U and Vh hold as many vectors as rows and columns with "
          "`full_matrices`, else min(m, n). Signs (phases) are LAPACK's gesdd's; gradients want distinct S.")
      .bind(linalg)
      .dtypes(kExact)
      .autocast(Autocast::fp32)
      .result(
          [](const Call& c) { return std::vector<DType>{c.dtype("A"), real_of(c.dtype("A")), c.dtype("A")}; })
      .shapes([](const Call& c) {
        check_driver(c);
        check_input(c, "A");
        SymInt m = c.size("A", -2), n = c.size("A", -1), k = smaller(m, n);
        bool full = c.flag("full_matrices");
        SymSpan sizes = c.sizes("A");
        return std::vector<Dims>{of_matrices(sizes, m, full ? m : k), without_columns(sizes, k),
                                 of_matrices(sizes, full ? n : k, n)};
      })
      .checks()
      .library("linalg_svd")
      .batched_in_front()
      .reference([](const Tensor& A, bool full_matrices, std::optional<std::string_view>) {
        return singular_values(A, full_matrices);
      })
      .vjp(of_singular_values)
      .samples({"A[2, 0], full_matrices=False"});  // vectors have no signs of their own to compare
  // vectors have no signs of their own to compare
  define("linalg_svdvals(Tensor A, *, str? driver=None) -> Tensor")
      .doc("The singular values of each matrix, descending.")
      .grad_name("LinalgSvd")
      .bind(linalg)
      .dtypes(kExact)
      .autocast(Autocast::fp32)
      .result(real_result)
      .shape([](const Call& c) {
        check_driver(c);
        check_input(c, "A");
        return without_columns(c.sizes("A"), rank_of(c, "A"));
      })
      .checks()
      .library("linalg_svdvals")
      .batched_in_front()
      .reference([](const Tensor& A, std::optional<std::string_view>) {
        return std::get<1>(singular_values(A, false));
      })
      .vjp(of_singular_values)
      .samples({"A[4, 3]", "A[2, 3, 4]", "A[0, 3]"});
  define("svd(Tensor self, bool some=True, bool compute_uv=True) -> (Tensor U, Tensor S, Tensor V)")
      .resized(left_by_columns)
      .doc(
          "linalg.svd with V instead of its adjoint; `some`: not all vectors. Without `compute_uv` U and V are zeros.")
      .procedure([](const Tensor& self, bool some, bool compute_uv) {
        check_matrices("svd", "input", self);
        if (!compute_uv) {
          SymInt m = self.size(-2), n = self.size(-1);
          return std::tuple(zeros(of_matrices(self.sizes(), m, m), self.dtype()), linalg_svdvals(self),
                            zeros(of_matrices(self.sizes(), n, n), self.dtype()));
        }
        auto [u, s, vh] = linalg_svd(self, !some);
        return std::tuple(u, s, adjoint_of(vh));
      })
      .samples({"self[2, 0]"});
}
