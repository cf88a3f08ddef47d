// Products of matrices and vectors.
#include <cctype>

#include "facula/catalog/matmul_helpers.h"
#include "facula/catalog/matrices.h"
#include "facula/catalog/no_derivative.h"
#include "facula/op/batched.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;
using namespace facula::catalog::matmul_helpers;

namespace {
// Batch dimensions broadcast against each other, then rows and columns.
Dims broadcast_product(const Call& c) {
  Tensor a = c.tensor("self"), b = c.tensor("other");
  check_product("matmul", "self", "other", a, b);
  Dims sizes = broadcast_sizes("matmul", std::vector<SymSpan>{a.sizes().first(size_t(a.dim() - 2)),
                                                              b.sizes().first(size_t(b.dim() - 2))});
  sizes.push_back(a.size(-2));
  sizes.push_back(b.size(-1));
  return sizes;
}
// The conjugate transpose of the last two dimensions; a view unless complex.
Tensor adjoint_of(const Tensor& x) {
  Tensor t = transpose(x, -2, -1);
  return is_complex(x.dtype()) ? conj_physical(t) : t;
}
// Gradients of a product of (batches of) matrices.
Grads product_gradients(const Vjp& v) {
  auto& c = v.call();
  auto& p = c.op().schema.parameters;
  const std::string &left = p[0].name, &right = p[1].name;
  auto product = [&](const Tensor& a, const Tensor& b, const std::string& of) {
    Tensor g = call(c.op(), std::vector<Value>{a, b})[0];
    return g.dim() == 2 ? g : sum_to_size(g, c.sizes(of));
  };
  return grads(v.needs(left) ? product(v.grad(), adjoint_of(v[right]), left) : Tensor(),
               v.needs(right) ? product(adjoint_of(v[left]), v.grad(), right) : Tensor());
}
Sample product_sample(const char* left, std::vector<int64_t> a, const char* right, std::vector<int64_t> b) {
  return {{{left, op::tensor(std::move(a))}, {right, op::tensor(std::move(b))}}};
}
std::string matmul_name(const Call& c) {
  int a = c.rank("self"), b = c.rank("other");
  if (a == 1 && b == 2) return grad_name("Squeeze", 4);
  if (a == 2 && b > 2) return grad_name("Clone");
  return a > 2 || b > 2 ? grad_name("UnsafeView") : "";
}
}  // namespace

FACULA_FAMILY(matmul) {
  define("mm(Tensor self, Tensor mat2) -> Tensor")
      .doc("Product of two matrices, [n, k] x [k, m] -> [n, m].")
      .autocast(Autocast::lower)
      .dtypes(d::numeric)
      .shape([](const Call& c) { return matrix_product(c, "self", "mat2"); })
      .library("mm")
      .batched([](const Batched& b) { return Results(products(b, "self", "mat2")); })
      .reference([](const LoopCall& c, Index i) {
        return inner_product(
            c, c.size("self", 1), [&](Expr k) { return c.load("self", {i[0], k}); },
            [&](Expr k) { return c.load("mat2", {k, i[1]}); });
      })
      .vjp(product_gradients)
      .samples(op::samples({product_sample("self", {5, 7}, "mat2", {7, 3}),
                            product_sample("self", {33, 65}, "mat2", {65, 40}),
                            product_sample("self", {4, 0}, "mat2", {0, 3})}));
  define("bmm(Tensor self, Tensor mat2) -> Tensor")
      .doc("Products of matrices pair by pair, [b, n, k] x [b, k, m] -> [b, n, m].")
      .autocast(Autocast::lower)
      .dtypes(d::numeric)
      .shape([](const Call& c) { return batch_product(c, "self", "mat2"); })
      .library("bmm")
      .batched([](const Batched& b) { return Results(products(b, "self", "mat2")); })
      .reference([](const LoopCall& c, Index i) {
        return inner_product(
            c, c.size("self", 2), [&](Expr k) { return c.load("self", {i[0], i[1], k}); },
            [&](Expr k) { return c.load("mat2", {i[0], k, i[2]}); });
      })
      .vjp(product_gradients)
      .samples(op::samples({product_sample("self", {3, 5, 7}, "mat2", {3, 7, 2}),
                            product_sample("self", {0, 5, 7}, "mat2", {0, 7, 2}),
                            product_sample("self", {2, 4, 0}, "mat2", {2, 0, 3})}));
  define("_matmul(Tensor self, Tensor other) -> Tensor")
      .doc(
          "Products of matrices whose batch dimensions broadcast, [..., n, k] x [..., k, m] -> [..., n, m]; both have at least 2 dimensions.")
      .grad_name([](const Call& c) {
        return grad_name(c.rank("self") == 2 && c.rank("other") == 2 ? "Mm" : "UnsafeView");
      })
      .bind(hidden)
      .dtypes(d::numeric)
      .shape(broadcast_product)
      .library("bmm")
      .batched([](const Batched& b) { return Results(products(b, "self", "other")); })
      .reference([](const LoopCall& c, Index i) {
        size_t r = i.size();
        auto at = [&](const char* arg, Expr row, Expr column) {
          auto sizes = c.sizes(arg);
          Index j = broadcast_index(Index(i.begin(), i.end() - 2), sizes.first(sizes.size() - 2));
          j.push_back(row);
          j.push_back(column);
          return c.load(arg, j);
        };
        return inner_product(
            c, c.size("self", -1), [&](Expr k) { return at("self", i[r - 2], k); },
            [&](Expr k) { return at("other", k, i[r - 1]); });
      })
      .vjp(product_gradients)
      .samples(op::samples({product_sample("self", {2, 3, 4, 5}, "other", {3, 5, 2}),
                            product_sample("self", {2, 1, 4, 5}, "other", {3, 5, 2}),
                            product_sample("self", {4, 5}, "other", {3, 5, 2})}));
  define("dot(Tensor self, Tensor tensor) -> Tensor")
      .doc("Sum of the products of two vectors.")
      .dtypes(d::numeric)
      .shape([](const Call& c) {
        Tensor a = c.tensor("self"), b = c.tensor("tensor");
        runtime_check(a.dim() == 1 && b.dim() == 1, "dot")
            << "1D tensors expected, but got shapes " << to_string(a.sizes()) << " and "
            << to_string(b.sizes());
        runtime_check(a.dtype() == b.dtype(), "dot")
            << "expected both vectors to have the same dtype, but found " << a.dtype() << " and "
            << b.dtype();
        runtime_check(a.size(0) == b.size(0), "dot")
            << "inconsistent tensor size, expected `self` and `tensor` to have the same number of elements, but got "
            << a.size(0) << " and " << b.size(0) << " elements";
        return Dims{};
      })
      .loop([](const LoopCall& c, Index) {
        return reduce(c, monoid::sum, {c.size("self", 0)},
                      [&](Index k) { return c.load("self", k) * c.load("tensor", k); });
      })
      .samples(op::samples({product_sample("self", {11}, "tensor", {11})}));
  define("mv(Tensor self, Tensor vec) -> Tensor")
      .doc("Matrix times vector, [n, k] x [k] -> [n].")
      .autocast(Autocast::as_is)
      .composite([](const Tensor& self, const Tensor& vec) {
        check_rank("mv", "self", self, 2, "a matrix");
        check_rank("mv", "vec", vec, 1, "a vector");
        check_product("mv", "self", "vec", self, vec);
        return squeeze(mm(self, unsqueeze(vec, 1)), 1);
      })
      .samples({"self[3, 4], vec[4]", "self[0, 4], vec[4]", "self[3, 0], vec[0]"});
  define("_matrix_vector(Tensor self, Tensor vec, Tensor? addend, *, Scalar beta, Scalar alpha) -> Tensor")
      .doc(
          "beta * addend + alpha * (self @ vec) for a matrix and a vector, summed and rounded once, in one sweep over the matrix.")
      .bind(hidden)
      .dtypes(d::numeric)
      .non_differentiable("addmv and its kind compute their gradient themselves")
      .shape([](const Call& c) { return Dims{c.size("self", 0)}; })
      .loop([](const LoopCall& c, Index i) {
        Expr y = inner_product(
            c, c.size("self", 1), [&](Expr k) { return c.load("self", {i[0], k}); },
            [&](Expr k) { return c.load("vec", {k}); });
        y = c.scalar("alpha", y.dtype()) * y;
        if (!c.has("addend")) return y;
        return y + c.scalar("beta", y.dtype()) * c.load("addend", broadcast_index(i, c.sizes("addend")));
      })
      .samples({"self[3, 4], vec[4], addend[3], beta=2, alpha=0.5",
                "self[3, 4], vec[4], addend=None, beta=0, alpha=1"});
  define("outer(Tensor self, Tensor vec2) -> Tensor")
      .converting_out()
      .doc("All products of the elements of two vectors, [n] x [m] -> [n, m].")
      .alias("ger")
      .procedure([](const Tensor& self, const Tensor& vec2) {
        check_rank("outer", "self", self, 1, "a vector");
        check_rank("outer", "vec2", vec2, 1, "a vector");
        return mul(unsqueeze(self, 1), vec2);
      })
      .samples({"self[3], vec2[4]", "self[0], vec2[4]"});
  define("inner(Tensor self, Tensor other) -> Tensor")
      .doc(
          "Sums of the products along the last dimensions: [*a, k] and [*b, k] -> [*a, *b]; with a 0-d tensor, the product.")
      .exact_out([](const Call& c) { return c.rank("self") && c.rank("other"); })
      .autocast([](const Call& c, DType) {  // of vectors it is dot, which is not lowered
        return c.rank("self") == 1 && c.rank("other") == 1 ? Autocast::as_is : Autocast::inherit;
      })
      .procedure([](const Tensor& self, const Tensor& other) {
        if (!self.dim() || !other.dim()) return mul(self, other);
        runtime_check(self.size(-1) == other.size(-1), "inner")
            << "the last dimension must match on both input tensors but got shapes "
            << to_string(self.sizes()) << " and " << to_string(other.sizes());
        auto rows = [](const Tensor& t) {
          return reshape(t, Sizes{product(t.sizes().first(t.sizes().size() - 1)), t.size(-1)});
        };
        Dims sizes(self.sizes().first(self.sizes().size() - 1));
        for (auto n : other.sizes().first(other.sizes().size() - 1)) sizes.push_back(n);
        return reshape(mm(rows(self), transpose(rows(other), 0, 1)), sizes);
      })
      .samples({"self[3], other[3]", "self[2, 3], other[4, 3]", "self[2, 1, 3], other[3]", "self[], other[3]",
                "self[2, 0], other[3, 0]"});
  define("matmul(Tensor self, Tensor other) -> Tensor")
      .doc("Product of vectors, matrices, or batches of matrices whose batch dimensions broadcast.")
      .grad_name(matmul_name)
      .autocast(Autocast::lower)
      .procedure([](const Tensor& self, const Tensor& other) {
        int a = self.dim(), b = other.dim();
        runtime_check(a > 0 && b > 0, "matmul") << "both arguments need to be at least 1D, but they are " << a
                                                << "D and " << b << "D" << hint("* multiplies by a number");
        check_product("matmul", "self", "other", self, other);
        if (a == 1 && b == 1) return dot(self, other);
        if (a == 2 && b == 2) return mm(self, other);
        if (a == 2 && b == 1) return mv(self, other);
        if (a == 1) return squeeze(matmul(unsqueeze(self, 0), other), -2);
        if (b == 1) return squeeze(matmul(self, unsqueeze(other, 1)), -1);
        if (b == 2) {  // one product of all rows
          SymInt rows = product(self.sizes().first(size_t(a - 1)));
          Dims sizes(self.sizes());
          sizes[size_t(a - 1)] = other.size(1);
          return reshape(mm(reshape(self, {rows, self.size(-1)}), other), sizes);
        }
        return _matmul(self, other);
      })
      .samples({"self[3], other[3]", "self[2, 3], other[3]", "self[3], other[3, 2]",
                "self[2, 3], other[3, 4]", "self[5, 2, 3], other[3]", "self[5, 1, 2, 3], other[4, 3, 2]",
                "self[0, 3], other[3, 4]", "self[2, 0], other[0, 4]", "self[33, 65], other[65, 17]"});
  define("vdot(Tensor self, Tensor other) -> Tensor")
      .doc("Sum of the products of two vectors, the first conjugated.")
      .composite([](const Tensor& self, const Tensor& other) {
        return dot(is_complex(self.dtype()) ? conj_physical(self) : self, other);
      })
      .samples({"self[5], other[5]"});
}
