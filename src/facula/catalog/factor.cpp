// Factors with pivots (LU, LDL), their uses, and forms of solvers that tell what failed instead of raising.
#include "facula/catalog/factor_helpers.h"
#include "facula/catalog/matrices.h"
#include "facula/catalog/no_derivative.h"
#include "facula/catalog/warns.h"

using namespace facula;
using namespace facula::op;
using namespace facula::catalog::matrices;
using namespace facula::catalog::factor_helpers;

namespace {
SymInt rank_of(const Tensor& a) { return smaller(a.size(-2), a.size(-1)); }
std::string zero_in_u(int64_t code) {
  std::string at = std::to_string(code);
  return "U[" + at + "," + at +
         "] is zero and using it on lu_solve would result in a division by zero. If you still want to perform the "
         "factorization, consider calling linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)";
}
void check_lu_input(const char* name, const Tensor& A, bool pivot) {
  check_matrices(name, "A", A);
  check_floating(name, A);
  runtime_check(pivot, shown(name)) << "LU without pivoting is not implemented on the CPU, for A of shape "
                                    << to_string(A.sizes());
}
// P^T A = L U, gradients for L below and U above the diagonal. Lanczos' generalisation to matrices that are not square:
// the smaller block is factored, the rest follows from it (van der Mee's, "LU backward" as for QR).
Tensor lu_gradient(const Tensor& lu, const Tensor& pivots, const Tensor& g) {
  auto [p, l, u] = lu_unpack(lu, pivots);
  SymInt m = lu.size(-2), n = lu.size(-1), k = smaller(m, n);
  Tensor gl = tril(narrow(g, -1, int64_t(0), k), -1), gu = triu(narrow(g, -2, int64_t(0), k));
  // In blocks: L = (L1; L2), U = (U1 | U2), A = (A1 | A2; A3) with a square A1 = L1 U1, A2 = L1 U2, A3 = L2 U1.
  Tensor l1 = narrow(l, -2, int64_t(0), k), u1 = narrow(u, -1, int64_t(0), k);
  Tensor lh = adjoint_of(l1), uh = adjoint_of(u1);
  Tensor gl1 = narrow(gl, -2, int64_t(0), k), gu1 = narrow(gu, -1, int64_t(0), k), right, below;
  Tensor inner = add(tril(matmul(lh, gl1), -1), triu(matmul(gu1, uh)));
  auto by_u = [&](const Tensor& x) {  // x U1^-H
    return adjoint_of(_linalg_triangular(u1, adjoint_of(x), true));
  };
  if (n > k) {
    Tensor gu2 = narrow(gu, -1, k, n - k), u2 = narrow(u, -1, k, n - k);
    right = _linalg_triangular(lh, gu2, true, true);
    inner = sub(inner, tril(matmul(gu2, adjoint_of(u2)), -1));
  }
  if (m > k) {
    Tensor gl2 = narrow(gl, -2, k, m - k), l2 = narrow(l, -2, k, m - k);
    below = by_u(gl2);
    inner = sub(inner, triu(matmul(adjoint_of(l2), gl2)));
  }
  Tensor a = by_u(_linalg_triangular(lh, inner, true, true));
  if (right.defined()) a = cat(std::vector<Tensor>{a, right}, -1);
  if (below.defined()) a = cat(std::vector<Tensor>{a, below}, -2);
  return matmul(p, a);
}
// LU by columns with row exchanges; the pivots count from 1.
std::tuple<Tensor, Tensor, Tensor> lu_reference(const Tensor& A) {
  int64_t m = A.size(-2).guard_int(), n = A.size(-1).guard_int();
  Tensor a = A, row = arange(m), codes = as_codes(A);
  std::vector<Tensor> pivots;
  for (int64_t k = 0; k < std::min(m, n); ++k) {
    Tensor column = narrow(a, -1, k, int64_t(1));
    Tensor pick = add(argmax(abs(squeeze(narrow(column, -2, k, m - k), -1)), -1, true), k);
    pivots.push_back(add(pick, 1));
    Tensor order = where(eq(row, k), pick, where(eq(row, pick), k, row));
    a = gather(a, -2, expand(unsqueeze(order, -1), a.sizes()));
    Tensor pivot = narrow(narrow(a, -1, k, int64_t(1)), -2, k, int64_t(1)), below = unsqueeze(gt(row, k), -1);
    Tensor none = eq(pivot, 0), bad = squeeze(squeeze(none, -1), -1);
    codes = where(logical_and(bad, eq(codes, 0)), full_like(codes, k + 1), codes);
    Tensor factor = where(logical_and(below, logical_not(none)), div(narrow(a, -1, k, int64_t(1)), pivot),
                          zeros_like(pivot));
    Tensor later = gt(arange(n), k);
    a = where(later, sub(a, mul(factor, narrow(a, -2, k, int64_t(1)))), a);
    a = where(logical_and(eq(arange(n), k), logical_and(below, logical_not(none))), factor, a);
  }
  Tensor all =
      pivots.empty() ? zeros(pivot_sizes(A.sizes(), SymInt(int64_t(0))), DType::Int32) : cat(pivots, -1);
  return {a, to_dtype(all, DType::Int32), codes};
}
Tensor permutation(const Tensor& pivots, int64_t m) {
  Dims sizes(pivots.sizes());
  sizes.back() = SymInt(m);
  Tensor order = expand(arange(m), sizes), at = arange(m);
  for (int64_t k = pivots.size(-1).guard_int(); k-- > 0;) {
    Tensor p = sub(to_dtype(narrow(pivots, -1, k, int64_t(1)), DType::Int64), 1);
    order = gather(order, -1, expand(where(eq(at, k), p, where(eq(at, p), k, at)), sizes));
  }
  return order;
}
void check_pivots(const char* name, const Tensor& lu, const Tensor& pivots) {
  runtime_check(pivots.dtype() == DType::Int32 || pivots.dtype() == DType::Int64, shown(name))
      << "pivots should be a tensor of int32, got " << pivots.dtype();
  runtime_check(pivots.dim() == lu.dim() - 1 && pivots.size(-1) == rank_of(lu) &&
                    std::equal(lu.sizes().begin(), lu.sizes().end() - 2, pivots.sizes().begin()),
                shown(name))
      << "expected one pivot for each row of the smaller side of each matrix: LU " << to_string(lu.sizes())
      << ", pivots " << to_string(pivots.sizes());
}
}  // namespace

FACULA_FAMILY(factor) {
  define("_linalg_lu_factor(Tensor A) -> (Tensor LU, Tensor pivots, Tensor info)")
      .doc(
          "P L U of each matrix, L (with 1 on its diagonal) and U in one; row i was exchanged with row pivots[i] - 1.")
      .bind(hidden)
      .dtypes(kExact)
      .result([](const Call& c) { return std::vector<DType>{c.dtype("A"), DType::Int32, DType::Int32}; })
      .shapes([](const Call& c) {
        return std::vector<Dims>{Dims(c.sizes("A")), pivot_sizes(c.sizes("A"), rank_of(c.tensor("A"))),
                                 batch_of(c.sizes("A"))};
      })
      .library("linalg_lu_factor")
      .batched_in_front()
      .reference([](const Tensor& A) { return lu_reference(A); })
      .vjp([](const Vjp& v) { return grads(lu_gradient(v.result(0), v.result(1), v.grad(0))); })
      .samples({"A+[3, 3]", "A+[2, 3, 3]"});
  define(
      "linalg_lu_factor_ex(Tensor A, *, bool pivot=True, bool check_errors=False) -> (Tensor LU, Tensor pivots, Tensor info)")
      .grad_name("LinalgLuFactorEx")
      .resized(by_columns("A"))
      .doc(
          "linalg.lu_factor with the number of the first zero on U's diagonal in `info`, 0 if there is none.")
      .bind(linalg)
      .autocast(Autocast::fp32)
      .procedure([](const Tensor& A, bool pivot, bool check_errors) {
        check_lu_input("linalg_lu_factor_ex", A, pivot);
        auto result = _linalg_lu_factor(A);
        if (check_errors) check_codes("linalg_lu_factor_ex", std::get<2>(result), zero_in_u);
        return result;
      })
      .samples({"A+[3, 3]"});
  define("linalg_lu_factor(Tensor A, *, bool pivot=True) -> (Tensor LU, Tensor pivots)")
      .grad_name("LinalgLuFactorEx")
      .resized(by_columns("A"))
      .doc(
          "P L U of each matrix, L (with 1 on its diagonal) and U in one; row i was exchanged with row pivots[i] - 1.")
      .bind(linalg)
      .autocast(Autocast::fp32)
      .reads_data()
      .procedure([](const Tensor& A, bool pivot) {
        check_lu_input("linalg_lu_factor", A, pivot);
        auto [lu, pivots, info] = _linalg_lu_factor(A);
        check_codes("linalg_lu_factor", info, zero_in_u);
        return std::tuple(lu, pivots);
      })
      .samples({"A+[3, 3]"});
  define(
      "_lu_with_info(Tensor self, bool pivot=True, bool check_errors=True) -> (Tensor LU, Tensor pivots, Tensor info)")
      .called("lu")
      .converting_out()
      .doc("linalg.lu_factor_ex.")
      .bind(function)
      .reads_data()
      .forwards("linalg_lu_factor_ex")
      .samples({"self+[3, 3]"});
  define("_lu_permutation(Tensor pivots, SymInt rows) -> Tensor")
      .doc("Where each row goes when row i is exchanged with row pivots[i] - 1 for i = ..., 1, 0.")
      .bind(hidden)
      .dtypes(dtypes_where([](DType d) { return d == DType::Int32 || d == DType::Int64; }))
      .result(ResultType::int64)
      .shape([](const Call& c) {
        Dims sizes(c.sizes("pivots"));
        sizes.back() = c.integer("rows");
        return sizes;
      })
      .checks()
      .library("lu_permutation")
      .batched_in_front()
      .reference([](const Tensor& pivots, int64_t rows) { return permutation(pivots, rows); })
      .samples(op::samples({{{{"pivots", pivots_of({3})}, {"rows", op::literal("3")}}}}));
  define(
      "lu_unpack(Tensor LU_data, Tensor LU_pivots, bool unpack_data=True, bool unpack_pivots=True) -> (Tensor P, Tensor L, Tensor U)")
      .doc("P, L and U of what lu_factor gives; empty what is not asked for.")
      .bind(function)
      .non_differentiable({0}, "P is a permutation, which does not change with the elements")
      // By rows of an identity and by masks of one matrix, which rows of a few elements go along with.
      .composite([](const Tensor& LU_data, const Tensor& LU_pivots, bool unpack_data, bool unpack_pivots) {
        check_matrices("lu_unpack", "LU_data", LU_data);
        DType d = LU_data.dtype();
        Tensor none = zeros({int64_t(0)}, d), p = none, l = none, u = none;
        SymInt m = LU_data.size(-2), k = rank_of(LU_data);
        if (unpack_pivots) {
          runtime_check(LU_pivots.dtype() == DType::Int32 || LU_pivots.dtype() == DType::Int64, "lu_unpack")
              << "LU_pivots is expected to be a tensor of int32, got " << LU_pivots.dtype();
          runtime_check(LU_pivots.dim() >= 1, "lu_unpack") << "LU_pivots must have at least 1 dimension";
          Tensor order = _lu_permutation(LU_pivots, m);
          Dims sizes(order.sizes());
          sizes.push_back(m);
          p = reshape(index_select(eye(m, m, d), 0, reshape(order, {int64_t(-1)})), sizes);
        }
        if (unpack_data) {
          auto ones = [&](SymInt rows, SymInt columns) {
            return full(Dims{rows, columns}, true, DType::Bool);
          };
          l = where(tril(ones(m, k), -1), narrow(LU_data, -1, int64_t(0), k), eye(m, k, d));
          u = where(triu(ones(k, LU_data.size(-1))), narrow(LU_data, -2, int64_t(0), k), 0);
        }
        return std::tuple(p, l, u);
      })
      .samples(op::samples({{{{"LU_data", op::tensor({3, 3})}, {"LU_pivots", pivots_of({3})}}}}));
  define("linalg_lu(Tensor A, *, bool pivot=True) -> (Tensor P, Tensor L, Tensor U)")
      .doc(
          "A = P L U of each matrix: P a permutation, L lower triangular with 1 on the diagonal, U upper triangular.")
      .bind(linalg)
      .non_differentiable({0}, "P is a permutation, which does not change with the elements")
      .autocast(Autocast::fp32)
      .composite([](const Tensor& A, bool pivot) {
        check_lu_input("linalg_lu", A, pivot);
        auto [lu, pivots, info] = _linalg_lu_factor(A);
        return lu_unpack(lu, pivots);
      })
      .samples({"A+[3, 3]", "A+[2, 3, 3]"});
  define("_linalg_lu_solve(Tensor LU, Tensor pivots, Tensor B, bool adjoint=False) -> Tensor")
      .doc("X of A X = B (A^H X = B if `adjoint`) by the factors of A, of equal batch.")
      .bind(hidden)
      .dtypes(kExact)
      .promote(Promote::none)
      .result([](const Call& c) { return std::vector<DType>{c.dtype("B")}; })
      .shape(right_sizes)
      .checks()
      .library("linalg_lu_solve_factored")
      .batched_in_front()
      .reference([](const Tensor& LU, const Tensor& pivots, const Tensor& B, bool adjoint) {
        auto [p, l, u] = lu_unpack(LU, pivots);
        if (!adjoint)
          return _linalg_triangular(u, _linalg_triangular(l, matmul(transpose(p, -2, -1), B), false, true),
                                    true);
        Tensor x = _linalg_triangular(adjoint_of(u), B, false);
        return matmul(p, _linalg_triangular(adjoint_of(l), x, true, true));
      })
      .vjp([](const Vjp& v) {
        bool adjoint = v.call().flag("adjoint");
        Tensor b = _linalg_lu_solve(v["LU"], v["pivots"], v.grad(), !adjoint), lu;
        if (v.needs("LU")) {  // in PyTorch's order, which says what infinities leave
          auto [p, l, u] = lu_unpack(v["LU"], v["pivots"]);
          Tensor x = v.result(), lh = adjoint_of(l), uh = adjoint_of(u);
          if (adjoint) {
            Tensor w = matmul(matmul(transpose(p, -2, -1), x), matmul(adjoint_of(v.grad()), p));
            w = adjoint_of(_linalg_triangular(l, adjoint_of(neg(w)), false, true));
            Tensor rest = adjoint_of(_linalg_triangular(u, adjoint_of(matmul(lh, w)), true));
            lu = add(tril(w, -1), triu(rest));
          } else {
            Tensor r = _linalg_triangular(uh, matmul(neg(v.grad()), adjoint_of(x)), false);
            lu = add(tril(_linalg_triangular(lh, matmul(r, uh), true, true), -1), triu(r));
          }
        }
        return grads(lu, Tensor(), b);
      })
      .samples(op::samples({{{{"LU", divisible()}, {"pivots", pivots_of({3})}, {"B", op::tensor({3, 2})}}}}));
  define(
      "linalg_lu_solve(Tensor LU, Tensor pivots, Tensor B, *, bool left=True, bool adjoint=False) -> Tensor")
      .resized(solved_by_columns("LU"))
      .doc(
          "X of A X = B (X A = B if not `left`) by the factors of A that lu_factor gives; of A^H if `adjoint`.")
      .bind(linalg)
      .procedure([](const Tensor& LU, const Tensor& pivots, const Tensor& B, bool left, bool adjoint) {
        check_square("linalg_lu_solve", "LU", LU);
        check_floating("linalg_lu_solve", LU);
        check_pivots("linalg_lu_solve", LU, pivots);
        check_system("linalg_lu_solve", LU, B, left);
        if (left) {
          auto [lu, p, b] = one_batch("linalg_lu_solve", LU, pivots, B);
          return _linalg_lu_solve(lu, p, b, adjoint);
        }
        auto [lu, p, b] = one_batch("linalg_lu_solve", LU, pivots, adjoint_of(B));
        return adjoint_of(_linalg_lu_solve(lu, p, b, !adjoint));
      })
      .samples(op::samples({{{{"LU", divisible()}, {"pivots", pivots_of({3})}, {"B", op::tensor({3, 2})}}}}));
  define("lu_solve(Tensor self, Tensor LU_data, Tensor LU_pivots) -> Tensor")
      .check(catalog::warns_once(catalog::deprecated(
          "lu_solve", "linalg.lu_solve",
          "Note that torch.linalg.lu_solve has its arguments reversed.\nX = torch.lu_solve(B, LU, pivots)\n"
          "should be replaced with\nX = torch.linalg.lu_solve(LU, pivots, B)")))
      .resized(by_columns("self"))
      .doc("linalg.lu_solve with the right-hand side first.")
      .procedure([](const Tensor& self, const Tensor& LU_data, const Tensor& LU_pivots) {
        return linalg_lu_solve(LU_data, LU_pivots, self);
      })
      .samples(op::samples(
          {{{{"self", op::tensor({3, 2})}, {"LU_data", divisible()}, {"LU_pivots", pivots_of({3})}}}}));
}
