// Linear algebra on (batches of) matrices.
#include <algorithm>
#include <limits>

#include "facula/catalog/matrices.h"
#include "facula/catalog/warns.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::op;
using namespace facula::catalog::matrices;

namespace {

std::function<Dims(const Call&)> square_sizes(const char* arg = "A") {
  return [arg](const Call& c) {
    check_square(c.name(), arg, c.tensor(arg));
    return Dims(c.sizes(arg));
  };
}
std::function<Dims(const Call&)> one_for_each(const char* arg = "A") {
  return [arg](const Call& c) {
    check_square(c.name(), arg, c.tensor(arg));
    return batch_of(c.sizes(arg));
  };
}

// Checks a system of `A` [..., n, n] and `B` [..., n, k] with equal batches; returns the sizes of the solution.
Dims system_sizes(const Call& c) {
  Tensor a = c.tensor("A"), b = c.tensor("B");
  check_square(c.name(), "A", a);
  runtime_check(a.dtype() == b.dtype(), shown(c.name()))
      << "expected A and B to have the same dtype, but found " << a.dtype() << " and " << b.dtype();
  bool fits = b.dim() == a.dim() && b.size(-2) == a.size(-1) &&
              std::equal(a.sizes().begin(), a.sizes().end() - 2, b.sizes().begin());
  runtime_check(fits, shown(c.name())) << "incompatible shapes of A and B for the equation AX = B: A "
                                       << to_string(a.sizes()) << ", B " << to_string(b.sizes());
  return Dims(b.sizes());
}

// ---- Slow references, by operators on whole batches (Golub, Van Loan, "Matrix Computations").

// Element k along the last dimension but one (a row) or the last (a column), which stays as a dimension of
// size 1.
Tensor row_of(const Tensor& m, int64_t k) { return narrow(m, -2, k, int64_t(1)); }
Tensor column_of(const Tensor& m, int64_t k) { return narrow(m, -1, k, int64_t(1)); }
Tensor dot(const Tensor& a, const Tensor& b, int64_t dim) { return sum(mul(a, b), dim, true); }
// Gauss-Jordan elimination with row pivoting: A^-1 B, and the pivots [..., n] whose product, but for the sign
// of the exchanges, is the determinant. Where a pivot is 0 what follows it means nothing but its own column's
// 0.
struct Eliminated {
  Tensor solution, pivots, exchanges;
};
Eliminated eliminate(const Tensor& A, const Tensor& B) {
  int64_t n = A.size(-1).guard_int();
  Tensor m = cat(std::vector<Tensor>{A, B}, -1), row = arange(n),
         exchanges = ones(batch_of(A.sizes()), A.dtype());
  std::vector<Tensor> pivots;
  for (int64_t k = 0; k < n; ++k) {
    Tensor pick =
        add(argmax(abs(squeeze(narrow(column_of(m, k), -2, k, n - k), -1)), -1, true), k);  // [..., 1]
    Tensor order = where(eq(row, k), pick, where(eq(row, pick), k, row));
    m = gather(m, -2, expand(unsqueeze(order, -1), m.sizes()));
    Tensor pivot = column_of(row_of(m, k), k);
    pivots.push_back(squeeze(pivot, -1));
    exchanges = where(eq(squeeze(pick, -1), k), exchanges, neg(exchanges));
    Tensor top = div(row_of(m, k), where(eq(pivot, 0), ones_like(pivot), pivot));
    m = where(unsqueeze(eq(row, k), -1), top, sub(m, mul(column_of(m, k), top)));
  }
  Tensor all = pivots.empty() ? ones(with(A.sizes(), A.dim() - 1, int64_t(0)), A.dtype()) : cat(pivots, -1);
  if (A.dim() && pivots.empty()) all = select(all, -2, int64_t(0));
  return {narrow(m, -1, n, B.size(-1)), all, exchanges};
}

Tensor determinant(const Tensor& A) {
  if (A.size(-1) == SymInt(int64_t(0))) return ones(batch_of(A.sizes()), A.dtype());
  auto [x, pivots, det] = eliminate(A, narrow(A, -1, int64_t(0), int64_t(0)));
  for (int64_t k = 0, n = A.size(-1).guard_int(); k < n; ++k) det = mul(det, select(pivots, -1, k));
  return det;
}

Tensor solution(const Tensor& A, const Tensor& B) {
  if (A.size(-1) == SymInt(int64_t(0))) return zeros_like(B);
  Eliminated e = eliminate(A, B);
  runtime_check(!any(eq(e.pivots, 0)).item().to_bool(), "linalg")
      << "the input matrix is singular, of shape " << to_string(A.sizes());
  return e.solution;
}

// conj((-1)^(i + j) det of A without row i and column j)
Tensor cofactors(const Tensor& A) {
  int64_t n = A.size(-1).guard_int();
  if (n == 0) return zeros_like(A);
  auto without = [n](const Tensor& m, int64_t k, int64_t dim) {
    return cat(std::vector<Tensor>{narrow(m, dim, int64_t(0), k), narrow(m, dim, k + 1, n - k - 1)}, dim);
  };
  std::vector<Tensor> rows;
  for (int64_t i = 0; i < n; ++i) {
    std::vector<Tensor> row;
    for (int64_t j = 0; j < n; ++j)
      row.push_back(mul(determinant(without(without(A, i, -2), j, -1)), (i + j) % 2 ? -1 : 1));
    rows.push_back(stack(row, -1));
  }
  return conjugate(stack(rows, -2));
}

Tensor lower_factor(const Tensor& A) {
  int64_t n = A.size(-1).guard_int();
  Tensor l = zeros_like(A), row = unsqueeze(arange(n), -1);
  for (int64_t k = 0; k < n; ++k) {
    Tensor v = sub(column_of(A, k), dot(l, conjugate(row_of(l, k)), -1)), pivot = row_of(v, k);
    if (is_complex(A.dtype())) pivot = _real(pivot);
    runtime_check(all(gt(pivot, 0)).item().to_bool(), "linalg.cholesky")
        << "the input of shape " << to_string(A.sizes())
        << " is not positive-definite (the leading minor of order " << k + 1 << ")";
    Tensor column = where(ge(row, k), div(v, sqrt(pivot)), zeros_like(v));
    l = where(eq(transpose(row, 0, 1), k), column, l);
  }
  return l;
}

Tensor triangular_solution(const Tensor& A, const Tensor& B, bool upper, bool unit) {
  int64_t n = A.size(-1).guard_int();
  Tensor x = zeros_like(B), row = unsqueeze(arange(n), -1);
  for (int64_t step = 0; step < n; ++step) {
    int64_t k = upper ? n - 1 - step : step;
    Tensor known = where(upper ? gt(row, k) : lt(row, k), x, zeros_like(x));
    Tensor v = sub(row_of(B, k), dot(transpose(row_of(A, k), -2, -1), known, -2));
    x = where(eq(row, k), unit ? v : div(v, column_of(row_of(A, k), k)), x);
  }
  return x;
}

SampleArg definite(std::vector<int64_t> sizes) {
  SampleArg a = op::tensor(std::move(sizes));
  a.positive_definite = true;
  return a;
}
Samples square_samples() {
  return op::samples(
      {{{{"A", definite({4, 4})}}}, {{{"A", definite({2, 3, 3})}}}, {{{"A", definite({0, 3, 3})}}}});
}

}  // namespace

FACULA_FAMILY(linalg) {
  define("_linalg_solve(Tensor A, Tensor B) -> Tensor")
      .doc("X of A X = B for [..., n, n] and [..., n, k] of equal batch.")
      .grad_name("LinalgSolveEx")
      .bind(hidden)
      .dtypes(kExact)
      .shape(system_sizes)
      .checks()
      .library("linalg_lu_solve")
      .batched_in_front()
      .reference([](const Tensor& A, const Tensor& B) { return solution(A, B); })
      .vjp(gradients_of_solution)
      .samples(op::samples({{{{"A", definite({4, 4})}, {"B", op::tensor({4, 2})}}},
                            {{{"A", definite({2, 3, 3})}, {"B", op::tensor({2, 3, 3})}}}}));
  define("linalg_solve(Tensor A, Tensor B, *, bool left=True) -> Tensor")
      .grad_name("LinalgSolveEx")
      .resized(solved_by_columns("A"))
      .doc("X of A X = B (of X A = B if not `left`); B holds vectors or matrices, batches broadcast.")
      .autocast(Autocast::fp32)
      .bind(linalg)
      .procedure([](const Tensor& A, const Tensor& B, bool left) {
        check_square("linalg_solve", "A", A);
        runtime_check(A.dtype() == B.dtype(), "linalg.solve")
            << "expected A and B to have the same dtype, but found A of type " << A.dtype()
            << " and B of type " << B.dtype() << " instead";
        bool vector = B.dim() == 1 || (B.dim() == A.dim() - 1 &&
                                       std::equal(B.sizes().begin(), B.sizes().end(), A.sizes().begin()));
        Tensor b = vector ? unsqueeze(B, -1) : B;
        runtime_check(left || !vector, "linalg.solve")
            << "left=False needs a matrix B, got a vector of shape " << to_string(B.sizes());
        auto [a, rhs] = broadcast_system("linalg_solve", left ? A : transpose(A, -2, -1),
                                         left ? b : transpose(b, -2, -1));
        Tensor x = _linalg_solve(a, rhs);
        if (!left) x = transpose(x, -2, -1);
        return vector ? squeeze(x, -1) : x;
      })
      .samples(op::samples({{{{"A", definite({4, 4})}, {"B", op::tensor({4, 2})}}},
                            {{{"A", definite({2, 3, 3})}, {"B", op::tensor({3, 2})}}},
                            {{{"A", definite({4, 4})}, {"B", op::tensor({4})}}}}));
  define("linalg_inv(Tensor A) -> Tensor")
      .resized(by_columns("A"))
      .doc("The inverse of each square matrix.")
      .grad_name("LinalgInvEx")
      .autocast(Autocast::fp32)
      .bind(linalg)
      .dtypes(kExact)
      .shape(square_sizes())
      .checks()
      .library("linalg_inv")
      .batched_in_front()
      .reference([](const Tensor& A) { return solution(A, identity(A)); })
      .vjp(gradient_of_inverse)
      .samples(square_samples());
  define("inverse(Tensor self) -> Tensor")
      .resized(by_columns("self"))
      .doc("The inverse of each square matrix.")
      .autocast(Autocast::fp32)
      .forwards("linalg_inv")
      .samples({"self+[3, 3]", "self+[2, 4, 4]"});
  define("_linalg_inv_adjoint(Tensor A) -> Tensor")
      .doc("inv(A)^H, the gradient of log|det(A)|; infinities and NaN where A is singular.")
      .bind(hidden)
      .dtypes(kExact)
      .shape(square_sizes())
      .library("linalg_inv_adjoint")
      .batched_in_front()
      .reference([](const Tensor& A) {
        return adjoint_of(A.size(-1) == SymInt(int64_t(0)) ? zeros_like(A)
                                                           : eliminate(A, identity(A)).solution);
      })
      .vjp([](const Vjp& v) {
        Tensor y = v.result();
        return grads(neg(matmul(y, matmul(adjoint_of(v.grad()), y))));
      })
      .samples(square_samples());
  define("_linalg_cofactor(Tensor A) -> Tensor")
      .doc("conj(det(A)) inv(A)^H, the gradient of the determinant; for singular matrices its limit.")
      .bind(hidden)
      .dtypes(kExact)
      .shape(square_sizes())
      .library("linalg_cofactor")
      .batched_in_front()
      .reference([](const Tensor& A) { return cofactors(A); })
      .vjp([](const Vjp& v) {
        Tensor f = conjugate(v.result()), m = conjugate(_linalg_inv_adjoint(v["A"])), g = v.grad();
        Tensor inner = sum(mul(g, f), {-2, -1}, true);
        return grads(conjugate(sub(mul(inner, m), matmul(f, matmul(transpose(g, -2, -1), m)))));
      })
      .samples({"A+[3, 3]"});
  define("linalg_det(Tensor A) -> Tensor")
      .doc("The determinant of each square matrix.")
      .bind(linalg)
      .dtypes(kExact)
      .shape(one_for_each())
      .library("linalg_det")
      .batched_in_front()
      .reference([](const Tensor& A) { return determinant(A); })
      .vjp([](const Vjp& v) { return grads(mul(as_matrices(v.grad()), _linalg_cofactor(v["A"]))); })
      .samples(square_samples());
  define("det(Tensor self) -> Tensor")
      .doc("The determinant of each square matrix.")
      .forwards("linalg_det")
      .samples({"self+[3, 3]", "self[2, 2, 2]", "self[0, 0]"});
  define("linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet)")
      .doc("Sign (phase) and logarithm of the absolute value of the determinant of each square matrix.")
      .bind(linalg)
      .dtypes(kExact)
      .result([](const Call& c) { return std::vector<DType>{c.dtype("A"), real_of(c.dtype("A"))}; })
      .shapes([](const Call& c) { return std::vector<Dims>(2, one_for_each()(c)); })
      .library("linalg_slogdet")
      .batched_in_front()
      .reference([](const Tensor& A) {
        Tensor det = determinant(A), size = abs(det);
        return std::tuple(is_complex(A.dtype()) ? div(det, where(eq(size, 0), ones_like(size), size))
                                                : sign(det),
                          log(size));
      })
      .vjp([](const Vjp& v) {
        bool phase = is_complex(v.call().dtype("A")) && v.grad(0).defined();
        Tensor w = v.grad(1);
        if (phase) {
          Tensor turned =
              mul(_imag(mul(conj_physical(v.grad(0)), v.result(0))), Scalar(std::complex<double>(0, -1)));
          w = w.defined() ? add(turned, w) : turned;
        }
        if (!w.defined()) return grads(Tensor());
        return grads(mul(as_matrices(w), _linalg_inv_adjoint(v["A"])));
      })
      .samples(square_samples());
  define("slogdet(Tensor self) -> (Tensor sign, Tensor logabsdet)")
      .doc("Sign and logarithm of the absolute value of the determinant.")
      .forwards("linalg_slogdet")
      .samples({"self+[3, 3]"});
  define("logdet(Tensor self) -> Tensor")
      .grad_name([](const Call& c) { return grad_name(is_complex(c.dtype("self")) ? "Add" : "Where"); })
      .doc("Logarithm of the determinant; NaN if it is negative.")
      .in_parts()
      .composite([](const Tensor& self) {
        auto [sign, log_size] = linalg_slogdet(self);
        if (is_complex(self.dtype())) return add(log(sign), log_size);
        return where(eq(sign, -1), full_like(log_size, std::numeric_limits<double>::quiet_NaN()), log_size);
      })
      .samples({"self+[2, 3, 3]"});
  define("_linalg_cholesky(Tensor A, bool adjoint=False) -> Tensor")
      .doc(
          "The lower triangular L with A = L L^H; reads the lower triangle. `adjoint`: A is that of the user's.")
      .grad_name("LinalgCholeskyEx")
      .bind(hidden)
      .dtypes(kExact)
      .shape(square_sizes())
      .checks()
      .library("linalg_cholesky")
      .batched_in_front()
      .reference([](const Tensor& A, bool) { return lower_factor(A); })
      .vjp(gradient_of_cholesky)
      .samples({"A+[1, 1]"});  // as for cholesky
  define("linalg_cholesky(Tensor A, *, bool upper=False) -> Tensor")
      .also("A", "input")
      .resized(by_columns("A"))
      .doc("L with A = L L^H (or U with A = U^H U) of each Hermitian positive-definite matrix.")
      .autocast(Autocast::fp32)
      .bind(linalg)
      .procedure([](const Tensor& A, bool upper) {
        check_square("linalg_cholesky", "A", A);
        if (!upper) return _linalg_cholesky(A);
        return adjoint_of(_linalg_cholesky(adjoint_of(A), true));
      })
      .samples({"A+[1, 1]"});  // as for cholesky
  define("cholesky(Tensor self, bool upper=False) -> Tensor")
      .check(catalog::warns_once(catalog::deprecated(
          "cholesky", "linalg.cholesky",
          "L = torch.cholesky(A)\nshould be replaced with\nL = torch.linalg.cholesky(A)\nand\n"
          "U = torch.cholesky(A, upper=True)\nshould be replaced with\nU = torch.linalg.cholesky(A).mH\n"
          "This transform will produce equivalent results for all valid (symmetric positive definite) inputs.")))
      .grad_name("Cholesky")
      .converting_out()
      .doc("linalg.cholesky.")
      .autocast(Autocast::fp32)
      .forwards("linalg_cholesky")
      .samples({"self+[1, 1]"});  // larger ones: not symmetric when one element moves
  define("_linalg_triangular(Tensor A, Tensor B, bool upper, bool unit=False) -> Tensor")
      .doc("X of A X = B for triangular A, of equal batch.")
      .grad_name("LinalgSolveTriangular")
      .bind(hidden)
      .dtypes(kExact)
      .shape(system_sizes)
      .library("linalg_triangular")
      .batched_in_front()
      .reference([](const Tensor& A, const Tensor& B, bool upper, bool unit) {
        return triangular_solution(A, B, upper, unit);
      })
      .vjp([](const Vjp& v) {
        auto& c = v.call();
        bool upper = c.flag("upper"), unit = c.flag("unit");
        Tensor b = _linalg_triangular(adjoint_of(v["A"]), v.grad(), !upper, unit), a;
        if (v.needs("A")) {
          a = neg(matmul(b, adjoint_of(v.result())));
          a = upper ? triu(a, unit ? 1 : 0) : tril(a, unit ? -1 : 0);
        }
        return grads(a, b);
      })
      .samples({"A+[3, 3], B[3, 2], upper=True", "A+[3, 3], B[3, 2], upper=False, unit=True"});
  define(
      "linalg_solve_triangular(Tensor A, Tensor B, *, bool upper, bool left=True, bool unitriangular=False) -> Tensor")
      .also("A", "input")
      .grad_name("LinalgSolveTriangular")
      .resized(by_columns("A"))
      .doc("X of A X = B (of X A = B if not `left`) for triangular A; batches broadcast.")
      .bind(linalg)
      .procedure([](const Tensor& A, const Tensor& B, bool upper, bool left, bool unitriangular) {
        auto [a, b] = broadcast_system("linalg_solve_triangular", left ? A : transpose(A, -2, -1),
                                       left ? B : transpose(B, -2, -1));
        Tensor x = _linalg_triangular(a, b, left ? upper : !upper, unitriangular);
        return left ? x : transpose(x, -2, -1);
      })
      .samples({"A+[3, 3], B[3, 2], upper=True", "A+[2, 3, 3], B[3, 2], upper=False, unitriangular=True",
                "A+[2, 2], B[3, 2], upper=True, left=False"});
  define("linalg_matmul(Tensor self, Tensor other) -> Tensor")
      .doc("matmul.")
      .bind(linalg)
      .forwards("matmul")
      .samples({"self[3, 2], other[2, 3]"});
  define(
      "linalg_vector_norm(Tensor self, Scalar ord=2, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor")
      .doc("The norm of order `ord` over `dim`, all elements taken as one vector.")
      .bind(linalg)
      .forwards("norm")
      .samples({"self[3, 4]", "self[3, 4], ord=3, dim=[1]", "self[3, 4], ord=inf, dim=[0, 1], keepdim=True"});
}
