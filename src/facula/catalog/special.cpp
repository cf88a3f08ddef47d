// Special functions, and the direction of a number. The former are computed in float64, float32 results rounded
// once; but erfinv in its own dtype.
#include <cmath>
#include <span>
#include <vector>

#include "facula/catalog/special_helpers.h"
#include "facula/op/operands.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;
using namespace facula::catalog::special_helpers;

namespace {
Expr is_whole(Expr x) { return eq(x, floor(x)); }
// sin(pi x) and cos(pi x) / sin(pi x), exact where x is whole: the nearest integer is taken off first.
Expr sine_of_pi(Expr x) {
  Expr n = loop::round(x), s = sin((x - n) * kPi);
  return select(eq(remainder(n, 2.0), wide(0)), s, -s);
}
// Exact at halves too: beyond a quarter by the tangent of what is left.
Expr cotangent_of_pi(Expr x) {
  Expr f = x - loop::round(x), a = abs(f), far = a > 0.25, r = select(far, 0.5 - a, a) * kPi;
  return copysign(select(far, sin(r) / cos(r), cos(r) / sin(r)), f);
}
// B(2k) / (2k (2k - 1)): Stirling's series in 1 / x.
constexpr double kStirling[] = {0.083333333333333333333,   -0.0027777777777777777778,
                                0.00079365079365079365079, -0.0005952380952380952381,
                                0.00084175084175084175084, -0.0019175269175269175269,
                                0.0064102564102564102564,  -0.02955065359477124183,
                                0.17964437236883057316};
// B(2k) / 2k: the series of digamma in 1 / x^2.
constexpr double kDigamma[] = {0.083333333333333333333,   -0.0083333333333333333333, 0.003968253968253968254,
                               -0.0041666666666666666667, 0.0075757575757575757576,  -0.021092796092796092796,
                               0.083333333333333333333,   -0.44325980392156862745,   3.0539543302701197438};
// B(2k) / (2k)!: the correction terms of Euler and Maclaurin.
constexpr double kEulerMaclaurin[] = {0.083333333333333333333,    -0.0013888888888888888889,
                                      0.000033068783068783068783, -8.2671957671957671958e-7,
                                      2.0876756987868098979e-8,   -5.2841901386874931848e-10,
                                      1.3382536530684678833e-11,  -3.3896802963225828668e-13,
                                      8.5860620562778445641e-15};
// log(gamma(2 + t)) / t for t in [0, 1], in t - 1/2: interpolated at Chebyshev's points with 50 digits; error
// 2e-18.
constexpr double kLogGamma[] = {0.56936574094583831926,      0.26758179939880971409,
                                -0.044805842697384598592,    0.010877001514197600361,
                                -0.0030951822936174094368,   0.00096109792855204056854,
                                -0.00031505925035239632756,  0.00010710021010234953779,
                                -0.000037353369400272295337, 0.000013275711130257406302,
                                -4.78637998751422512e-6,     1.7456412754034040347e-6,
                                -6.4214174519558725911e-7,   2.3537239328440718034e-7,
                                -8.7723584247746621441e-8,   3.8720781951940832648e-8,
                                -1.4586003484400255984e-8};
// x > 0: brought to [2, 3) by gamma(x + 1) = x gamma(x), from 8 on Stirling's series.
Expr log_gamma_positive(Expr x) {
  Expr t = min(x, 8.0), factor = wide(1), divisor = wide(1);
  for (int k = 0; k < 6; ++k) {
    Expr above = t >= 3.0;
    t = select(above, t - 1.0, t);
    factor = select(above, factor * t, factor);
  }
  for (int k = 0; k < 2; ++k) {
    Expr below = t < 2.0;
    divisor = select(below, divisor * t, divisor);
    t = select(below, t + 1.0, t);
  }
  Expr near =
      (t - 2.0) * horner(t - 2.5, kLogGamma) + select(divisor < 1e-290, -log(x), log(factor / divisor));
  // Taylor's series next to the roots, where the two terms cancel.
  auto root = [&](double at, std::initializer_list<double> c) {
    Expr u = x - at;
    near = select((abs(u) < 1e-5) & ne(x, wide(at)), u * horner(u, std::span(c.begin(), c.size())), near);
  };
  root(1, {-0.57721566490153286, 0.82246703342411322, -0.40068563438653143});
  root(2, {0.42278433509846714, 0.32246703342411322, -0.067352301053198094});
  Expr r = 1.0 / max(x, 8.0), far = (max(x, 8.0) - 0.5) * log(max(x, 8.0)) - max(x, 8.0) +
                                    0.91893853320467274178 + r * horner(r * r, kStirling);
  return select(x >= 8.0, select(eq(x, wide(kInfinity)), wide(kInfinity), far), near);
}
Expr log_gamma(Expr x) {
  Expr positive = log_gamma_positive(select(x > 0.0, x, select(isnan(x), x, 1.0 - x)));
  Expr reflected = select(abs(x) < 1e-290, -log(abs(x)), log(kPi / abs(sine_of_pi(x))) - positive);
  Expr negative = select(is_whole(x), wide(kInfinity), reflected);
  return select(isinf(x), wide(kInfinity), select((x > 0.0) | isnan(x), positive, negative));
}
// psi of a positive number, by psi(x) = psi(x + 1) - 1 / x up to 10.
Expr digamma_positive(Expr x) {
  Expr t = x, less = wide(0);
  for (int k = 0; k < 10; ++k) {
    Expr below = t < 10.0;
    less = select(below, less + 1.0 / t, less);
    t = select(below, t + 1.0, t);
  }
  Expr r = 1.0 / (t * t);
  return log(t) - 0.5 / t - r * horner(r, kDigamma) - less;
}
Expr digamma_of(Expr x) {
  Expr positive = digamma_positive(select(x > 0.0, x, 1.0 - x));
  Expr negative = select(is_whole(x), wide(std::nan("")), positive - kPi * cotangent_of_pi(x));
  Expr y = select(x > 0.0, positive, negative);
  return select(isnan(x), x,
                select(eq(x, wide(0)), copysign(wide(kInfinity), -x), select(eq(x, wide(kInfinity)), x, y)));
}
// Hurwitz's zeta function sum (q + k)^-s for s >= 2 and q > 0: ten terms, then the formula of Euler and
// Maclaurin.
Expr hurwitz(int64_t s, Expr q) {
  auto power = [&](Expr x, int64_t n) {
    if (n < -4 || n >= 0) return loop::pow(x, wide(double(n)));
    Expr p = x;
    for (; ++n < 0;) p = p * x;
    return 1.0 / p;
  };
  Expr total = power(q, -s), a = q;
  for (int k = 1; k < 10; ++k) {
    a = a + 1.0;
    total = total + power(a, -s);
  }
  a = a + 1.0;
  Expr tail = power(a, 1 - s) / double(s - 1) + 0.5 * power(a, -s), term = power(a, -s - 1) * double(s);
  for (size_t k = 0; k < std::size(kEulerMaclaurin); ++k) {
    tail = tail + term * kEulerMaclaurin[k];
    double n = double(s) + 2 * double(k);
    term = term * ((n + 1) * (n + 2)) / (a * a);
  }
  return total + tail;
}
// The n-th derivative of cot(pi x) by pi^n is a polynomial in the cotangent c, as that of c is -(1 + c^2).
Expr cotangent_derivative(int64_t n, Expr x) {
  std::vector<double> p{0, 1};
  for (int64_t k = 0; k < n; ++k) {
    std::vector<double> next(p.size() + 1, 0.0);
    for (size_t i = 1; i < p.size(); ++i) {
      next[i - 1] -= double(i) * p[i];
      next[i + 1] -= double(i) * p[i];
    }
    p = std::move(next);
  }
  return horner(cotangent_of_pi(x), p) * std::pow(kPi, double(n));
}
// trigamma at a pole. Negative numbers use the reflection (-1)^n psi_n(1 - x) - psi_n(x) = pi d^n/dx^n cot(pi x); like PyTorch, it
// rounds pi x to the compute dtype, so that the result is large and finite.
Expr trigamma_pole(Expr x, DType computing) {
  bool single = computing == DType::Float32;
  Expr angle = x * (single ? double(float(kPi)) : kPi);
  Expr s = sin(single ? cast(cast(angle, DType::Float32), DType::Float64) : angle);
  return (kPi * kPi) / (s * s);
}
Expr polygamma_of(int64_t n, Expr x, DType computing) {
  double factorial = std::tgamma(double(n) + 1);
  Expr pole = wide(kInfinity);
  if (n == 1) {
    Expr s = sine_of_pi(x), positive = hurwitz(2, select(x > 0.0, x, 1.0 - x));
    return select(isinf(x) & (x > 0.0), wide(0),
                  select(x > 0.0, positive,
                         select(is_whole(x) & bit_not(isinf(x)), trigamma_pole(x, computing),
                                (kPi * kPi) / (s * s) - positive)));
  }
  Expr y = hurwitz(n + 1, select(x > 0.0, x, 1.0 - x)) * (n % 2 ? factorial : -factorial);
  Expr reflected = wide(std::nan(""));  // beyond 170! everything overflows
  if (n <= 170) reflected = (n % 2 ? -y : y) - kPi * cotangent_derivative(n, x);
  Expr whole = n % 2 ? pole : -pole;
  return select(isnan(x), x,
                select(eq(x, wide(kInfinity)), wide(0),
                       select(x > 0.0, y, select(is_whole(x), whole, reflected))));
}
// The derivative of order `order` (or `n`) of digamma has the next one as its own; lgamma is the one before digamma. Derived, the series of the
// bodies would be repeated: 1.4 times the time.
VjpRule next_polygamma(int64_t order) {
  return [order](const Vjp& v) {
    auto& c = v.call();
    int64_t n = c.op().schema.index_of("n") < 0 ? order : c.integer("n").guard_int();
    return grads(mul(v.grad(), n < 0 ? digamma(v["self"]) : polygamma(n + 1, v["self"])));
  };
}
GradName logarithm_name(const char* stem) {
  return [stem](const Call& c) {
    return grad_name(stem, is_number(c["self"]) ? 1 : is_number(c["other"]) ? 2 : 0);
  };
}
// x log(y + shift), 0 where x is 0 and y is a number; so is the gradient for x where the logarithm has no value.
Definer times_logarithm(const char* schema, const char* doc, Expr (*f)(Expr), int shift) {
  return define(schema)
      .doc(doc)
      .dtypes(d::floating)
      .promote(Promote::int_to_float)
      .pointwise([f](Expr x, Expr y) {
        return select(isnan(y), y, select(eq(x, 0), constant(0.0, x.dtype()), x * f(y)));
      })
      .vjp([shift](const Vjp& v) {
        Tensor x = v["self"], y = v["other"], of_x, of_y;
        if (v.needs("self")) {
          of_x = shift ? special_xlog1py(v.grad(), y) : xlogy(v.grad(), y);
          of_x = masked_fill(of_x, logical_and(eq(x, 0), le(y, -shift)), 0.0);
        }
        if (v.needs("other")) of_y = div(mul(v.grad(), x), shift ? add(y, shift) : y);
        return grads(of_x, of_y);
      })
      .samples({"self[3, 4](0.5, 2), other[4](0.5, 2)", "self[5](0.5, 2), other=2",
                "self=1.5, other[5](0.5, 2)", "self[](0.5, 2), other[](0.5, 2)", "self[2, 0], other[1]"});
}
}  // namespace

FACULA_FAMILY(special) {
  special_function("lgamma(Tensor self) -> Tensor", "Logarithm of the absolute value of the gamma function.",
                   log_gamma, 0.2, 12)
      .in_place()
      .vjp(next_polygamma(-1));
  special_function("digamma(Tensor self) -> Tensor", "Derivative of the logarithm of the gamma function.",
                   digamma_of, 0.2, 12)
      .in_place()
      .bind(function | method | special)
      .vjp(next_polygamma(0));
  define("polygamma(int n, Tensor self) -> Tensor")
      .doc("The n-th derivative of digamma.")
      .bind(function | method | special)
      .dtypes(d::floating)
      .promote(Promote::int_to_float)
      .check([](const Call& c) {
        int64_t n = c.integer("n").guard_int();
        runtime_check(n >= 0, "polygamma") << "polygamma(n, x) does not support negative n, got " << n;
      })
      .pointwise([](const LoopCall& c, Expr x) {
        int64_t n = c.integer("n").guard_int();
        Expr y = cast(x, DType::Float64);
        return cast(n == 0 ? digamma_of(y) : polygamma_of(n, y, x.dtype()), x.dtype());
      })
      .vjp(next_polygamma(0))
      .samples({"n=0, self[5](0.5, 3)", "n=1, self[3, 4](0.5, 12)", "n=3, self[](0.5, 2)", "n=2, self[0]"});
  define("sinc(Tensor self) -> Tensor")
      .doc("sin(pi self) / (pi self), 1 at 0.")
      .dtypes(d::floating | d::complex)
      .promote(Promote::int_to_float)
      .bind(function | method | special)
      .in_place()
      .pointwise([](Expr x) {
        // Near 0 by its series, whose derivative is exact: that of the quotient is a difference of large numbers.
        Expr y = x * constant(kPi, x.dtype()), z = y * y, series = constant(1.0, x.dtype());
        for (int k = 16; k > 0; k -= 2) series = 1.0 - z * series / double(k * (k + 1));
        return select(abs(y) < 0.5, series, sin(y) / y);
      })
      .samples(unary_samples(0.2, 2));
  define("logit(Tensor self, float? eps=None) -> Tensor")
      .doc(
          "log(self / (1 - self)), of self clamped to [eps, 1 - eps] if eps is given; else NaN outside [0, 1].")
      .dtypes(d::floating)
      .promote(Promote::int_to_float)
      .bind(function | method | special)
      .in_place()
      .pointwise([](const LoopCall& c, Expr x) {
        if (c.has("eps")) {
          double eps = c.real("eps");
          Expr low = constant(eps, x.dtype()), high = 1.0 - low;
          x = select(x < low, low, select(x > high, high, x));
        }
        return log(x / (1.0 - x));
      })
      // 0 outside [eps, 1 - eps], without eps NaN outside [0, 1]; infinite at 0 and 1.
      .vjp([](const Vjp& v) {
        Tensor x = v["self"], g = v.grad();
        bool clamped = v.call().has("eps") && !(v.call().real("eps") < 0);
        Tensor low = full(Dims{}, clamped ? v.call().real("eps") : 0.0, x.dtype());
        Tensor outside = logical_or(lt(x, low), gt(x, sub(1, low)));
        // The quotient must be finite even where it is not selected, because forward mode multiplies it by 0.
        Tensor by = where(outside, 1.0, where(logical_or(eq(x, 0), eq(x, 1)), 0.0, mul(x, sub(1, x))));
        return grads(where(outside, clamped ? 0.0 : std::nan(""), div(g, by)));
      })
      .samples({"self[3, 4](0.1, 0.9)", "self[5](0.1, 0.9), eps=0.2", "self[](0.2, 0.8)", "self[2, 0]"});
  define("special_entr(Tensor self) -> Tensor")
      .doc("Entropy, -self log(self): 0 at 0, -infinity below.")
      .dtypes(d::floating)
      .promote(Promote::int_to_float)
      .bind(special)
      .pointwise([](Expr x) {
        Expr zero = constant(0.0, x.dtype());
        return select(isnan(x), x, select(x > 0.0, -x * log(x), select(eq(x, 0), zero, -kInfinity)));
      })
      // Infinite at 0 and NaN below, as in PyTorch.
      .vjp([](const Vjp& v) { return grads(mul(v.grad(), neg(add(log(v["self"]), 1)))); })
      .samples(unary_samples(0.2, 2));
  times_logarithm(
      "xlogy(Tensor|Scalar self, Tensor|Scalar other) -> Tensor", "self * log(other), 0 where self is 0.",
      [](Expr y) { return log(y); }, 0)
      .in_place()
      .grad_name(logarithm_name("Xlogy"))
      .bind(function | method | special);
  times_logarithm(
      "special_xlog1py(Tensor|Scalar self, Tensor|Scalar other) -> Tensor",
      "self * log1p(other), 0 where self is 0.", [](Expr y) { return log1p(y); }, 1)
      .grad_name(logarithm_name("SpecialXlog1Py"))
      .bind(special);
  define("mvlgamma(Tensor self, int p) -> Tensor")
      .doc(
          "Logarithm of the multivariate gamma function: p (p - 1) / 4 log(pi) + sum lgamma(self - k / 2), k below p.")
      .dtypes(d::floating)
      .promote(Promote::int_to_float)
      .converting_out()
      .in_place()
      .composite([](const Tensor& given, int64_t p) {
        runtime_check(given.dtype() != DType::Bool, "mvlgamma")
            << "expected numbers, got a bool tensor of shape " << to_string(given.sizes())
            << hint("self.to(facula.float32) takes True as 1");
        runtime_check(p >= 1, "mvlgamma") << "p has to be greater than or equal to 1, got " << p;
        Tensor self = is_differentiable(given.dtype()) ? given : to_dtype(given, default_dtype());
        Tensor steps = arange(Scalar(0.5 - 0.5 * double(p)), Scalar(0.5), Scalar(0.5), self.dtype());
        return add(sum(lgamma(add(unsqueeze(self, -1), steps)), -1),
                   double(p) * double(p - 1) * 0.25 * std::log(kPi));
      })
      .samples({"self[3, 4](2, 9), p=1", "self[5](2, 9), p=3", "self[](3, 9), p=5", "self[2, 0], p=2"});
}
