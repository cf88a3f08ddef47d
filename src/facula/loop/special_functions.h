// Special functions whose number of steps depends on the arguments: one source for every target, which is valid C99
// and C++. At build time special_functions.py splits it into functions and tables, so that a kernel printed as C99 or
// CUDA C includes those that it calls (codegen/c_printer.cpp); mapped.cpp compiles it for the host.
//
//   FACULA_CALLED(ulp)   a function of the loop IR (expr.h) that nests call, with its error bound
//   FACULA_EXPANDED      a function that has an expansion (loop/elementary.h)
//   FACULA_SPECIAL       a helper of these functions
//   FACULA_LANED         a helper over Real: a double, or a few lanes on the host. It may only branch on any(c):
//                        lanes continue until all are done, without changing those that are. `auto` declares a
//                        condition on them.
//   FACULA_ROW(c)        an array and its length
//
// Every operation is rounded once (no contraction). Elementary functions have their usual names: they are the
// expansions of loop/elementary.h, so that results have the same bits wherever they are computed. Exact functions are
// libm's: sqrt, fabs, floor, ceil, nearbyint, copysign, fmod, fma. Nothing else is called, no type is wider than
// double, and the only memory is tables.

// ---- polynomials

// c[0] + c[1] x + ... + c[n - 1] x^(n - 1), n > 1.
FACULA_LANED Real horner(Real x, const double* c, int n) {
  Real y = fma(x, c[n - 1], c[n - 2]);
  for (int k = n - 3; k >= 0; --k) y = fma(y, x, c[k]);
  return y;
}
// The polynomial of the piece from `low` to `high`, in the distance from its middle.
FACULA_LANED Real piece(Real x, double low, double high, const double* c, int n) {
  return horner(x - (low + high) / 2, c, n);
}
FACULA_LANED Real square_quarter(Real x) { return (x * 0.5) * (x * 0.5); }
// exp(-(high + low)) for a sum with more digits than a double.
FACULA_SPECIAL double decay(double high, double low) { return exp(-high) * (1 - low); }

// ---- Bessel functions J and Y: power series below 2, polynomials below 8, from there on Hankel's expansion (DLMF 10.17.3).

FACULA_LANED Real j0_near(Real x) {  // the first terms by their factors, which do not cancel
  Real half = x * 0.5, y = half * half;
  return (1.0 - half) * (1.0 + half) + y * y * horner(y, FACULA_ROW(kNearJ0));
}
FACULA_LANED Real j1_near(Real x) {
  Real half = x * 0.5, y = half * half;
  return half + half * y * horner(y, FACULA_ROW(kNearJ1));
}
FACULA_LANED Real y0_near(Real x) {
  const double two_over_pi = 0.63661977236758134308;
  return two_over_pi * (log(x) * j0_near(x) - 0.5 * horner(square_quarter(x), FACULA_ROW(kNearY0)));
}
FACULA_LANED Real y1_near(Real x) {
  const double two_over_pi = 0.63661977236758134308;
  Real series = horner(square_quarter(x), FACULA_ROW(kNearY1));
  return two_over_pi * (log(x) * j1_near(x) - x * 0.25 * series) - two_over_pi / x;
}
// On [2, 8]: the polynomials in the rows of c, n coefficients each, times the distance from the zero in each piece.
FACULA_LANED Real by_zeros(Real x, const double* c, int n, const double* zeros) {
  Real r = x;
  if (any(x < 5.0)) r = x < 5.0 ? horner(x - 3.5, c, n) * (x - zeros[0] - zeros[1]) : r;
  if (any(x >= 5.0)) r = x >= 5.0 ? horner(x - 6.5, c + n, n) * (x - zeros[2] - zeros[3]) : r;
  return r;
}
FACULA_LANED Real bessel_middle(Real x, int order, int second) {
  if (order && second) return by_zeros(x, FACULA_ROW(kMiddleY1[0]), kZeroY1[0]);
  if (order) return by_zeros(x, FACULA_ROW(kMiddleJ1[0]), kZeroJ1[0]);
  if (second) return by_zeros(x, FACULA_ROW(kMiddleY0[0]), kZeroY0[0]);
  return by_zeros(x, FACULA_ROW(kMiddleJ0[0]), kZeroJ0[0]);
}
// J, or Y if `second`, of order 0 or 1, for finite x >= 8.
FACULA_LANED Real hankel(Real x, int order, int second) {
  Real t = 1.0 / x, p, q;
  if (order) {
    p = piece(t, 0, 0.125, FACULA_ROW(kHankelCosine1[0]));
    q = piece(t, 0, 0.125, FACULA_ROW(kHankelSine1[0])) * t;
  } else {
    p = piece(t, 0, 0.125, FACULA_ROW(kHankelCosine0[0]));
    q = piece(t, 0, 0.125, FACULA_ROW(kHankelSine0[0])) * t;
  }
  // One of sin x + cos x and sin x - cos x may cancel: their product is -cos 2x.
  Real s = sin(x), c = cos(x), sum = s + c, difference = s - c, product = -cos(x + x);
  Real other = product / difference;
  difference = (x < 1e300) & (s * c >= 0.0) ? product / sum : difference;
  sum = (x < 1e300) & (s * c < 0.0) ? other : sum;
  Real value = p * difference + q * sum;  // for Y0 and J1, whose angles differ by half a turn
  if (!order && !second) value = p * sum - q * difference;
  if (order && second) value = q * difference - p * sum;
  return value / (2.0 * sqrt(0.78539816339744830962 * x));  // pi x might overflow
}
FACULA_SPECIAL double far_bessel(double x, int order, int second) {
  if (x < 8) return bessel_middle(x, order, second);
  return x == INFINITY ? 0 : hankel(x, order, second);
}
FACULA_CALLED(9) double bessel_j0(double x) {
  double a = fabs(x);
  return a < 2 ? j0_near(x) : far_bessel(a, 0, 0);
}
FACULA_CALLED(9) double bessel_j1(double x) {
  double a = fabs(x);
  return a < 2 ? j1_near(x) : x < 0 ? -far_bessel(a, 1, 0) : far_bessel(a, 1, 0);
}
FACULA_CALLED(9) double bessel_y0(double x) {
  if (x <= 0) return x == 0 ? -INFINITY : NAN;
  return x < 2 ? y0_near(x) : far_bessel(x, 0, 1);
}
FACULA_CALLED(9) double bessel_y1(double x) {
  if (x <= 0) return x == 0 ? -INFINITY : NAN;
  return x < 2 ? y1_near(x) : far_bessel(x, 1, 1);
}

// ---- Bessel functions I are elementary.

FACULA_EXPANDED(3, bessel_i0);
FACULA_EXPANDED(3, bessel_i1);
FACULA_EXPANDED(3, bessel_i0e);
FACULA_EXPANDED(3, bessel_i1e);

// ---- Bessel functions K

// sqrt(x) exp(x) K(x), x > 1, by the pieces that the lanes need.
FACULA_LANED Real scaled_decay(int order, Real x) {
  const double(*c)[17] = order ? kScaledK1 : kScaledK0;
  Real t = 1.0 / x, r = t;
  if (any(t < 0.125)) r = t < 0.125 ? piece(t, 0, 0.125, FACULA_ROW(c[0])) : r;
  if (any((t >= 0.125) & (t < 0.375)))
    r = (t >= 0.125) & (t < 0.375) ? piece(t, 0.125, 0.375, FACULA_ROW(c[1])) : r;
  if (any(t >= 0.375)) r = t >= 0.375 ? piece(t, 0.375, 1, FACULA_ROW(c[2])) : r;
  return r;
}
FACULA_LANED Real k_near(int order, Real x) {
  Real y = square_quarter(x), l = log(x * 0.5);
  if (order == 0) return 0.5 * horner(y, FACULA_ROW(kNearK0)) - l * horner(y, FACULA_ROW(kNearI0));
  return 1.0 / x + x * 0.5 * (l * horner(y, FACULA_ROW(kNearI1)) - 0.5 * horner(y, FACULA_ROW(kNearK1)));
}
// K, or K times exp(x) if `scaled`.
FACULA_SPECIAL double bessel_k(double x, int order, int scaled) {
  if (x != x || x < 0) return NAN;
  if (x == 0) return INFINITY;
  if (x <= 1) return k_near(order, x) * (scaled ? exp(x) : 1);
  if (x == INFINITY) return 0;
  double f = scaled_decay(order, x) / sqrt(x);
  return scaled ? f : x < 700 ? exp(-x) * f : exp(-x / 2) * f * exp(-x / 2);
}
FACULA_CALLED(3) double bessel_k0(double x) { return bessel_k(x, 0, 0); }
FACULA_CALLED(3) double bessel_k1(double x) { return bessel_k(x, 1, 0); }
FACULA_CALLED(3) double bessel_k0e(double x) { return bessel_k(x, 0, 1); }
FACULA_CALLED(3) double bessel_k1e(double x) { return bessel_k(x, 1, 1); }

// ---- Airy's function (DLMF 9.7). Rounding z = 2/3 x^(3/2) would lose as many digits as z has before the point, so
// it is a sum.

// The rounding error of z, given sqrt(x) and z.
FACULA_SPECIAL double airy_rest(double x, double root, double z) {
  double product = x * root, root_rest = fma(-root, root, x) / (2 * root);
  double rest = fma(x, root, -product) + x * root_rest;
  return (fma(-3.0, z, 2 * product) + 2 * rest) / 3;
}
FACULA_SPECIAL double airy_left(double x) {  // x >= 6; Ai(-x)
  const double turn = 6.283185307179586, turn_rest = 2.4492935982947064e-16;
  double root = sqrt(x), z = x * root * 2 / 3;
  if (z > 1e300) return 0;
  double turns = nearbyint(z / turn), t = 1 / z;
  double angle = fma(-turns, turn, z) + (airy_rest(x, root, z) - turns * turn_rest - turn / 8);
  double p = piece(t, 0, 0.103, FACULA_ROW(kAiryCosine[0])), q = piece(t, 0, 0.103, FACULA_ROW(kAirySine[0]));
  return (cos(angle) * p + sin(angle) * q * t) / sqrt(root);
}
FACULA_SPECIAL double airy_right(double x) {  // x >= 2
  const double cuts[] = {0, 1.0 / 16, 0.2, 0.54};
  double root = sqrt(x), z = x * root * 2 / 3, t = 1 / z;
  int k = t < cuts[1] ? 0 : t < cuts[2] ? 1 : 2;
  double p = piece(t, cuts[k], cuts[k + 1], FACULA_ROW(kAiryRight[k]));
  return decay(z, airy_rest(x, root, z)) * p / sqrt(root);
}
FACULA_CALLED(16) double airy_ai(double x) {
  if (x != x || fabs(x) == INFINITY) return NAN;
  if (x > 200) return 0;
  if (x >= 2) return airy_right(x);
  if (x < -6) return airy_left(-x);
  double low = floor(x);
  return piece(x, low, low + 1, FACULA_ROW(kAiry[(int)low + 6]));
}

// ---- incomplete gamma functions (DLMF 8.7, 8.9, 8.12)

// Gamma(a) / (sqrt(2 pi / a) (a/e)^a) for a >= 10.
FACULA_SPECIAL double gamma_star(double a) {
  double r = 1 / (a * a);
  return exp((1.0 / 12 -
              r * (1.0 / 360 - r * (1.0 / 1260 - r * (1.0 / 1680 - r * (1.0 / 1188 - r * 691.0 / 360360))))) /
             a);
}
// 1 / Gamma(a + 1), 0 <= a < 10.
FACULA_LANED Real gamma_reciprocal(Real a) {
  Real product = a - a + 1.0;
  for (int k = 0; k < 9 && any(a > 1.0); ++k) {
    product = a > 1.0 ? product * a : product;
    a = a > 1.0 ? a - 1.0 : a;
  }
  return piece(a, 0, 1, FACULA_ROW(kGammaReciprocal[0])) / product;
}
// a (x/a - 1 - log(x/a)) for x within 0.3 a of a, by the series of the inverse hyperbolic tangent; *rest: its
// rounding error, which is needed because the result is negated and exponentiated.
FACULA_SPECIAL double excess(double a, double x, double* rest) {
  double m = (x - a) / a, m_rest = fma(-m, a, x - a) / a;
  double d = 2 + m, d_rest = m - (d - 2) + m_rest;
  double t = m / d, t_rest = (fma(-t, d, m) + m_rest - t * d_rest) / d;
  double product = t * m, s = t * t, sum = 1.0 / 25;
  for (int k = 23; k >= 3; k -= 2) sum = sum * s + kReciprocals[k];
  double tail = 2 * t * s * sum, whole = product - tail;
  double below = product - whole - tail + (fma(t, m, -product) + t * m_rest + t_rest * m);
  *rest = fma(a, whole, -(a * whole)) + a * below;
  return a * whole;
}
// exp(-a (x/a - 1 - log(x/a))). Far from a it is a power times an exponential, raised to the number of parts: the
// smallest power of two, which divides a without rounding, for which neither factor overflows or vanishes.
FACULA_SPECIAL double gamma_peak(double a, double x) {
  double rest;
  if (fabs(x - a) < 0.3 * a) {
    double z = excess(a, x, &rest);
    return decay(z, rest);
  }
  double ratio = x / a, l = log(ratio), parts = 1, whole;
  if (a * (ratio - 1 - l) > 800) return 0;
  while (a * fabs(l) > 700 * parts || fabs(a - x) > 700 * parts) parts *= 2;
  double difference = a - x, taken = difference - a, lost = a - (difference - taken) - (x + taken);
  whole = pow(ratio, a / parts) * exp(difference / parts);
  for (; parts > 1; parts /= 2) whole *= whole;
  return whole * (1 + (a * (fma(-ratio, a, x) / x) + lost));
}
// x^a exp(-x) / Gamma(a + 1).
FACULA_SPECIAL double gamma_factor(double a, double x) {
  if (a < 10) {
    double power = any_pow(x, a), inverse = gamma_reciprocal(a);
    if (x < 600 && power > 1e-290 && power < 1e290) return power * exp(-x) * inverse;
    return exp(a * log(x) - x + log(inverse));
  }
  return gamma_peak(a, x) / sqrt(6.28318530717958647693 * a) / gamma_star(a);
}
FACULA_LANED Real lower_sum(Real a, Real x) {
  Real term = a - a + 1.0, sum = term, k = a + 1.0;
  while (any(term > sum * 0x1p-54)) {
    term = term * (x / k);
    sum = sum + term;
    k = k + 1.0;
  }
  return sum;
}
// Q divided by a times gamma_factor: Legendre's continued fraction, by the algorithm of Lentz, 1976.
FACULA_LANED Real upper_fraction(Real a, Real x) {
  Real b = x + 1.0 - a, c = a - a + 1e300, d = 1.0 / b, h = d;
  auto going = a == a;
  for (int k = 1; k < 10000 && any(going); ++k) {
    Real n = -(double)k * ((double)k - a);
    b = b + 2.0;
    d = 1.0 / (n * d + b);
    c = b + n / c;
    Real step = c * d, off = step < 1.0 ? 1.0 - step : step - 1.0;
    h = going ? h * step : h;
    going = going & !(off < 0x1p-52);
  }
  return h;
}
// For small x and a: 1 - x^a / Gamma(1 + a) and the other terms of the series for P. For x < 1.1, x^32 / 32! is far
// below the last place.
FACULA_LANED Real upper_sum(Real a, Real x) {
  Real term = a - a + 1.0, sum = term - term;
  for (int k = 1; k < 32; ++k) {
    term = term * (-x * kReciprocals[k]);
    sum = sum + term / (a + (double)k);
    Real size = term < 0.0 ? -term : term, least = (sum < 0.0 ? -sum : sum) * 0x1p-54;
    if (!any(size >= least)) break;
  }
  return sum;
}
FACULA_LANED Real log_gamma(Real a) {  // log(Gamma(1 + a))
  return a * piece(a, 0, 1.25, FACULA_ROW(kLogGammaSlope[0]));
}
FACULA_LANED Real upper_series(Real a, Real x) {
  Real lacks = -expm1(a * log(x) - log_gamma(a));  // 1 - x^a / Gamma(1 + a), where the quotient is below 1.2
  return lacks - (1.0 - lacks) * a * upper_sum(a, x);
}
FACULA_LANED auto by_upper_series(Real a, Real x) { return (x < 1.1) & ((x * 1.1 >= a) | (a < 0.5)); }
FACULA_LANED auto by_lower_series(Real a, Real x) { return (x < 1.0) | (x < a); }
// Temme's expansion (1979) of P or Q, for a > 100 and x within 0.3 a of a.
FACULA_SPECIAL double uniform(double a, double x, int upper) {
  double rest, z = excess(a, x, &rest), root = sqrt(z), sum = 0;
  // erfc' = -2 exp(-z) / sqrt(pi), times the rounding error of the root.
  double lacks = root > 0 ? (fma(-root, root, z) + rest) / (2 * root) : 0;
  if (x < a) root = -root, lacks = -lacks;
  double eta = root / sqrt(a / 2);
  for (int k = 8; k >= 0; --k) sum = sum / a + horner(eta, FACULA_ROW(kTemme[k]));
  double r = decay(z, rest) * (sum / sqrt(6.28318530717958647693 * a) - lacks * 0.56418958354775628695);
  return upper ? 0.5 * erfc(root) + r : 0.5 * erfc(-root) - r;
}
FACULA_SPECIAL double gamma_ratio(double a, double x, int upper) {
  if (a < 0 || x < 0) return NAN;
  if (a == 0) return x > 0 ? !upper : NAN;
  if (x == 0) return upper;
  if (a == INFINITY) return x == INFINITY ? NAN : upper;
  if (x == INFINITY) return !upper;
  if (a != a || x != x) return NAN;
  if (a > 1e5 && (x < a / 2 || x > 2 * a)) return (x < a) == upper;
  if (a > 100 && fabs(x - a) < 0.3 * a) return uniform(a, x, upper);
  if (upper && by_upper_series(a, x)) return upper_series(a, x);
  if (by_lower_series(a, x)) {
    double p = gamma_factor(a, x) * lower_sum(a, x);
    return upper ? 1 - p : p;
  }
  double q = gamma_factor(a, x) * a * upper_fraction(a, x);
  return upper ? q : 1 - q;
}
FACULA_CALLED(32) double igamma(double a, double x) {
  double p = gamma_ratio(a, x, 0);
  return p <= 0 ? 0 : p;
}
FACULA_CALLED(64) double igammac(double a, double x) {
  double q = gamma_ratio(a, x, 1);
  return q <= 0 ? 0 : q;
}

// ---- Hurwitz's zeta function: some terms and the formula of Euler and Maclaurin (DLMF 25.11.7)

// (q + k)^-s, given a = q + k: the power magnifies the rounding error of the sum by s.
FACULA_LANED Real zeta_term(Real s, Real q, Real k, Real a) {
  Real taken = a - q, lacks = q - (a - taken) + (k - taken);
  Real zero = {0}, less = lacks / a * s;
  return any_pow(a, -s) *
         (1.0 - ((less > -0.5) & (less < 0.5) ? less : zero));  // for huge s the power is 0 or infinite
}
FACULA_LANED Real zeta_right(Real s, Real q) {  // q > 0, s > 1
  Real sum = {0}, steps = {0}, a = q;
  // From there on the formula's terms decrease fast. (Each of them costs less than a power, and twelve terms need
  // fewer powers than eight.)
  auto going = a < s + 6.0;
  auto whole = a != a;  // lanes whose sum has all digits
  for (int k = 0; any(going); ++k) {
    Real term = zeta_term(s, q, steps, a);
    sum = going ? sum + term : sum;
    whole = whole | (going & (term < sum * 0x1p-56));
    going = going & !whole;
    steps = going ? steps + 1.0 : steps;
    a = q + steps;
    going = going & (k < 9 ? a < s + 6.0 : (a < s) & (sum > 0.0));
  }
  Real power = zeta_term(s, q, steps, a), inverse = 1.0 / a;
  Real tail = a * power / (s - 1.0) + power * 0.5, factor = s * power * inverse;
  auto adds = !whole;
  for (int k = 0; k < 12 && any(adds); ++k) {
    Real term = kEulerMaclaurin[k] * factor, size = term < 0.0 ? -term : term;
    tail = adds ? tail + term : tail;
    adds = adds & !(size < (sum + tail) * 0x1p-56);
    factor = factor * ((s + (2.0 * k + 1.0)) * inverse * ((s + (2.0 * k + 2.0)) * inverse));
  }
  return whole ? sum : sum + tail;
}
FACULA_CALLED(4) double hurwitz_zeta(double s, double q) {
  if (s == 1) return INFINITY;
  if (s < 1 || q != q) return NAN;
  if (q <= 0 && q == floor(q)) return INFINITY;
  if (s != s) return NAN;
  if (q > 0) return zeta_right(s, q);
  if (s != floor(s)) return NAN;
  if (s > 0x1p53) return INFINITY;  // one of the terms is a power of a number below 1
  // For a negative q the first terms are those of 1 - q - m, ..., -q, with the sign of (-1)^s.
  double m = ceil(-q), sign = fmod(s, 2.0) == 0 ? 1 : -1;
  return zeta_right(s, q + m) + sign * (zeta_right(s, 1 - q - m) - zeta_right(s, 1 - q));
}

// ---- orthogonal polynomials: p_0 = 1, p_1 = first_polynomial, p_(k+1) = next_polynomial of p_k and p_(k-1), by
// kind: Chebyshev's four, Hermite's two, Laguerre's, Legendre's.

FACULA_LANED Real first_polynomial(int kind, Real x) {
  if (kind == 1 || kind == 4) return x + x;  // -0 stays
  if (kind == 2) return x + x - 1.0;
  if (kind == 3) return x + x + 1.0;
  return kind == 6 ? 1.0 - x : x;
}
FACULA_LANED Real next_polynomial(int kind, double k, Real x, Real p, Real q) {
  if (kind <= 3) return (x + x) * p - q;
  if (kind == 4) return (x + x) * p - 2 * k * q;
  if (kind == 5) return x * p - k * q;
  if (kind == 6) return ((k + k + (1.0 - x)) * p - k * q) / (k + 1);
  return ((k + k + 1) * x * p - k * q) / (k + 1);
}
FACULA_SPECIAL double recurrence(int kind, double x, int64_t n) {
  if (n == 0) return 1;
  double before = 1, p = first_polynomial(kind, x);
  for (int64_t k = 1; k < n && p == p; ++k) {
    double following = next_polynomial(kind, (double)k, x, p, before);
    before = p;
    p = following;
  }
  return p;
}
// The order, truncated; NaN and numbers that are too large count as negative, as x86 converts them.
FACULA_SPECIAL int64_t order_of(double n) { return n > -1 && n < 0x1p63 ? (int64_t)n : -1; }
// The largest order for recurrences, which take n steps per element; above it closed or asymptotic forms are used.
FACULA_TABLE int64_t kMostSteps = 1 << 16;
// An overflow gives NaN, since the recurrence subtracts infinities. `turns`: an odd function at a negative argument.
FACULA_SPECIAL double far_value(double y, int turns) { return fabs(y) == INFINITY ? NAN : turns ? -y : y; }
// T, U or the other two kinds beyond [-1, 1] for large n.
FACULA_SPECIAL double chebyshev_far(int kind, double x, int64_t n) {
  double a = acosh(fabs(x)), whole = (double)n, y;
  int turns = x < 0;
  if (kind == 0) y = cosh(whole * a);
  else if (kind == 1) y = sinh((double)(n + 1) * a) / sinh(a);
  else if ((kind == 2) != turns) y = cosh((whole + 0.5) * a) / cosh(a / 2);
  else y = sinh((whole + 0.5) * a) / sinh(a / 2);
  return far_value(y, turns && n % 2);
}
// On (-1, 1) by cosines and sines if n is large, since the recurrence takes n steps; exact at -1 and 1.
FACULA_CALLED(16) double chebyshev_t(double x, double y) {
  int64_t n = order_of(y);
  if (n < 0) return 0;
  if (fabs(x) == 1) return x > 0 || n % 2 == 0 ? 1 : -1;
  if (n > 6 && fabs(x) < 1) return cos((double)n * acos(x));
  return n > kMostSteps ? chebyshev_far(0, x, n) : recurrence(0, x, n);
}
FACULA_CALLED(16) double chebyshev_u(double x, double y) {
  int64_t n = order_of(y);
  if (n < 0) return 0;
  if (fabs(x) == 1) return x > 0 || n % 2 == 0 ? (double)n + 1 : -((double)n + 1);
  if (n > 8 && fabs(x) < 1) {
    double angle = acos(x), sine = sin(angle), whole = (double)(n + 1);
    return sine == 0 ? whole * cos(whole * angle) / x : sin(whole * angle) / sine;
  }
  return n > kMostSteps ? chebyshev_far(1, x, n) : recurrence(1, x, n);
}
FACULA_CALLED(16) double chebyshev_v(double x, double y) {
  int64_t n = order_of(y);
  if (n < 0) return 0;
  if (fabs(x) == 1) return x > 0 ? 1 : n % 2 ? -(double)(n + n + 1) : (double)(n + n + 1);
  if (n > 8 && fabs(x) < 1) {
    double angle = acos(x);
    if (sin(angle / 2) != 1) return cos(((double)n + 0.5) * angle) / cos(angle / 2);
  }
  return n > kMostSteps ? chebyshev_far(2, x, n) : recurrence(2, x, n);
}
FACULA_CALLED(16) double chebyshev_w(double x, double y) {
  int64_t n = order_of(y);
  if (n < 0) return 0;
  if (fabs(x) == 1) return x > 0 ? (double)(n + n + 1) : n % 2 ? -1 : 1;
  if (n > 8 && fabs(x) < 1) {
    double angle = acos(x);
    if (cos(angle / 2) != 1) return sin(((double)n + 0.5) * angle) / sin(angle / 2);
  }
  return n > kMostSteps ? chebyshev_far(3, x, n) : recurrence(3, x, n);
}
FACULA_CALLED(16) double hermite_h(double x, double y) {
  int64_t n = order_of(y);
  return n < 0 ? 0 : recurrence(4, x, n);
}
FACULA_CALLED(16) double hermite_he(double x, double y) {
  int64_t n = order_of(y);
  return n < 0 ? 0 : recurrence(5, x, n);
}
// DLMF 18.15.19, two terms. The second one is left out below 0, where finite values are close to 0.
FACULA_SPECIAL double laguerre_far(double x, int64_t n) {
  double v = 4 * (double)n + 2, y = x / v, a = fabs(y);
  double outside = exp(x / 2) / sqrt(sqrt(a * (1 - y)));
  if (x < 0) {
    double t = (sqrt(a + a * a) + asinh(sqrt(a))) / 2;
    return far_value(outside * sqrt(t) * bessel_i0(v * t), 0);
  }
  double t = (sqrt(a - a * a) + asin(sqrt(a))) / 2, ratio = a / (1 - a);
  double next = -1 / (8 * t) - (-0.125 + ratio / 4 + 5.0 / 24 * ratio * ratio) / sqrt(ratio);
  return far_value(outside * sqrt(t) * (bessel_j0(v * t) + next / v * bessel_j1(v * t)), 0);
}
FACULA_CALLED(16) double laguerre_l(double x, double y) {
  int64_t n = order_of(y);
  if (n < 0) return 0;
  if (x == 0) return 1;
  return n > kMostSteps ? laguerre_far(x, n) : recurrence(6, x, n);
}
// Hilb's formula with the next term of Szego's expansion in 1 / (n + 1/2); for |x| near 1 as well.
FACULA_SPECIAL double legendre_far(double x, int64_t n) {
  double a = fabs(x), half = (double)n + 0.5, y;
  if (a < 1) {
    double t = acos(a), next = (1 - t / tan(t)) / (8 * t);
    y = sqrt(t / sin(t)) * (bessel_j0(half * t) - next / half * bessel_j1(half * t));
  } else {
    double t = acosh(a), next = (t / tanh(t) - 1) / (8 * t);
    y = sqrt(t / sinh(t)) * (bessel_i0(half * t) + next / half * bessel_i1(half * t));
  }
  return far_value(y, x < 0 && n % 2);
}
FACULA_CALLED(16) double legendre_p(double x, double y) {
  int64_t n = order_of(y);
  if (n < 0) return 0;
  if (fabs(x) == 1) return x > 0 || n % 2 == 0 ? 1 : -1;
  return n > kMostSteps ? legendre_far(x, n) : recurrence(7, x, n);
}
