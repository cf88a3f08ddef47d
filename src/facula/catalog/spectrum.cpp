// Operators based on singular values and eigenvalues: norms, condition, rank, pseudo-inverse, least squares.
#include <cmath>
#include <limits>

#include "facula/catalog/matrices.h"
#include "facula/op/batched.h"

using namespace facula;
using namespace facula::op;
using namespace facula::catalog::matrices;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Two different dimensions of A, wrapped.
Ints matrix_dims(const Tensor& A, SymSpan dim) {
  const char* name = "linalg.matrix_norm";
  check_matrices("linalg_matrix_norm", "A", A);
  check_floating("linalg_matrix_norm", A);
  runtime_check(dim.size() == 2, name) << "dim must be a 2-tuple, got " << to_string(dim);
  Ints d;
  for (SymInt k : dim) d.push_back(wrap_dim(name, k.guard_int(), A.dim()));
  runtime_check(d[0] != d[1], name) << "dims must be different, got " << to_string(dim);
  return d;
}
// A function of the singular values of the matrices in two dimensions.
template <class F>
Tensor of_singular_values(const Tensor& A, const Ints& d, bool keepdim, F&& f) {
  Tensor result =
      f(linalg_svdvals(movedim(A, std::vector<int64_t>{d[0], d[1]}, std::vector<int64_t>{-2, -1})));
  if (!keepdim) return result;
  return unsqueeze(unsqueeze(result, std::min(d[0], d[1])), std::max(d[0], d[1]));
}
Tensor as_given(const Tensor& A, std::optional<DType> dtype) {
  if (!dtype) return A;
  runtime_check(is_differentiable(*dtype) && is_complex(*dtype) == is_complex(A.dtype()),
                "linalg.matrix_norm")
      << "dtype should be floating point, and complex if and only if the input is; got " << *dtype << " for "
      << A.dtype();
  return to_dtype(A, *dtype);
}

Tensor matrix_norm(const Tensor& given, double order, SymSpan dim, bool keepdim, std::optional<DType> dtype) {
  Ints d = matrix_dims(given, dim);
  Tensor A = as_given(given, dtype);
  double size = std::fabs(order);
  runtime_check(size == 1 || size == 2 || size == kInfinity, "linalg.matrix_norm")
      << "Order " << order << " not supported.";
  bool largest = order > 0;
  auto extreme = [&](const Tensor& x, int64_t over, bool keep) {
    if (largest && x.size(int(over)) == SymInt(int64_t(0)))
      return sum(x, {over}, keep);  // the largest of no lengths
    return largest ? amax(x, {over}, keep) : amin(x, {over}, keep);
  };
  if (size == 2)
    return of_singular_values(A, d, keepdim, [&](const Tensor& s) { return extreme(s, -1, false); });
  int64_t summed = size == 1 ? d[0] : d[1], left = size == 1 ? d[1] : d[0];
  Tensor sums = linalg_vector_norm(A, 1, std::vector<int64_t>{summed}, true);
  Tensor result = extreme(sums, left, true);
  return keepdim ? result : squeeze(result, std::vector<int64_t>{d[0], d[1]});
}
Tensor matrix_norm(const Tensor& given, std::string_view order, SymSpan dim, bool keepdim,
                   std::optional<DType> dtype) {
  runtime_check(order == "fro" || order == "nuc", "linalg.matrix_norm")
      << "Order " << std::string(order) << " not supported.";
  Ints d = matrix_dims(given, dim);
  Tensor A = as_given(given, dtype);
  if (order == "fro") return linalg_vector_norm(A, 2, std::vector<int64_t>{d[0], d[1]}, keepdim);
  return of_singular_values(A, d, keepdim, [](const Tensor& s) { return sum(s, {-1}); });
}
// The dimensions of linalg.norm with an order; empty for a norm of vectors.
Dims norm_dims(const Tensor& A, Sizes dim) {
  if (!dim.is_none()) return dim.size() == 2 ? Dims(SymSpan(dim.begin(), dim.size())) : Dims{};
  runtime_check(A.dim() == 1 || A.dim() == 2, "linalg.norm")
      << "If dim is not specified but ord is, the input must be 1D or 2D. Got " << A.dim() << "D, shape "
      << to_string(A.sizes());
  return A.dim() == 2 ? Dims{SymInt(int64_t(0)), SymInt(int64_t(1))} : Dims{};
}

template <class P>
Tensor condition(const Tensor& A, const P& p) {
  check_square("linalg_cond", "A", A);
  check_floating("linalg_cond", A);
  if (A.numel() == SymInt(int64_t(0))) return zeros(batch_of(A.sizes()), real_of(A.dtype()));
  auto [inverse, info] = linalg_inv_ex(A);
  Dims last{SymInt(int64_t(-2)), SymInt(int64_t(-1))};
  Tensor product = mul(matrix_norm(A, p, last, false, nullopt),
                       matrix_norm(where(as_matrices(gt(info, 0)), zeros_like(inverse), inverse), p, last,
                                   false, nullopt));
  // Infinite where there is no number, as NumPy's.
  return nan_to_num(where(gt(info, 0), full_like(product, kInfinity), product), kInfinity, kInfinity,
                    -kInfinity);
}

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

// The largest singular values of A, computed from its adjoint if A is wide.
std::tuple<Tensor, Tensor, Tensor> largest_singular_values(const Tensor& given, int64_t q, int64_t steps) {
  Tensor whole = is_differentiable(given.dtype()) ? given : to_dtype(given, default_dtype());
  bool wide = whole.size(-2) < whole.size(-1);
  Tensor A = wide ? adjoint_of(whole) : whole, ah = adjoint_of(A);
  auto basis = [](const Tensor& x) { return std::get<0>(linalg_qr(x)); };
  Tensor Q = basis(matmul(A, randn(Dims{A.size(-1), SymInt(q)}, nullptr, A.dtype())));
  for (int64_t k = 0; k < steps; ++k) Q = basis(matmul(A, basis(matmul(ah, Q))));
  auto [u, s, vh] = linalg_svd(matmul(adjoint_of(Q), A), false);
  Tensor left = matmul(Q, u), right = adjoint_of(vh);
  return wide ? std::tuple(right, s, left) : std::tuple(left, s, right);
}

}  // namespace

FACULA_FAMILY(spectrum) {
  define(
      "linalg_matrix_norm(Tensor self, Scalar ord, int[] dim=[-2, -1], bool keepdim=False, *, dtype? dtype=None) -> Tensor")
      .doc(
          "The norm of the matrices in two dimensions: of order 1 or inf the largest sum of absolute values of a column or "
          "row, of order 2 the largest singular value; the smallest if `ord` is negative.")
      .bind(linalg)
      .also("self", "A")
      .procedure(
          [](const Tensor& self, const Scalar& ord, SymSpan dim, bool keepdim, std::optional<DType> dtype) {
            runtime_check(ord.category() != Category::complex, "linalg.matrix_norm")
                << "Order " << ord << " not supported.";
            return matrix_norm(self, ord.to_double(), dim, keepdim, dtype);
          })
      .samples(
          {"self[3, 4], ord=1", "self[2, 3, 4], ord=-inf, dim=[0, 2], keepdim=True", "self[3, 4], ord=2"});
  define(
      "linalg_matrix_norm.str(Tensor self, str ord='fro', int[] dim=[-2, -1], bool keepdim=False, *, dtype? dtype=None) -> Tensor")
      .doc("'fro': the root of the sum of squares; 'nuc': the sum of singular values.")
      .bind(linalg)
      .also("self", "A")
      .procedure([](const Tensor& self, std::string_view ord, SymSpan dim, bool keepdim,
                    std::optional<DType> dtype) { return matrix_norm(self, ord, dim, keepdim, dtype); })
      .samples({"self[3, 4]", "self[2, 3, 4], ord='nuc', dim=[0, 2], keepdim=True"});
  define(
      "linalg_norm(Tensor self, Scalar? ord=None, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor")
      .doc("The norm of vectors (one dimension) or matrices (two); without `ord` the 2-norm of all elements.")
      .bind(linalg)
      .also("self", "A")
      .procedure([](const Tensor& self, std::optional<Scalar> ord, Sizes dim, bool keepdim,
                    std::optional<DType> dtype) {
        runtime_check(dim.is_none() || dim.size() == 1 || dim.size() == 2, "linalg.norm")
            << "if dim is specified, it must be of length 1 or 2, got "
            << to_string(SymSpan(dim.begin(), dim.size()));
        if (ord)
          if (Dims d = norm_dims(self, dim); !d.empty())
            return matrix_norm(self, ord->to_double(), d, keepdim, dtype);
        return linalg_vector_norm(self, ord.value_or(Scalar(2.0)), dim, keepdim, dtype);
      })
      .samples({"self[3, 4]", "self[3, 4], ord=inf", "self[3, 4], ord=3, dim=[1]"});
  define(
      "linalg_norm.str(Tensor self, str ord, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor")
      .doc("linalg.matrix_norm.")
      .bind(linalg)
      .also("self", "A")
      .procedure(
          [](const Tensor& self, std::string_view ord, Sizes dim, bool keepdim, std::optional<DType> dtype) {
            Dims d = norm_dims(self, dim);
            if (d.empty() && !dim.is_none()) d = Dims(SymSpan(dim.begin(), dim.size()));
            return matrix_norm(self, ord, d, keepdim, dtype);
          })
      .samples({"self[3, 4], ord='fro'", "self[2, 3, 4], ord='nuc', dim=[0, 2]"});
  define("linalg_cond(Tensor self, Scalar? p=None) -> Tensor")
      .converting_out()
      .doc(
          "The condition number of each matrix: the product of its norm of order p and that of its inverse; for p 2 (None) "
          "and -2 the quotient of singular values, also of matrices that are not square. Infinite for singular ones.")
      .bind(linalg)
      .also("self", "A")
      .procedure([](const Tensor& self, std::optional<Scalar> p) {
        check_matrices("linalg_cond", "A", self);
        double order = p ? p->to_double() : 2;
        if (std::fabs(order) != 2) return condition(self, order);
        check_floating("linalg_cond", self);
        if (self.numel() == SymInt(int64_t(0))) return zeros(batch_of(self.sizes()), real_of(self.dtype()));
        Tensor s = linalg_svdvals(self), largest = select(s, -1, int64_t(0)),
               smallest = select(s, -1, int64_t(-1));
        return order > 0 ? div(largest, smallest) : div(smallest, largest);
      })
      .samples({"self+[3, 3]", "self+[2, 3, 3], p=1", "self[3, 4]"});
  define("linalg_cond.str(Tensor self, str p) -> Tensor")
      .doc("The condition number by norm 'fro' or 'nuc'.")
      .bind(linalg)
      .also("self", "A")
      .procedure([](const Tensor& self, std::string_view p) { return condition(self, p); })
      .samples({"self+[3, 3], p='fro'"});
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
  define("svd_lowrank(Tensor self, int? q=6, int? niter=2, Tensor? M=None) -> (Tensor U, Tensor S, Tensor V)")
      .doc(
          "The q largest singular values of self - M and their vectors, approximately: of random directions in its range, "
          "after `niter` steps towards the largest.  Halko, Martinsson, Tropp, \"Finding structure with randomness\", 2011.")
      .also("self", "A")
      .bind(function)
      .draws()
      .procedure([](const Tensor& self, std::optional<int64_t> q, std::optional<int64_t> niter,
                    const std::optional<Tensor>& M) {
        check_matrices("svd_lowrank", "A", self);
        return largest_singular_values(M ? sub(self, *M) : self, q.value_or(6), niter.value_or(2));
      })
      .undifferenced("directions are random")
      .samples({"self[2, 0], q=0"});
  define(
      "pca_lowrank(Tensor self, int? q=None, bool center=True, int niter=2) -> (Tensor U, Tensor S, Tensor V)")
      .doc(
          "svd_lowrank of the columns without their means (as they are if not `center`): principal components.")
      .also("self", "A")
      .bind(function)
      .draws()
      .procedure([](const Tensor& self, std::optional<int64_t> q, bool center, int64_t niter) {
        check_matrices("pca_lowrank", "A", self);
        int64_t least = smaller(self.size(-2), self.size(-1)).guard_int();
        value_check(!q || (*q >= 0 && *q <= least), "pca_lowrank")
            << "q(=" << *q << ") must be non-negative integer and not greater than min(m, n)=" << least;
        value_check(niter >= 0, "pca_lowrank") << "niter(=" << niter << ") must be non-negative integer";
        Tensor x = center ? sub(self, mean(self, {-2}, true)) : self;
        return largest_singular_values(x, q.value_or(std::min<int64_t>(6, least)), niter);
      })
      .undifferenced("directions are random")
      .samples({"self[2, 0], q=0, center=False"});
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
      .non_differentiable({1, 2})
      .undifferenced("result singular_values is one that PyTorch marks as not differentiable")
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
            << "input.size(-2) should match other.size(" << (vector || given.dim() < 2 ? -1 : -2)
            << "): input " << to_string(self.sizes()) << ", other " << to_string(given.sizes());
        std::string_view d = driver.value_or("gelsy");
        runtime_check(d == "gels" || d == "gelsy" || d == "gelsd" || d == "gelss", name)
            << "parameter `driver` should be one of (gels, gelsy, gelsd, gelss), got '" << std::string(d)
            << "'";
        Tensor b = vector ? unsqueeze(given, -1) : given;
        Dims batch_a = batch_of(self.sizes()), batch_b = batch_of(b.sizes());
        Dims batch = broadcast_sizes(name, std::vector<SymSpan>{batch_a, batch_b});
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
