// Distances between points.
#include <cmath>

#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

namespace {

// [*, n, m] of points [*, n, width] and [*, m, width].
Tensor differences(const Tensor& a, const Tensor& b) { return sub(unsqueeze(a, -2), unsqueeze(b, -3)); }

// The gradient of the p-norm of `by` over its last dimension, with respect to `by`: 0 where the distance is 0.
Tensor slope(const Tensor& by, const Tensor& distance, const Tensor& grad, double p) {
  Tensor g = unsqueeze(grad, -1), y = unsqueeze(distance, -1), none = zeros_like(g);
  if (p == 0) return mul(zeros_like(by), g);
  auto direction = [&] { return where(isnan(by), by, sign(by)); };
  if (p == 1) return mul(g, direction());
  Tensor zero = eq(y, 0), divisor = where(zero, ones_like(y), y);
  auto unless_zero = [&](const Tensor& t) { return where(zero, zeros_like(t), t); };
  if (p == 2) return unless_zero(div(mul(by, g), divisor));
  if (std::isinf(p)) return mul(mul(g, direction()), to_dtype(eq(abs(by), y), by.dtype()));
  Tensor scale = where(zero, none, div(g, pow(divisor, p - 1)));
  if (p > 2) return unless_zero(mul(mul(by, pow(abs(by), p - 2)), scale));
  Tensor still = eq(by, 0), size = where(still, ones_like(by), abs(by));
  return where(logical_or(zero, still), zeros_like(by), mul(mul(sign(by), pow(size, p - 1)), scale));
}

// Euclidean distances by a matrix product: |a|^2 - 2 a b + |b|^2.
Tensor by_product(const Tensor& a, const Tensor& b) {
  Tensor of_a = sum(square(a), Sizes{int64_t(-1)}, true), of_b = sum(square(b), Sizes{int64_t(-1)}, true);
  Tensor left = cat(std::vector<Tensor>{mul(a, -2), of_a, ones_like(of_a)}, -1),
         right = cat(std::vector<Tensor>{b, ones_like(of_b), of_b}, -1);
  return sqrt(clamp_min(matmul(left, transpose(right, -2, -1)), Scalar(0.0)));
}

}  // namespace

FACULA_FAMILY(distance) {
  define("_cdist(Tensor x1, Tensor x2, float p, bool product) -> Tensor")
      .doc(
          "The p-norms of the differences of all pairs of points of one batch; `product` finds euclidean ones by a matrix product.")
      .bind(hidden)
      .dtypes(d::floating)
      .composite([](const Tensor& a, const Tensor& b, double p, bool product) {
        if (product) return by_product(a, b);
        return linalg_vector_norm(differences(a, b), Scalar(p), Sizes{int64_t(-1)});
      })
      // Distances computed by a product would have NaN as their derived gradient at 0; this is the gradient by differences.
      .vjp([](const Vjp& v) {
        Tensor a = v["x1"], b = v["x2"];
        Tensor by = slope(differences(a, b), v.result(), v.grad(), v.call().real("p"));
        return grads(sum(by, Sizes{int64_t(-2)}), neg(sum(by, Sizes{int64_t(-3)})));
      })
      .samples({"x1[3, 2], x2[4, 2], p=2, product=False", "x1[3, 2], x2[4, 2], p=1.5, product=False",
                "x1[2, 3, 2], x2[2, 4, 2], p=2, product=True"});
  define("_cdist_forward(Tensor x1, Tensor x2, float p=2, int? compute_mode=None) -> Tensor")
      .grad_name("Cdist")
      .doc(
          "The p-norms of the differences of all pairs of points [*, n, width] and [*, m, width]: [*, n, m]. compute_mode 1 finds euclidean ones by a matrix product, 2 does not, 0 where there are more than 25 points.")
      .autocast(Autocast::fp32)
      .bind(hidden)
      .composite([](const Tensor& x1, const Tensor& x2, double p, std::optional<int64_t> mode) {
        for (auto* x : {&x1, &x2})
          runtime_check(is_floating(x->dtype()), "cdist")
              << "only supports floating-point dtypes, got " << x->dtype();
        runtime_check(x1.dtype() == x2.dtype(), "cdist")
            << "expected x1 and x2 of one dtype, got " << x1.dtype() << " and " << x2.dtype();
        runtime_check(x1.dim() >= 2 && x2.dim() >= 2, "cdist")
            << "x1 and x2 need at least two dimensions, got shapes " << to_string(x1.sizes()) << " and "
            << to_string(x2.sizes());
        runtime_check(x1.size(-1) == x2.size(-1), "cdist")
            << "x1 and x2 must have the same number of columns: " << to_string(x1.sizes()) << " and "
            << to_string(x2.sizes());
        runtime_check(p >= 0, "cdist") << "only supports non-negative p values, got " << p;
        int64_t how = mode.value_or(0);
        runtime_check(how >= 0 && how <= 2, "cdist") << "possible modes: 0, 1, 2, but was: " << how;
        SymSpan batches[] = {x1.sizes().first(size_t(x1.dim() - 2)), x2.sizes().first(size_t(x2.dim() - 2))};
        Dims batch = broadcast_sizes("cdist", batches), one = batch, two = batch;
        one.push_back(x1.size(-2)), one.push_back(x1.size(-1));
        two.push_back(x2.size(-2)), two.push_back(x2.size(-1));
        bool many = x1.size(-2) > SymInt(int64_t(25)) || x2.size(-2) > SymInt(int64_t(25));
        return _cdist(expand(x1, one), expand(x2, two), p, p == 2 && (how == 1 || (how == 0 && many)));
      })
      .samples({"x1[3, 2], x2[4, 2]", "x1[3, 2], x2[2, 4, 2], p=1", "x1[30, 2], x2[4, 2]"});
  define("pdist(Tensor self, float p=2) -> Tensor")
      .grad_name("Pdist")
      .doc(
          "The p-norms of the differences of all pairs of rows of a matrix, in the order of an upper triangle.")
      .bind(function | nn_functional)
      .procedure([](const Tensor& self, double p) {
        runtime_check(self.dim() == 2, "pdist")
            << "only supports 2D tensors, got shape " << to_string(self.sizes());
        runtime_check(is_floating(self.dtype()), "pdist")
            << "only supports floating-point dtypes, got " << self.dtype();
        runtime_check(p >= 0, "pdist") << "only supports non-negative p values, got " << p;
        int64_t n = self.size(0).guard_int();
        if (n <= 1) return empty(Sizes{int64_t(0)}, self.dtype());
        Tensor at = triu_indices(n, n, 1);
        Tensor pairs = _cdist(unsqueeze(index_select(self, 0, select(at, 0, int64_t(0))), 1),
                              unsqueeze(index_select(self, 0, select(at, 0, int64_t(1))), 1), p, false);
        return view(pairs, Sizes{at.size(1)});
      })
      .samples({"self[4, 3]", "self[4, 3], p=1"});
}
