#include "facula/loop/mapped.h"

#include <math.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <type_traits>

#include "facula/loop/mapped_tables.h"

// What is defined here alone: every processor that runs generated kernels has these. Without fma, which would give a lane
// other bits than a number by itself.
#pragma GCC target("avx2")

namespace facula::loop::mapped {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity(),
                 kNan = std::numeric_limits<double>::quiet_NaN(), kPi = 3.14159265358979323846,
                 kEpsilon = std::numeric_limits<double>::epsilon();

// What is said of a V is of a double, or of a few lanes side by side (GCC's vectors).
constexpr int64_t kLanes = 4;
using Lanes = double __attribute__((vector_size(8 * kLanes)));
using Mask = int64_t __attribute__((vector_size(8 * kLanes)));
template <class V>
using Whole = std::conditional_t<std::is_same_v<V, double>, uint64_t,
                                 uint64_t __attribute__((vector_size(8 * kLanes)))>;
bool any(bool c) { return c; }
bool any(const Mask& c) { return c[0] | c[1] | c[2] | c[3]; }
Lanes lanes_at(const double* x) {
  Lanes v;
  std::memcpy(&v, x, sizeof v);
  return v;
}
double size_of(double x) { return std::fabs(x); }
Lanes size_of(const Lanes& x) { return x < 0.0 ? -x : x; }

// f of a number or of each lane, where f has no lanes.
template <class F>
double each(double x, F&& f) {
  return f(x);
}
template <class F>
Lanes each(Lanes x, F&& f) {
  for (int64_t l = 0; l < kLanes; ++l) x[l] = f(x[l]);
  return x;
}

template <class V, size_t n>
V horner(V x, const double (&c)[n]) {
  V y = x * c[n - 1] + c[n - 2];
  for (size_t k = n - 2; k-- > 0;) y = y * x + c[k];
  return y;
}
// The polynomial of the piece between `low` and `high`, in the distance from their middle.
template <class V, size_t n>
V piece(V x, double low, double high, const double (&c)[n]) {
  return horner(x - (low + high) / 2, c);
}

// ---- Bessel functions near 0: power series in y = x^2 / 4 (DLMF 10.2.2, 10.8, 10.25.2, 10.31).
// From term `first` on, s^k / (k! (k + order)!) for s = 1 or -1, and for K and Y the same times psi(k + 1) + psi(k + 1 +
// order), for Y + 2 log 2, so that the logarithm beside it is that of x: there are fewer digits to cancel.
template <int terms>
struct Series {
  double c[terms];
  constexpr Series(int order, bool psi, int sign = 1, int first = 0) : c() {
    long double term = 1, h = psi ? -2 * 0.57721566490153286060651L + order : 1;
    if (psi && sign < 0) h += 2 * 0.69314718055994530941723L;
    for (int k = 0; k < first + terms; ++k) {
      if (k >= first) c[k - first] = double(term * h);
      term *= sign / static_cast<long double>((k + 1) * (k + 1 + order));
      if (psi) h += 1.0L / (k + 1) + 1.0L / (k + 1 + order);
    }
  }
};
constexpr Series<26> kI0{0, false}, kI1{1, false};                                      // enough for y <= 16
constexpr Series<11> kNearI0{0, false}, kNearI1{1, false}, kK0{0, true}, kK1{1, true};  // for y <= 1/4
constexpr Series<12> kJ0{0, false, -1, 2}, kJ1{1, false, -1, 1};                        // for y <= 1
constexpr Series<13> kY0{0, true, -1}, kY1{1, true, -1};

template <class V>
V square_quarter(V x) {
  return (x * 0.5) * (x * 0.5);
}
// sqrt(x) exp(-x) I(x), x > 8.
template <size_t n>
double scaled_far(double x, const double (&c)[2][n]) {
  double t = 1 / x;
  return t < 0.03125 ? piece(t, 0, 0.03125, c[0]) : piece(t, 0.03125, 0.125, c[1]);
}
// log(x), x positive and normal: k log 2 + 2 artanh(s) for x = (1 + f) 2^k, s = f / (2 + f), where f stands apart from what is
// far smaller.
constexpr double kArtanh[] = {2.0 / 3,  2.0 / 5,  2.0 / 7,  2.0 / 9,  2.0 / 11,
                              2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21};
template <class V>
V logarithm(V x) {
  constexpr auto one = std::bit_cast<uint64_t>(1.0), root = std::bit_cast<uint64_t>(0x1.6a09e667f3bcdp-1);
  constexpr uint64_t digits = (uint64_t(1) << 52) - 1;
  auto above = std::bit_cast<Whole<V>>(x) + (one - root);
  V k = std::bit_cast<V>((above >> 52) | 0x4330000000000000) - (0x1p52 + 1023);
  V f = std::bit_cast<V>((above & digits) + root) - 1.0, s = f / (f + 2.0), z = s * s, square = 0.5 * f * f;
  V rest = s * (square + z * horner(z, kArtanh)) + k * -1.7239444525614835e-13;
  return k * 0.6931471805601177 - ((square - rest) - f);
}

// ---- J and Y, kLeast < x < kNear, but for J also 0.
constexpr double kNear = 2, kLeast = std::numeric_limits<double>::min(), kTwoOverPi = 2 / kPi;
struct J0 {
  template <class V>
  static V near(V x) {  // the first terms by their factors, which are not small differences
    V half = x * 0.5, y = half * half;
    return (1.0 - half) * (1.0 + half) + y * y * horner(y, kJ0.c);
  }
};
struct J1 {
  template <class V>
  static V near(V x) {
    V half = x * 0.5, y = half * half;
    return half + half * y * horner(y, kJ1.c);
  }
};
struct Y0 {
  template <class V>
  static V near(V x) {
    return kTwoOverPi * (logarithm(x) * J0::near(x) - 0.5 * horner(square_quarter(x), kY0.c));
  }
};
struct Y1 {
  template <class V>
  static V near(V x) {
    V series = horner(square_quarter(x), kY1.c);
    return kTwoOverPi * (logarithm(x) * J1::near(x) - x * 0.25 * series) - kTwoOverPi / x;
  }
};

// sqrt(x) exp(x) K(x), x > 1: the piece that is wanted, of lanes all that are.
template <class V, size_t n>
V scaled_decay(V x, const double (&c)[3][n]) {
  V t = 1.0 / x, r = t;
  constexpr double cuts[] = {0, 0.125, 0.375, 1};
  for (int k = 0; k < 3; ++k) {
    auto here = (t >= cuts[k]) & (t < cuts[k + 1]);
    if (any(here)) r = here ? piece(t, cuts[k], cuts[k + 1], c[k]) : r;
  }
  return r;
}
// exp(x) f in two factors, so that it overflows only where the product does.
double grown(double x, double f) {
  if (x < 700) return std::exp(x) * f;
  double half = std::exp(x / 2);
  return half * f * half;
}
template <class V>
V k_near(int order, V x) {
  V y = square_quarter(x), l = each(x * 0.5, [](double v) { return std::log(v); });
  if (order == 0) return 0.5 * horner(y, kK0.c) - l * horner(y, kNearI0.c);
  return 1.0 / x + x * 0.5 * (l * horner(y, kNearI1.c) - 0.5 * horner(y, kK1.c));
}
// K of order 0 or 1 by exp(-x), or that times exp(x).
template <size_t n>
double k_of(int order, double x, const double (&table)[3][n], bool scaled) {
  if (std::isnan(x) || x < 0) return kNan;
  if (x == 0) return kInf;
  if (x <= 1) return k_near(order, x) * (scaled ? std::exp(x) : 1);
  if (x == kInf) return 0;
  double f = scaled_decay(x, table) / std::sqrt(x);
  return scaled ? f : x < 700 ? std::exp(-x) * f : std::exp(-x / 2) * f * std::exp(-x / 2);
}

// exp(-x) of a number with more digits than a double.
double decay(long double x) {
  double high = double(x);
  return std::exp(-high) * (1 - double(x - high));
}

// ---- Airy's function (DLMF 9.7). z, whose rounding would cost as many digits as it has, is a long double.
double airy_left(double x) {  // x >= 6; Ai(-x)
  constexpr long double turn = 6.283185307179586476925L;
  long double z = 2 * static_cast<long double>(x) * std::sqrt(static_cast<long double>(x)) / 3;
  double t = double(1 / z), angle = double(z - turn * std::nearbyint(z / turn) - turn / 8);
  double p = piece(t, 0, 0.103, kAiryCosine[0]), q = piece(t, 0, 0.103, kAirySine[0]);
  return (std::cos(angle) * p + std::sin(angle) * q * t) / std::sqrt(std::sqrt(x));
}
double airy_right(double x) {  // x >= 2
  long double z = 2 * static_cast<long double>(x) * std::sqrt(static_cast<long double>(x)) / 3;
  double t = double(1 / z);
  constexpr double cuts[] = {0, 1.0 / 16, 0.2, 0.54};
  int k = t < cuts[1] ? 0 : t < cuts[2] ? 1 : 2;
  return decay(z) * piece(t, cuts[k], cuts[k + 1], kAiryRight[k]) / std::sqrt(std::sqrt(x));
}

// ---- Incomplete gamma functions (DLMF 8.7, 8.9, 8.12).
// x/a - 1 - log(x/a), by the series of the inverse hyperbolic tangent near 0.
long double log_excess(double a, double x) {
  double mu = (x - a) / a;
  if (std::fabs(mu) > 0.01) {
    long double ratio = static_cast<long double>(x) / a;
    return ratio - 1 - std::log(ratio);
  }
  double t = mu / (2 + mu), s = t * t;
  return t * (mu - 2 * s * (1.0 / 3 + s * (0.2 + s * (1.0 / 7 + s / 9))));
}
// Gamma(a) / (sqrt(2 pi / a) (a/e)^a) for a >= 10.
double gamma_star(double a) {
  double r = 1 / (a * a);
  return std::exp(
      (1.0 / 12 -
       r * (1.0 / 360 - r * (1.0 / 1260 - r * (1.0 / 1680 - r * (1.0 / 1188 - r * 691.0 / 360360))))) /
      a);
}
// The polynomial of a piece, as `piece`, of V.
template <class V, size_t n>
V piece_of(V x, double low, double high, const double (&c)[n]) {
  V t = x - (low + high) / 2, y = t * c[n - 1] + c[n - 2];
  for (size_t k = n - 2; k-- > 0;) y = y * t + c[k];
  return y;
}
// 1 / Gamma(a + 1), 0 <= a < 10.
template <class V>
V gamma_reciprocal(V a) {
  V product = a - a + 1.0;
  for (int k = 0; k < 9; ++k) {
    product = a > 1.0 ? product * a : product;
    a = a > 1.0 ? a - 1.0 : a;
  }
  return piece_of(a, 0, 1, kGammaReciprocal[0]) / product;
}
// x^a exp(-x) / Gamma(a + 1).
double gamma_factor(double a, double x) {
  if (a < 10) {
    double power = std::pow(x, a);
    if (x < 600 && power > 1e-290 && power < 1e290) return power * std::exp(-x) * gamma_reciprocal(a);
    return std::exp(a * std::log(x) - x - std::lgamma(a + 1));
  }
  return decay(a * log_excess(a, x)) / std::sqrt(2 * kPi * a) / gamma_star(a);
}
// Lanes go on until all are done: what is added to one that is done is less than half of its last place.
template <class V>
V lower_sum(V a, V x) {
  V term = a - a + 1.0, sum = term;
  for (V k = a + 1.0; any(term > sum * (kEpsilon / 4)); k += 1.0) {
    term *= x / k;
    sum += term;
  }
  return sum;
}
double lower_series(double a, double x) { return gamma_factor(a, x) * lower_sum(a, x); }
// Legendre's continued fraction, by the algorithm of Lentz, 1976.
double upper_fraction(double a, double x) {
  double b = x + 1 - a, c = 1e300, d = 1 / b, h = d;
  for (int k = 1; k < 10000; ++k) {
    double n = -k * (k - a);
    b += 2;
    d = 1 / (n * d + b);
    c = b + n / c;
    double step = c * d;
    h *= step;
    if (std::fabs(step - 1) < kEpsilon) break;
  }
  return gamma_factor(a, x) * a * h;
}
constexpr int kUpperTerms = 32;  // x < 1.1: x^k / k! is long below the last place
struct Reciprocals {
  double of[kUpperTerms];
  constexpr Reciprocals() : of() {
    for (int k = 1; k < kUpperTerms; ++k) of[k] = 1.0 / k;
  }
};
constexpr Reciprocals kReciprocals;
// Of small x and a: 1 - x^a / Gamma(1 + a), and the other terms of the series for P.
template <class V>
V upper_sum(V a, V x) {
  V term = a - a + 1.0, sum = term - term;
  for (int k = 1; k < kUpperTerms; ++k) {
    term *= -x * kReciprocals.of[k];
    sum += term / (a + double(k));
    if (!any(size_of(term) >= size_of(sum) * (kEpsilon / 4))) break;
  }
  return sum;
}
template <class V>
V log_gamma(V a) {  // of 1 + a
  return a * piece_of(a, 0, 1.25, kLogGammaSlope[0]);
}
double upper_series(double a, double x, double log_gamma, double sum) {
  double exponent = a * std::log(x) - log_gamma;
  return -std::expm1(exponent) - std::exp(exponent) * a * sum;
}
bool by_upper_series(double a, double x) { return x < 1.1 && (x * 1.1 >= a || a < 0.5); }
bool by_lower_series(double a, double x) { return x < 1 || x < a; }
// Temme's expansion, 1979, for a > 100 and x within 0.3 a of a; of P or of Q.
double uniform(double a, double x, bool upper) {
  long double excess = log_excess(a, x);
  double eta = std::copysign(std::sqrt(2 * double(excess)), x - a), sum = 0;
  for (size_t k = std::size(kTemme); k-- > 0;) sum = sum / a + horner(eta, kTemme[k]);
  double r = decay(a * excess) / std::sqrt(2 * kPi * a) * sum, sign = upper ? 1 : -1;
  return 0.5 * std::erfc(sign * eta * std::sqrt(a / 2)) + sign * r;
}
double gamma_ratio(double a, double x, bool upper) {
  if (a < 0 || x < 0) return kNan;
  if (a == 0) return x > 0 ? !upper : kNan;
  if (x == 0) return upper;
  if (std::isinf(a)) return std::isinf(x) ? kNan : upper;
  if (std::isinf(x)) return !upper;
  if (std::isnan(a) || std::isnan(x)) return kNan;
  if (a > 1e5 && (x < a / 2 || x > 2 * a)) return (x < a) == upper;
  if (a > 100 && std::fabs(x - a) < 0.3 * a) return uniform(a, x, upper);
  if (upper && by_upper_series(a, x)) return upper_series(a, x, log_gamma(a), upper_sum(a, x));
  if (by_lower_series(a, x)) {
    double p = lower_series(a, x);
    return upper ? 1 - p : p;
  }
  double q = upper_fraction(a, x);
  return upper ? q : 1 - q;
}

// ---- Hurwitz's zeta function: ten terms and the formula of Euler and Maclaurin (DLMF 25.11.7), q > 0.
double zeta_right(double s, double q) {
  constexpr double corrections[] = {1.0 / 12,          -1.0 / 720,
                                    1.0 / 30240,       -1.0 / 1209600,
                                    1.0 / 47900160,    -691.0 / 1307674368000,
                                    1.0 / 74724249600, -3617.0 / 10670622842880000};
  double sum = 0, a = q;
  for (int k = 0; k < 10; ++k, a += 1) {
    double term = std::pow(a, -s);
    sum += term;
    if (term < sum * kEpsilon / 16) return sum;
  }
  double power = std::pow(a, -s), tail = a * power / (s - 1) + power / 2, factor = s * power / a;
  for (int k = 0; k < int(std::size(corrections)); ++k) {
    double term = corrections[k] * factor;
    tail += term;
    if (std::fabs(term) < (sum + tail) * kEpsilon / 16) break;
    factor *= (s + 2 * k + 1) / a * ((s + 2 * k + 2) / a);
  }
  return sum + tail;
}

// ---- Polynomials: p_0 = 1, p_1 = first(x), p_(k+1) = next(k, x, p_k, p_(k-1)).
template <int shift>  // the four kinds by p_1 = x, or 2x + shift
struct Chebyshev {
  template <class V>
  static V first(V x) {
    if constexpr (shift == 0) return x + x;  // -0 stays
    return x + x + double(shift);
  }
  template <class V>
  static V next(double, V x, V p, V q) {
    return (x + x) * p - q;
  }
};
struct ChebyshevT : Chebyshev<0> {
  template <class V>
  static V first(V x) {
    return x;
  }
};
struct HermiteH {
  template <class V>
  static V first(V x) {
    return x + x;
  }
  template <class V>
  static V next(double k, V x, V p, V q) {
    return (x + x) * p - 2 * k * q;
  }
};
struct BeginsWithX {
  template <class V>
  static V first(V x) {
    return x;
  }
};
struct HermiteHe : BeginsWithX {
  template <class V>
  static V next(double k, V x, V p, V q) {
    return x * p - k * q;
  }
};
struct Laguerre {
  template <class V>
  static V first(V x) {
    return 1.0 - x;
  }
  template <class V>
  static V next(double k, V x, V p, V q) {
    return ((k + k + (1.0 - x)) * p - k * q) / (k + 1);
  }
};
struct Legendre : BeginsWithX {
  template <class V>
  static V next(double k, V x, V p, V q) {
    return ((k + k + 1) * x * p - k * q) / (k + 1);
  }
};
template <class P>
double recurrence(double x, int64_t n) {
  if (n == 0) return 1;
  double before = 1, p = P::first(x);
  for (int64_t k = 1; k < n && !std::isnan(p); ++k) {
    double following = P::next(double(k), x, p, before);
    before = p;
    p = following;
  }
  return p;
}
// The order, rounded to zero; what is no number or too large counts as negative, as x86 converts it.
int64_t order(double n) { return n > -1 && n < 0x1p63 ? int64_t(n) : -1; }
bool is_odd(int64_t n) { return n % 2; }
// Above this order not by recurrences, which would take seconds an element, but by closed or asymptotic forms.
constexpr int64_t kMostSteps = int64_t(1) << 16;
// What overflows is no number: the recurrence subtracts infinities. `turns`: an odd function at a negative argument.
double far_value(double y, bool turns) { return std::isinf(y) ? kNan : turns ? -y : y; }
// Beyond [-1, 1] for large n: f(acosh |x|), and (-1)^n times that of the other side.
template <class F>
double hyperbolic(double x, int64_t n, F&& f) {
  return far_value(f(std::acosh(std::fabs(x))), x < 0 && is_odd(n));
}
// The third and fourth kind there, by cosines if `even`.
double beside(double x, int64_t n, bool even) {
  return hyperbolic(x, n, [&](double a) {
    double far = (double(n) + 0.5) * a;
    return even ? std::cosh(far) / std::cosh(a / 2) : std::sinh(far) / std::sinh(a / 2);
  });
}
// Hilb's formula with the next term of Szego's expansion in 1 / (n + 1/2); of |x| near 1 as elsewhere.
double legendre_far(double x, int64_t n) {
  double a = std::fabs(x), order = double(n) + 0.5, y;
  if (a < 1) {
    double t = std::acos(a), next = (1 - t / std::tan(t)) / (8 * t);
    y = std::sqrt(t / std::sin(t)) * (::j0(order * t) - next / order * ::j1(order * t));
  } else {
    double t = std::acosh(a), next = (t / std::tanh(t) - 1) / (8 * t);
    y = std::sqrt(t / std::sinh(t)) * (bessel_i0(order * t) + next / order * bessel_i1(order * t));
  }
  return far_value(y, x < 0 && is_odd(n));
}
// DLMF 18.15.19, two terms; the second does not count below 0, where what is finite is near 0.
double laguerre_far(double x, int64_t n) {
  double v = 4 * double(n) + 2, y = x / v, a = std::fabs(y);
  double outside = std::exp(x / 2) / std::sqrt(std::sqrt(a * (1 - y)));
  if (x < 0) {
    double t = (std::sqrt(a + a * a) + std::asinh(std::sqrt(a))) / 2;
    return far_value(outside * std::sqrt(t) * bessel_i0(v * t), false);
  }
  double t = (std::sqrt(a - a * a) + std::asin(std::sqrt(a))) / 2, ratio = a / (1 - a);
  double next = -1 / (8 * t) - (-0.125 + ratio / 4 + 5.0 / 24 * ratio * ratio) / std::sqrt(ratio);
  return far_value(outside * std::sqrt(t) * (::j0(v * t) + next / v * ::j1(v * t)), false);
}
}  // namespace

double bessel_j0(double x) { return std::fabs(x) < kNear ? J0::near(x) : ::j0(x); }
double bessel_j1(double x) { return std::fabs(x) < kNear ? J1::near(x) : ::j1(x); }
double bessel_y0(double x) { return x > kLeast && x < kNear ? Y0::near(x) : ::y0(x); }
double bessel_y1(double x) { return x > kLeast && x < kNear ? Y1::near(x) : ::y1(x); }

double bessel_i0e(double x) {
  double a = std::fabs(x);
  if (!(a > 8)) return std::exp(-a) * horner(square_quarter(a), kI0.c);
  return scaled_far(a, kScaledI0) / std::sqrt(a);
}
double bessel_i0(double x) {
  double a = std::fabs(x);
  if (!(a > 8)) return horner(square_quarter(a), kI0.c);
  return a == kInf ? kInf : grown(a, scaled_far(a, kScaledI0) / std::sqrt(a));
}
double bessel_i1e(double x) {
  double a = std::fabs(x);
  if (!(a > 8)) return x == 0 ? 0 : std::exp(-a) * (x / 2 * horner(square_quarter(a), kI1.c));
  return std::copysign(scaled_far(a, kScaledI1) / std::sqrt(a), x);
}
double bessel_i1(double x) {
  double a = std::fabs(x);
  if (!(a > 8)) return x == 0 ? 0 : x / 2 * horner(square_quarter(a), kI1.c);
  return a == kInf ? x : std::copysign(grown(a, scaled_far(a, kScaledI1) / std::sqrt(a)), x);
}
double bessel_k0(double x) { return k_of(0, x, kScaledK0, false); }
double bessel_k1(double x) { return k_of(1, x, kScaledK1, false); }
double bessel_k0e(double x) { return k_of(0, x, kScaledK0, true); }
double bessel_k1e(double x) { return k_of(1, x, kScaledK1, true); }

double airy_ai(double x) {
  if (std::isnan(x) || std::isinf(x)) return kNan;
  if (x > 200) return 0;
  if (x >= 2) return airy_right(x);
  if (x < -6) return airy_left(-x);
  double low = std::floor(x);
  return piece(x, low, low + 1, kAiry[int(low) + 6]);
}

double igamma(double a, double x) {
  double p = gamma_ratio(a, x, false);
  return p <= 0 ? 0 : p;
}
double igammac(double a, double x) {
  double q = gamma_ratio(a, x, true);
  return q <= 0 ? 0 : q;
}

double hurwitz_zeta(double s, double q) {
  if (s == 1) return kInf;
  if (s < 1 || std::isnan(q)) return kNan;
  if (q <= 0 && q == std::floor(q)) return kInf;
  if (std::isnan(s)) return kNan;
  if (q > 0) return zeta_right(s, q);
  if (s != std::floor(s)) return kNan;
  if (s > 0x1p53) return kInf;  // one of the terms is a power of what is below 1
  // Of a negative q the first terms are those of 1 - q - m, ..., -q, with the sign of (-1)^s.
  double m = std::ceil(-q), sign = std::fmod(s, 2) == 0 ? 1 : -1;
  return zeta_right(s, q + m) + sign * (zeta_right(s, 1 - q - m) - zeta_right(s, 1 - q));
}

// Within (-1, 1) by cosines and sines where n is large, as the recurrence takes n steps; at -1 and 1 exactly.
double chebyshev_t(double x, double y) {
  int64_t n = order(y);
  if (n < 0) return 0;
  if (std::fabs(x) == 1) return x > 0 || !is_odd(n) ? 1 : -1;
  if (n > 6 && std::fabs(x) < 1) return std::cos(double(n) * std::acos(x));
  if (n > kMostSteps) return hyperbolic(x, n, [&](double a) { return std::cosh(double(n) * a); });
  return recurrence<ChebyshevT>(x, n);
}
double chebyshev_u(double x, double y) {
  int64_t n = order(y);
  if (n < 0) return 0;
  if (std::fabs(x) == 1) return x > 0 || !is_odd(n) ? double(n) + 1 : -(double(n) + 1);
  if (n > 8 && std::fabs(x) < 1) {
    double sine = std::sin(std::acos(x));
    return sine == 0 ? double(n + 1) * std::cos(double(n + 1) * std::acos(x)) / x
                     : std::sin(double(n + 1) * std::acos(x)) / sine;
  }
  if (n > kMostSteps)
    return hyperbolic(x, n, [&](double a) { return std::sinh(double(n + 1) * a) / std::sinh(a); });
  return recurrence<Chebyshev<0>>(x, n);
}
double chebyshev_v(double x, double y) {
  int64_t n = order(y);
  if (n < 0) return 0;
  if (std::fabs(x) == 1) return x > 0 ? 1 : is_odd(n) ? -double(n + n + 1) : double(n + n + 1);
  if (n > 8 && std::fabs(x) < 1 && std::sin(std::acos(x) / 2) != 1)
    return std::cos((double(n) + 0.5) * std::acos(x)) / std::cos(std::acos(x) / 2);
  if (n > kMostSteps) return beside(x, n, x > 0);
  return recurrence<Chebyshev<-1>>(x, n);
}
double chebyshev_w(double x, double y) {
  int64_t n = order(y);
  if (n < 0) return 0;
  if (std::fabs(x) == 1) return x > 0 ? double(n + n + 1) : is_odd(n) ? -1 : 1;
  if (n > 8 && std::fabs(x) < 1 && std::cos(std::acos(x) / 2) != 1)
    return std::sin((double(n) + 0.5) * std::acos(x)) / std::sin(std::acos(x) / 2);
  if (n > kMostSteps) return beside(x, n, x < 0);
  return recurrence<Chebyshev<1>>(x, n);
}
double hermite_h(double x, double y) {
  int64_t n = order(y);
  return n < 0 ? 0 : recurrence<HermiteH>(x, n);
}
double hermite_he(double x, double y) {
  int64_t n = order(y);
  return n < 0 ? 0 : recurrence<HermiteHe>(x, n);
}
double laguerre_l(double x, double y) {
  int64_t n = order(y);
  if (n < 0) return 0;
  if (x == 0) return 1;
  return n > kMostSteps ? laguerre_far(x, n) : recurrence<Laguerre>(x, n);
}
double legendre_p(double x, double y) {
  int64_t n = order(y);
  if (n < 0) return 0;
  if (std::fabs(x) == 1) return x > 0 || !is_odd(n) ? 1 : -1;
  return n > kMostSteps ? legendre_far(x, n) : recurrence<Legendre>(x, n);
}

// ---- Lanes.

namespace {

constexpr double kFewSteps = 6;  // of a recurrence, whose values are right at -1 and 1 too

// The polynomials of a few lanes of low orders, side by side; false if one is of a higher order.
template <class P>
bool low_orders(double* x, const double* n) {
  Lanes v = lanes_at(x), order = lanes_at(n), p = P::first(v), before = Lanes{} + 1.0;
  if (any(order >= kFewSteps + 1)) return false;
  Lanes result = order > -1.0 ? (order < 1.0 ? before : p) : Lanes{};
  for (double k = 1; any(order >= k + 1); ++k) {
    Lanes following = P::next(k, v, p, before);
    before = p;
    p = following;
    result = order >= k + 1 ? p : result;
  }
  std::memcpy(x, &result, sizeof result);
  return true;
}
// Incomplete gamma functions of a few lanes where series give them, side by side; the others by themselves.
void gamma_ratios(double* a, const double* x, bool upper) {
  bool low[kLanes], high[kLanes], any_low = false, any_high = false;
  double all_a[2][kLanes], all_x[2][kLanes];
  for (int64_t l = 0; l < kLanes; ++l) {
    bool ordinary = a[l] > 0 && a[l] < 10 && x[l] > 1e-28;  // powers and exponentials are normal numbers
    high[l] = ordinary && upper && by_upper_series(a[l], x[l]);
    low[l] = ordinary && !high[l] && by_lower_series(a[l], x[l]);
    any_low |= low[l], any_high |= high[l];
    all_a[0][l] = low[l] ? a[l] : 1, all_x[0][l] = low[l] ? x[l] : 0.25;
    all_a[1][l] = high[l] ? a[l] : 1, all_x[1][l] = high[l] ? x[l] : 0.25;
  }
  Lanes lower, inverse, higher, slope;
  if (any_low) {
    Lanes v = lanes_at(all_a[0]);
    lower = lower_sum(v, lanes_at(all_x[0])), inverse = gamma_reciprocal(v);
  }
  if (any_high) {
    Lanes v = lanes_at(all_a[1]);
    higher = upper_sum(v, lanes_at(all_x[1])), slope = log_gamma(v);
  }
  for (int64_t l = 0; l < kLanes; ++l) {
    double y;
    if (high[l]) {
      y = upper_series(a[l], x[l], slope[l], higher[l]);
    } else if (low[l]) {
      y = std::pow(x[l], a[l]) * std::exp(-x[l]) * inverse[l] * lower[l];
      if (upper) y = 1 - y;
    } else {
      y = gamma_ratio(a[l], x[l], upper);
    }
    a[l] = y <= 0 ? 0 : y;
  }
}
// J and Y of lanes that are all near 0, `low` < x < kNear, side by side; of others by themselves.
template <class B, class F>
void oscillating(double* x, int64_t count, double low, F f) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    Lanes v = lanes_at(x + i);
    if (any((v <= low) | (v >= kNear) | (v != v))) {
      v = each(v, f);
    } else {
      v = B::near(v);
    }
    std::memcpy(x + i, &v, sizeof v);
  }
  for (; i < count; ++i) x[i] = f(x[i]);
}
// K, likewise of lanes that are positive and whose exponential is a normal number.
template <size_t n>
Lanes decaying(Lanes x, int order, const double (&table)[3][n], bool scaled) {
  if (any((x <= 0.0) | (x >= 700.0) | (x != x)))
    return each(x, [&](double v) { return k_of(order, v, table, scaled); });
  Mask near = x <= 1.0;
  Lanes r{};
  if (any(near)) {
    Lanes v = near ? x : Lanes{} + 1.0;
    r = k_near(order, v);
    if (scaled) r *= each(v, [](double a) { return std::exp(a); });
  }
  if (any(x > 1.0)) {
    Lanes v = near ? Lanes{} + 2.0 : x,
          f = scaled_decay(v, table) / each(v, [](double a) { return std::sqrt(a); });
    if (!scaled) f *= each(-v, [](double a) { return std::exp(a); });
    r = near ? r : f;
  }
  return r;
}
template <size_t n>
void decaying(double* x, int64_t count, int order, const double (&table)[3][n], bool scaled) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    Lanes v = decaying(lanes_at(x + i), order, table, scaled);
    std::memcpy(x + i, &v, sizeof v);
  }
  for (; i < count; ++i) x[i] = k_of(order, x[i], table, scaled);
}
template <class P, class F>
void polynomials(double* x, const double* n, int64_t count, F f) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    if (!low_orders<P>(x + i, n + i))
      for (int64_t l = i; l < i + kLanes; ++l) x[l] = f(x[l], n[l]);
  for (; i < count; ++i) x[i] = f(x[i], n[i]);
}

}  // namespace

#define FACULA_LANES(name)                                 \
  void name(double* x, const double*, int64_t count) {     \
    for (int64_t i = 0; i < count; ++i) x[i] = name(x[i]); \
  }
FACULA_LANES(bessel_i0)
FACULA_LANES(bessel_i1)
FACULA_LANES(bessel_i0e)
FACULA_LANES(bessel_i1e)
FACULA_LANES(airy_ai)
#undef FACULA_LANES
#define FACULA_LANES(name, B, low)                                                  \
  void name(double* x, const double*, int64_t count) {                              \
    oscillating<B>(x, count, low, [](double v) { return mapped::name(v); }); \
  }
FACULA_LANES(bessel_j0, J0, -kNear)
FACULA_LANES(bessel_j1, J1, -kNear)
FACULA_LANES(bessel_y0, Y0, kLeast)
FACULA_LANES(bessel_y1, Y1, kLeast)
#undef FACULA_LANES
#define FACULA_LANES(name, order, table, scaled)       \
  void name(double* x, const double*, int64_t count) { \
    decaying(x, count, order, table, scaled);          \
  }
FACULA_LANES(bessel_k0, 0, kScaledK0, false)
FACULA_LANES(bessel_k1, 1, kScaledK1, false)
FACULA_LANES(bessel_k0e, 0, kScaledK0, true)
FACULA_LANES(bessel_k1e, 1, kScaledK1, true)
#undef FACULA_LANES
void hurwitz_zeta(double* s, const double* q, int64_t count) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    Lanes v = lanes_at(s + i);
    if (any((v >= 1.0) | (v != v))) {
      for (int64_t l = 0; l < kLanes; ++l) v[l] = hurwitz_zeta(v[l], q[i + l]);
    } else {
      v = Lanes{} + kNan;
    }
    std::memcpy(s + i, &v, sizeof v);
  }
  for (; i < count; ++i) s[i] = hurwitz_zeta(s[i], q[i]);
}
#define FACULA_LANES(name, upper)                                                         \
  void name(double* a, const double* x, int64_t count) {                                  \
    int64_t i = 0;                                                                        \
    for (; i + kLanes <= count; i += kLanes) gamma_ratios(a + i, x + i, upper);           \
    for (; i < count; ++i) a[i] = name(a[i], x[i]);                                       \
  }
FACULA_LANES(igamma, false)
FACULA_LANES(igammac, true)
#undef FACULA_LANES
#define FACULA_LANES(name, P)                                                               \
  void name(double* x, const double* y, int64_t count) {                                    \
    polynomials<P>(x, y, count, [](double x, double n) { return mapped::name(x, n); }); \
  }
FACULA_LANES(chebyshev_t, ChebyshevT)
FACULA_LANES(chebyshev_u, Chebyshev<0>)
FACULA_LANES(chebyshev_v, Chebyshev<-1>)
FACULA_LANES(chebyshev_w, Chebyshev<1>)
FACULA_LANES(hermite_h, HermiteH)
FACULA_LANES(hermite_he, HermiteHe)
FACULA_LANES(laguerre_l, Laguerre)
FACULA_LANES(legendre_p, Legendre)
#undef FACULA_LANES

}  // namespace facula::loop::mapped
