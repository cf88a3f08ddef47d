// The error function, its inverse, and the normal distribution.
#include <cmath>
#include <span>

#include "facula/catalog/special_helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;
using namespace facula::catalog::special_helpers;

namespace {
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
}  // namespace

FACULA_FAMILY(normal_distribution) {
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
}
