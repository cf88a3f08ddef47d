// Ranks, pseudo-inverses and least squares.
#include "facula/catalog/matrices.h"
#include "facula/op/batched.h"

using namespace facula;
using namespace facula::op;
using namespace facula::catalog::matrices;

namespace {
// The size below which singular values count as 0: max(atol, rtol max(S)).
Tensor cutoff(const Tensor& largest, const Tensor& atol, const Tensor& rtol) {
  return maximum(to_dtype(atol, largest.dtype()), mul(to_dtype(rtol, largest.dtype()), largest));
}
Tensor number(double x) { return full({}, x, DType::Float64); }
// Below which singular values count as 0, absolutely and of the largest; those that a call does not give are none.
struct Tolerances {
  std::optional<Tensor> atol, rtol;
};
// Tolerances with their defaults, for max(atol, rtol max(S)): rtol is eps max(m, n) unless rtol or a positive atol is passed.
std::pair<Tensor, Tensor> completed(const Tensor& A, const Tolerances& t) {
  double usual = epsilon_of(A.dtype()) * double(std::max(A.size(-1), A.size(-2)).guard_int());
  Tensor a = t.atol ? *t.atol : number(0);
  if (t.rtol) return {a, *t.rtol};
  Tensor r = full(t.atol ? Sizes(SymSpan(a.sizes())) : Sizes{}, usual, DType::Float64);
  return {a, t.atol ? where(gt(a, 0), zeros_like(r), r) : r};
}
void check_rank_input(const char* name, const Tensor& A, const Tolerances& t, bool hermitian) {
  if (hermitian) check_square(name, "A", A);
  else check_matrices(name, "A", A);
  check_floating(name, A);
  auto check = [&](const char* which, const std::optional<Tensor>& x) {
    runtime_check(!x || !is_complex(x->dtype()), shown(name))
        << which << " tensor of complex type is not supported, got " << x->dtype();
  };
  check("atol", t.atol);
  check("rtol", t.rtol);
}
Tensor matrix_rank(const Tensor& A, const Tolerances& t, bool hermitian) {
  check_rank_input("linalg_matrix_rank", A, t, hermitian);
  if (A.size(-1) == SymInt(int64_t(0)) || A.size(-2) == SymInt(int64_t(0)) || A.numel() == SymInt(int64_t(0)))
    return zeros(batch_of(A.sizes()), DType::Int64);
  auto [a, r] = completed(A, t);
  Tensor s = hermitian ? abs(linalg_eigvalsh(detach(A))) : linalg_svdvals(detach(A));
  Tensor limit = cutoff(hermitian ? amax(s, {-1}) : select(s, -1, int64_t(0)), a, r);
  return sum(gt(s, unsqueeze(limit, -1)), {-1});
}
Tensor pseudo_inverse(const Tensor& A, const Tolerances& t, bool hermitian) {
  check_rank_input("linalg_pinv", A, t, hermitian);
  auto [a, r] = completed(A, t);
  return _linalg_pinv(A, a, r, hermitian);
}
// Declares `f` with tolerances `atol` and `rtol` as numbers or tensors; if only one is passed, the other is 0.
Definer by_tolerances(const char* schema, const char* doc,
                      Tensor (*f)(const Tensor&, const Tolerances&, bool)) {
  return define(schema)
      .converting_out()
      .doc(doc)
      .bind(linalg)
      .also("self", "A")
      .procedure([f](const Call& c) {
        auto given = [&](const char* arg) -> std::optional<Tensor> {
          int k = c.op().schema.index_of(arg);
          if (k < 0 || c.at(size_t(k)).is_none()) return nullopt;
          return c.at(size_t(k)).tag == Tag::tensor ? c.tensor(arg) : number(c.real(arg));
        };
        Tolerances t{given("atol"), given("rtol")};
        if (auto tol = given("tol")) t = {*tol, number(0)};
        if (auto rcond = given("rcond")) t = {number(0), *rcond};
        return f(c.tensor("self"), t, c.flag("hermitian"));
      });
}
// Golub, Pereyra, "The differentiation of pseudo-inverses and nonlinear least squares problems", 1973; products in the
// order that keeps them small.
Tensor pinv_gradient(const Tensor& A, const Tensor& p, const Tensor& g) {
  Tensor gh = adjoint_of(g), ph = adjoint_of(p);
  if (A.size(-2) <= A.size(-1)) {
    Tensor k = matmul(gh, p), kph = matmul(k, ph);
    Tensor result = sub(add(neg(adjoint_of(matmul(p, k))), kph), matmul(matmul(A, p), kph));
    return add(result, matmul(matmul(ph, p), sub(gh, matmul(k, A))));
  }
  Tensor k = matmul(p, gh), phk = matmul(ph, k);
  Tensor result = add(neg(adjoint_of(matmul(k, p))), matmul(matmul(sub(gh, matmul(A, k)), p), ph));
  return sub(add(result, phk), matmul(matmul(phk, p), A));
}
// Refuses operands of least squares that do not fit; returns true if `given` is a batch of vectors.
bool check_least_squares(const Tensor& self, const Tensor& given, std::string_view d) {
  const char* name = "linalg.lstsq";
  check_matrices("linalg_lstsq", "input", self);
  check_floating("linalg_lstsq", self);
  runtime_check(given.dim() >= 1, name)
      << "other must have at least 1 dimension, got shape " << to_string(given.sizes());
  runtime_check(self.dtype() == given.dtype(), name)
      << "expected input and other to have the same dtype, but got input's dtype " << self.dtype()
      << " and other's dtype " << given.dtype();
  bool vector = given.dim() == self.dim() - 1 &&
                std::equal(given.sizes().begin(), given.sizes().end(), self.sizes().begin());
  runtime_check(vector || (given.dim() >= 2 && self.size(-2) == given.size(-2)), name)
      << "input.size(-2) should match other.size(" << (vector || given.dim() < 2 ? -1 : -2) << "): input "
      << to_string(self.sizes()) << ", other " << to_string(given.sizes());
  runtime_check(d == "gels" || d == "gelsy" || d == "gelsd" || d == "gelss", name)
      << "parameter `driver` should be one of (gels, gelsy, gelsd, gelss), got '" << std::string(d) << "'";
  return vector;
}

}  // namespace

FACULA_FAMILY(pinv) {
  by_tolerances(
      "linalg_matrix_rank(Tensor self, *, float? atol=None, float? rtol=None, bool hermitian=False) -> Tensor",
      "The number of singular values (absolute eigenvalues, if `hermitian`) above max(atol, rtol max(S)); rtol is eps "
      "max(m, n) unless one is given.",
      matrix_rank)
      .samples({"self+[3, 3]", "self+[2, 3, 3], hermitian=True"});
  by_tolerances(
      "linalg_matrix_rank.tensor(Tensor self, *, Tensor? atol=None, Tensor? rtol=None, bool hermitian=False) -> Tensor",
      "With tolerances for each matrix.", matrix_rank)
      .samples({"self+[2, 3, 3], atol[2]"});
  by_tolerances("linalg_matrix_rank.tol(Tensor self, Tensor|Scalar tol, bool hermitian=False) -> Tensor",
                "With an absolute tolerance.", matrix_rank)
      .samples({"self+[2, 3, 3], tol[2]"});
  define("_linalg_pinv(Tensor self, Tensor atol, Tensor rtol, bool hermitian) -> Tensor")
      .doc("The pseudo-inverse; singular values below max(atol, rtol max(S)) are taken as 0.")
      .bind(hidden)
      .dtypes(kExact)
      .promote(Promote::none)
      .composite([](const Tensor& self, const Tensor& atol, const Tensor& rtol, bool hermitian) {
        SymInt none(int64_t(0)), m = self.size(-2), n = self.size(-1);
        if (m == none || n == none || self.numel() == none)
          return zeros(of_matrices(self.sizes(), n, m), self.dtype());
        auto inverted = [&](const Tensor& s, const Tensor& size, const Tensor& largest) {
          Tensor kept = gt(size, unsqueeze(cutoff(largest, atol, rtol), -1));
          return to_dtype(where(kept, reciprocal(s), zeros_like(s)), self.dtype());
        };
        if (hermitian) {
          auto [l, v] = linalg_eigh(self);
          Tensor size = abs(l);
          return matmul(mul(v, unsqueeze(inverted(l, size, amax(size, {-1})), -2)), adjoint_of(v));
        }
        auto [u, s, vh] = linalg_svd(self, false);
        return matmul(mul(adjoint_of(vh), unsqueeze(inverted(s, s, select(s, -1, int64_t(0))), -2)),
                      adjoint_of(u));
      })
      // By the result, also where singular values are equal, whose vectors have none.
      .vjp([](const Vjp& v) { return grads(pinv_gradient(v["self"], v.result(), v.grad())); })
      .samples({"self+[3, 3], atol[](0, 0.001), rtol[](0, 0.001), hermitian=False"});
  by_tolerances(
      "linalg_pinv(Tensor self, *, float? atol=None, float? rtol=None, bool hermitian=False) -> Tensor",
      "The pseudo-inverse (Moore-Penrose) of each matrix by its singular values (eigenvalues, if `hermitian`); "
      "those not above max(atol, rtol max(S)) are taken as 0, rtol being eps max(m, n) unless one is given.",
      pseudo_inverse)
      .samples({"self+[3, 3]", "self[2, 4, 3]", "self[0, 3]"});
  by_tolerances(
      "linalg_pinv.tensor(Tensor self, *, Tensor? atol=None, Tensor? rtol=None, bool hermitian=False) -> Tensor",
      "With tolerances for each matrix.", pseudo_inverse)
      .samples({"self+[2, 3, 3], rtol[2](0, 0.01)"});
  by_tolerances("linalg_pinv.rcond(Tensor self, Tensor|Scalar rcond, bool hermitian=False) -> Tensor",
                "With a relative tolerance.", pseudo_inverse)
      .samples({"self+[3, 3], rcond=0.001"});
  define("pinverse(Tensor self, float rcond=1e-15) -> Tensor")
      .doc("linalg.pinv with a relative tolerance.")
      .procedure([](const Tensor& self, double rcond) {
        return pseudo_inverse(self, {number(0), number(rcond)}, false);
      })
      .samples({"self+[3, 3]"});
  define(
      "_linalg_lstsq(Tensor A, Tensor B, float rcond, str driver) -> (Tensor solution, Tensor rank, Tensor singular_values)")
      .doc(
          "X of least |A X - B|, of least norm, by LAPACK's driver; `rank` and `singular_values` where it tells them.")
      .bind(hidden)
      .dtypes(kExact)
      .promote(Promote::none)
      .result(
          [](const Call& c) { return std::vector<DType>{c.dtype("A"), DType::Int64, real_of(c.dtype("A"))}; })
      .shapes([](const Call& c) {
        SymInt m = c.size("A", -2), n = c.size("A", -1);
        std::string_view driver = c.str("driver");
        Dims none{SymInt(int64_t(0))}, values = batch_of(c.sizes("A"));
        values.push_back(smaller(m, n));
        return std::vector<Dims>{of_matrices(c.sizes("A"), n, c.size("B", -1)),
                                 driver == "gels" ? none : batch_of(c.sizes("A")),
                                 driver == "gelsd" || driver == "gelss" ? values : none};
      })
      .checks()
      .library("linalg_lstsq")
      .batched([](const Batched& b) {
        Results all = batched_in_front(b);
        for (size_t k = 0; k < all.size(); ++k)  // what the driver does not tell
          if (all[k].dim() == 1 && b.logical().rank("A") == 2 && all[k].numel() == SymInt(int64_t(0)))
            all[k] = with_batch(all[k], b.size());
        return all;
      })
      .reference([](const Tensor& A, const Tensor& B, double rcond, std::string_view driver) {
        Tensor s = linalg_svdvals(A), none = zeros({int64_t(0)}, s.dtype());
        Tensor limit = mul(amax(s, {-1}, true), rcond), zero = number(0), r = number(rcond);
        bool tells = driver == "gelsd" || driver == "gelss";
        return std::tuple(matmul(_linalg_pinv(A, zero, r, false), B),
                          driver == "gels" ? zeros({int64_t(0)}, DType::Int64) : sum(gt(s, limit), {-1}),
                          tells ? s : none);
      })
      .non_differentiable({2}, "PyTorch marks the singular values as not differentiable")
      .vjp([](const Vjp& v) {
        if (!v.grad(0).defined()) return grads(Tensor(), Tensor());
        Tensor p = pseudo_inverse(v["A"], {}, false), b = matmul(adjoint_of(p), v.grad(0));
        return grads(v.needs("A") ? pinv_gradient(v["A"], p, matmul(v.grad(0), adjoint_of(v["B"])))
                                  : Tensor(),
                     b);
      })
      .samples({"A[4, 3](1, 2), B[4, 2], rcond=0.0000001, driver='gelsd'"});
  define(
      "linalg_lstsq(Tensor self, Tensor b, float? rcond=None, *, str? driver=None) -> (Tensor solution, Tensor residuals, Tensor rank, Tensor singular_values)")
      .converting_out()
      .autocast(Autocast::fp32)
      .doc(
          "X of least |A X - B|, B vectors or matrices of A's batch. Drivers 'gelsy' (default; QR with exchanges), 'gelsd', "
          "'gelss' (singular values) and 'gels' (QR, full rank). `residuals`, the sums of squares for m > n and full rank, "
          "`rank` and `singular_values` are empty where the driver does not tell them.")
      .bind(linalg)
      .also("self", "A")
      .also("b", "B")
      .resized(
          [](const Call& c, size_t k, const Tensor& out, SymSpan sizes) {  // LAPACK's B has max(m, n) rows
            Dims strides = k ? Dims{} : by_columns("b", true)(c, k, out, sizes);
            if (!strides.empty() && strides.back() < c.size("self", -2)) {
              strides.back() = c.size("self", -2);
              SymInt matrix = strides.back() * sizes.back();
              for (size_t d = sizes.size() - 2; d-- > 0; matrix = matrix * sizes[d]) strides[d] = matrix;
            }
            return strides;
          })
      .procedure([](const Tensor& self, const Tensor& given, std::optional<double> rcond,
                    std::optional<std::string_view> driver) {
        std::string_view d = driver.value_or("gelsy");
        bool vector = check_least_squares(self, given, d);
        Tensor b = vector ? unsqueeze(given, -1) : given;
        Dims batch_a = batch_of(self.sizes()), batch_b = batch_of(b.sizes());
        Dims batch = broadcast_sizes("linalg.lstsq", std::vector<SymSpan>{batch_a, batch_b});
        auto expanded = [&](const Tensor& t) {
          Dims to(batch);
          to.push_back(t.size(-2));
          to.push_back(t.size(-1));
          return std::equal(to.begin(), to.end(), t.sizes().begin(), t.sizes().end()) ? t : expand(t, to);
        };
        Tensor A = expanded(self), B = expanded(b);
        SymInt m = A.size(-2), n = A.size(-1);
        double usual = epsilon_of(A.dtype()) * double(std::max(m, n).guard_int());
        auto [x, rank, values] = _linalg_lstsq(A, B, rcond.value_or(usual), d);
        Tensor residuals = zeros({int64_t(0)}, real_of(A.dtype()));
        bool full = d == "gels" || (d != "gelsy" && m > n && all(eq(rank, n)).item().to_bool());
        if (m > n && full) {
          Tensor error = sub(matmul(A, x), B);
          if (is_complex(A.dtype())) error = _real(mul(error, conjugate(error)));
          else error = mul(error, error);
          residuals = sum(error, {-2});
        }
        return std::tuple(vector ? squeeze(x, -1) : x, residuals, rank, values);
      })
      .samples({"self[4, 3](1, 2), b[4, 2]", "self+[3, 3], b[3, 2], driver='gels'"});
}
