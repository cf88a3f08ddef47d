// Factors with pivots (LU, LDL), their uses, and forms of solvers that tell what failed instead of raising.
#include "facula/catalog/matrices.h"
#include "facula/catalog/no_derivative.h"
#include "facula/catalog/warns.h"

using namespace facula;
using namespace facula::op;
using namespace facula::catalog::matrices;

namespace {

// Like PyTorch's, the gradient is that of L L^H for a full matrix L, so it is not 0 in the other triangle.
constexpr const char* kOfWhole = "it is that of L L^H, in which both triangles of L take part";

SymInt rank_of(const Tensor& a) { return smaller(a.size(-2), a.size(-1)); }
Dims pivot_sizes(SymSpan sizes, SymInt count) {
  Dims to = batch_of(sizes);
  to.push_back(count);
  return to;
}
Tensor as_codes(const Tensor& like) { return zeros(batch_of(like.sizes()), DType::Int32); }

std::string zero_in_u(int64_t code) {
  std::string at = std::to_string(code);
  return "U[" + at + "," + at +
         "] is zero and using it on lu_solve would result in a division by zero. If you still want to perform the "
         "factorization, consider calling linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)";
}
std::string not_definite(int64_t code) {
  return "The factorization could not be completed because the input is not positive-definite (the leading minor of order " +
         std::to_string(code) + " is not positive-definite).";
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

void check_pivots(const char* name, const Tensor& lu, const Tensor& pivots) {
  runtime_check(pivots.dtype() == DType::Int32 || pivots.dtype() == DType::Int64, shown(name))
      << "pivots should be a tensor of int32, got " << pivots.dtype();
  runtime_check(pivots.dim() == lu.dim() - 1 && pivots.size(-1) == rank_of(lu) &&
                    std::equal(lu.sizes().begin(), lu.sizes().end() - 2, pivots.sizes().begin()),
                shown(name))
      << "expected one pivot for each row of the smaller side of each matrix: LU " << to_string(lu.sizes())
      << ", pivots " << to_string(pivots.sizes());
}
Tensor expanded_to(const Tensor& t, const Dims& batch, int own) {
  Dims to(batch);
  for (int k = t.dim() - own; k < t.dim(); ++k) to.push_back(t.size(k));
  return std::equal(to.begin(), to.end(), t.sizes().begin(), t.sizes().end()) ? t : expand(t, to);
}
// A factor, its pivots and a right-hand side, of one batch shape.
std::tuple<Tensor, Tensor, Tensor> one_batch(const char* name, const Tensor& lu, const Tensor& pivots,
                                             const Tensor& b) {
  Dims batch_a = batch_of(lu.sizes()), batch_b = batch_of(b.sizes());
  Dims batch = broadcast_sizes(shown(name), std::vector<SymSpan>{batch_a, batch_b});
  return {expanded_to(lu, batch, 2), expanded_to(pivots, batch, 1), expanded_to(b, batch, 2)};
}
void check_system(const char* name, const Tensor& a, const Tensor& b, bool left) {
  check_matrices(name, "B", b);
  runtime_check(a.dtype() == b.dtype(), shown(name))
      << "expected A and B to have the same dtype, but found A of type " << a.dtype() << " and B of type "
      << b.dtype();
  runtime_check(a.size(-1) == b.size(left ? -2 : -1), shown(name))
      << "incompatible shapes of A and B for the equation " << (left ? "AX = B" : "XA = B") << ": A "
      << to_string(a.sizes()) << ", B " << to_string(b.sizes());
}
// Samples: pivots count from 1, and factors have nothing near 0 on their diagonal.
SampleArg pivots_of(std::vector<int64_t> sizes) {
  SampleArg a = op::index(sizes, sizes.back() + 1);
  a.low = 1;
  return a;
}
SampleArg divisible(std::vector<int64_t> sizes = {3, 3}) {
  SampleArg a = op::tensor(std::move(sizes));
  a.positive_definite = true;
  return a;
}
// Checks a factor, its pivots and a right-hand side of equal batch and dtype; returns the sizes of the solution.
Dims right_sizes(const Call& c) {
  const char* factor = c.op().schema.index_of("LU") >= 0 ? "LU" : "LD";
  Tensor a = c.tensor(factor), b = c.tensor("B");
  check_square(c.name(), factor, a);
  check_system(c.name(), a, b, true);
  runtime_check(c.size("pivots", -1) == a.size(-1) &&
                    std::equal(a.sizes().begin(), a.sizes().end() - 2, b.sizes().begin()),
                shown(c.name()))
      << "shapes do not fit: " << factor << " " << to_string(a.sizes()) << ", pivots "
      << to_string(c.sizes("pivots")) << ", B " << to_string(b.sizes());
  return Dims(b.sizes());
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
      .non_differentiable({1, 2})
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
      .procedure([](const Tensor& self, bool pivot, bool check_errors) {
        return linalg_lu_factor_ex(self, pivot, check_errors);
      })
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
      .library("lu_permutation")
      .batched_in_front()
      .reference([](const Tensor& pivots, int64_t rows) { return permutation(pivots, rows); })
      .samples(op::samples({{{{"pivots", pivots_of({3})}, {"rows", op::literal("3")}}}}));
  define(
      "lu_unpack(Tensor LU_data, Tensor LU_pivots, bool unpack_data=True, bool unpack_pivots=True) -> (Tensor P, Tensor L, Tensor U)")
      .doc("P, L and U of what lu_factor gives; empty what is not asked for.")
      .bind(function)
      .non_differentiable({0})
      .undifferenced("result P is a permutation, which does not change with the elements")
      // By rows of an identity and by masks of one matrix, which rows of a few elements go along with.
      .procedure([](const Tensor& LU_data, const Tensor& LU_pivots, bool unpack_data, bool unpack_pivots) {
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
      .grad_name("LinalgLu")
      .doc(
          "A = P L U of each matrix: P a permutation, L lower triangular with 1 on the diagonal, U upper triangular.")
      .bind(linalg)
      .non_differentiable({0})
      .undifferenced("result P is a permutation, which does not change with the elements")
      .autocast(Autocast::fp32)
      .procedure([](const Tensor& A, bool pivot) {
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
      .non_differentiable({1, 2})
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
      .non_differentiable({1})
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
      .non_differentiable({1})
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
      .non_differentiable({1})
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
