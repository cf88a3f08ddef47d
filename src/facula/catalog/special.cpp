// Special functions, and the direction of a number. The former are computed in float64, float32 results rounded
// once; but erfinv in its own dtype.
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "facula/op/operands.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity(), kPi = 3.14159265358979323846;

Expr wide(double v) { return constant(v, DType::Float64); }
Expr horner(Expr x, std::span<const double> c) {
  Expr y = wide(c.back());
  for (size_t k = c.size() - 1; k-- > 0;) y = y * x + c[k];
  return y;
}
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

// erfinv(x) / x - 1: polynomials in w = -log(1 - x^2), about 1 up to 4; further out the root of w, less 1, and
// polynomials in it about 3 and 5; interpolated at Chebyshev's points with 50 digits. Relative errors below 2e-17.
constexpr double kNear[] = {0.12737439368922771030,    0.24783287028621085680,     0.0042507092448249997345,
                            -0.0023763699555774917759, 0.00010012177622723854339,  0.000038201872480260131428,
                            -4.2755856948139589188e-6, -5.6522521957074111762e-7,  1.2231709894101817420e-7,
                            6.0401527428778739745e-9,  -3.0241246130071435135e-9,  1.6529917033891111278e-11,
                            6.7579729223896841656e-11, -3.6857797026723773388e-12, -1.3850104029717495783e-12,
                            1.4874664859758230209e-13, 3.3145157420537387072e-14,  -9.4168203060893974433e-15,
                            9.2527644166878894295e-16, -3.5073738603721270086e-17};
constexpr double kMiddle[] = {
    -0.1670232012717292763,     0.0016752766934001905,       0.0094455220119856672471,
    -0.0076438055700981965323,  0.0056851824181209886290,    -0.0035587940148043837013,
    0.0014837373391539749060,   -0.00014889811797442495861,  -0.00028312437423608673085,
    0.00020551670589542799736,  -0.000046460655329356205374, -0.000022873647136933115557,
    0.000021935184856161358921, -5.9457305599189233970e-6,   -1.6535835301866546525e-6,
    1.9948511023534906870e-6,   -6.4239345064362089348e-7,   -7.0529297745750533770e-8,
    1.6499634517253704992e-7,   -7.4336536021538892138e-8,   5.6425299128978004906e-10,
    1.7613812103689587789e-8,   -6.2012225005783952268e-9,   -1.4255123526444968245e-9,
    8.8404666123963024076e-10};
constexpr double kFar[] = {-0.1500935985914156581,     0.0103004648645449621,
                           -0.00013871931838014378176, -0.00021503011980500599517,
                           0.000075995278096195059876, -0.000019681771096673450892,
                           4.5260525360418061869e-6,   -9.9302626537230874615e-7,
                           2.2905275331611669417e-7,   -6.7569492403549361002e-8,
                           2.9018855109770040284e-8,   -1.5221705812200320632e-8,
                           7.8210729182761163976e-9,   -3.5220815264378495062e-9,
                           1.3163571994630887242e-9,   -3.9153545995200803812e-10,
                           6.9370001688579078938e-11,  1.9981799245948414822e-11,
                           -2.034559165415618054e-11,  4.8012226883427189655e-12};

// erfinv(x) / x less the root of w, for the tails of the normal distribution: from 6 to 9 about 7.5, to 15 about
// 12, to 28 about 21.5; interpolated as above, absolute errors below 2e-17.
constexpr double kTail[] = {-0.12680958327943830489,    0.0080902547939928645082,
                            -0.00049590731566513700517, 0.000015026852805551053115,
                            2.9821344112628185568e-6,   -9.0820241932239097015e-7,
                            1.7437505046307322475e-7,   -2.8805622943922036322e-8,
                            4.4095921276552814501e-9,   -6.4397380403786640004e-10,
                            9.1027598618887691722e-11,  -1.2541002540122468769e-11,
                            1.6743501239053169211e-12,  -2.2206682546319704965e-13,
                            3.3913735251895583041e-14,  -4.3419525032516812172e-15};
constexpr double kTailFar[] = {-0.098712832567247910505,   0.0047720037686652730183,
                               -0.00025438685526653669947, 0.000013270861725775810325,
                               -6.1283397899255066875e-7,  1.8437575492515728246e-8,
                               7.0442481990513997157e-10,  -2.1614490174622951519e-10,
                               2.922857775534726552e-11,   -3.2408111985857870816e-12,
                               3.2794943898074223112e-13,  -3.149179519261740222e-14,
                               2.9324553491531768051e-15,  -2.6540694616261855228e-16,
                               2.239835220210662031e-17,   -1.965599468159076455e-18,
                               2.4049744472010471484e-19,  -2.0493084108399175585e-20};
constexpr double kTailEnd[] = {-0.068601550089113279339,    0.0021124444145965264377,
                               -0.000073252598965981198343, 2.6338521861619732033e-6,
                               -9.5586163292269163892e-8,   3.4459868602900818999e-9,
                               -1.2158883019419770266e-10,  4.1158129190038250726e-12,
                               -1.2893197203084213306e-13,  3.42077714233100823e-15,
                               -5.1746518457374826845e-17,  -2.0858850275972625676e-18,
                               2.8802400067918662176e-19,   -2.2299964324584821335e-20,
                               1.3867591744633744899e-21,   -6.2656663065351868669e-23,
                               3.502936348358155429e-24,    -3.8719636573595223095e-25,
                               1.973021099088555309e-26};

// Evaluates in four interleaved sums, because a single sum is one long dependency chain.
Expr polynomial(Expr t, std::span<const double> c) {
  Expr square = t * t, fourth = square * square, sums[4];
  for (size_t k = c.size(); k-- > 0;) {
    Expr term = constant(c[k], t.dtype()), &sum = sums[k % 4];
    sum = sum.get() ? fma(sum, fourth, term) : term;
  }
  return fma(fma(sums[3], t, sums[2]), square, fma(sums[1], t, sums[0]));
}
// To w = 36 at least.
Expr inverse_erf_ratio(Expr w, Expr root) {
  Expr outer = select(root > 4.0, polynomial(root - 5.0, kFar), polynomial(root - 3.0, kMiddle));
  return select(w > 4.0, root - 1.0 + outer, polynomial(w - 1.0, kNear));
}
// (-1)^k (2k - 1)!! / 2^k: the series of erfcx(x) x sqrt(pi) in 1 / x^2.
constexpr double kScaledComplement[] = {1, -0.5, 0.75, -1.875, 6.5625, -29.53125, 162.421875};

// The quantile of the normal distribution, sqrt(2) erfinv(2p - 1), from the distance q of p from the nearer end.
Expr normal_quantile(Expr p) {
  Expr q = min(p, 1.0 - p), size = 1.0 - 2.0 * q;
  Expr w = -log(select(q > 0.25, fma(-size, size, wide(1)), 4.0 * q * (1.0 - q))), root = sqrt(w);
  Expr tail = select(root > 15.0, polynomial(root - 21.5, kTailEnd),
                     select(root > 9.0, polynomial(root - 12.0, kTailFar), polynomial(root - 7.5, kTail)));
  Expr y =
      select(root > 6.0, size * (root + tail), fma(size, inverse_erf_ratio(w, root), size)) * std::sqrt(2.0);
  y = select(eq(q, 0), kInfinity, y);
  return select(p < 0.5, -y, y);
}

// exp(x^2) erfc(x), the square split so that its rounding does not grow; from 26 on by the series.
Expr scaled_complement(Expr x) {
  Expr a = min(abs(x), 26.0), high = cast(cast(a, DType::Float32), DType::Float64),
       low = (a - high) * (a + high);
  Expr square = exp(high * high), near = square * (erfc(a) + erfc(a) * expm1(low));
  Expr r = 1.0 / (abs(x) * abs(x)), far = horner(r, kScaledComplement) / abs(x) / std::sqrt(kPi);
  Expr positive = select(abs(x) < 26.0, near, far);
  Expr negative = 2.0 * square * (1.0 + expm1(low)) - near;
  return select(isnan(x), x, select(x >= 0.0, positive, select(x > -26.0, negative, 2.0 * exp(x * x))));
}

// The derivative 2 x erfcx(x) - 2 / sqrt(pi), from 26 on by the series, where both cancel.
Expr scaled_complement_slope(Expr x) {
  double c[std::size(kScaledComplement)];
  for (size_t k = 0; k < std::size(c); ++k) c[k] = -double(2 * k + 1) * kScaledComplement[k] / std::sqrt(kPi);
  Expr r = 1.0 / abs(x), far = horner(r * r, c) * r * r;
  return select(x < 26.0, x * scaled_complement(x) * 2.0 - 2 / std::sqrt(kPi), select(isnan(x), x, far));
}

// log of the distribution function: below -1 by the scaled complement, as the function itself vanishes.
Expr log_normal_distribution(Expr x) {
  Expr low = min(x, -1.0), tail = log(scaled_complement(low * -std::sqrt(0.5)) * 0.5) - low * low * 0.5;
  return select(x < -1.0, tail, log1p(-ndtr(-x)));
}

// Declares a function of one number; `f` computes its float64 value.
Definer special_function(const char* schema, const char* doc, Expr (*f)(Expr), double low, double high) {
  return define(schema)
      .doc(doc)
      .dtypes(d::floating)
      .promote(Promote::int_to_float)
      .pointwise([f](Expr x) { return cast(f(cast(x, DType::Float64)), x.dtype()); })
      .samples(unary_samples(low, high));
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
      .pointwise([](const LoopCall& c, Expr x) {
        int64_t n = c.integer("n").guard_int();
        runtime_check(n >= 0, "polygamma") << "polygamma(n, x) does not support negative n, got " << n;
        Expr y = cast(x, DType::Float64);
        return cast(n == 0 ? digamma_of(y) : polygamma_of(n, y, x.dtype()), x.dtype());
      })
      .vjp(next_polygamma(0))
      .samples({"n=0, self[5](0.5, 3)", "n=1, self[3, 4](0.5, 12)", "n=3, self[](0.5, 2)", "n=2, self[0]"});
  define("erfinv(Tensor self) -> Tensor")
      .doc("The number whose error function is self; infinite at -1 and 1.")
      .dtypes(d::floating)
      .promote(Promote::int_to_float)
      .in_place()
      .pointwise([](Expr x) { return loop::erfinv(x); })
      // From the operand where the result has 16 bits; derived, it would read the result, which says too little.
      .vjp([](const Vjp& v) {
        bool rounded = compute_type(v.grad().dtype()) != v.grad().dtype();  // the result, to 16 bits
        return grads(_erfinv_backward(v.grad(), rounded ? v["self"] : v.result(), rounded));
      })
      .samples(unary_samples(-0.9, 0.9))
      .bind(function | method | special);
  define("_erfinv_backward(Tensor grad, Tensor given, bool from_operand) -> Tensor")
      .doc("The gradient of erfinv from its result, or from its operand.")
      .bind(hidden)
      .dtypes(d::floating)
      .pointwise([](const LoopCall& c, Expr g, Expr given) {
        Expr y = c.flag("from_operand") ? loop::erfinv(given) : given;
        return g * (0.88622692545275801365 * exp(y * y));
      })
      .samples({"grad[3, 4], given[3, 4](-2, 2), from_operand=False",
                "grad[3, 4], given[3, 4](-0.9, 0.9), from_operand=True"});
  special_function("_erfcx_slope(Tensor self) -> Tensor", "The derivative of special_erfcx.",
                   scaled_complement_slope, -2, 4)
      .bind(hidden)
      // Exact in terms of erfcx; the derivative of the series in the body loses digits.
      .vjp([](const Vjp& v) {
        Tensor x = v["self"];
        return grads(mul(v.grad(), add(mul(special_erfcx(x), 2), mul(mul(x, v.result()), 2))));
      });
  special_function("special_erfcx(Tensor self) -> Tensor",
                   "Scaled complementary error function, exp(self^2) erfc(self).", scaled_complement, -2, 4)
      .bind(special)
      // Uses a series where the two terms of the derivative cancel.
      .vjp([](const Vjp& v) { return grads(mul(v.grad(), _erfcx_slope(v["self"]))); });

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
  define("special_ndtr(Tensor self) -> Tensor")
      .grad_name("Mul", 1)
      .doc("The distribution function of the normal distribution.")
      .dtypes(d::floating)
      .promote(Promote::int_to_float)
      .bind(special)
      .pointwise([](Expr x) { return ndtr(x); })
      .samples(unary_samples());
  special_function("special_log_ndtr(Tensor self) -> Tensor",
                   "Logarithm of the distribution function of the normal distribution.",
                   log_normal_distribution, -6, 3)
      .bind(special)
      .vjp([](const Vjp& v) {
        // The density over the distribution function, without their common factor.
        Tensor ratio = div(std::sqrt(2 / kPi), special_erfcx(mul(v["self"], -std::sqrt(0.5))));
        return grads(mul(v.grad(), ratio));
      });
  special_function("special_ndtri(Tensor self) -> Tensor",
                   "The quantile of the normal distribution: the number whose ndtr is self.", normal_quantile,
                   0.1, 0.9)
      .bind(special)
      // By the result; the body is a rational approximation.
      .vjp([](const Vjp& v) {
        Tensor y = v.result();
        return grads(mul(mul(v.grad(), std::sqrt(2 * kPi)), exp(div(mul(y, y), 2))));
      });
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
