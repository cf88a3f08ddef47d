// Products of vectors and tensors: outer, cross, Kronecker, contractions, powers.
#include "facula/autograd/calls.h"
#include "facula/base/warning.h"
#include "facula/catalog/calculus_helpers.h"
#include "facula/catalog/matrices.h"
#include "facula/catalog/running.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"
#include "facula/tensor/promotion.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;
using namespace facula::catalog::calculus_helpers;

namespace {
constexpr int64_t kMostPowers = 4;  // that a lane takes
                                    // that a lane takes

// [*, n] to [*, n, count]: powers 0, 1, ... of each element.
Tensor powers(const Tensor& x, SymInt count) {
  Dims sizes(x.sizes());
  sizes.push_back(count);
  Tensor each = unsqueeze(x, -1);
  SymInt one = int64_t(1);
  if (count == SymInt(int64_t(0)))
    return zeros(sizes, is_differentiable(x.dtype()) ? x.dtype() : DType::Int64);
  if (is_differentiable(x.dtype()) && !count.is_symbolic() && count.concrete() > 1 &&
      count.concrete() <= kMostPowers)
    return reshape(_powers_in_rows(reshape(x, Dims{SymInt(int64_t(-1))}), count.concrete()), sizes);
  Tensor ones = full(each.sizes(), 1, is_differentiable(x.dtype()) ? x.dtype() : DType::Int64);
  if (count == one) return ones;
  sizes.back() = count - one;
  return cat(std::vector<Tensor>{ones, cumprod(expand(each, sizes), -1)}, -1);
}
// ---- vector products
// Component `k` of the vector product whose operands' components `load` tells. `sub` has a factor, which makes NaN of complex
// infinities.
template <class F>
Expr component_of_product(Expr k, F&& load) {
  auto component = [&](int64_t k) {
    auto at = [&](const char* vector, int64_t by) {
      return load(vector, loop::constant(Scalar((k + by) % 3), DType::Int64));
    };
    return at("self", 1) * at("other", 2) - at("self", 2) * at("other", 1);
  };
  return select(k < Scalar(int64_t(1)), component(0),
                select(k < Scalar(int64_t(2)), component(1), component(2)));
}
Tensor as_dtype(const Tensor& x, DType t) { return x.dtype() == t ? x : to_dtype(x, t); }
}  // namespace

FACULA_FAMILY(tensor_product) {
  define("_addr(Tensor self, Tensor vec1, Tensor vec2, *, Scalar beta=1, Scalar alpha=1) -> Tensor")
      .doc("beta * self + alpha * vec1 * vec2; beta = 0 ignores self.")
      .bind(hidden)
      .in_place()
      .pointwise([](Expr self, Expr a, Expr b, Expr beta, Expr alpha) {
        Expr none = constant(Scalar(int64_t(0)), self.dtype());
        return select(eq(beta, none), none, beta * self) + alpha * a * b;
      })
      .vjp(catalog::matrices::gradients_of_sum_with_product)
      .samples({"self[3, 4], vec1[3, 1], vec2[1, 4], alpha=2"});
  define("addr(Tensor self, Tensor vec1, Tensor vec2, *, Scalar beta=1, Scalar alpha=1) -> Tensor")
      .converting_out()
      .doc("beta * self + alpha * the outer product of two vectors; beta = 0 ignores self.")
      .in_place()
      .procedure([](const Call& c, const Tensor& self, const Tensor& vec1, const Tensor& vec2) {
        runtime_check(vec1.dim() == 1 && vec2.dim() == 1, "addr")
            << "expected 1-D vec1 and vec2, got shapes " << to_string(vec1.sizes()) << " and "
            << to_string(vec2.sizes());
        Dims sizes{vec1.size(0), vec2.size(0)};
        runtime_check(broadcasts_to(self.sizes(), sizes), "addr")
            << "self of shape " << to_string(self.sizes())
            << " does not broadcast to the outer product's shape " << to_string(SymSpan(sizes));
        Promotion p;
        for (auto* t : {&self, &vec1, &vec2}) p.add(*t);
        DType t = p.result();
        auto check = [&](const char* name) {
          if (c[name].tag == Tag::integer) return;
          Scalar x = c.number(name);
          runtime_check(x.category() != Category::boolean || t == DType::Bool, "addr")
              << "Boolean " << name << " only supported for Boolean results, got " << t;
          runtime_check(is_differentiable(t) || x.category() <= Category::integral, "addr")
              << "For integral input tensors, argument " << name
              << " must not be a floating point number, got " << x;
        };
        check("beta"), check("alpha");
        return autograd::invoke("_addr",
                                {self, unsqueeze(vec1, 1), unsqueeze(vec2, 0), c["beta"], c["alpha"]});
      })
      .check(fitting({"beta", "alpha"}))
      .samples({"self[3, 4], vec1[3], vec2[4]", "self[4], vec1[3], vec2[4], beta=0, alpha=2"});
  define("_powers_in_rows(Tensor self, int count) -> Tensor")
      .doc("Powers 0 to count - 1 of each element of a vector, one after another.")
      .bind(hidden)
      .dtypes(d::floating | d::complex)
      .shape([](const Call& c) { return Dims{c.size("self", 0) * SymInt(c.integer("count"))}; })
      .loop([](const LoopCall& c, Index i) {
        DType d = c.dtype("self"), t = catalog::running_type(d);
        int64_t count = c.integer("count").concrete();
        // Lanes take as many neighbours as an element has powers, for which `at` is a number.
        Expr row = floordiv(i[0], Scalar(count)), at = remainder(i[0], Scalar(count));
        Expr x = cast(c.load("self", {row}), t), power = constant(Scalar(int64_t(1)), t);
        for (int64_t k = 1; k < count; ++k) power = select(at < Scalar(k), power, k == 1 ? x : power * x);
        return cast(power, compute_type(d));
      })
      .samples({"self[5], count=4", "self[0], count=2"});
  define("_cross(Tensor self, Tensor other, int dim) -> Tensor")
      .doc("The vector product along `dim`, of size 3, of tensors of one shape.")
      .grad_name("LinalgCross")
      .bind(hidden)
      .dtypes(d::numeric)
      .composite([](const Tensor& self, const Tensor& other, int64_t dim) {
        int k = wrap_dim("linalg_cross", dim, self.dim());
        SymInt before = int64_t(1), behind = int64_t(1), three = int64_t(3);
        for (int j = 0; j < self.dim(); ++j)
          if (j != k) (j < k ? before : behind) = (j < k ? before : behind) * self.size(j);
        bool in_rows = k == self.dim() - 1 && !is_complex(self.dtype());
        Dims sizes = in_rows ? Dims{before, three} : Dims{before, three, behind};
        return reshape(_cross_of_rows(reshape(self, sizes), reshape(other, sizes)), Dims(self.sizes()));
      })
      // Again vector products; derived, a scatter where the size that is 3 has no number.
      .vjp([](const Vjp& v) {
        int64_t k = v.call().dim("dim");
        Grads out(2);
        if (v.needs("self")) out[0] = _cross(conjugate(v["other"]), v.grad(), k);
        if (v.needs("other")) out[1] = _cross(v.grad(), conjugate(v["self"]), k);
        return out;
      })
      .samples({"self[2, 3], other[2, 3], dim=1", "self[3, 2], other[3, 2], dim=0"});
  define("_cross_of_rows(Tensor self, Tensor other) -> Tensor")
      .doc(
          "The vector products of the rows of [n, 3], one after another, or along the second dimension of [m, 3, n].")
      .bind(hidden)
      .dtypes(d::numeric)
      .shape([](const Call& c) {
        return c.rank("self") == 2 ? Dims{c.size("self", 0) * SymInt(int64_t(3))} : Dims(c.sizes("self"));
      })
      .loop([](const LoopCall& c, Index i) {
        if (c.rank("self") == 3)
          return component_of_product(i[1], [&](const char* vector, Expr k) {
            return c.load(vector, {i[0], k, i[2]});
          });
        Expr row =
            floordiv(i[0], Scalar(int64_t(3)));  // a lane takes a row, for which the component is a number
        return component_of_product(remainder(i[0], Scalar(int64_t(3))),
                                    [&](const char* vector, Expr k) { return c.load(vector, {row, k}); });
      })
      .samples({"self[4, 3], other[4, 3]", "self[2, 3, 5], other[2, 3, 5]"});
  define("linalg_cross(Tensor self, Tensor other, *, int dim=-1) -> Tensor")
      .doc("The vector product along `dim`, which has size 3; other dimensions broadcast.")
      .bind(linalg)
      .dtypes(d::numeric)
      .composite([](const Call& c, const Tensor& self, const Tensor& other, int64_t dim) {
        runtime_check(self.dim() == other.dim(), c.name())
            << "inputs must have the same number of dimensions: " << to_string(self.sizes()) << " and "
            << to_string(other.sizes());
        int k = wrap_dim(c.name(), dim, self.dim());
        index_check(self.dim() > 0, c.name())
            << "dimension specified as " << dim << " but tensors have no dimensions";
        runtime_check(self.size(k) == SymInt(int64_t(3)) && other.size(k) == SymInt(int64_t(3)), c.name())
            << "inputs dimension " << dim << " must have length 3. Got " << to_string(self.sizes()) << " and "
            << to_string(other.sizes());
        SymSpan shapes[] = {self.sizes(), other.sizes()};
        Dims sizes = broadcast_sizes(c.name(), shapes);
        Promotion p;
        p.add(self);
        p.add(other);
        DType t = p.result();
        return _cross(as_dtype(expand(self, sizes), t), as_dtype(expand(other, sizes), t), k);
      })
      .samples({"self[2, 3], other[2, 3]", "self[3, 1], other[3, 4], dim=0"});
  define("cross(Tensor self, Tensor other, int? dim=None) -> Tensor")
      .check([](const Call& c) {
        if (!c.has("dim"))
          warn_once(
              "Using torch.cross without specifying the dim arg is deprecated.\nPlease either pass the dim explicitly or simply use "
              "torch.linalg.cross.\nThe default value of dim will change to agree with that of linalg.cross in a future release.");
      })
      .doc("The vector product along `dim`, without it along the first dimension of size 3.")
      .procedure([](const Tensor& self, const Tensor& other, std::optional<int64_t> dim) {
        if (dim) return linalg_cross(self, other, *dim);
        int k = 0;
        while (k < self.dim() && self.size(k) != SymInt(int64_t(3))) ++k;
        runtime_check(k < self.dim(), "cross")
            << "no dimension of size 3 in input of shape " << to_string(self.sizes());
        return linalg_cross(self, other, k);
      })
      .samples({"self[2, 3], other[2, 3]"});
  define("linalg_vecdot(Tensor x, Tensor y, *, int dim=-1) -> Tensor")
      .grad_name("Sum", 1)
      .autocast(Autocast::lower)
      .doc("Sums of the products along `dim`, x conjugated; other dimensions broadcast.")
      .bind(linalg)
      .composite([](const Tensor& x, const Tensor& y, int64_t dim) {
        type_check(x.dtype() == y.dtype(), "linalg.vecdot")
            << "expected x and y to have the same dtype, but got " << x.dtype() << " and " << y.dtype();
        return sum(mul(conjugate(x), y), Sizes{dim});
      })
      .samples({"x[2, 3], y[3]", "x[3, 2], y[3, 2], dim=0"});
  define("linalg_diagonal(Tensor(a) A, *, SymInt offset=0, int dim1=-2, int dim2=-1) -> Tensor(a)")
      .doc("The diagonal of the last two dimensions, or of dim1 and dim2, as the last dimension.")
      .bind(linalg)
      .forwards("diagonal")
      .samples({"A[2, 3, 4]", "A[3, 4], offset=1"});
  define("kron(Tensor self, Tensor other) -> Tensor")
      .grad_name("UnsafeView")
      .converting_out()
      .doc("The Kronecker product: each element of self times all of other, as blocks.")
      .in_parts()
      .composite([](const Tensor& self, const Tensor& other) {
        Dims left, right, sizes;
        int rank = std::max(self.dim(), other.dim());
        auto size = [&](const Tensor& t, int k) {
          return k < rank - t.dim() ? SymInt(int64_t(1)) : t.size(k - rank + t.dim());
        };
        for (int k = 0; k < rank; ++k) {
          left.push_back(size(self, k)), left.push_back(int64_t(1));
          right.push_back(int64_t(1)), right.push_back(size(other, k));
          sizes.push_back(size(self, k) * size(other, k));
        }
        return reshape(mul(reshape(self, left), reshape(other, right)), sizes);
      })
      .samples({"self[2, 3], other[3, 2]", "self[2], other[2, 1, 2]", "self[], other[2]"});
  define("tensordot(Tensor self, Tensor other, int[] dims_self, int[] dims_other) -> Tensor")
      .doc(
          "Sums of products over dims_self of self and dims_other of other, in this order; the other dimensions remain.")
      .bind(hidden)
      .procedure([](const Tensor& self, const Tensor& other, SymSpan dims_self, SymSpan dims_other) {
        runtime_check(dims_self.size() == dims_other.size(), "tensordot")
            << "both dimension lists should have same length, got " << to_string(dims_self) << " and "
            << to_string(dims_other);
        std::vector<bool> taken_a(size_t(self.dim())), taken_b(size_t(other.dim()));
        Ints kept_a, kept_b, summed_a, summed_b;
        SymInt inner = int64_t(1);
        Tensor a = self, b = other;
        for (size_t k = 0; k < dims_self.size(); ++k) {
          int i = wrap_dim("tensordot", dims_self[k].guard_int(), a.dim()),
              j = wrap_dim("tensordot", dims_other[k].guard_int(), b.dim());
          runtime_check(!taken_a[size_t(i)] && !taken_b[size_t(j)], "tensordot")
              << "a dimension appears multiple times in " << to_string(dims_self) << " or "
              << to_string(dims_other);
          taken_a[size_t(i)] = taken_b[size_t(j)] = true;
          SymInt n = a.size(i), m = b.size(j), one = int64_t(1);
          runtime_check(n == m || n == one || m == one, "tensordot")
              << "contracted dimensions need to match, but first has size " << n << " in dim " << i
              << " and second has size " << m << " in dim " << j;
          if (n == one && m != one) b = sum(b, Sizes{j}, true, b.dtype()), m = one;
          else if (m == one && n != one) a = sum(a, Sizes{i}, true, a.dtype()), n = one;
          inner *= n;
          summed_a.push_back(i), summed_b.push_back(j);
        }
        Dims sizes;
        SymInt rows = int64_t(1), columns = int64_t(1);
        for (int k = 0; k < a.dim(); ++k)
          if (!taken_a[size_t(k)]) kept_a.push_back(k), sizes.push_back(a.size(k)), rows *= a.size(k);
        for (int k = 0; k < b.dim(); ++k)
          if (!taken_b[size_t(k)]) kept_b.push_back(k), sizes.push_back(b.size(k)), columns *= b.size(k);
        for (auto k : summed_a) kept_a.push_back(k);
        for (auto k : kept_b) summed_b.push_back(k);
        return reshape(mm(reshape(permute(a, kept_a), Sizes{rows, inner}),
                          reshape(permute(b, summed_b), Sizes{inner, columns})),
                       sizes);
      })
      .samples({"self[2, 3, 4], other[4, 3, 2], dims_self=[1, 2], dims_other=[1, 0]",
                "self[3], other[3], dims_self=[0], dims_other=[0]"});
  define("linalg_vander(Tensor x, *, SymInt? N=None) -> Tensor")
      .grad_name("View")
      .doc(
          "Powers 0 to N - 1 of each element along a new last dimension; N is the size of the last one without.")
      .bind(linalg)
      .in_parts()
      .composite([](const Tensor& x, std::optional<SymInt> N) {
        runtime_check(x.dtype() != DType::Bool, "linalg.vander") << "does not support bool";
        runtime_check(x.dim() > 0 || N, "linalg.vander")
            << "without N x must have at least 1 dimension, got a 0-d tensor";
        SymInt n = N ? *N : x.size(-1);
        runtime_check(n > SymInt(int64_t(1)), "linalg.vander") << "N must be greater than 1, got " << n;
        return powers(x.dim() ? x : reshape(x, Sizes{int64_t(1)}), n);
      })
      .samples({"x[3]", "x[2, 3], N=2"});
  define("vander(Tensor x, SymInt? N=None, bool increasing=False) -> Tensor")
      .grad_name([](const Call& c) { return grad_name(c.flag("increasing") ? "View" : "Flip"); })
      .doc("Powers N - 1 to 0 of each element of a vector, rising if `increasing`.")
      .bind(function)
      .in_parts()
      .composite([](const Tensor& x, std::optional<SymInt> N, bool increasing) {
        runtime_check(x.dim() == 1, "vander")
            << "x must be a one-dimensional tensor, got shape " << to_string(x.sizes());
        SymInt n = N ? *N : x.size(0);
        runtime_check(!(n < SymInt(int64_t(0))), "vander") << "N must be non-negative, got " << n;
        Tensor rising = powers(x, n);
        return increasing ? rising : flip(rising, Sizes{int64_t(1)});
      })
      .samples({"x[3]", "x[3], N=2, increasing=True"});
}
