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
}
