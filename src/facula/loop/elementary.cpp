#include "facula/loop/elementary.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <span>
#include <vector>

#include "facula/loop/elementary_tables.h"
#include "facula/loop/mapped_tables.h"
#include "facula/loop/seen.h"
#include "facula/loop/simplify.h"

namespace facula::loop {
namespace {

using E = Expr;
constexpr double kInf = std::numeric_limits<double>::infinity(),
                 kNan = std::numeric_limits<double>::quiet_NaN();

#define FACULA_STEP_1(n) [[maybe_unused]] E n(E x) { return call(Fn::n, {x}); }
#define FACULA_STEP_2(n) [[maybe_unused]] E n(E x, E y) { return call(Fn::n, {x, y}); }
#define FACULA_STEP_3(n) [[maybe_unused]] E n(E x, E y, E z) { return call(Fn::n, {x, y, z}); }
#define FACULA_FN(n, arity, r, u) FACULA_STEP_##arity(n)
FACULA_STEPS(FACULA_FN)
#undef FACULA_FN
#undef FACULA_STEP_1
#undef FACULA_STEP_2
#undef FACULA_STEP_3

bool is_wide(E x) { return itemsize(x.dtype()) == 8; }
// Selects a constant by the dtype of x, float32 or float64.
template <class T>
T pick(E x, T single, T wide) {
  return is_wide(x) ? wide : single;
}
E real(double v, E like) { return constant(v, like.dtype()); }
E integer(int64_t v, E like) { return constant(v, pick(like, DType::Int32, DType::Int64)); }
E sign_bit(E like) { return integer(pick<int64_t>(like, INT32_MIN, INT64_MIN), like); }
E widen(E x) { return cast(x, DType::Float64); }
E narrow(E x) { return cast(x, DType::Float32); }
E fma(E a, const Scalar& b, E c) { return fma(a, constant(b, a.dtype()), c); }
E fma(E a, const Scalar& b, const Scalar& c) {
  return fma(a, constant(b, a.dtype()), constant(c, a.dtype()));
}
E unless(E hard, E easy, E slow) { return select(unlikely(hard), slow, easy); }
E bounded(E x, double low, double high) {  // NaN stays
  x = select(x > high, high, x);
  return select(x < low, low, x);
}
// Adding this constant rounds a number to a multiple of 1/16, whose numerator is in the last bits of the sum; the
// next one rounds to integers.
double sixteenths(E x) { return pick(x, 786432.0, 422212465065984.0); }
double wholes(E x) { return pick(x, 12582912.0, 6755399441055744.0); }

template <class C>
E poly(E x, const C& c) {  // c[0] + c[1] x + ...
  auto p = std::end(c);
  E r = real(*--p, x);
  while (p != std::begin(c)) r = fma(r, x, real(*--p, x));
  return r;
}
E poly(E x, std::initializer_list<double> c) { return poly<std::initializer_list<double>>(x, c); }
// For many terms: two interleaved sums.
E long_poly(E x, std::span<const E> c) {
  E square = x * x, sums[2];
  for (size_t k = c.size(); k-- > 0;) {
    E& r = sums[k % 2];
    r = r.get() ? fma(r, square, c[k]) : c[k];
  }
  return fma(sums[1], x, sums[0]);
}
template <class C>
E long_poly(E x, const C& c) {
  std::vector<E> terms;
  for (double v : c) terms.push_back(real(v, x));
  return long_poly(x, std::span<const E>(terms));
}

// ---- tables

#define FACULA_TABLES(_)                                                                                       \
  _(kTail32) _(kTail64) _(kNormal32) _(kTanh32) _(kInverseErf32) _(kInverseErf64)                             \
  _(kInverseErfFar32) _(kInverseErfFar64) _(kPower32) _(kPower64) _(kScaled32) _(kScaled64) _(kLogarithm32)    \
  _(kLogarithm64) _(kEighths32) _(kEighths64) _(kSixteenths32) _(kSixteenths64) _(kPoints32) _(kPoints64)      \
  _(kArc64) _(kErf32) _(kErf64) _(kTailErfc32) _(kTailErfc64)

const std::vector<TableRow>& table_rows() {
  static const auto& all = *[] {
    auto* rows = new std::vector<TableRow>;
    auto add = [&](auto& table) {
      for (auto& row : table)
        rows->push_back({sizeof *row == 4 ? DType::Float32 : DType::Float64, std::size(row), row});
    };
#define FACULA_TABLE(t) add(t);
    FACULA_TABLES(FACULA_TABLE)
#undef FACULA_TABLE
    return rows;
  }();
  return all;
}
template <class T, size_t rows, size_t entries>
E entry(const T (&table)[rows][entries], size_t k, E index) {
  auto& all = table_rows();
  auto it = std::find_if(all.begin(), all.end(), [&](auto& row) { return row.values == table[k]; });
  return entry(constant(int64_t(it - all.begin()), index.dtype()), index);
}

// The polynomial of an interval is constant + slope * t, where t is the distance to its centre.
struct Piece {
  E constant, slope, t;
};
template <class T, size_t rows, size_t entries>
Piece piece(const T (&table)[rows][entries], E x, E index) {
  E t = x - entry(table, 0, index), slope = entry(table, rows - 1, index);
  for (size_t k = rows - 2; k > 1; --k) slope = fma(slope, t, entry(table, k, index));
  return {entry(table, 1, index), slope, t};
}

// ---- high + low, to more digits than one number has. Knuth, Dekker: the rounding error of a sum or product is a
// number.

struct Sum {
  E high, low;
};
Sum fast_sum(E a, E b) {  // |a| >= |b| or a = 0
  E s = a + b;
  return {s, b - (s - a)};
}
Sum exact_sum(E a, E b) {
  E s = a + b, c = s - a;
  return {s, (a - (s - c)) + (b - c)};
}
Sum exact_product(E a, E b) {
  E p = a * b;
  return {p, fma(a, b, -p)};
}
Sum product(Sum a, Sum b) {
  Sum p = exact_product(a.high, b.high);
  return {p.high, fma(a.high, b.low, fma(a.low, b.high, p.low))};
}
Sum quotient(Sum a, Sum b) {
  E inverse = real(1, b.high) / b.high, q = a.high * inverse, back = -q;
  E left = fma(back, b.high, a.high) + fma(back, b.low, a.low);
  return {q, left * inverse};
}
E rounded(Sum s) { return s.high + s.low; }
Sum root(Sum a) {  // a >= 0
  E r = sqrt(a.high), twice = select(r > 0.0, r + r, 1.0);
  return {r, (fma(-r, r, a.high) + a.low) / twice};
}

// ---- steps

// Two factors, each one a normal number, so that a subnormal result is rounded only once.
E expand_scale(E x, E k) {
  E magic = real(sixteenths(x), x), n = bits(k + magic) - bits(magic);
  E half = shr(n, 5), rest = shr(n, 4) - half;
  auto power = [&](E p) { return from_bits(shl(p + pick<int64_t>(x, 127, 1023), pick<int64_t>(x, 23, 52))); };
  return (x * power(half)) * power(rest);
}

// v = s 2^k, already rounded to a normal number. A subnormal result has fewer digits; in that case the sum is
// rounded, scaled up by 2^64, by adding a number with that last place.
E rounded_once(E v, Sum s, E k) {
  E x = s.high, up = k + 64.0;
  E last = real(std::ldexp(1.0, pick(x, -149 + 64 + 23, -1074 + 64 + 52)), x);
  Sum t = fast_sum(last, scale(s.high, up));
  E r = (t.high + (t.low + scale(s.low, up))) - last;
  return unless(is_subnormal(v), v, r * std::ldexp(1.0, -64));
}
E expand_scaled_sum(Sum s, E k) { return rounded_once(scale(rounded(s), k), s, k); }
E expand_is_subnormal(E v) {
  E a = abs(v);
  return (a < pick(v, 1.17549435e-38, 2.2250738585072014e-308)) & (a > 0.0);
}

struct Lifted {
  E denormal, bits;  // of x 2^lift if x is subnormal, minus those of the smallest mantissa
  int64_t root;
  int digits, lift;
};
Lifted lifted(E x) {
  int lift = pick(x, 25, 54);
  E denormal = x < pick(x, 1.17549435e-38, 2.2250738585072014e-308);
  E y = select(denormal, x * std::ldexp(1.0, lift), x);
  int64_t root = pick<int64_t>(x, 0x3f400000, 0x3fe8000000000000);  // 3/4
  // Subtracted, not masked: the root is added again later, and takes one register.
  E rest = raw_call(Fn::sub, {bits(y), integer(root, x)});
  return {denormal, rest, root, pick(x, 23, 52), lift};
}
E expand_mantissa(E x) {
  Lifted l = lifted(x);
  return from_bits((l.bits & ((int64_t(1) << l.digits) - 1)) + l.root);
}
E expand_exponent(E x) {
  Lifted l = lifted(x);
  E magic = real(wholes(x), x);  // without a conversion: AVX2 has none from 64-bit integers
  E k = from_bits(shr(l.bits, l.digits) + bits(magic)) - magic;
  return select(l.denormal, k - double(l.lift), k);
}
E expand_log_special(E r, E x) {
  r = select(eq(x, kInf), x, r);
  r = select(eq(x, 0.0), -kInf, r);
  return select(x >= 0.0, r, select(isnan(x), x, kNan));
}

// ---- exponentials

// 2^floor(k) (point + point r + rest): point is 2^(j/16), |r| <= ln2/32.
struct Power {
  E point, r, rest, k;
};
// exp(r + low) 2^k, where k is a multiple of 1/16, and `index` ends with its numerator: a power of two and an entry
// of a table. r is at most ln2/32, so that rounding errors of the polynomial are far below the last place of the
// result.
Power power(E r, E low, E k, E index) {
  bool d = is_wide(r);
  E point = d ? entry(kPower64, 0, index) : entry(kPower32, 0, index);
  E beyond = d ? entry(kPower64, 1, index) : entry(kPower32, 1, index);
  E z = r * r, c = !d ? poly(r, kExp32) : low.get() ? long_poly(r, kExp64) : long_poly(r, kExpShort64);
  if (!low.get()) return {point, fma(z, c, r), beyond, k};
  return {point, r, fma(point, fma(z, c, low), fma(beyond, r, beyond)), k};
}

Power exp_power(E x, E more = {}, bool exact = true) {  // exp(x + more)
  double magic = sixteenths(x);
  E t = fma(x, 1.4426950408889634, magic), k = t - magic;
  E high = fma(k, pick(x, -0.693359375, -0.6931471787393093), x);  // exact
  double rest = pick(x, 2.1219444170128554e-4, -1.8206359985041462e-09);
  E r = fma(k, rest, high), low = exact ? fma(k, rest, high - r) : E();
  if (more) {
    Sum moved = fast_sum(r, more);
    r = moved.high;
    low = low ? low + moved.low : moved.low;
  }
  return power(r, low, k, bits(t));
}
Power exp2_power(E x) {
  double magic = sixteenths(x);
  E t = x + magic, k = t - magic, rest = x - k, ln2 = real(0.6931471805599453, x);
  if (!is_wide(x)) return power(rest * ln2, {}, k, bits(t));
  Sum r = exact_product(rest, ln2);
  return power(r.high, fma(rest, 2.3190468138462996e-17, r.low), k, bits(t));
}

Sum sum(const Power& p) { return fast_sum(p.point, fma(p.point, p.r, p.rest)); }  // without 2^k

E rounded(const Power& p) { return scaled_sum(p.point, fma(p.point, p.r, p.rest), p.k); }

E bounded_for_exp(E x) { return bounded(x, pick(x, -104.5, -746.0), pick(x, 89.0, 710.0)); }
// The power of x, which is `usual`, or s 2^k where that is subnormal, or 0 below `low`. Scaling to a subnormal number
// or to 0 takes a processor some two hundred cycles, so it is avoided by a test of x (below `normal`). Masked scores
// of a softmax are far below; scaling is fast again there, and its result is not used.
E power_or_zero(E x, E usual, Sum s, E k, double low, double normal) {
  return unless(x < normal, usual, select(x < low, 0.0, rounded_once(usual, s, k)));
}
E power_or_zero(E x, const Power& p, double low, double normal) {
  Sum s{p.point, fma(p.point, p.r, p.rest)};
  return power_or_zero(x, scale(s.high + s.low, p.k), s, p.k, low, normal);
}
E at_most(E x, double high) { return select(x > high, high, x); }
// point (1 + r + r^2 (...)), r = high + low: `high` is exact to 53 digits of ln2, and `low` is so small that only its
// product with the power matters.
E wide_exp(E x) {
  E from = at_most(x, 710.0);
  double magic = sixteenths(x);
  E t = fma(from, 1.4426950408889634, magic), k = t - magic, high = fma(k, -0.6931471805599453, from);
  E point = entry(kPower64, 0, bits(t)), low = fma(k, -2.3190468138462996e-17, entry(kScaled64, 1, bits(t)));
  E z = high * high, c = long_poly(high, kExp64);
  E more = high + fma(z, c, fma(low, fma(z, c, high), low));
  return power_or_zero(x, scale(fma(point, more, point), k), {point, point * more}, k, -746.0, -708.3);
}
E expand_exp(E x) {
  return is_wide(x) ? wide_exp(x) : power_or_zero(x, exp_power(at_most(x, 89.0), {}, false), -104.5, -87.3);
}
E expand_exp2(E x) {
  Power p = exp2_power(at_most(x, pick(x, 129, 1025)));
  return power_or_zero(x, p, pick(x, -155, -1080), pick(x, -125.9, -1021.9));
}
E exp_short(E x) {  // float64, to 1e-13: for results in float32
  Power p = exp_power(bounded_for_exp(x), {}, false);
  return scale(p.point + fma(p.point, p.r, p.rest), p.k);
}

Sum half_expm1(const Power& p) {  // float64: (exp(x) - 1) / 2
  E k = p.k - 1.0;
  Sum step = exact_product(p.point, p.r), from = exact_sum(scale(p.point, k), real(-0.5, k));
  Sum s = fast_sum(from.high, scale(step.high, k));
  E low = scale(step.low + p.rest, k);
  return fast_sum(s.high, s.low + (from.low + low));
}
E wide_expm1(E x) {
  E half = half_expm1(exp_power(bounded(x, -746, 709.9))).high;
  return select(abs(x) < 1e-20, x, half + half);
}

// (exp(2a) - 1) / (exp(2a) + 1); in float32 the polynomial of the interval that contains a + 1, whose linear terms
// are added exactly.
E expand_tanh(E x) {
  bool d = is_wide(x);
  E a = abs(x), most = real(d ? 20 : 9.02, x), r;
  a = select(a > most, most, a);
  if (d) {
    Sum top = half_expm1(exp_power(a + a)), bottom = exact_sum(top.high, real(1, x));
    r = rounded(quotient(top, {bottom.high, bottom.low + top.low}));
    r = select(a < 1e-20, a, r);
  } else {
    E index = shr(bits(a + 1.0), 21) - int64_t(127 * 4);
    auto row = [&](size_t k) { return entry(kTanh32, k, index); };
    E t = a - row(0), value = row(1), slope = row(2), rest = row(std::size(kTanh32) - 1);
    for (size_t k = std::size(kTanh32) - 2; k > 2; --k) rest = fma(rest, t, row(k));
    E s = fma(slope, t, value), lost = fma(slope, t, value - s);
    r = s + fma(t * t, rest, lost);
  }
  return copysign(r, x);
}

// float64: h + h / (1 + 2h) with h = (exp(|x|) - 1) / 2, and e + 1 / 4e with e = exp(|x|) / 2; e alone for large x,
// which overflows last.
E wide_hyperbolic(Fn f, E x) {
  E a = abs(x);
  Power p = exp_power(select(a > 712.0, 712.0, a));
  E k = p.k - 1.0, far = scaled_sum(p.point, fma(p.point, p.r, p.rest), k);
  if (f == Fn::cosh) {
    Sum e = sum(p);
    e = {scale(e.high, k), scale(e.low, k)};
    Sum back = quotient({real(0.25, x), real(0, x)}, e), both = fast_sum(e.high, back.high);
    return select(a > 40.0, far, both.high + (both.low + (e.low + back.low)));
  }
  Sum h = half_expm1(p), e = exact_sum(real(1, x), h.high + h.high);
  Sum back = quotient(h, {e.high, e.low + (h.low + h.low)}), both = fast_sum(h.high, back.high);
  E near = select(a < 1e-20, a, both.high + (both.low + (h.low + back.low)));
  return copysign(select(a > 40.0, far, near), x);
}

// ---- logarithms

E log_index(E m) { return bits(m + sixteenths(m)); }  // of the table's entry

// m times the reciprocal of the nearest j/16 is 1 + f; near 1 it is m itself. Then log(1 + f) = f - f^2 / 2 + f^3
// (...), and only the rounding of the first two terms matters. float64, x > 0 and finite.
Sum log_sum(E x, bool of_power = false) {
  E m = mantissa(x), k = exponent(x), index = log_index(m);
  Sum p = exact_product(m, entry(kLogarithm64, 0, index));
  Sum f = fast_sum(p.high - 1.0, p.low);
  Sum square = exact_product(f.high * -0.5, f.high);
  E point = fma(k, 0.6931471787393093, entry(kLogarithm64, 1, index));  // exact
  Sum s = fast_sum(point, f.high), t = fast_sum(s.high, square.high);
  E low = fma(k, 1.8206359985041462e-09, entry(kLogarithm64, 2, index));
  E slope = of_power ? fma(f.high, f.high, -f.high) : -f.high;  // 1 / (1 + f) - 1
  low = low + fma(f.low, slope, f.low);
  low = low + (square.low + (s.low + t.low));
  E cube = (square.high * -2.0) * f.high;
  if (!of_power) return fast_sum(t.high, fma(cube, poly(f.high, kLog64), low));
  // A power multiplies the error by up to 745, so the cubic term is a sum as well.
  Sum third = product(product({square.high * -2.0, square.low * -2.0}, {f.high, real(0, x)}),
                      {real(1.0 / 3, x), real(0x1.5555555555555p-56, x)});
  E rest = poly(f.high, std::span(kLog64).subspan(1));
  t = fast_sum(t.high, third.high);
  return fast_sum(t.high, fma(cube * f.high, rest, low + (third.low + t.low)));
}

// float64, to 1e-11 of the logarithm, which suffices for results in float32; x > 0 and finite.
E log_positive(E x) {
  E m = mantissa(x), k = exponent(x), index = log_index(m);
  E f = fma(m, entry(kLogarithm64, 0, index), real(-1, x));
  E point = fma(k, 0.6931471805599453, entry(kLogarithm64, 1, index));
  return fma(f * f, fma(f, poly(f, kLogShort64), real(-0.5, x)), point + f);
}
E log_short(E x) { return log_special(log_positive(x), x); }
// By the reciprocal of the nearest j/16, as in log_sum, but with a single sum, because the terms after f are far
// smaller. float32 uses a reciprocal with so few digits that f is (nearly) exact, and takes x + rest if there is a
// rest.
E log_to(Fn base, E x, E rest = {}) {
  bool d = is_wide(x), two = base == Fn::log2, ten = base == Fn::log10;
  E m = mantissa(x), k = exponent(x), index = log_index(m);
  auto row = [&](size_t j) { return d ? entry(kLogarithm64, j, index) : entry(kLogarithm32, j, index); };
  size_t at = two ? 3 : ten ? 5 : 1;
  E f, beyond;
  if (d) {
    Sum p = exact_product(m, row(0));
    f = p.high - 1.0, beyond = fma(-f, p.low, p.low);
  } else {
    f = fma(m, row(0), real(-1, x));
  }
  if (rest.get()) {
    Sum s = fast_sum(f, scale(rest, -k) * row(0));
    f = s.high, beyond = s.low;
  }
  E point = row(at), low = row(at + 1);
  double factor = two   ? 1.4426950408889634
                  : ten ? 0.4342944819032518
                        : 1,
         high = pick(x, double(float(factor)), factor),
         more = pick(x, factor - high, two ? 2.0355273740931033e-17 : 1.098319650216765e-17);
  if (two) {
    point = point + k;
  } else {  // exact
    point =
        fma(k,
            ten ? pick(x, 0.301025390625, 0x1.34413509f8p-2) : pick(x, 0.693145751953125, 0.6931471787393093),
            point);
    low = fma(k,
              ten ? pick(x, 4.6050389811952137e-06, -8.532344317057107e-14)
                  : pick(x, 1.4286068203094172e-06, 1.8206359985041462e-09),
              low);
  }
  Sum first{f, low};
  if (two || ten) {
    first = exact_product(f, real(high, x));
    first.low = fma(f, more, low) + first.low;
  }
  if (beyond.get()) first.low = two || ten ? fma(beyond, high, first.low) : low + beyond;
  std::vector<double> c{factor / -2};
  for (int n = 3; !d && n < 7; ++n) c.push_back(factor / (n % 2 ? n : -n));
  for (size_t n = 0; d && n < std::size(kLog64); ++n) c.push_back(factor * kLog64[n]);
  Sum s = fast_sum(point, first.high);
  return log_special(s.high + (fma(f * f, long_poly(f, c), first.low) + s.low), x);
}

// float64: the logarithm of high + low, and twice that if `twice`.
E wide_log(Sum u, E twice = {}) {
  Sum l = log_sum(u.high);
  E low = l.low + u.low / u.high;
  if (twice.get()) {
    Sum s = fast_sum(l.high, select(twice, 0.6931471805599453, real(0, l.high)));
    l.high = s.high;
    low = low + (s.low + select(twice, 2.3190468138462996e-17, real(0, l.high)));
  }
  return log_special(l.high + low, u.high);
}
E narrow_log1p(E x) {  // near zero the sum with its rest is 1 + x, so f is x
  Sum u = exact_sum(real(1, x), x);
  return select(eq(x, 0.0), x, log_to(Fn::log, u.high, u.low));
}
E wide_log1p(E x) { return select(eq(x, 0.0), x, wide_log(exact_sum(real(1, x), x))); }
E wide_atanh(E x) {
  E a = abs(x), one = real(1, x), z = x * x;
  E far = 0.5 * wide_log(quotient(fast_sum(one, a), fast_sum(one, -a)));
  return copysign(select(a < 1e-5, fma(a * z, fma(z, 0.2, 1.0 / 3), a), far), x);
}
// log(x + sqrt(x^2 + 1)), log(x + sqrt((x - 1) (x + 1))); log(2x) for large x.
E wide_arc_hyperbolic(Fn f, E x) {
  E a = abs(x), one = real(1, x), far = a > 1e17;
  Sum square = exact_product(a, a), u;
  if (f == Fn::asinh) {
    Sum s = exact_sum(square.high, one), r = root({s.high, s.low + square.low});
    u = fast_sum(r.high, a), u.low = u.low + r.low;
  } else {
    Sum r = root(product(fast_sum(a, one), fast_sum(a, -one)));
    u = fast_sum(a, r.high), u.low = u.low + r.low;
  }
  u = {select(far, a, u.high), select(far, 0.0, u.low)};
  E l = wide_log(u, far);
  if (f == Fn::acosh) return select(x < 1.0, kNan, l);
  E z = a * a;
  return copysign(select(a < 1e-5, fma(a * z, fma(z, 3.0 / 40, -1.0 / 6), a), l), x);
}

// ---- the normal distribution, the error function, sigmoid

// exp(-a^2 / 2) g(a) with g from a table of polynomials (elementary_tables.py), so that neither factor cancels. The
// square is exact: its rounding error is added to the reduced argument of the exponential. ndtr(-a) or erfc(a), a >=
// 0, without 2^floor(k).
Sum normal_tail_sum(E a, bool of_erfc, E& k) {
  bool d = is_wide(a);
  E most = real(d ? (of_erfc ? 28 : 40) : (of_erfc ? 10.6 : 14.99), a);
  a = select(a < most, a, most);
  Sum square = exact_product(a, a);
  double half = of_erfc ? 1 : 0.5;
  Power p = exp_power(square.high * -half, square.low * -half);
  // The argument of g: a, or a sqrt 2 as the sum of two products.
  constexpr double kRoot = 1.4142135623730951, kRootRest = -9.667293313452913e-17;
  double high = of_erfc ? (d ? kRoot : double(float(kRoot))) : 1,
         rest = of_erfc ? (d ? kRootRest : kRoot - double(float(kRoot))) : 0;
  E u = fma(a, high, 1.0);
  E index = shr(bits(u), d ? 48 : 20) - int64_t(d ? 1023 * 16 : 127 * 8);
  auto row = [&](size_t j) { return d ? entry(kTail64, j, index) : entry(kTail32, j, index); };
  E x = of_erfc ? fma(a, rest, fma(a, high, -row(0))) : a - row(0);
  size_t degree = (d ? std::size(kTail64) : std::size(kTail32)) - 2;
  E s = row(degree + 1);
  for (size_t j = degree; j >= 2; --j) s = fma(s, x, row(j));
  s = s * x;
  E g0 = row(1), g = s + g0;
  // (point + q) (g0 + s), the largest term last.
  k = of_erfc ? p.k + 1.0 : p.k;
  E q = fma(p.point, p.r, p.rest);
  Sum first = exact_product(p.point, g0);
  return fast_sum(first.high, fma(p.point, s, fma(q, g, first.low)));
}
// (high + low) 2^floor(k); for tiny float32 numbers high alone, since low would be subnormal, which is slow.
Sum scaled(Sum s, E k) {
  return {scale(s.high, k), scale(is_wide(k) ? s.low : select(k < -100.0, 0.0, s.low), k)};
}

// 1 - f where x is not negative, else f. |f| <= 1/2, so that the rounding error of the difference is exact.
Sum complement(E x, Sum f) {
  E one = real(1, x), negative = x < 0.0, high = one - f.high, low = ((one - high) - f.high) - f.low;
  return {select(negative, f.high, high), select(negative, f.low, low)};
}
Sum ndtr_sum(E x) {
  E a = abs(x);
  if (!is_wide(x)) a = select(x > 6.0, 6.0, a);  // 1 from there on, and no term is subnormal
  E k;
  Sum tail = normal_tail_sum(a, false, k), r = complement(x, scaled(tail, k));
  return {select(isnan(x), x, r.high), r.low};
}

// exp(-|x|) / (1 + exp(-|x|)) or 1 / (1 + exp(-|x|)); the quotient is corrected by its remainder and by the rounding
// errors of the exponential and of the sum.
Sum sigmoid_sum(E x) {
  E one = real(1, x), a = abs(x), most = real(pick(x, 104.5, 746.0), x);
  a = select(a > most, most, a);
  if (!is_wide(x)) a = select(x > 20.0, 20.0, a);  // 1 from there on, and no term is subnormal
  Power power = exp_power(-a);
  auto [e, lost] = scaled(sum(power), power.k);
  E total = e + one, low = (e - (total - one)) + lost, inverse = one / total;
  if (!is_wide(x))
    // Far below the last place, and its product would be subnormal.
    low = select(abs(low) < 0x1p-40, 0.0, low);
  E positive = x >= 0.0, top = select(positive, one, e), q = top * inverse;
  E left = fma(-q, total, top) + select(positive, 0.0, lost);
  return {q, fma(-q, low, left) * inverse};
}

// x (high + low) with high >= 0, rounded once; infinite or NaN whenever x * high is, with x's sign if it is 0.
// `tiny`: high may be tiny.
E times(E x, Sum f, bool tiny) {
  E product = x * f.high, exact = f.high;
  if (tiny && !is_wide(x))
    exact = select(exact < 0x1p-96, 0.0, exact);  // the rounding error of the product would be subnormal
  E lost = fma(x, exact, -(x * exact)), r = product + fma(x, f.low, lost);
  r = select(abs(product) < kInf, r, product);
  return from_bits(bits(r) | (bits(x) & sign_bit(x)));
}

// -exp(x) = power (1 + beyond), a normal number, which is scaled by adding to the bits of a power of two. k is x /
// ln2 rounded to a multiple of 1/16, t = k + sixteenths, head = x - k ln2 with the first digits of ln2.
struct NearPower {
  E power, beyond;
};
NearPower near_power(E t, E k, E head) {
  bool d = is_wide(k);
  E r = fma(k, pick(k, 2.1219444170128554e-4, -1.8206359985041462e-09), head), n = bits(t);
  E point = d ? entry(kScaled64, 0, n) : entry(kScaled32, 0, n);
  E missing = d ? entry(kScaled64, 1, n) : entry(kScaled32, 1, n);
  return {from_bits(bits(point) + shl(n, pick<int64_t>(k, 19, 48))),
          fma(r * r, d ? long_poly(r, kExp64) : poly(r, kExp32), r) + missing};
}

// sigmoid_sum with shorter sums, for exp(-|x|) whose terms are normal float32 numbers.
constexpr double kNearSigmoid = 60;
Sum near_sigmoid(E x) {
  E a = abs(x), one = real(1, x);
  a = select(a > kNearSigmoid, kNearSigmoid, a);  // subnormal numbers would be slow
  double magic = sixteenths(x);
  E t = fma(a, -1.4426950408889634, magic), k = t - magic;
  auto [power, beyond] = near_power(t, k, fma(k, -0.693359375, -a));
  E rest = power * beyond, total = one - power, low = (one - total) - power - rest,
    rounded_total = total + low;
  low = (total - rounded_total) + low;
  E inverse = one / rounded_total, positive = x >= 0.0, top = select(positive, one, -power),
    q = top * inverse;
  E left = fma(-q, rounded_total, top) - select(positive, 0.0, rest);
  return {q, fma(-q, low, left) * inverse};
}

E of_sum(E x, Sum s, bool times_x, bool tiny) { return times_x ? times(x, s, tiny) : rounded(s); }

E expand_sigmoid(E x, bool times_x) {
  E exact = of_sum(x, sigmoid_sum(x), times_x, true);
  if (is_wide(x)) return exact;
  E near = of_sum(x, near_sigmoid(x), times_x, false);
  return unless(bit_not(x > -kNearSigmoid), near, exact);
}

// normal_tail_sum with shorter sums, if the result is a normal number and its interval is one of 16. -power (1 +
// beyond) (g + lost) is exp(-a^2) erfcx(a) for erfc, else exp(-a^2 / 2) erfcx(a / sqrt 2), where erfcx has an exact
// linear term.
struct NearTail {
  E power, beyond, g, lost;
};
NearTail near_tail(E a, bool of_erfc) {
  constexpr double kRoot = 0.7071067811865476, kRoot32 = float(kRoot);
  bool d = is_wide(a);
  double magic = sixteenths(a);
  E t = fma(a * a, of_erfc ? -1.4426950408889634 : -0.7213475204444817, magic), k = t - magic;
  E first = k * pick(a, -0.693359375, -0.6931471787393093);  // exact
  auto [power, beyond] = near_power(t, k, fma(of_erfc ? -a : a * -0.5, a, first));
  E index = shr(bits((of_erfc ? a : a * kRoot) + 1.0), pick<int64_t>(a, 21, 50));
  auto row = [&](size_t j) { return d ? entry(kTailErfc64, j, index) : entry(kTailErfc32, j, index); };
  E u = of_erfc ? a - row(0) : fma(a, kRoot - kRoot32, fma(a, kRoot32, -row(0)));
  E constant = row(1), slope = row(2);
  std::vector<E> rest;
  for (size_t j = 3; j < (d ? std::size(kTailErfc64) : std::size(kTailErfc32)); ++j) rest.push_back(row(j));
  E g = fma(slope, u, constant), lost = fma(slope, u, constant - g);
  return {power, beyond, g, fma(u * u, long_poly(u, std::span<const E>(rest)), lost)};
}
// For float32, if all terms are normal numbers.
constexpr double kNearNdtr = 11;
Sum near_ndtr(E x) {
  E a = abs(x);
  a = select(a > kNearNdtr, kNearNdtr, a);  // subnormal numbers would be slow
  auto [power, beyond, g, lost] = near_tail(a, false);
  power = power * -0.5;
  Sum tail = exact_product(power, g);
  return complement(x, {tail.high, fma(power, lost, fma(power * beyond, g + lost, tail.low))});
}

// In float32 it is 1 - ndtr(-x), with ndtr(-|x|) by the polynomial of the interval that contains |x|; farther out the
// exact sum.
E expand_ndtr(E x, bool times_x) {
  E exact = of_sum(x, ndtr_sum(x), times_x, true);
  if (is_wide(x)) return exact;
  constexpr double kPerUnit = 7;
  E a = abs(x);
  Piece p = piece(kNormal32, a, bits(fma(a, kPerUnit, wholes(x))));
  E r;
  if (times_x) {
    r = times(x, complement(x, {p.constant, p.slope * p.t}), false);
  } else {
    r = fma(p.slope, p.t, p.constant);
    r = select(x < 0.0, r, 1.0 - r);
  }
  E far = unless(bit_not(x > -kNearNdtr), of_sum(x, near_ndtr(x), times_x, false), exact);
  return unless(bit_not(a < 31.4 / kPerUnit), r, far);
}

// constant + slope t, exactly, plus the higher terms, for the interval that contains |x|; 1 for large |x|.
E expand_erf(E x) {
  bool d = is_wide(x);
  double per_unit = pick(x, 3.9375, 2.609375), most = pick(x, 3.93, 5.93);
  E a = abs(x);
  a = select(a > most, most, a);
  E index = bits(fma(a, per_unit, wholes(x)));
  auto row = [&](size_t k) { return d ? entry(kErf64, k, index) : entry(kErf32, k, index); };
  E t = a - row(0), constant = row(1), slope = row(2);
  std::vector<E> rest;
  for (size_t k = 3; k < (d ? std::size(kErf64) : std::size(kErf32)); ++k) rest.push_back(row(k));
  E s = fma(slope, t, constant), lost = fma(slope, t, constant - s);
  E r = s + fma(t, long_poly(t, std::span<const E>(rest)), lost);
  // For small x, where the rounding error may be subnormal, the result is rounded once.
  return copysign(select(a < 0x1p-100, fma(a, 0.1283791670955126, a), r), x);
}

// The tail of |x|, or 2 minus the tail if x is negative.
E near_erfc(E x, double most) {
  E a = abs(x);
  if (!is_wide(x)) a = select(a > most, most, a);  // subnormal numbers would be slow
  auto [power, beyond, g, lost] = near_tail(a, true);
  E from = select(x < 0.0, 2.0, real(0, x)), high = fma(power, g, from);
  return abs(high + fma(power, lost, fma(power * beyond, g + lost, fma(power, g, from - high))));
}
E expand_erfc(E x) {
  E k;
  Sum tail = normal_tail_sum(abs(x), true, k);
  E far = select(x >= 0.0, scaled_sum(tail.high, tail.low, k), 2.0);
  double most = pick(x, 8.0, 15.0);
  return unless(bit_not(abs(x) < most), near_erfc(x, most), select(isnan(x), x, far));
}

// Through the root of -log(1 - a^2), for a near 1.
Sum far_erfinv(E a) {
  bool d = is_wide(a);
  E one = real(1, a), rest = one - a;
  Sum above = fast_sum(one, a), left = exact_product(rest, above.high), w;
  if (d) {
    w = log_sum(left.high);
  } else {
    E l = log_short(widen(left.high));
    w.high = narrow(l);
    w.low = narrow(l - widen(w.high));
  }
  left.low = fma(rest, above.low, left.low);
  w.low = w.low + left.low / left.high;
  w = {-w.high, -w.low};
  E r = sqrt(w.high);
  E lost = (fma(-r, r, w.high) + w.low) / (r + r);
  E nearest = bits(fma(r, 4.0, wholes(a)));
  Piece q = d ? piece(kInverseErfFar64, r, nearest) : piece(kInverseErfFar32, r, nearest);
  return {q.constant, q.slope * q.t + lost};  // the slope is nearly 1
}

// |x| times the polynomial of the interval that contains 1 - |x|; far_erfinv if |x| is nearer to 1.
E expand_erfinv(E x) {
  bool d = is_wide(x);
  E a = abs(x);
  // 1 belongs to the interval below it.
  E index = shr(bits(1.0 - a) - int64_t(1), d ? 51 : 21);
  Piece p = d ? piece(kInverseErf64, a, index) : piece(kInverseErf32, a, index);
  Sum s{p.constant, p.slope * p.t};
  // Elsewhere products or their low terms may be subnormal. A single unsigned comparison of the bits, moved down to
  // the smallest number, detects both ranges and NaN.
  E least = bits(real(0x1p-100, x)), most = bits(real(1 - 1.0 / 256, x)), smallest = sign_bit(x);
  E hard = bits(a) - least + smallest >= most - least + smallest;
  E high = a * 0x1p64;
  Sum product = exact_product(high, s.high);
  product = fast_sum(product.high, fma(high, s.low, product.low));
  E up = scaled_sum(product.high, product.low, real(-64, x));
  E beyond = select(eq(a, 1.0), real(kInf, x), real(kNan, x));
  E far = select(a < 0x1p-100, up, select(a < 1.0, rounded(far_erfinv(a)), beyond));
  return copysign(unless(hard, fma(a, s.high, a * s.low), far), x);
}

// ---- angles

// One polynomial of the rest of x from the nearest multiple of pi; for a cosine, from the nearest odd multiple of
// pi/2.
E half_turn(E x, bool cosine) {
  double magic = wholes(x), inverse = 0.31830988618379067;
  E t = cosine ? fma(x, inverse, -0.5) + magic : fma(x, inverse, magic), k = t - magic;
  if (cosine) k = k + 0.5;
  E r = fma(k, -1.2246467991473532e-16, fma(k, -3.141592653589793, x)), z = r * r;
  E s = r * fma(z, poly(z, kSinShort64), real(1, x)), n = cosine ? bits(t) + int64_t(1) : bits(t);
  return from_bits(bits(s) ^ shl(n, 63));
}

// x - n step, and n. The step is pi/8, or pi/16 for a tangent; tables have the sin and cos of its multiples up to pi.
struct Turn {
  Sum rest;
  E n;
};
// For |x| < 2^11, or 2^20 in float64. The first product cancels exactly, because the rest is a multiple of the last
// place of the step; the second one is exact, because its factor has 10 (or 29) digits.
Turn turn(E x, bool of_tan, int offset) {
  double magic = wholes(x) + offset, by = of_tan ? 0.5 : 1;
  E t = fma(x, 2.5464790894703255 / by, magic), k = t - magic;
  E first = fma(k, -by * pick(x, 0x1.921fb6p-2, 0x1.921fb54442d18p-2), x);
  double second = -by * pick(x, -0x1.778p-27, 0x1.1a62633p-56);
  E high = fma(k, second, first), low = fma(k, second, first - high);
  return {{high, fma(k, -by * pick(x, 0x1.68c234p-41, 0x1.45c06e0e68948p-88), low)}, bits(t)};
}
// float64, n < 2^40, with 160 bits of pi.
Turn far_turn(E x, bool of_tan, int offset) {
  double magic = wholes(x) + offset, by = of_tan ? 0.5 : 1;
  E t = fma(x, 2.5464790894703255 / by, magic), k = t - magic;
  E first = fma(k, by * -0.39269908169872414, x);
  Sum second = exact_product(k, real(by * -1.5308084989341915e-17, x)), r = exact_sum(first, second.high);
  E low = fma(k, by * 3.7434622621479246e-34, r.low + second.low);
  return {fast_sum(r.high, low), bits(t)};
}

// high + low of point + across z, where point is at least as large. z is the rest (both parts), `odd` is f(z) - z,
// and `even`, if present, is cos z - 1.
Sum turned(Sum point, Sum across, E z, E odd, E even) {
  E s = fma(across.high, z, point.high), lost = fma(across.high, z, point.high - s);
  E low = fma(across.high, odd, fma(across.low, z, point.low));
  if (even.get()) low = fma(point.high, even, low);
  return {s, low + lost};
}
E sin_of(const Turn& angle) {
  E r = angle.rest.high, z = r * r;
  bool d = is_wide(r);
  auto row = [&](size_t k) { return d ? entry(kEighths64, k, angle.n) : entry(kEighths32, k, angle.n); };
  E odd = fma(r * z, d ? poly(z, kSin64) : poly(z, kSin32), angle.rest.low);
  E even = z * (d ? poly(z, kCos64) : poly(z, kCos32));
  E v = rounded(turned({row(0), row(1)}, {row(2), row(3)}, r, odd, even));
  E turned_back = shl(angle.n, pick<int64_t>(r, 28, 60)) & sign_bit(r);  // the other half circle
  return from_bits(bits(v) ^ turned_back);
}
// The sine and the cosine of the sum, both divided by the cosine of the rest.
E tan_of(const Turn& angle) {
  E r = angle.rest.high, z = r * r;
  bool d = is_wide(r);
  auto row = [&](size_t k) {
    return d ? entry(kSixteenths64, k, angle.n) : entry(kSixteenths32, k, angle.n);
  };
  E odd = fma(r * z, d ? poly(z, kTan64) : poly(z, kTan32), angle.rest.low);
  Sum s{row(0), row(1)}, c{row(2), row(3)};
  Sum top = turned(s, c, r, odd, {}), bottom = turned(c, {-s.high, -s.low}, r, odd, {});
  return rounded(quotient(fast_sum(top.high, top.low), fast_sum(bottom.high, bottom.low)));
}

E expand_angle(Fn f, E x) {
  E w = widen(x), far = f == Fn::sin ? far_sin(w) : f == Fn::cos ? far_cos(w) : far_tan(w);
  bool of_tan = f == Fn::tan, by_half = !of_tan && !is_wide(x);
  auto of = [&](const Turn& t) { return of_tan ? tan_of(t) : sin_of(t); };
  int offset = f == Fn::cos ? 4 : 0;
  E middle = by_half ? half_turn(w, f == Fn::cos) : of(far_turn(w, of_tan, offset));
  far = unless(bit_not(abs(w) < (by_half ? 1073741824.0 : 1099511627776.0)), middle, far);
  if (!is_wide(x)) far = narrow(far);
  E near = of(turn(x, of_tan, offset)), r = unless(bit_not(abs(x) < pick(x, 2048.0, 1048576.0)), near, far);
  return f == Fn::cos ? r : select(eq(x, 0.0), x, r);  // -0
}

// float64: the angle of a point with y, x >= 0, not both 0. t = y / x or x / y, and c is the nearest j/16: atan t =
// atan c + atan((t - c) / (1 + c t)). The low parts of y and x may be missing.
Sum angle_of(Sum y, Sum x) {
  E steep = y.high > x.high;
  Sum longer{select(steep, y.high, x.high), {}}, shorter{select(steep, x.high, y.high), {}};
  double magic = sixteenths(x.high);
  E t = bounded(shorter.high / longer.high, 0, 0.9375) + magic, c = t - magic, index = bits(t);
  Sum top = exact_product(c, longer.high), across = exact_product(c, shorter.high);
  Sum bottom = fast_sum(longer.high, across.high);
  E left = -top.low, right = bottom.low + across.low;
  if (y.low.get()) {
    longer.low = select(steep, y.low, x.low), shorter.low = select(steep, x.low, y.low);
    left = left + fma(-c, longer.low, shorter.low);
    right = right + fma(c, shorter.low, longer.low);
  }
  Sum q = quotient({shorter.high - top.high, left}, {bottom.high, right});
  E z = q.high * q.high;
  E low = fma(z * q.high, poly(z, kAtanNear64), q.low + entry(kArc64, 1, index));
  Sum s = fast_sum(entry(kArc64, 0, index), q.high);
  low = low + s.low;
  Sum rest = fast_sum(real(1.5707963267948966, t), -s.high);
  E beyond = rest.low + (6.123233995736766e-17 - low);
  return {select(steep, rest.high, s.high), select(steep, beyond, low)};
}
Sum beyond_half(Sum angle) {  // pi minus the angle
  Sum s = fast_sum(real(3.141592653589793, angle.high), -angle.high);
  return {s.high, s.low + (1.2246467991473532e-16 - angle.low)};
}
// The angle whose sine is |x| up to 1/2; above, pi/2 minus twice the angle of the root of z = (1 - |x|) / 2.
E expand_arc(Fn f, E x) {
  E a = abs(x), far = a > 0.5, z = select(far, fma(a, -0.5, 0.5), x * x), s = sqrt(z), zero = real(0, x);
  E odd = is_wide(x) ? long_poly(z, kAsin64) : long_poly(z, kAsin32);
  // The rounding error of the root: times 1 / (2 s), which is known to an eighth.
  E inverse = from_bits(pick<int64_t>(x, 0x7e7311c7, 0x7fce623822fc16e6) - bits(s));
  E sine = select(far, s, a), lost = select(far, fma(-s, s, z) * inverse, 0.0);
  E more = fma(z * odd, sine, lost), from, low, times;
  constexpr double kHalf = 1.5707963267948966;
  double half = pick(x, double(float(kHalf)), kHalf), half_low = pick(x, kHalf - half, 6.123233995736766e-17);
  if (f == Fn::asin) {
    times = select(far, -2.0, real(1, x)), from = select(far, half, zero), low = select(far, half_low, zero);
  } else {
    E sign = bits(x) & sign_bit(x), negative = x < 0.0;
    auto with_sign = [&](E v) { return from_bits(bits(v) ^ sign); };
    sine = with_sign(sine), more = with_sign(more), times = select(far, 2.0, real(-1, x));
    from = select(far, select(negative, 2 * half, zero), half);
    low = select(far, select(negative, 2 * half_low, zero), half_low);
  }
  E high = fma(times, sine, from);
  low = fma(times, more, fma(times, sine, from - high) + low);
  return f == Fn::asin ? copysign(high + low, x) : high + low;
}
// The angle of a point (p, r) plus the angle between it and x, whose tangent, (p |x| - r) / (p + r |x|), is at most
// 1/4.
E expand_atan(E x) {
  bool d = is_wide(x);
  E a = abs(x), index = shr(bits(select(a > 14.0, 14.0, a) + 1.0), pick<int64_t>(x, 21, 50));
  a = select(a > 1e18, 1e18, a);
  auto row = [&](size_t j) { return d ? entry(kPoints64, j, index) : entry(kPoints32, j, index); };
  E p = row(0), r = row(1), from = row(2);
  E top = fma(p, a, -r), bottom = fma(r, a, p), rest = fma(r, a, p - bottom);  // top is exact
  E inverse = real(1, x) / bottom, q = top * inverse, z = q * q;
  E left = fma(-q, rest, fma(-q, bottom, top)) * inverse;
  E odd = d ? long_poly(z, kAtan64) : poly(z, kAtan32);
  E low = fma(q, z * odd, fma(-z, left, left)), high = from + q;  // the slope at q is nearly 1 - z
  return copysign(high + (low + (((from - high) + q) + row(3))), x);
}
// float64, to 1e-11: for results in float32.
E atan_short(E shorter, E longer, E steep) {  // of the quotient, or of its reciprocal
  E t = shorter / longer, z = t * t, p = fma(t * z, poly(z, kAtanShort64), t);
  return select(steep, 1.5707963267948966 - p, p);
}
// The angle of the absolute coordinates; the signs, including -0, are applied after that. Two infinite coordinates
// count as two ones, two zeros as 0 and 1.
E expand_atan2(E y, E x) {
  E ay = abs(y), ax = abs(x), left = bits(x) < integer(0, x), alike = select(eq(ay, 0.0), 0.0, real(1, x));
  if (!is_wide(x)) {
    E steep = ay > ax, same = eq(ay, ax), shorter = select(steep, ax, ay), longer = select(steep, ay, ax);
    shorter = select(same, alike, shorter), longer = select(same, 1.0, longer);
    E q = atan_short(widen(shorter), widen(longer), steep);
    return copysign(narrow(select(left, 3.141592653589793 - q, q)), y);
  }
  // Scaled to moderate size, so that products are normal numbers; a quotient that is small equals its angle.
  E longer = select(ay > ax, ay, ax),
    by = select(longer > 0x1p500, 0x1p-600, select(longer < 0x1p-400, 0x1p600, real(1, x)));
  E py = select(eq(ay, ax), alike, select(eq(ax, kInf), 0.0, ay * by));
  E px = select(eq(ay, ax), 1.0, select(eq(ay, kInf), 0.0, ax * by));
  py = select(eq(ay, kInf) & (ax < kInf), 1.0, py);
  px = select(eq(ax, kInf), 1.0, px);
  Sum angle = angle_of({py, {}}, {px, {}});
  E small = ay / ax, near = select(small < 1e-9, small, rounded(angle));
  E r = select(left, rounded(beyond_half(angle)), near);
  return select(isnan(ax + ay), kNan, copysign(r, y));
}

// ---- powers

// Small exponents, which are the most frequent ones, become products, quotients and roots, lane by lane.
E expand_pow(E x, E y) {
  E square = x * x, one = real(1, x), positive = x > 0.0, r = any_pow(x, y);
  auto is = [&](double exponent) { return eq(y, exponent); };
  auto otherwise = [&](E easy, E value) { r = unless(bit_not(easy), value, r); };
  otherwise(is(-0.5) & positive, one / sqrt(x));
  otherwise(is(0.5) & positive, sqrt(x));
  otherwise(is(-1), one / x);
  otherwise(is(3), square * x);
  otherwise(is(1), x);
  otherwise(is(2), square);
  return r;
}
// exp(y log a), with the exponent as a sum of two numbers.
E wide_power_of(E a, E y) {
  Sum l = log_sum(a, true);
  E p = y * l.high, within = bounded_for_exp(p);
  E low = select(eq(within, p), fma(y, l.low, fma(y, l.high, -p)), 0.0);
  return rounded(exp_power(within, low));
}
E expand_any_pow(E x, E y) {
  E a = abs(x), p = is_wide(x) ? wide_power_of(a, y) : narrow(exp_short(widen(y) * log_positive(widen(a))));
  // A negative base needs an integer exponent; its odd powers are negative.
  auto is_integer = [](E e) { return eq(trunc(e), e); };
  E odd = bit_not(is_integer(y * 0.5)), signed_power = select(is_integer(y), select(odd, -p, p), kNan);
  p = select(x < 0.0, signed_power, p);
  // Easy: a finite base other than zero and a finite exponent. The rest are IEEE 754's special cases, including -0.
  E easy = (a > 0.0) & (a < kInf) & (abs(y) < kInf);
  E grows = eq(a > 1.0, y > 0.0), size = select(eq(a, 1.0), 1.0, select(grows, kInf, real(0, x)));
  size = select(is_integer(y) & odd & (bits(x) < integer(0, x)), -size, size);
  E special = select(isnan(x) | isnan(y), kNan, size);
  return unless(bit_not(easy), p, select(eq(y, 0.0) | eq(x, 1.0), 1.0, special));
}

// ---- modified Bessel functions of the first kind: the power series (DLMF 10.25.2) up to 8, from there on the polynomials
// of mapped.cpp.

std::vector<double> bessel_series(int order) {
  std::vector<double> c;
  long double term = 1;
  for (int k = 0; k < 26; ++k) {  // enough for x <= 8
    c.push_back(double(term));
    term /= static_cast<long double>((k + 1) * (k + 1 + order));
  }
  return c;
}
// sqrt(a) exp(-a) I(a), a > 8.
template <size_t n>
E scaled_far(E a, const double (&c)[2][n]) {
  E t = 1.0 / a;
  auto piece = [&](const double(&row)[n], double middle) {
    size_t terms = n;
    while (row[terms - 1] == 0) --terms;
    return poly(t - middle, std::span(row, terms));
  };
  return select(t < 0.03125, piece(c[0], 0.03125 / 2), piece(c[1], (0.03125 + 0.125) / 2));
}
E wide_bessel(E x, int order, bool scaled) {
  E a = abs(x), half = a * 0.5, near = poly(half * half, bessel_series(order));
  if (order) near = near * half;
  E far = (order ? scaled_far(a, mapped::kScaledI1) : scaled_far(a, mapped::kScaledI0)) / sqrt(a);
  if (scaled) {
    near = exp(-a) * near;
  } else {  // in two factors, where one factor would overflow before the product does
    E huge = a > 700.0, e = exp(select(huge, half, a));
    far = select(eq(a, kInf), kInf, select(huge, e * far * e, e * far));
  }
  E r = unless(a > 8.0, near, far);
  return order ? select(eq(x, 0.0), 0.0, copysign(r, x)) : r;
}
E expand_bessel(Fn f, E x) {
  if (!is_wide(x)) return narrow(call(f, {widen(x)}));
  bool first = f == Fn::bessel_i1 || f == Fn::bessel_i1e;
  return wide_bessel(x, first, f == Fn::bessel_i0e || f == Fn::bessel_i1e);
}

// ---- exact functions. With a NaN operand max and min give NaN, fmax and fmin the other operand.

E opposite_signs(E m, E y) { return ne(m, 0.0) & ((m < 0.0) ^ (y < 0.0)); }

// |x| / |y| truncated is right or one too large, which the exact remainder shows; the sign is applied last.
E expand_floordiv(E x, E y) {
  E a = abs(x), m = abs(y), q = a / m, k = trunc(q), r = fma(-k, m, a), over = r < 0.0;
  k = select(over, k - 1.0, k);
  E sign = (bits(x) ^ bits(y)) & sign_bit(x);
  E down = ne(sign, int64_t(0)) & ne(r, select(over, -m, 0.0));
  k = select(down, k + 1.0, k);
  E easy = (q < pick(x, 0x1p22, 0x1p52)) & (m < kInf);
  // Uses the remainder, since the quotient itself may round up to an integer.
  E rest = fmod(x, y), quotient = x / y, p = (x - rest) / y;
  p = select(opposite_signs(rest, y), p - 1.0, p);
  E f = floor(p);
  f = select(p - f > 0.5, f + 1.0, f);
  f = select(eq(p, 0.0), copysign(real(0, x), quotient), f);
  return unless(bit_not(easy), from_bits(bits(k) | sign), select(eq(y, 0.0), quotient, f));
}
E expand_exact(Fn f, E x, E y) {
  switch (f) {
    case Fn::sign: return select(x > 0.0, 1.0, select(x < 0.0, -1.0, real(0, x)));
    case Fn::relu: return select(x < 0.0, 0.0, x);
    case Fn::isinf: return eq(abs(x), kInf);
    case Fn::max: return select(isnan(x), x, select(x > y, x, y));
    case Fn::min: return select(isnan(x), x, select(x < y, x, y));
    case Fn::fmax: return select(isnan(y), x, select(x > y, x, y));
    case Fn::fmin: return select(isnan(y), x, select(x < y, x, y));
    case Fn::truncdiv: return trunc(x / y);
    case Fn::floordiv: return expand_floordiv(x, y);
    case Fn::remainder: {
      E m = fmod(x, y);
      return select(opposite_signs(m, y), m + y, m);
    }
    default: return {};
  }
}

// ---- functions of float32 by way of float64

E by_wide(Fn f, E x) {
  E w = widen(x), a = abs(w), z = w * w;
  auto series = [&](double limit, E exact, E near) {  // for odd functions that cancel near zero
    return select(abs(w) < limit, near, exact);
  };
  switch (f) {
    case Fn::expm1: return series(1e-5, exp_short(w) - 1.0, w * poly(w, {1, 0.5}));
    case Fn::sinh: {
      E e = exp_short(a), big = copysign(0.5 * (e - 1.0 / e), w);
      return series(0.1, big, w * poly(z, {1, 1.0 / 6, 1.0 / 120, 1.0 / 5040}));
    }
    case Fn::cosh: {
      E e = exp_short(a);
      return 0.5 * (e + 1.0 / e);
    }
    case Fn::asinh:
      return series(1e-3, copysign(log_short(a + sqrt(z + 1.0)), w), w * poly(z, {1, -1.0 / 6, 3.0 / 40}));
    case Fn::acosh: return log_short(w + sqrt(z - 1.0));
    case Fn::atanh:
      return series(1e-3, 0.5 * log_short((1.0 + w) / (1.0 - w)), w * poly(z, {1, 1.0 / 3, 0.2}));
    default: return {};
  }
}

E wide(Fn f, E x) {
  switch (f) {
    case Fn::expm1: return wide_expm1(x);
    case Fn::log1p: return wide_log1p(x);
    case Fn::sinh:
    case Fn::cosh: return wide_hyperbolic(f, x);
    case Fn::asinh:
    case Fn::acosh: return wide_arc_hyperbolic(f, x);
    case Fn::atanh: return wide_atanh(x);
    default: return {};
  }
}

// ---- by name

E expand(Fn f, E x, E y, E z) {
  bool d = is_wide(x);
  switch (f) {
    case Fn::rsqrt: return real(1, x) / sqrt(x);
    case Fn::exp: return expand_exp(x);
    case Fn::exp2: return expand_exp2(x);
    case Fn::log:
    case Fn::log2:
    case Fn::log10: return log_to(f, x);
    case Fn::tanh: return expand_tanh(x);
    case Fn::sigmoid: return expand_sigmoid(x, false);
    case Fn::times_sigmoid: return expand_sigmoid(x, true);
    case Fn::ndtr: return expand_ndtr(x, false);
    case Fn::times_ndtr: return expand_ndtr(x, true);
    case Fn::erf: return expand_erf(x);
    case Fn::erfc: return expand_erfc(x);
    case Fn::erfinv: return expand_erfinv(x);
    case Fn::bessel_i0:
    case Fn::bessel_i0e:
    case Fn::bessel_i1:
    case Fn::bessel_i1e: return expand_bessel(f, x);
    case Fn::sin:
    case Fn::cos:
    case Fn::tan: return expand_angle(f, x);
    case Fn::asin:
    case Fn::acos: return expand_arc(f, x);
    case Fn::atan: return expand_atan(x);
    case Fn::pow: return expand_pow(x, y);
    case Fn::any_pow: return expand_any_pow(x, y);
    case Fn::atan2: return expand_atan2(x, y);
    case Fn::scale: return expand_scale(x, y);
    case Fn::scaled_sum: return expand_scaled_sum({x, y}, z);
    case Fn::mantissa: return expand_mantissa(x);
    case Fn::exponent: return expand_exponent(x);
    case Fn::is_subnormal: return expand_is_subnormal(x);
    case Fn::log_special: return expand_log_special(x, y);
    default: break;
  }
  if (ulp(f) == 0) return expand_exact(f, x, y);
  if (d) return wide(f, x);
  if (f == Fn::log1p) return narrow_log1p(x);
  E r = by_wide(f, x);
  if (!r.get()) return {};
  return f == Fn::acosh ? select(x < 1.0, kNan, narrow(r)) : narrow(r);
}

constexpr Fn kAll[] = {
#define FACULA_FN(n, a, r, u) Fn::n,
    FACULA_SCALAR_FUNCTIONS(FACULA_FN) FACULA_STEPS(FACULA_FN)
#undef FACULA_FN
};
struct Expansions {
  E of[std::size(kAll)][2];
};

}  // namespace

Expr argument(int k, DType d) { return local(kArguments + k, d); }

// Builds all expansions at once, so that their nodes are numbered alike in every process: targets may evaluate them
// in that order.
Expr expansion(Fn f, DType d) {
  static const auto& all = *[] {
    auto* expansions = new Expansions;
    for (Fn g : kAll)
      for (DType e : {DType::Float32, DType::Float64})
        expansions->of[size_t(g)][e == DType::Float64] =
            expand(g, argument(0, e), argument(1, e), argument(2, e));
    return expansions;
  }();
  return is_floating(d) ? all.of[size_t(f)][d == DType::Float64] : E();
}

bool is_library(Fn f, DType d) { return is_floating(d) && ulp(f) > 0 && !expansion(f, d).get(); }

Expr fused_product(Expr e) {
  if (e->kind != Kind::call || e->fn != Fn::mul || !is_floating(e.dtype())) return e;
  for (size_t k : {0, 1}) {
    E f = e->args[k], x = e->args[1 - k];
    for (auto [of, product] :
         {std::pair(Fn::ndtr, Fn::times_ndtr), std::pair(Fn::sigmoid, Fn::times_sigmoid)})
      if (is_call(f, of) && same(f->args[0], x)) return call(product, {x});
  }
  return e;
}

Expr expanded(Expr x) {
  return rewrite(x, [](E e) -> E {
    E c = fused_product(e);
    if (c->kind != Kind::call) return {};
    E body = expansion(c->fn, c->args[0].dtype());
    if (!body.get()) return {};
    std::vector<E> args;
    for (auto& a : c->args) args.push_back(expanded(a));
    return rewrite(expanded(body),
                   [&](E v) { return v->kind == Kind::local ? args[size_t(v->slot - kArguments)] : E(); });
  });
}

const TableRow& table_row(int64_t row) { return table_rows().at(size_t(row)); }

double entry_of(const TableRow& row, int64_t index) {
  auto last = uint64_t(row.count) - 1;
  size_t at = row.count <= 32 ? uint64_t(index) & last : std::min(uint64_t(index), last);
  return row.dtype == DType::Float32 ? double(static_cast<const float*>(row.values)[at])
                                     : static_cast<const double*>(row.values)[at];
}

}  // namespace facula::loop
