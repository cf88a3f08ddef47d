// Inverses and solutions of linear systems.
#include "facula/catalog/factor_helpers.h"
#include "facula/catalog/matrices.h"
#include "facula/catalog/no_derivative.h"
#include "facula/catalog/warns.h"

using namespace facula;
using namespace facula::op;
using namespace facula::catalog::matrices;
using namespace facula::catalog::factor_helpers;

FACULA_FAMILY(inverse) {
  define("_linalg_inv_ex(Tensor A) -> (Tensor inverse, Tensor info)")
      .doc("The inverse of each matrix, and the number of the first zero pivot.")
      .bind(hidden)
      .dtypes(kExact)
      .result([](const Call& c) { return std::vector<DType>{c.dtype("A"), DType::Int32}; })
      .shapes([](const Call& c) {
        check_square("linalg_inv_ex", "A", c.tensor("A"));
        return std::vector<Dims>{Dims(c.sizes("A")), batch_of(c.sizes("A"))};
      })
      .library("linalg_inv")
      .batched_in_front()
      .reference([](const Tensor& A) { return std::tuple(linalg_inv(A), as_codes(A)); })
      .vjp(gradient_of_inverse)
      .samples({"A+[3, 3]"});
  define("linalg_inv_ex(Tensor A, *, bool check_errors=False) -> (Tensor inverse, Tensor info)")
      .resized(by_columns("A"))
      .doc("linalg.inv with the number of the first zero pivot in `info`, 0 if there is none.")
      .bind(linalg)
      .autocast(Autocast::fp32)
      .procedure([](const Tensor& A, bool check_errors) {
        check_square("linalg_inv_ex", "A", A);
        check_floating("linalg_inv_ex", A);
        auto result = _linalg_inv_ex(A);
        if (check_errors) check_codes("linalg_inv_ex", std::get<1>(result), singular_inverse);
        return result;
      })
      .samples({"A+[3, 3]", "A+[2, 3, 3]"});
  define("_linalg_solve_ex(Tensor A, Tensor B) -> (Tensor result, Tensor info)")
      .doc("X of A X = B of equal batch, and the number of the first zero pivot.")
      .bind(hidden)
      .dtypes(kExact)
      .result([](const Call& c) { return std::vector<DType>{c.dtype("A"), DType::Int32}; })
      .shapes([](const Call& c) { return std::vector<Dims>{Dims(c.sizes("B")), batch_of(c.sizes("A"))}; })
      .library("linalg_lu_solve")
      .batched_in_front()
      .reference(
          [](const Tensor& A, const Tensor& B) { return std::tuple(_linalg_solve(A, B), as_codes(A)); })
      .vjp(gradients_of_solution)
      .samples({"A+[3, 3], B[3, 2]"});
  define(
      "linalg_solve_ex(Tensor A, Tensor B, *, bool left=True, bool check_errors=False) -> (Tensor result, Tensor info)")
      .grad_name("LinalgSolveEx")
      .resized(solved_by_columns("A"))
      .doc("linalg.solve with the number of the first zero pivot in `info`, 0 if there is none.")
      .bind(linalg)
      .autocast(Autocast::fp32)
      .procedure([](const Tensor& A, const Tensor& B, bool left, bool check_errors) {
        check_square("linalg_solve_ex", "A", A);
        check_floating("linalg_solve_ex", A);
        bool vector = B.dim() == 1 || (B.dim() == A.dim() - 1 &&
                                       std::equal(B.sizes().begin(), B.sizes().end(), A.sizes().begin()));
        runtime_check(left || !vector, "linalg.solve_ex")
            << "left=False needs a matrix B, got a vector of shape " << to_string(B.sizes());
        Tensor b = vector ? unsqueeze(B, -1) : B;
        check_system("linalg_solve_ex", A, b, left);
        auto [a, rhs] = broadcast_system("linalg_solve_ex", left ? A : transpose(A, -2, -1),
                                         left ? b : transpose(b, -2, -1));
        auto [x, info] = _linalg_solve_ex(a, rhs);
        if (check_errors)
          check_codes("linalg_solve_ex", info,
                      [](int64_t) { return "The solver failed because the input matrix is singular."; });
        if (!left) x = transpose(x, -2, -1);
        return std::tuple(vector ? squeeze(x, -1) : x, info);
      })
      .samples({"A+[3, 3], B[3, 2]", "A+[3, 3], B[3]"});
  define(
      "triangular_solve(Tensor self, Tensor A, bool upper=True, bool transpose=False, bool unitriangular=False) -> (Tensor solution, Tensor cloned_coefficient)")
      .check(catalog::warns_once(catalog::deprecated(
          "triangular_solve", "linalg.solve_triangular",
          "torch.linalg.solve_triangular has its arguments reversed and does not return a copy of one of the inputs.\n"
          "X = torch.triangular_solve(B, A).solution\nshould be replaced with\nX = torch.linalg.solve_triangular(A, B).")))
      .grad_name("TriangularSolve")
      .resized(by_columns("A"))
      .autocast(Autocast::fp32)
      .doc(
          "X of A X = self (of A^T X = self if `transpose`) for triangular A, and a copy of A; batches broadcast.")
      .procedure([](const Tensor& self, const Tensor& A, bool upper, bool transposed, bool unitriangular) {
        runtime_check(self.dim() >= 2, "triangular_solve")
            << "expected b to have at least 2 dimensions, but it has shape " << to_string(self.sizes());
        check_square("triangular_solve", "A", A);
        check_system("triangular_solve", A, self, true);
        auto [a, b] = broadcast_system("triangular_solve", A, self);
        Tensor x = transposed ? _linalg_triangular(transpose(a, -2, -1), b, !upper, unitriangular)
                              : _linalg_triangular(a, b, upper, unitriangular);
        return std::tuple(x, clone(a));
      })
      .samples({"self[3, 2], A+[3, 3]", "self[3, 2], A+[2, 3, 3], upper=False, transpose=True"});
}
