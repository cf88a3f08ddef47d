// Powers and the exponential of matrices, products of many, tensors as linear maps.
#include <cmath>
#include <limits>

#include "facula/catalog/matrices.h"

using namespace facula;
using namespace facula::op;
using namespace facula::catalog::matrices;

namespace {

Tensor power(const Tensor& A, int64_t n) {
  check_square("linalg_matrix_power", "A", A);
  if (n == 0) return contiguous(identity(A));
  if (n < 0) return power(linalg_inv(A), -n);
  if (n == 3) return matmul(matmul(A, A), A);
  Tensor result, square = A;
  for (; n; n >>= 1) {
    if (n & 1) result = result.defined() ? matmul(result, square) : square;
    if (n > 1) square = matmul(square, square);
  }
  return result.is_same(A) ? clone(A) : result;
}

// Whether the last step of a matrix power is a product. Powers 0, 1 and, in PyTorch, powers of two end with a copy, which converts
// to the dtype of out=.
bool by_product(const Call& c) {
  int64_t n = c.integer("n").guard_int(), size = std::abs(n);
  return n != 0 && n != 1 && (size < 4 || (size & (size - 1)));
}

// Taylor's series after scaling until |a| < 1, then squaring.
Tensor exponential(const Tensor& a) {
  if (a.numel() == SymInt(int64_t(0))) return a;
  double norm = amax(sum(abs(a), {-2})).item().to_double();
  if (!std::isfinite(norm)) return full_like(a, std::numeric_limits<double>::quiet_NaN());
  int squarings = norm > 0.5 ? std::ilogb(norm) + 2 : 0;
  Tensor x = mul(a, std::ldexp(1.0, -squarings)), term = identity(a), result = term;
  for (int k = 1; k <= 18; ++k) {
    term = mul(matmul(term, x), 1.0 / k);
    result = add(result, term);
  }
  for (int k = 0; k < squarings; ++k) result = matmul(result, result);
  return result;
}

// The best order of products by dynamic programming (Cormen et al., "Introduction to algorithms", 15.2). Of three, as
// PyTorch has it, the first two if it is all the same.
Tensor chain(const std::vector<Tensor>& m) {
  size_t n = m.size();
  std::vector<double> size;
  for (auto& t : m) size.push_back(double(t.size(0).guard_int()));
  size.push_back(double(m.back().size(1).guard_int()));
  std::vector<std::vector<double>> cost(n, std::vector<double>(n, 0));
  std::vector<std::vector<size_t>> cut(n, std::vector<size_t>(n, 0));
  for (size_t length = 1; length < n; ++length)
    for (size_t i = 0; i + length < n; ++i) {
      size_t j = i + length;
      cost[i][j] = std::numeric_limits<double>::infinity();
      for (size_t k = i; k < j; ++k) {
        double c = cost[i][k] + cost[k + 1][j] + size[i] * size[k + 1] * size[j + 1];
        if (c < cost[i][j] || (n == 3 && c == cost[i][j])) cost[i][j] = c, cut[i][j] = k;
      }
    }
  std::function<Tensor(size_t, size_t)> of = [&](size_t i, size_t j) {
    return i == j ? m[i] : mm(of(i, cut[i][j]), of(cut[i][j] + 1, j));
  };
  return of(0, n - 1);
}

Tensor multi_dot(const std::vector<Tensor>& given) {
  const char* name = "linalg.multi_dot";
  size_t n = given.size();
  runtime_check(n >= 2, name) << "expected at least 2 tensors but got " << n;
  std::vector<Tensor> m = given;
  bool row = m[0].dim() == 1, column = m[n - 1].dim() == 1;
  for (size_t k = 0; k < n; ++k) {
    bool edge = k == 0 || k == n - 1;
    runtime_check(m[k].dim() == 2 || (edge && m[k].dim() == 1), name)
        << "tensor " << k << " must be " << (edge ? "1D or " : "") << "2D but got " << m[k].dim()
        << "D, shape " << to_string(m[k].sizes());
    runtime_check(m[k].dtype() == m[0].dtype(), name)
        << "all tensors must have the same dtype, got " << m[0].dtype() << " and " << m[k].dtype()
        << " for tensor " << k;
  }
  if (row) m[0] = unsqueeze(m[0], 0);
  if (column) m[n - 1] = unsqueeze(m[n - 1], -1);
  for (size_t k = 1; k < n; ++k)
    runtime_check(m[k - 1].size(1) == m[k].size(0), name)
        << "tensors " << k - 1 << " and " << k << " with shapes " << to_string(m[k - 1].sizes()) << " and "
        << to_string(m[k].sizes()) << " cannot be multiplied";
  Tensor result = chain(m);
  if (column) result = squeeze(result, 1);
  return row ? squeeze(result, 0) : result;
}

SymInt product_of(SymSpan sizes) {
  SymInt all(int64_t(1));
  for (SymInt s : sizes) all = all * s;
  return all;
}

}  // namespace

FACULA_FAMILY(matrix_function) {
  define("linalg_matrix_power(Tensor self, int n) -> Tensor")
      .exact_out(by_product)
      .doc("A^n of each square matrix by repeated squaring; of its inverse for n < 0.")
      .bind(linalg)
      .also("self", "A")
      .procedure([](const Tensor& self, int64_t n) { return power(self, n); })
      .samples({"self+[3, 3], n=3", "self+[2, 3, 3], n=-2", "self[3, 3], n=0"});
  define("matrix_power(Tensor self, int n) -> Tensor")
      .exact_out(by_product)
      .doc("linalg.matrix_power.")
      .forwards("linalg_matrix_power")
      .samples({"self[3, 3], n=2"});
  define("linalg_matrix_exp(Tensor self) -> Tensor")
      .doc(
          "The exponential of each square matrix, the sum of A^k / k!, by scaling and squaring.  Bader, Blanes, Casas, "
          "\"Computing the matrix exponential with an optimized Taylor polynomial approximation\", 2019.")
      .bind(linalg)
      .also("self", "A")
      .dtypes(kExact | dtypes::floating)
      .shape([](const Call& c) {
        check_square(c.name(), "A", c.tensor("self"));
        return Dims(c.sizes("self"));
      })
      .library("linalg_matrix_exp")
      .batched_in_front()
      .reference([](const Tensor& self) { return exponential(self); })
      // The off-diagonal block of exp((A^H G; 0 A^H)) (Al-Mohy, Higham, "The complex step approximation to the Frechet derivative of a
      // matrix function", 2010).
      .vjp([](const Vjp& v) {
        Tensor a = adjoint_of(v["self"]), g = v.grad();
        SymInt n = a.size(-1);
        if (n == SymInt(int64_t(0))) return grads(g);
        Tensor above = cat(std::vector<Tensor>{a, g}, -1),
               below = cat(std::vector<Tensor>{zeros_like(a), a}, -1);
        Tensor e = linalg_matrix_exp(cat(std::vector<Tensor>{above, below}, -2));
        return grads(narrow(narrow(e, -2, int64_t(0), n), -1, n, n));
      })
      .samples({"self[3, 3]", "self[2, 3, 3](-4, 4)", "self[0, 0]"});
  define("matrix_exp(Tensor self) -> Tensor")
      .doc("linalg.matrix_exp.")
      .forwards("linalg_matrix_exp")
      .samples({"self[3, 3]"});
  define("linalg_multi_dot(Tensor[] tensors) -> Tensor")
      .doc(
          "The product of matrices in the order that takes the fewest multiplications; the first and the last may be vectors.")
      .bind(linalg)
      .procedure([](const std::vector<Tensor>& tensors) { return multi_dot(tensors); })
      .samples({"tensors{[2, 3], [3, 4], [4, 2]}", "tensors{[3], [3, 4], [4]}"});
  define("linalg_tensorinv(Tensor self, int ind=2) -> Tensor")
      .converting_out()
      .doc("The inverse of a tensor as the linear map from its dimensions from `ind` on to those before.")
      .bind(linalg)
      .also("self", "A")
      .procedure([](const Tensor& self, int64_t ind) {
        runtime_check(ind > 0, "linalg.tensorinv")
            << "expected a strictly positive integer for 'ind', but got " << ind;
        auto sizes = self.sizes();
        auto split = size_t(std::min<int64_t>(ind, self.dim()));
        SymSpan to = sizes.first(split), from = sizes.subspan(split);
        SymInt n = product_of(from);
        runtime_check(n == product_of(to), "linalg.tensorinv")
            << "expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got "
            << n << " != " << product_of(to) << " for shape " << to_string(sizes) << " and ind=" << ind;
        Dims result(from);
        for (SymInt s : to) result.push_back(s);
        return reshape(linalg_inv(reshape(self, Dims{n, n})), result);
      })
      .samples({"self+[3, 3], ind=1"});
  define("linalg_tensorsolve(Tensor self, Tensor other, int[]? dims=None) -> Tensor")
      .converting_out()
      .doc("X of tensordot(self, X, X.ndim) = other, after `dims` of self have moved to its end.")
      .bind(linalg)
      .also("self", "A")
      .also("other", "B")
      .procedure([](const Tensor& self, const Tensor& other, Sizes dims) {
        Tensor a = self;
        if (!dims.is_none()) {
          std::vector<int64_t> from, to;
          for (SymInt d : dims) from.push_back(d.guard_int());
          for (size_t k = 0; k < from.size(); ++k) to.push_back(self.dim() - int64_t(from.size() - k));
          a = movedim(self, from, to);
        }
        int split = std::min(other.dim(), a.dim());
        SymSpan result = a.sizes().subspan(size_t(split));
        SymInt n = product_of(result), rows = product_of(a.sizes().first(size_t(split)));
        runtime_check(n == rows, "linalg.tensorsolve")
            << "expected self to satisfy the requirement prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim]), but "
               "got "
            << n << " != " << rows << " for self " << to_string(a.sizes()) << ", other "
            << to_string(other.sizes());
        Tensor x = linalg_solve(reshape(a, Dims{n, n}), reshape(other, Dims{SymInt(int64_t(-1))}));
        return reshape(x, Dims(result));
      })
      .samples({"self+[3, 3], other[3]"});
}
