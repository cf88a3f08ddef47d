// QR decompositions, and products of Householder reflections.
#include "facula/catalog/decompose_helpers.h"
#include "facula/catalog/matrices.h"
#include "facula/catalog/no_derivative.h"
#include "facula/catalog/warns.h"

using namespace facula;
using namespace facula::op;
using namespace facula::catalog::matrices;
using namespace facula::catalog::decompose_helpers;

namespace {
// m diag(s)
Tensor unit_matrix(SymInt rows, SymInt columns, const Tensor& like) {
  return expand(eye(rows, columns, like.dtype()), of_matrices(like.sizes(), rows, columns));
}
// ---- Householder reflections H = 1 - tau v v^H (Golub, Van Loan, "Matrix Computations", 5.1)

// The vectors of reflections: below the diagonal, with 1 on it and 0 above.
Tensor reflectors(const Tensor& a, SymInt count) {
  Tensor v = narrow(a, -1, int64_t(0), count);
  return add(tril(v, -1), unit_matrix(v.size(-2), count, v));
}
// H_1 ... H_k E for E = the first columns of 1, with all its parts: the last is E.
std::vector<Tensor> partial_products(const Tensor& v, const Tensor& tau, SymInt columns) {
  std::vector<Tensor> parts{unit_matrix(v.size(-2), columns, v)};
  for (int64_t k = tau.size(-1).guard_int(); k-- > 0;) {
    Tensor x = column(v, k), t = unsqueeze(column(tau, k), -1), &q = parts.back();
    parts.push_back(sub(q, mul(t, matmul(x, matmul(adjoint_of(x), q)))));
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}
// Gradients of the matrix of reflection vectors and of tau from a gradient of H_1 ... H_k E, one reflection after the other,
// with Q_i = H_i Q_{i+1}.
std::pair<Tensor, Tensor> through_reflections(const Tensor& a, const Tensor& tau, Tensor g,
                                              const Tensor& result) {
  int64_t count = tau.size(-1).guard_int();
  Tensor v = reflectors(a, tau.size(-1));
  auto q = partial_products(v, tau, g.size(-1));
  g = add(g, sum(mul(result, 0), {-2, -1}, true));  // of a product that is not finite none is
  std::vector<Tensor> of_v, of_tau;
  for (int64_t k = 0; k < count; ++k) {
    Tensor x = column(v, k), t = conjugate(unsqueeze(column(tau, k), -1)), &rest = q[size_t(k) + 1];
    Tensor row = matmul(adjoint_of(x), rest), back = matmul(adjoint_of(x), g);
    of_tau.push_back(neg(squeeze(sum(mul(matmul(adjoint_of(x), g), conjugate(row)), -1, true), -1)));
    of_v.push_back(
        neg(add(mul(t, matmul(g, adjoint_of(row))), mul(conjugate(t), matmul(rest, adjoint_of(back))))));
    g = sub(g, mul(t, matmul(x, back)));
  }
  if (SymInt more = a.size(-1) - SymInt(count); more > SymInt(int64_t(0)) || !count)
    of_v.push_back(zeros(of_matrices(a.sizes(), a.size(-2), more), a.dtype()));
  return {tril(cat(of_v, -1), -1), of_tau.empty() ? zeros_like(tau) : cat(of_tau, -1)};
}
// R above the diagonal, the vectors below, and tau; with a real diagonal of R, as LAPACK's larfg makes it.
std::tuple<Tensor, Tensor> householder_factors(const Tensor& self) {
  Tensor a = self;
  int64_t m = a.size(-2).guard_int(), n = a.size(-1).guard_int(), k = std::min(m, n);
  std::vector<Tensor> taus;
  Tensor row = unsqueeze(arange(m), -1);
  for (int64_t j = 0; j < k; ++j) {
    Tensor x = column(a, j), below = where(gt(row, j), x, zeros_like(x)),
           alpha = narrow(x, -2, j, int64_t(1));
    Tensor rest = sum(real_part(mul(below, conjugate(below))), -2, true), size = abs(alpha);
    Tensor plain = eq(rest, 0);
    if (is_complex(a.dtype())) plain = logical_and(plain, eq(_imag(alpha), 0));
    Tensor norm = sqrt(add(mul(size, size), rest));
    Tensor beta = where(lt(real_part(alpha), 0), norm, neg(norm)), b = as_dtype_of(beta, a);
    Tensor tau = where(plain, zeros_like(alpha), div(sub(b, alpha), b));
    Tensor v = where(plain, zeros_like(below), div(below, sub(alpha, b)));
    Tensor w = add(v, as_dtype_of(eq(row, j), a));
    Tensor reflected = sub(a, mul(conjugate(tau), matmul(w, matmul(adjoint_of(w), a))));
    Tensor kept = where(gt(row, j), v, where(eq(row, j), where(plain, alpha, b), x));
    a = cat(std::vector<Tensor>{narrow(a, -1, int64_t(0), j), kept, narrow(reflected, -1, j + 1, n - j - 1)},
            -1);
    taus.push_back(squeeze(tau, -1));
  }
  Dims sizes = batch_of(self.sizes());
  sizes.push_back(SymInt(int64_t(0)));
  return {a, taus.empty() ? zeros(sizes, a.dtype()) : cat(taus, -1)};
}
// Walter, Lehmann, "Algorithmic differentiation of linear algebra functions", 2012; Roberts, Roberts, "QR and LQ
// decomposition matrix backpropagation algorithms", 2020.
Tensor qr_gradient(const Tensor& a, const Tensor& q, const Tensor& r, Tensor gq, Tensor gr) {
  if (!gq.defined() && !gr.defined()) return Tensor();
  if (!gr.defined()) gr = zeros_like(r);
  if (!gq.defined()) gq = zeros_like(q);
  SymInt m = a.size(-2), n = a.size(-1);
  auto tall = [&](const Tensor& u, const Tensor& of_u, const Tensor& of_q) {
    Tensor inner = triu(sub(matmul(of_u, adjoint_of(u)), matmul(adjoint_of(q), of_q)));
    Tensor x = add(of_q, matmul(q, mirrored(inner)));
    return adjoint_of(_linalg_triangular(u, adjoint_of(x), true));  // x u^-H
  };
  if (m >= n) return tall(r, gr, gq);
  // A = Q (U | V), V = Q^H Y: Y's part by way of Q.
  Tensor gv = narrow(gr, -1, m, n - m), y = narrow(a, -1, m, n - m);
  Tensor gx =
      tall(narrow(r, -1, int64_t(0), m), narrow(gr, -1, int64_t(0), m), add(gq, matmul(y, adjoint_of(gv))));
  return cat(std::vector<Tensor>{gx, matmul(q, gv)}, -1);
}
std::vector<Dims> geqrf_sizes(const Call& c) {
  check_input(c, "self");
  return {Dims(c.sizes("self")), without_columns(c.sizes("self"), rank_of(c, "self"))};
}
// Checks matrices [m, n] whose columns are the vectors of k <= n reflections, and returns the sizes of their product.
Dims product_sizes(const Call& c, const char* vectors) {
  Tensor a = c.tensor(vectors), tau = c.tensor("tau");
  const char* name = shown(c.name());
  check_input(c, vectors);
  runtime_check(a.size(-2) >= a.size(-1), name)
      << "`" << vectors << "` must have at least as many rows as columns, got shape " << to_string(a.sizes());
  runtime_check(tau.dim() == a.dim() - 1 &&
                    std::equal(tau.sizes().begin(), tau.sizes().end() - 1, a.sizes().begin()),
                name)
      << "expected batch dimensions of tau to be those of `" << vectors << "` of shape "
      << to_string(a.sizes()) << ", got " << to_string(tau.sizes());
  runtime_check(a.size(-1) >= tau.size(-1), name)
      << "`tau` of shape " << to_string(tau.sizes()) << " has more elements than `" << vectors
      << "` of shape " << to_string(a.sizes()) << " has columns";
  runtime_check(tau.dtype() == a.dtype(), name)
      << "tau dtype " << tau.dtype() << " does not match input dtype " << a.dtype();
  return Dims(a.sizes());
}
Dims ormqr_sizes(const Call& c) {
  Tensor a = c.tensor("self"), tau = c.tensor("input2"), other = c.tensor("input3");
  check_input(c, "self");
  check_matrices("ormqr", "other", other);
  int side = c.flag("left") ? -2 : -1;
  auto batch_is = [&](const Tensor& t, int more) {
    return t.dim() == a.dim() - 2 + more &&
           std::equal(a.sizes().begin(), a.sizes().end() - 2, t.sizes().begin());
  };
  auto shapes = [&] {
    return "input " + to_string(a.sizes()) + ", tau " + to_string(tau.sizes()) + ", other " +
           to_string(other.sizes());
  };
  runtime_check(other.size(side) >= tau.size(-1), "ormqr")
      << "other.shape[" << side << "] must be greater than or equal to tau.shape[-1]: " << shapes();
  runtime_check(other.size(side) == a.size(-2), "ormqr")
      << "other.shape[" << side << "] must be equal to input.shape[-2]: " << shapes();
  SymInt least = min(other.size(side), a.size(-1));
  runtime_check(tau.size(-1) == least, "ormqr")
      << "tau.shape[-1] must be equal to min(other.shape[" << side << "], input.shape[-1]): " << shapes();
  runtime_check(batch_is(tau, 1) && batch_is(other, 2), "ormqr")
      << "expected batch dimensions of tau and other to be those of input: " << shapes();
  runtime_check(tau.dtype() == a.dtype() && other.dtype() == a.dtype(), "ormqr")
      << "expected input, tau and other to have the same dtype, but found " << a.dtype() << ", "
      << tau.dtype() << " and " << other.dtype();
  return Dims(other.sizes());
}
}  // namespace

FACULA_FAMILY(householder) {
  define("geqrf(Tensor self) -> (Tensor a, Tensor tau)")
      .resized(by_columns("self", true))
      .converting_out()
      .autocast(Autocast::fp32)
      .doc(
          "QR of each matrix as LAPACK's geqrf leaves it: R, below it the vectors of Householder reflections, and tau.")
      .dtypes(kExact)
      .shapes(geqrf_sizes)
      .library("geqrf")
      .batched_in_front()
      .reference([](const Tensor& self) { return householder_factors(self); })
      .vjp(catalog::NoDerivative{"geqrf"})
      .samples({"self[4, 3]", "self[2, 3, 4]", "self[0, 3]"});
  define("linalg_householder_product(Tensor input, Tensor tau) -> Tensor")
      .converting_out()
      .resized(by_columns("input", true))
      .autocast(Autocast::fp32)
      .doc(
          "The first n columns of H_1 H_2 ... H_k, H_i = 1 - tau_i v_i v_i^H, v_i in column i of `input` [..., m, n].")
      .bind(linalg)
      .dtypes(kExact)
      .promote(Promote::none)
      .shape([](const Call& c) { return product_sizes(c, "input"); })
      .library("householder_product")
      .batched_in_front()
      .reference([](const Tensor& input, const Tensor& tau) {
        return partial_products(reflectors(input, tau.size(-1)), tau, input.size(-1)).front();
      })
      .vjp([](const Vjp& v) {
        auto [a, tau] = through_reflections(v["input"], v["tau"], v.grad(), v.result());
        return grads(a, tau);
      })
      .samples({"input[4, 3], tau[2]", "input[2, 3, 3], tau[2, 3]"});
  define("orgqr(Tensor self, Tensor input2) -> Tensor")
      .converting_out()
      .resized(by_columns("self", true))
      .autocast(Autocast::fp32)
      .doc("linalg.householder_product.")
      .forwards("linalg_householder_product")
      .samples({"self[4, 3], input2[2]"});
  define("ormqr(Tensor self, Tensor input2, Tensor input3, bool left=True, bool transpose=False) -> Tensor")
      .resized(by_columns("self", true))
      .autocast(Autocast::fp32)
      .doc(
          "op(Q) input3 (input3 op(Q) if not `left`) for Q = H_1 ... H_k as geqrf gives it, op(Q) = Q^H if `transpose`.")
      .dtypes(kExact)
      .promote(Promote::none)
      .also("input2", "tau")
      .also("input3", "other")
      .check([](const Call& c) { ormqr_sizes(c); })  // before dtypes, as in PyTorch
      .shape(ormqr_sizes)
      .library("ormqr")
      .batched_in_front()
      .reference(
          [](const Tensor& self, const Tensor& input2, const Tensor& input3, bool left, bool transposed) {
            Tensor q = partial_products(reflectors(self, input2.size(-1)), input2, self.size(-2)).front();
            if (transposed) q = adjoint_of(q);
            return left ? matmul(q, input3) : matmul(input3, q);
          })
      .vjp([](const Vjp& v) {
        bool left = v.call().flag("left"), transposed = v.call().flag("transpose");
        Tensor other = ormqr(v["self"], v["input2"], v.grad(), left, !transposed), a, tau;
        if (v.needs("self") || v.needs("input2")) {
          Tensor q =
              left ? matmul(v.grad(), adjoint_of(v["input3"])) : matmul(adjoint_of(v["input3"]), v.grad());
          std::tie(a, tau) =
              through_reflections(v["self"], v["input2"], transposed ? adjoint_of(q) : q, v.result());
        }
        return grads(a, tau, other);
      })
      .samples({"self[4, 3], input2[3], input3[4, 2]",
                "self[3, 3], input2[3], input3[2, 3], left=False, transpose=True"});
  define("linalg_qr(Tensor A, str mode='reduced') -> (Tensor Q, Tensor R)")
      .resized(by_columns("A"))
      .doc(
          "A = Q R of each matrix, Q with orthonormal columns, R upper triangular with a real diagonal of either sign, as "
          "LAPACK's; mode 'complete' gives all columns of Q, 'r' only R.")
      .bind(linalg)
      .autocast(Autocast::fp32)
      .composite([](const Tensor& A, std::string_view mode) {
        check_matrices("linalg_qr", "A", A);
        check_floating("linalg_qr", A);
        runtime_check(mode == "reduced" || mode == "complete" || mode == "r", "linalg.qr")
            << "received unrecognized mode '" << std::string(mode)
            << "' but expected one of 'reduced' (default), 'r', or 'complete'";
        auto [a, tau] = geqrf(A);
        SymInt m = A.size(-2), n = A.size(-1), rows = mode == "complete" ? m : smaller(m, n);
        Tensor r = triu(narrow(a, -2, int64_t(0), rows));
        if (mode == "r") return std::tuple(zeros({int64_t(0)}, A.dtype()), r);
        Tensor vectors = narrow(a, -1, int64_t(0), smaller(rows, n));
        if (rows > n)
          vectors =
              cat(std::vector<Tensor>{vectors, zeros(of_matrices(A.sizes(), m, rows - n), A.dtype())}, -1);
        return std::tuple(linalg_householder_product(vectors, tau), r);
      })
      // Derived from Q and R, because the geqrf of the body has no gradient.
      .vjp([](const Vjp& v) {
        std::string_view mode = v.call().str("mode");
        runtime_check(mode != "r", "linalg.qr")
            << "The derivative of linalg.qr depends on Q, which is not computed when mode='r'"
            << hint("linalg.qr(A, mode='reduced') has a derivative");
        runtime_check(mode == "reduced" || v.call().size("A", -2) <= v.call().size("A", -1), "linalg.qr")
            << "The QR decomposition is not differentiable when mode='complete' and nrows > ncols, got shape "
            << to_string(v.call().sizes("A"));
        return grads(qr_gradient(v["A"], v.result(0), v.result(1), v.grad(0), v.grad(1)));
      })
      .samples({"A[4, 3]", "A[2, 3, 4]", "A[3, 3], mode='complete'", "A[0, 2]"});
  define("qr(Tensor self, bool some=True) -> (Tensor Q, Tensor R)")
      .check(catalog::warns_once(catalog::deprecated(
          "qr", "linalg.qr",
          "The boolean parameter 'some' has been replaced with a string parameter 'mode'.\n"
          "Q, R = torch.qr(A, some)\nshould be replaced with\n"
          "Q, R = torch.linalg.qr(A, 'reduced' if some else 'complete')")))
      .resized(by_columns("self"))
      .doc("linalg.qr, mode 'reduced' if `some`, else 'complete'.")
      .procedure([](const Tensor& self, bool some) { return linalg_qr(self, some ? "reduced" : "complete"); })
      .samples({"self[4, 3]", "self[3, 4], some=False"});
}
