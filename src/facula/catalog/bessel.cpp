// Bessel functions, incomplete gamma functions, zeta functions and orthogonal polynomials: float64 functions of the
// loop language (loop/mapped.h) under the names of PyTorch, float32 results rounded once.
#include "facula/catalog/no_derivative.h"
#include "facula/op/operands.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

namespace {

Expr wide(Expr x) { return cast(x, DType::Float64); }

Definer mapped(const char* schema, const char* doc, Expr (*f)(Expr)) {
  return define(schema)
      .doc(doc)
      .dtypes(d::floating)
      .promote(Promote::int_to_float)
      .in_place()
      .pointwise([f](Expr x) { return cast(f(wide(x)), x.dtype()); });
}
Definer bessel(const char* schema, const char* doc, Expr (*f)(Expr)) {
  return std::move(define(schema)
                       .doc(doc)
                       .dtypes(d::floating)
                       .promote(Promote::int_to_float)
                       .bind(special)
                       .pointwise([f](Expr x) { return cast(f(wide(x)), x.dtype()); })
                       .samples(unary_samples(0.1, 12)));
}
constexpr const char* kMarked = "PyTorch marks the result as not differentiable";
// The same of `x`, without a gradient, as PyTorch's.
Definer function_of_x(const char* schema, const char* doc, Expr (*f)(Expr)) {
  return std::move(define(schema)
                       .doc(doc)
                       .dtypes(d::floating)
                       .promote(Promote::int_to_float)
                       .bind(special)
                       .non_differentiable(kMarked)
                       .pointwise([f](Expr x) { return cast(f(wide(x)), x.dtype()); })
                       .samples({"x[]", "x[5](0.1, 9)", "x[2, 3, 4](0.1, 12)", "x[2, 0]"}));
}
// PyTorch has no form of two numbers.
void one_tensor(const Call& c) {
  type_check(c.at(0).tag == Tag::tensor || c.at(1).tag == Tag::tensor, c.name())
      << "expected a tensor among its operands, got two numbers" << hint("facula.tensor(2.0) is one");
}
// f of the argument and the order, both tensors or one a number.
Definer polynomial(const char* schema, const char* doc, Expr (*f)(Expr, Expr)) {
  return std::move(define(schema)
                       .doc(doc)
                       .bind(special)
                       .dtypes(d::floating)
                       .promote(Promote::int_to_float)
                       .non_differentiable(kMarked)
                       .check(one_tensor)
                       .pointwise([f](Expr x, Expr n) {
                         Expr constant = select(n > -1.0, 1.0, loop::constant(0.0, x.dtype()));
                         return select(n < 1.0, constant, cast(f(wide(x), wide(n)), x.dtype()));
                       })
                       .samples({"x[3, 4], n[4](0, 9)", "x[5], n=3", "x[], n[](0, 12)", "x[2, 0], n[1]",
                                 "x=0.5, n[5](-2, 9)"}));
}
// d/dx of P(a, x).
Tensor gamma_density(const Vjp& v) {
  Tensor a = v["self"], x = v["other"];
  return mul(v.grad(), exp(sub(sub(mul(sub(a, 1), log(x)), x), lgamma(a))));
}
// The gradient for x is the density, of the upper function its opposite.
Definer incomplete_gamma(const char* schema, const char* doc, Expr (*f)(Expr, Expr), bool upper) {
  return define(schema)
      .doc(doc)
      .dtypes(d::floating)
      .in_place()
      .pointwise([f](Expr a, Expr x) { return cast(f(wide(a), wide(x)), a.dtype()); })
      .vjp([upper](const Vjp& v) {
        Tensor density = gamma_density(v);
        std::string of = std::string(upper ? "igammac" : "igamma") + ": input";
        return grads(catalog::no_derivative(v, "self", of), upper ? neg(density) : density);
      })
      .undifferenced("there is none for the first operand")
      .samples({"self[3, 4](0.2, 8), other[4](0.1, 9)", "self[5](0.2, 8), other[5](0.1, 9)",
                "self[](0.2, 8), other[](0.1, 9)", "self[2, 0], other[1]"});
}

}  // namespace

FACULA_FAMILY(bessel) {
  mapped("i0(Tensor self) -> Tensor",
         "Modified Bessel function of the first kind, order 0: sum (x/2)^(2k) / k!^2.", bessel_i0)
      .bind(function | method | special)
      .samples(unary_samples(0.1, 12));
  bessel("special_i0e(Tensor self) -> Tensor", "exp(-|x|) i0(x).", bessel_i0e).grad_name("SpecialI0E");
  bessel("special_i1(Tensor self) -> Tensor",
         "Modified Bessel function of the first kind, order 1: the derivative of i0.", bessel_i1);
  bessel("special_i1e(Tensor self) -> Tensor", "exp(-|x|) i1(x).", bessel_i1e).grad_name("SpecialI1E");
  bessel("special_modified_bessel_i0(Tensor self) -> Tensor",
         "Modified Bessel function of the first kind, order 0.", bessel_i0)
      .non_differentiable(kMarked);
  bessel("special_modified_bessel_i1(Tensor self) -> Tensor",
         "Modified Bessel function of the first kind, order 1.", bessel_i1)
      .non_differentiable(kMarked);
  bessel("special_modified_bessel_k0(Tensor self) -> Tensor",
         "Modified Bessel function of the second kind, order 0; NaN below 0.", bessel_k0)
      .non_differentiable(kMarked);
  bessel("special_modified_bessel_k1(Tensor self) -> Tensor",
         "Modified Bessel function of the second kind, order 1; NaN below 0.", bessel_k1)
      .non_differentiable(kMarked);
  function_of_x("special_scaled_modified_bessel_k0(Tensor x) -> Tensor", "exp(x) K0(x).", bessel_k0e);
  function_of_x("special_scaled_modified_bessel_k1(Tensor x) -> Tensor", "exp(x) K1(x).", bessel_k1e);
  bessel("special_bessel_j0(Tensor self) -> Tensor", "Bessel function of the first kind, order 0.", bessel_j0)
      .non_differentiable(kMarked);
  bessel("special_bessel_j1(Tensor self) -> Tensor", "Bessel function of the first kind, order 1.", bessel_j1)
      .non_differentiable(kMarked);
  bessel("special_bessel_y0(Tensor self) -> Tensor",
         "Bessel function of the second kind, order 0; NaN below 0.", bessel_y0)
      .non_differentiable(kMarked);
  bessel("special_bessel_y1(Tensor self) -> Tensor",
         "Bessel function of the second kind, order 1; NaN below 0.", bessel_y1)
      .non_differentiable(kMarked);
  function_of_x("special_airy_ai(Tensor x) -> Tensor",
                "Airy's function Ai: y'' = x y, vanishing at +infinity.", airy_ai);
  function_of_x("special_spherical_bessel_j0(Tensor x) -> Tensor",
                "Spherical Bessel function of the first kind, order 0: sin(x) / x, 1 at 0.",
                [](Expr x) { return select(isinf(x), 0.0, select(eq(x, 0), 1.0, sin(x) / x)); });

  incomplete_gamma("igamma(Tensor self, Tensor other) -> Tensor",
                   "Lower regularised incomplete gamma function P(self, other).  DLMF 8.2.", loop::igamma,
                   false);
  incomplete_gamma("igammac(Tensor self, Tensor other) -> Tensor",
                   "Upper regularised incomplete gamma function Q(self, other) = 1 - P.  DLMF 8.2.",
                   loop::igammac, true);
  define("special_zeta(Tensor|Scalar self, Tensor|Scalar other) -> Tensor")
      .grad_name([](const Call& c) {
        return grad_name("SpecialZeta", is_number(c["self"]) ? 1 : is_number(c["other"]) ? 2 : 0);
      })
      .doc(
          "Hurwitz's zeta function, sum (other + k)^-self over k >= 0, by the formula of Euler and Maclaurin.")
      .bind(special)
      .dtypes(d::floating)
      .promote(Promote::int_to_float)
      .check(one_tensor)
      .pointwise([](Expr s, Expr q) { return cast(hurwitz_zeta(wide(s), wide(q)), s.dtype()); })
      // Its derivative is another one of the family; the body is a series.
      .vjp([](const Vjp& v) {
        Tensor s = v["self"];
        return grads(catalog::no_derivative(v, "self", "zeta"),
                     mul(mul(v.grad(), neg(s)), special_zeta(add(s, 1), v["other"])));
      })
      .undifferenced("there is none for the first operand")
      .samples({"self[3, 4](1.5, 8), other[4](0.5, 9)", "self[5](2, 8), other=2",
                "self[](2, 8), other[](0.5, 9)", "self[2, 0], other[1]"});

  polynomial(
      "special_chebyshev_polynomial_t(Tensor|Scalar x, Tensor|Scalar n) -> Tensor",
      "Chebyshev's polynomial T_n(x): p_(n+1) = 2x p_n - p_(n-1), p_0 = 1, p_1 = x. n is rounded to zero; 0 below 0.",
      [](Expr x, Expr n) { return chebyshev_t(x, n); });
  polynomial("special_shifted_chebyshev_polynomial_t(Tensor|Scalar x, Tensor|Scalar n) -> Tensor",
             "Chebyshev's polynomial T_n(2x - 1).",
             [](Expr x, Expr n) { return chebyshev_t(x + x - 1.0, n); });
  polynomial(
      "special_chebyshev_polynomial_u(Tensor|Scalar x, Tensor|Scalar n) -> Tensor",
      "Chebyshev's polynomial U_n(x): p_(n+1) = 2x p_n - p_(n-1), p_0 = 1, p_1 = 2x. n is rounded to zero; 0 below 0.",
      [](Expr x, Expr n) { return chebyshev_u(x, n); });
  polynomial("special_shifted_chebyshev_polynomial_u(Tensor|Scalar x, Tensor|Scalar n) -> Tensor",
             "Chebyshev's polynomial U_n(2x - 1).",
             [](Expr x, Expr n) { return chebyshev_u(x + x - 1.0, n); });
  polynomial(
      "special_chebyshev_polynomial_v(Tensor|Scalar x, Tensor|Scalar n) -> Tensor",
      "Chebyshev's polynomial V_n(x): p_(n+1) = 2x p_n - p_(n-1), p_0 = 1, p_1 = 2x - 1. n is rounded to zero; 0 below 0.",
      [](Expr x, Expr n) { return chebyshev_v(x, n); });
  polynomial("special_shifted_chebyshev_polynomial_v(Tensor|Scalar x, Tensor|Scalar n) -> Tensor",
             "Chebyshev's polynomial V_n(2x - 1).",
             [](Expr x, Expr n) { return chebyshev_v(x + x - 1.0, n); });
  polynomial(
      "special_chebyshev_polynomial_w(Tensor|Scalar x, Tensor|Scalar n) -> Tensor",
      "Chebyshev's polynomial W_n(x): p_(n+1) = 2x p_n - p_(n-1), p_0 = 1, p_1 = 2x + 1. n is rounded to zero; 0 below 0.",
      [](Expr x, Expr n) { return chebyshev_w(x, n); });
  polynomial("special_shifted_chebyshev_polynomial_w(Tensor|Scalar x, Tensor|Scalar n) -> Tensor",
             "Chebyshev's polynomial W_n(2x - 1).",
             [](Expr x, Expr n) { return chebyshev_w(x + x - 1.0, n); });
  polynomial(
      "special_hermite_polynomial_h(Tensor|Scalar x, Tensor|Scalar n) -> Tensor",
      "Hermite's polynomial of the physicists: p_(n+1) = 2x p_n - 2n p_(n-1). n is rounded to zero; 0 below 0.",
      [](Expr x, Expr n) { return hermite_h(x, n); });
  polynomial(
      "special_hermite_polynomial_he(Tensor|Scalar x, Tensor|Scalar n) -> Tensor",
      "Hermite's polynomial of probability: p_(n+1) = x p_n - n p_(n-1). n is rounded to zero; 0 below 0.",
      [](Expr x, Expr n) { return hermite_he(x, n); });
  polynomial(
      "special_laguerre_polynomial_l(Tensor|Scalar x, Tensor|Scalar n) -> Tensor",
      "Laguerre's polynomial: (n + 1) p_(n+1) = (2n + 1 - x) p_n - n p_(n-1). n is rounded to zero; 0 below 0.",
      [](Expr x, Expr n) { return laguerre_l(x, n); });
  polynomial(
      "special_legendre_polynomial_p(Tensor|Scalar x, Tensor|Scalar n) -> Tensor",
      "Legendre's polynomial: (n + 1) p_(n+1) = (2n + 1) x p_n - n p_(n-1). n is rounded to zero; 0 below 0.",
      [](Expr x, Expr n) { return legendre_p(x, n); });
}
