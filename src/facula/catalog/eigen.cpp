// Eigenvalues and eigenvectors.
#include "facula/catalog/decompose_helpers.h"
#include "facula/catalog/matrices.h"
#include "facula/catalog/no_derivative.h"
#include "facula/catalog/warns.h"

using namespace facula;
using namespace facula::op;
using namespace facula::catalog::matrices;
using namespace facula::catalog::decompose_helpers;

namespace {
Tensor hermitian_of(const Tensor& a, std::string_view uplo) {
  if (uplo == "U" || uplo == "u") return mirrored(triu(a));
  return mirrored(triu(adjoint_of(a)));
}
// Eigenvalues by QR steps with shifts on ever smaller leading blocks; vectors of the triangle by substitution (Golub,
// Van Loan, 7.3, 7.6).
std::tuple<Tensor, Tensor> eigen(const Tensor& self) {
  DType d = complex_of(self.dtype());
  Tensor t = to_dtype(self, d), z = identity(t);
  int64_t n = t.size(-1).guard_int();
  Tensor at = arange(n), row = unsqueeze(at, -1);
  for (int64_t active = n; active > 1; --active)
    for (int step = 0; step < 60; ++step) {
      Tensor shift = add(narrow(column(t, active - 1), -2, active - 1, int64_t(1)),
                         Scalar(std::complex<double>(0, step < 3 ? 0.1 : 0)));
      Tensor block = narrow(narrow(t, -1, int64_t(0), active), -2, int64_t(0), active);
      auto [q, r] = linalg_qr(sub(block, mul(identity(block), shift)), "complete");
      Tensor whole = constant_pad_nd(q, std::vector<int64_t>{0, n - active, 0, n - active}, 0);
      whole = add(whole, as_dtype_of(logical_and(eq(row, at), ge(row, active)), t));
      t = matmul(adjoint_of(whole), matmul(t, whole));
      z = matmul(z, whole);
    }
  t = triu(t);
  std::vector<Tensor> vectors;
  for (int64_t k = 0; k < n; ++k) {
    Tensor value = narrow(column(t, k), -2, k, int64_t(1)), x = column(identity(t), k);
    if (k > 0) {
      Tensor head = narrow(narrow(t, -1, int64_t(0), k), -2, int64_t(0), k);
      Tensor rhs = neg(narrow(column(t, k), -2, int64_t(0), k));
      Tensor solved = _linalg_triangular(sub(head, mul(identity(head), value)), rhs, true);
      x = add(x, constant_pad_nd(solved, std::vector<int64_t>{0, 0, 0, n - k}, 0));
    }
    x = matmul(z, x);
    vectors.push_back(div(x, as_dtype_of(sqrt(sum(real_part(mul(x, conjugate(x))), -2, true)), t)));
  }
  return {diagonal(t, int64_t(0), -2, -1), vectors.empty() ? zeros_like(t) : cat(vectors, -1)};
}
// Magnus, "On differentiating eigenvalues and eigenvectors", 1985; Boeddeker et al., "On the computation of complex-valued
// gradients with application to statistically optimum beamforming", 2017.
Tensor eigh_gradient(const Tensor& values, const Tensor& v, const Tensor& gl, const Tensor& gv) {
  Tensor l = as_dtype_of(values, v);
  if (!gv.defined())
    return gl.defined() ? matmul(column_scaled(v, as_dtype_of(gl, v)), adjoint_of(v)) : Tensor();
  // Half the skew part: the gradient is Hermitian, whichever triangle was read.
  Tensor turned = mul(skew(matmul(adjoint_of(v), gv)), 0.5);
  Tensor inner = div(turned, gaps_of(l));
  Tensor on_diagonal = gl.defined() ? as_dtype_of(gl, v) : zeros_like(l);
  inner = where(eye(l.size(-1), nullopt, DType::Bool), unsqueeze(on_diagonal, -1), inner);
  return matmul(v, matmul(inner, adjoint_of(v)));
}
Tensor eig_gradient(const Tensor& l, const Tensor& v, const Tensor& gl, const Tensor& gv) {
  Tensor vh = adjoint_of(v);
  if (!gv.defined()) return gl.defined() ? linalg_solve(vh, row_scaled(gl, vh)) : Tensor();
  Tensor arrived = matmul(vh, gv), diagonals = diagonal(arrived, int64_t(0), -2, -1);
  Tensor inner = sub(arrived, column_scaled(matmul(vh, v), as_dtype_of(_real(diagonals), v)));
  inner = div(inner, conjugate(gaps_of(l)));
  inner =
      where(eye(l.size(-1), nullopt, DType::Bool), unsqueeze(gl.defined() ? gl : zeros_like(l), -1), inner);
  return linalg_solve(vh, matmul(inner, vh));
}
std::vector<DType> complex_results(const Call& c) {
  return std::vector<DType>(c.op().schema.returns.size(), complex_of(c.dtype("self")));
}
void check_uplo(const Call& c) {
  std::string_view uplo = c.str("UPLO");
  runtime_check(uplo.size() == 1 && std::string_view("LUlu").find(uplo) != std::string_view::npos,
                shown(c.name()))
      << "expected UPLO argument to be 'L' or 'U', but got '" << std::string(uplo) << "'";
}
Grads of_hermitian_eigenvalues(const Vjp& v) {
  if (gives_vectors(v)) return grads(eigh_gradient(v.result(0), v.result(1), v.grad(0), v.grad(1)));
  auto [values, vectors] = linalg_eigh(v["self"], v.call().str("UPLO"));
  return grads(eigh_gradient(values, vectors, v.grad(), Tensor()));
}
Grads of_eigenvalues(const Vjp& v) {
  auto [values, vectors] = gives_vectors(v) ? std::tuple(v.result(0), v.result(1)) : linalg_eig(v["self"]);
  Tensor g = eig_gradient(values, vectors, v.grad(0), gives_vectors(v) ? v.grad(1) : Tensor());
  return grads(g.defined() && !is_complex(v.call().dtype("self")) ? _real(g) : g);
}
}  // namespace

FACULA_FAMILY(eigen) {
  define("linalg_eigh(Tensor self, str UPLO='L') -> (Tensor eigenvalues, Tensor eigenvectors)")
      .resized(by_columns("self"))
      .doc(
          "A = V diag(eigenvalues) V^H of each Hermitian matrix, of which the triangle `UPLO` is read; ascending. Signs "
          "(phases) of vectors are LAPACK's syevd's (heevd's), up to 8 rows of real numbers those of its classic rotations; "
          "gradients want distinct eigenvalues.")
      .bind(linalg)
      .also("self", "A")
      .dtypes(kExact)
      .autocast(Autocast::fp32)
      .result([](const Call& c) { return std::vector<DType>{real_of(c.dtype("self")), c.dtype("self")}; })
      .shapes([](const Call& c) {
        check_input(c, "self", true);
        check_uplo(c);
        return std::vector<Dims>{without_columns(c.sizes("self"), c.size("self", -1)), Dims(c.sizes("self"))};
      })
      .checks()
      .library("linalg_eigh")
      .batched_in_front()
      .reference([](const Tensor& self, std::string_view uplo) {
        auto [values, vectors] = jacobi(hermitian_of(self, uplo));
        return std::tuple(values, vectors);
      })
      .vjp(of_hermitian_eigenvalues)
      .samples({"self[0, 0]"});
  define("linalg_eigvalsh(Tensor self, str UPLO='L') -> Tensor")
      .doc("The eigenvalues of each Hermitian matrix, ascending.")
      .grad_name("LinalgEigh")
      .bind(linalg)
      .also("self", "A")
      .dtypes(kExact)
      .autocast(Autocast::fp32)
      .result(real_result)
      .shape([](const Call& c) {
        check_input(c, "self", true);
        check_uplo(c);
        return without_columns(c.sizes("self"), c.size("self", -1));
      })
      .checks()
      .library("linalg_eigvalsh")
      .batched_in_front()
      .reference(
          [](const Tensor& self, std::string_view uplo) { return jacobi(hermitian_of(self, uplo)).first; })
      .vjp(of_hermitian_eigenvalues)
      .samples({"self[1, 1]", "self[0, 2, 2]"});  // larger ones: not symmetric when one element moves
  // larger ones: not symmetric when one element moves
  define("linalg_eig(Tensor self) -> (Tensor eigenvalues, Tensor eigenvectors)")
      .resized(by_columns("self", true))
      .converting_out()
      .doc(
          "A = V diag(eigenvalues) V^-1 of each square matrix, complex; vectors of length 1 whose largest element is real, "
          "as LAPACK's geev gives them. Gradients want distinct eigenvalues.")
      .bind(linalg)
      .also("self", "A")
      .dtypes(kExact)
      .autocast(Autocast::fp32)
      .result(complex_results)
      .shapes([](const Call& c) {
        check_input(c, "self", true);
        return std::vector<Dims>{without_columns(c.sizes("self"), c.size("self", -1)), Dims(c.sizes("self"))};
      })
      .checks()
      .library("linalg_eig")
      .batched_in_front()
      .reference([](const Tensor& self) { return eigen(self); })
      .vjp(of_eigenvalues)
      .samples({"self[0, 0]"});
  define("linalg_eigvals(Tensor self) -> Tensor")
      .grad_name("LinalgEig")
      .converting_out()
      .doc("The eigenvalues of each square matrix, complex.")
      .bind(linalg)
      .also("self", "A")
      .dtypes(kExact)
      .autocast(Autocast::fp32)
      .result(complex_results)
      .shape([](const Call& c) {
        check_input(c, "self", true);
        return without_columns(c.sizes("self"), c.size("self", -1));
      })
      .checks()
      .library("linalg_eigvals")
      .batched_in_front()
      .reference([](const Tensor& self) { return std::get<0>(eigen(self)); })
      .vjp(of_eigenvalues)
      .samples({"self[1, 1]", "self[0, 2, 2]"});
}
