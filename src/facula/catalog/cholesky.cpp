// Cholesky and LDL factorisations of Hermitian matrices, and solutions by them.
#include "facula/catalog/factor_helpers.h"
#include "facula/catalog/matrices.h"
#include "facula/catalog/no_derivative.h"
#include "facula/catalog/warns.h"

using namespace facula;
using namespace facula::op;
using namespace facula::catalog::matrices;
using namespace facula::catalog::factor_helpers;

namespace {
// Like PyTorch's, the gradient is that of L L^H for a full matrix L, so it is not 0 in the other triangle.
constexpr const char* kOfWhole = "it is that of L L^H, in which both triangles of L take part";
std::string not_definite(int64_t code) {
  return "The factorization could not be completed because the input is not positive-definite (the leading minor of order " +
         std::to_string(code) + " is not positive-definite).";
}
// L D L^H without exchanges.
std::tuple<Tensor, Tensor, Tensor> ldl_reference(const Tensor& self, bool hermitian) {
  int64_t n = self.size(-1).guard_int();
  Tensor a = tril(self), row = unsqueeze(arange(n), -1);
  auto other = [&](const Tensor& x) { return hermitian ? adjoint_of(x) : transpose(x, -2, -1); };
  Tensor full = add(a, other(tril(a, -1))), l = zeros_like(a);
  for (int64_t k = 0; k < n; ++k) {
    Tensor column = narrow(full, -1, k, int64_t(1)), d = narrow(column, -2, k, int64_t(1));
    Tensor factor = where(gt(row, k), div(column, d), zeros_like(column));
    full = sub(full, mul(d, matmul(factor, other(factor))));
    l = where(eq(arange(n), k), where(eq(row, k), d, factor), l);
  }
  Tensor pivots = expand(to_dtype(add(arange(n), 1), DType::Int32), pivot_sizes(self.sizes(), self.size(-1)));
  return {l, contiguous(pivots), as_codes(self)};
}
}  // namespace

FACULA_FAMILY(cholesky) {
  define("_linalg_ldl_factor(Tensor self, bool hermitian) -> (Tensor LD, Tensor pivots, Tensor info)")
      .doc(
          "L D L^T (L D L^H if `hermitian`), L and D in one lower triangle, by Bunch and Kaufman's exchanges.")
      .bind(hidden)
      .dtypes(kExact)
      .result([](const Call& c) { return std::vector<DType>{c.dtype("self"), DType::Int32, DType::Int32}; })
      .shapes([](const Call& c) {
        return std::vector<Dims>{Dims(c.sizes("self")), pivot_sizes(c.sizes("self"), c.size("self", -1)),
                                 batch_of(c.sizes("self"))};
      })
      .library("linalg_ldl_factor")
      .batched_in_front()
      .reference([](const Tensor& self, bool hermitian) { return ldl_reference(self, hermitian); })
      .grad_name(catalog::not_implemented())
      .vjp(catalog::NoDerivative{"aten::linalg_ldl_factor_ex"})
      .samples({"self+[1, 1], hermitian=False"});
  define(
      "linalg_ldl_factor_ex(Tensor self, *, bool hermitian=False, bool check_errors=False) -> (Tensor LD, Tensor pivots, Tensor info)")
      .resized(by_columns("self"))
      .doc("linalg.ldl_factor with the number of the first zero block of D in `info`, 0 if there is none.")
      .bind(linalg)
      .also("self", "A")
      .procedure([](const Tensor& self, bool hermitian, bool check_errors) {
        check_square("linalg_ldl_factor_ex", "A", self);
        check_floating("linalg_ldl_factor_ex", self);
        auto result = _linalg_ldl_factor(self, hermitian);
        if (check_errors) check_codes("linalg_ldl_factor_ex", std::get<2>(result), singular_inverse);
        return result;
      })
      .undifferenced("there is none")
      .samples({"self+[1, 1]"});
  define("linalg_ldl_factor(Tensor self, *, bool hermitian=False) -> (Tensor LD, Tensor pivots)")
      .resized(by_columns("self"))
      .doc(
          "L D L^T of each symmetric matrix (L D L^H of each Hermitian one), of which the lower triangle is read: L and D in "
          "one lower triangle, D with blocks of 1 and 2 rows, pivots as LAPACK's sytrf (hetrf) gives them.")
      .bind(linalg)
      .also("self", "A")
      .reads_data()
      .procedure([](const Tensor& self, bool hermitian) {
        auto [ld, pivots, info] = linalg_ldl_factor_ex(self, hermitian);
        check_codes("linalg_ldl_factor", info, [](int64_t code) {
          return "D[" + std::to_string(code) + "," + std::to_string(code) +
                 "] is zero; ldl_factor_ex gives the factors";
        });
        return std::tuple(ld, pivots);
      })
      .undifferenced("there is none")
      .samples({"self+[1, 1]"});
  define("_linalg_ldl_solve(Tensor LD, Tensor pivots, Tensor B, bool hermitian) -> Tensor")
      .doc("X of A X = B by the factors of A, of equal batch.")
      .bind(hidden)
      .dtypes(kExact)
      .promote(Promote::none)
      .result([](const Call& c) { return std::vector<DType>{c.dtype("B")}; })
      .shape(right_sizes)
      .checks()
      .library("linalg_ldl_solve")
      .batched_in_front()
      .reference([](const Tensor& LD, const Tensor&, const Tensor& B,
                    bool hermitian) {  // of ldl_reference's factors
        Tensor d = unsqueeze(diagonal(LD, int64_t(0), -2, -1), -1),
               x = div(_linalg_triangular(LD, B, false, true), d);
        return _linalg_triangular(hermitian ? adjoint_of(LD) : transpose(LD, -2, -1), x, true, true);
      })
      .vjp([](const Vjp& v) {
        bool hermitian = v.call().flag("hermitian");
        Tensor g = hermitian ? v.grad() : conjugate(v.grad());
        Tensor b = _linalg_ldl_solve(v["LD"], v["pivots"], g, hermitian);
        return grads(catalog::no_derivative(v, "LD", "aten::linalg_ldl_solve"), Tensor(),
                     hermitian ? b : conjugate(b));
      })
      .undifferenced("there is one for the right-hand side alone")
      .samples(op::samples({{{{"LD", divisible({1, 1})},
                              {"pivots", pivots_of({1})},
                              {"B", op::tensor({1, 2})},
                              {"hermitian", op::literal("False")}}}}));
  define("linalg_ldl_solve(Tensor LD, Tensor pivots, Tensor B, *, bool hermitian=False) -> Tensor")
      .resized(by_columns("LD"))
      .doc("X of A X = B by the factors of A that ldl_factor gives.")
      .bind(linalg)
      .procedure([](const Tensor& LD, const Tensor& pivots, const Tensor& B, bool hermitian) {
        check_square("linalg_ldl_solve", "LD", LD);
        check_floating("linalg_ldl_solve", LD);
        runtime_check(is_integral(pivots.dtype()) && pivots.dtype() != DType::Bool, "linalg.ldl_solve")
            << "expected pivots to be integers, got " << pivots.dtype();
        runtime_check(pivots.dim() == LD.dim() - 1 &&
                          std::equal(pivots.sizes().begin(), pivots.sizes().end(), LD.sizes().begin()),
                      "linalg.ldl_solve")
            << "expected LD.shape[:-1] to be pivots.shape: LD " << to_string(LD.sizes()) << ", pivots "
            << to_string(pivots.sizes());
        check_system("linalg_ldl_solve", LD, B, true);
        auto [ld, p, b] = one_batch("linalg_ldl_solve", LD, to_dtype(pivots, DType::Int32), B);
        return _linalg_ldl_solve(ld, p, b, hermitian);
      })
      .undifferenced("there is one for the right-hand side alone")
      .samples(op::samples(
          {{{{"LD", divisible({1, 1})}, {"pivots", pivots_of({1})}, {"B", op::tensor({1, 2})}}}}));
  define("_linalg_cholesky_ex(Tensor A, bool adjoint=False) -> (Tensor L, Tensor info)")
      .doc("_linalg_cholesky with the order of the first minor that is not positive in `info`.")
      .bind(hidden)
      .dtypes(kExact)
      .result([](const Call& c) { return std::vector<DType>{c.dtype("A"), DType::Int32}; })
      .shapes([](const Call& c) {
        check_square("linalg_cholesky_ex", "A", c.tensor("A"));
        return std::vector<Dims>{Dims(c.sizes("A")), batch_of(c.sizes("A"))};
      })
      .library("linalg_cholesky")
      .batched_in_front()
      .reference(
          [](const Tensor& A, bool adjoint) { return std::tuple(_linalg_cholesky(A, adjoint), as_codes(A)); })
      .undifferenced("matrices stay Hermitian")
      .vjp(gradient_of_cholesky)
      .samples({"A+[1, 1]"});
  define(
      "linalg_cholesky_ex(Tensor self, *, bool upper=False, bool check_errors=False) -> (Tensor L, Tensor info)")
      .resized(by_columns("self"))
      .doc(
          "linalg.cholesky with the order of the first minor that is not positive in `info`, 0 if there is none.")
      .bind(linalg)
      .also("self", "A")
      .autocast(Autocast::fp32)
      .procedure([](const Tensor& self, bool upper, bool check_errors) {
        check_square("linalg_cholesky_ex", "A", self);
        check_floating("linalg_cholesky_ex", self);
        auto [l, info] = _linalg_cholesky_ex(upper ? adjoint_of(self) : self, upper);
        if (check_errors) check_codes("linalg_cholesky_ex", info, not_definite);
        return std::tuple(upper ? adjoint_of(l) : l, info);
      })
      .undifferenced("matrices stay Hermitian")
      .samples({"self+[1, 1]"});
  define("_cholesky_inverse(Tensor self, bool upper) -> Tensor")
      .doc(
          "cholesky_inverse by LAPACK; element by element of factors that are not finite or whose reciprocals are not.")
      .bind(hidden)
      .dtypes(kExact)
      .promote(Promote::none)
      .shape([](const Call& c) { return Dims(c.sizes("self")); })
      .library("cholesky_inverse")
      .batched_in_front()
      .reference([](const Call& c) {
        Tensor self = c.tensor("self");
        return Results(cholesky_solve(identity(self), self, c.flag("upper")));
      })
      .vjp([](const Vjp& v) {
        bool upper = v.call().flag("upper");
        Tensor l = v["self"], y = v.result(), g = add(v.grad(), adjoint_of(v.grad()));
        Tensor inner = neg(matmul(y, matmul(g, y)));
        return grads(upper ? matmul(l, inner) : matmul(inner, l));
      })
      .undifferenced(kOfWhole)
      .samples({"self+[3, 3], upper=False", "self+[2, 3, 3], upper=True"});
  define("cholesky_inverse(Tensor self, bool upper=False) -> Tensor")
      .grad_name("CholeskyInverse")
      .resized(by_columns("self"))
      .converting_out()
      .doc("The inverse of L L^H (of U^H U if `upper`) for each triangle L; the other triangle is not read.")
      .autocast(Autocast::fp32)
      .reads_data()
      .procedure([](const Tensor& self, bool upper) {
        check_square("cholesky_inverse", "A", self);
        check_floating("cholesky_inverse", self);
        Tensor d = diagonal(detach(self), int64_t(0), -2, -1);
        if (self.numel() > SymInt(int64_t(0))) {
          Tensor bad = eq(d, 0);
          if (any(bad).item().to_bool())
            check_codes("cholesky_inverse",
                        mul(any(bad, -1), add(argmax(to_dtype(bad, DType::Int32), -1), 1)), singular_inverse);
        }
        return _cholesky_inverse(self, upper);
      })
      .undifferenced(kOfWhole)
      .samples({"self+[3, 3]", "self+[2, 3, 3], upper=True"});
  define("cholesky_solve(Tensor self, Tensor input2, bool upper=False) -> Tensor")
      .converting_out()
      .doc(
          "X of A X = self for A = L L^H (U^H U if `upper`), given as its triangle `input2`; batches broadcast.")
      .also("input2", "L")
      .autocast(Autocast::fp32)
      .composite([](const Tensor& self, const Tensor& input2, bool upper) {
        runtime_check(self.dim() >= 2, "cholesky_solve")
            << "b should have at least 2 dimensions, but has shape " << to_string(self.sizes());
        check_square("cholesky_solve", "A", input2);
        check_system("cholesky_solve", input2, self, true);
        auto [l, b] = broadcast_system("cholesky_solve", input2, self);
        Tensor lh = adjoint_of(l);
        return upper ? _linalg_triangular(l, _linalg_triangular(lh, b, false), true)
                     : _linalg_triangular(lh, _linalg_triangular(l, b, false), true);
      })
      // Both triangles of L take part, as in PyTorch; derived, one does.
      .vjp([](const Vjp& v) {
        bool upper = v.call().flag("upper");
        Tensor l = v["input2"], b = cholesky_solve(v.grad(), l, upper), of_l;
        if (v.needs("input2")) {
          Tensor inner = matmul(b, adjoint_of(v.result()));
          inner = neg(add(inner, adjoint_of(inner)));
          of_l = sum_to_size(upper ? matmul(l, inner) : matmul(inner, l), Sizes(l.sizes()));
        }
        return grads(v.needs("self") ? sum_to_size(b, Sizes(v["self"].sizes())) : Tensor(), of_l);
      })
      .undifferenced(kOfWhole)
      .samples({"self[3, 2], input2+[3, 3]", "self[3, 2], input2+[2, 3, 3], upper=True"});
}
