// Norms of vectors along dimensions, and divisions by them.
#include <cmath>

#include "facula/catalog/reduce_helpers.h"
#include "facula/catalog/selected.h"
#include "facula/catalog/widened.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
using catalog::is_rounded;
using catalog::put_back;
namespace d = facula::dtypes;
using namespace facula::catalog::reduce_helpers;

namespace {
// The gradient of a norm from the gradient g of the norm y of x, both with kept dimensions. `divided_first`: divides before it
// multiplies, because 1 / y would overflow for a subnormal y, in 16-bit dtypes or where y is the size of one element.
Tensor gradient_of_norm(const Tensor& x, const Tensor& y, const Tensor& g, double order, bool divided_first,
                        const Ints& dims) {
  if (order == 0) return Tensor();
  if (order == 1) return mul(g, sgn(x));
  auto unless_zero = [](const Tensor& t, const Tensor& value) {
    return where(eq(t, 0), zeros_like(value), value);
  };
  // g over f(y), 0 at y = 0; what is not taken there is no division by 0 either, nor is its derivative.
  auto quotient = [&](auto&& f) { return unless_zero(y, div(g, f(where(eq(y, 0), ones_like(y), y)))); };
  if (order == 2)
    return divided_first ? mul(g, unless_zero(y, div(x, where(eq(y, 0), ones_like(y), y))))
                         : mul(x, quotient([](const Tensor& t) { return t; }));
  if (std::isinf(order)) {
    Tensor mask = eq(abs(x), y);
    return mul(sgn(x), where(mask, div(g, to_dtype(sum(mask, dims, true), g.dtype())), zeros_like(g)));
  }
  // The powers are those of PyTorch, so that what overflows and what vanishes does so there too.
  if (order < 1) return mul(mul(sgn(x), unless_zero(x, pow(abs(x), order - 1))), mul(g, pow(y, 1 - order)));
  Tensor scaled = order < 2 ? mul(sgn(x), pow(abs(x), order - 1)) : mul(x, pow(abs(x), order - 2));
  return mul(scaled, quotient([&](const Tensor& t) { return pow(t, order - 1); }));
}
// The part of the gradient of unit = x / bounded that comes through the length of x; 0 where the length is below eps.
Tensor gradient_by_length(const Tensor& g, const Tensor& x, const Tensor& unit, const Tensor& length,
                          const Tensor& bounded, double p, SymSpan dim, double eps) {
  Ints dims;
  for (auto k : dim) dims.push_back(wrap_dim("normalize", k.guard_int(), x.dim()));
  Tensor along = mul(g, conj_physical(unit));
  Tensor of_length = neg(div(sum(is_complex(along.dtype()) ? _real(along) : along, dims, true), bounded));
  if (eps >= 0) of_length = where(lt(length, eps), zeros_like(of_length), of_length);
  Tensor result = gradient_of_norm(x, length, of_length, p, is_rounded(x), dims);
  return result.defined() ? result : zeros_like(x);
}
Tensor self_or_unsqueezed(const Vjp& v) {
  return v.call().rank("self") ? unsqueeze(v.grad(), v.call().dim("dim")) : v.grad();
}
}  // namespace

FACULA_FAMILY(vector_norm) {
  define("norm.str(Tensor self, str p, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor")
      .doc("p = 'fro': the 2-norm over `dim`; p = 'nuc': the sum of singular values.")
      .procedure([](const Call& c, const Tensor& self, std::string_view p, Sizes dim, bool keepdim) {
        runtime_check(p == "fro" || p == "nuc", "norm")
            << "p must be a number, 'fro' or 'nuc', got '" << p << "'";
        if (p == "nuc") {
          Dims both;
          for (int64_t k = 0; dim.is_none() && k < self.dim(); ++k) both.push_back(SymInt(k));
          if (!dim.is_none()) both = Dims(SymSpan(dim.begin(), dim.size()));
          return linalg_matrix_norm(self, p, both, keepdim, c.maybe_dtype("dtype"));
        }
        return norm(self, std::optional<Scalar>(Scalar(2.0)), dim, keepdim, c.maybe_dtype("dtype"));
      })
      .samples({"self[3, 4], p='fro'", "self[3, 4], p='fro', dim=[1]"});
  define(
      "norm(Tensor self, Scalar? p=2, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor")
      .doc("The p-norm over `dim`: (sum |x|^p)^(1/p); p = inf, -inf and 0 are the limits.")
      .grad_name("LinalgVectorNorm")
      .composite([](const Call& c, const Tensor& self, std::optional<Scalar> p, Sizes dim, bool keepdim,
                    std::optional<DType> dtype) {
        runtime_check(!dtype || !is_complex(*dtype) || is_complex(self.dtype()), "norm")
            << "dtype should be real for real inputs, but got " << *dtype;
        Tensor x = dtype ? to_dtype(self, *dtype) : self;
        runtime_check(is_differentiable(x.dtype()), "norm")
            << "expected a floating point or complex tensor, got " << x.dtype() << hint("x.float().norm()");
        runtime_check(!p || p->category() != Category::complex, "norm")
            << "expected a non-complex number as the order of the norm, got " << *p;
        double order = p ? p->to_double() : 2;
        Tensor magnitude = abs(x);
        if (order && reduced_count(x.sizes(), c.dims("dim")) == SymInt(int64_t(1)))
          order = 1;  // without overflow
        if (order == 2) {
          Tensor total = sum(is_complex(x.dtype()) ? mul(magnitude, magnitude) : mul(x, x), dim, keepdim);
          return sqrt(total);
        }
        if (order == 1) return sum(magnitude, dim, keepdim);
        if (std::isinf(order)) {
          Sizes all = dim.is_none() ? Sizes() : dim;
          return order > 0 ? amax(magnitude, all, keepdim) : amin(magnitude, all, keepdim);
        }
        if (order == 0) return sum(to_dtype(ne(x, 0), magnitude.dtype()), dim, keepdim);
        if (order < 0) check_not_empty(c, "a norm of negative order");
        return pow(sum(pow(magnitude, order), dim, keepdim), 1 / order);
      })
      // 0 at 0, and by the powers that PyTorch takes, which say what overflows.
      .vjp([](const Vjp& v) {
        auto& c = v.call();
        Tensor x = v["self"], y = put_back(v, v.result()), g = put_back(v, v.grad());
        double order = c.has("p") ? c.real("p") : 2;
        bool one = reduced_count(x.sizes(), c.dims("dim")) == SymInt(int64_t(1));
        return grads(
            gradient_of_norm(x, y, g, order, one || compute_type(x.dtype()) != x.dtype(), c.dims("dim")));
      })
      .samples(reduction_samples());
  define("_normalize(Tensor self, float p, int[1] dim, float eps) -> Tensor")
      .check(fitting({"eps"}))
      .python("normalize(input, p=2.0, dim=1, eps=1e-12, out=None)")
      .converting_out()
      .doc("self over its p-norm along `dim`, or over eps if that is larger.")
      .grad_name("Div")
      .bind(hidden)
      .dtypes(d::floating | d::complex)
      .composite([](const Tensor& self, double p, SymSpan dim, double eps) {
        return div(self, clamp_min(norm(self, std::optional<Scalar>(p), dim, true), eps));
      })
      .samples({"self[3, 4], p=2.0, dim=[1], eps=1e-12", "self[2, 3, 2], p=3.0, dim=[0, 2], eps=1e-12"});
  define("_cosine_similarity(Tensor self, Tensor other, int dim, float eps) -> Tensor")
      .doc("The product along `dim` of self and other, each over its length or over eps if that is larger.")
      .grad_name("Sum", 1)
      .bind(hidden)
      .dtypes(d::floating | d::complex)
      .composite([](const Tensor& self, const Tensor& other, int64_t dim, double eps) {
        auto unit = [&](const Tensor& x) {
          return div(x, clamp_min(norm(x, std::optional<Scalar>(2.0), Sizes{dim}, true), eps));
        };
        return sum(mul(unit(self), unit(other)), Sizes{dim});
      })
      // Like PyTorch's gradient, this includes the part through the lengths where eps bounds them.
      .vjp([](const Vjp& v) {
        auto& c = v.call();
        Tensor g = self_or_unsqueezed(v), a = v["self"], b = v["other"];
        auto of = [&](const char* one, const Tensor& x, const Tensor& y) {
          return v.needs(one) ? _cosine_similarity_backward(g, x, y, c.dim("dim"), c.real("eps")) : Tensor();
        };
        return grads(of("self", a, b), of("other", b, a));
      })
      .samples({"self[3, 4], other[3, 4], dim=1, eps=1e-08"});
  define("_cosine_similarity_backward(Tensor grad, Tensor self, Tensor other, int dim, float eps) -> Tensor")
      .doc("The gradient of _cosine_similarity for self, of a grad with `dim`; eps does not stop it.")
      .bind(hidden)
      .dtypes(d::floating | d::complex)
      .composite([](const Tensor& grad, const Tensor& x, const Tensor& y, int64_t dim, double eps) {
        auto length_of = [&](const Tensor& t) {
          return norm(t, std::optional<Scalar>(2.0), Sizes{dim}, true);
        };
        Tensor length = length_of(x), bounded = clamp_min(length, eps);
        Tensor g = mul(grad, conj_physical(div(y, clamp_min(length_of(y), eps))));
        return add(div(g, bounded),
                   gradient_by_length(g, x, div(x, bounded), length, bounded, 2, Sizes{dim}, -1));
      })
      .samples({"grad[3, 1], self[3, 4], other[3, 4], dim=1, eps=1e-08"});
  define("renorm(Tensor self, Scalar p, int dim, Scalar maxnorm) -> Tensor")
      .doc("self with each slice along `dim` whose p-norm is above maxnorm scaled down to it.")
      .dtypes(d::floating | d::complex)
      .in_place()
      .composite([](const Tensor& self, const Scalar& p, int64_t dim, const Scalar& maxnorm) {
        runtime_check(p.category() != Category::complex && maxnorm.category() != Category::complex, "renorm")
            << "p and maxnorm must be real-valued";
        runtime_check(p.to_double() > 0, "renorm") << "non-positive norm not supported, got p = " << p;
        runtime_check(maxnorm.to_double() >= 0, "renorm")
            << "expected maxnorm to be >= 0 but got " << maxnorm;
        runtime_check(self.dim() > 1, "renorm")
            << "input needs at least 2 dimensions, got shape " << to_string(self.sizes());
        int k = wrap_dim("renorm", dim, self.dim());
        Ints others;
        for (int j = 0; j < self.dim(); ++j)
          if (j != k) others.push_back(j);
        supported_check(is_differentiable(self.dtype()), "renorm")
            << "expected a floating point or complex tensor, got " << self.dtype() << hint("x.float()");
        Tensor length = linalg_vector_norm(self, p, others, true, compute_type(self.dtype())),
               above = gt(length, maxnorm.to_double());
        // A slice that is short enough, or NaN, is unchanged, and so is its gradient.
        Tensor scale = where(above, div(mul(ones_like(length), maxnorm.to_double()), add(length, 1e-7)),
                             ones_like(length));
        return mul(self, to_dtype(scale, self.dtype()));
      })
      // In float64, as PyTorch's; what is not scaled takes no part.
      .vjp([](const Vjp& v) {
        auto& c = v.call();
        Tensor x = v["self"], g = v.grad();
        Ints others;
        for (int j = 0; j < x.dim(); ++j)
          if (j != c.dim("dim")) others.push_back(j);
        Scalar p = c.number("p");
        double limit = c.number("maxnorm").to_double();
        // In float64, as in PyTorch, whose forward keeps to float32.
        DType wide = x.dtype() == DType::Float32 ? DType::Float64 : compute_type(x.dtype());
        Tensor length = linalg_vector_norm(x, p, others, true, wide), inverse = reciprocal(add(length, 1e-7));
        Tensor along = mul(conj_physical(x), g);
        along = sum(to_dtype(is_complex(x.dtype()) ? _real(along) : along, length.dtype()), others, true);
        Tensor turned = gradient_of_norm(x, length, along, p.to_double(), false, others);
        Tensor scaled = mul(mul(inverse, limit), sub(g, mul(inverse, turned)));
        return grads(where(gt(length, limit), to_dtype(scaled, g.dtype()), g));
      })
      .samples({"self[3, 4], p=2, dim=0, maxnorm=0.5", "self[2, 3, 2], p=1, dim=-1, maxnorm=1"});
}
