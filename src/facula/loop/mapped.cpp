#include "facula/loop/mapped.h"

#include <math.h>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <cstring>

#include "facula/loop/mapped_tables.h"
#include "facula/special_text.h"

// Everything here has internal linkage: every processor that runs generated kernels has AVX2, and mapped_wide.cpp
// compiles this source again for those with AVX-512. Products and sums are not contracted (cmake/special.cmake), so
// that a lane has the same bits as a single number, and as on other targets.
#ifdef FACULA_WIDE_LANES
#pragma GCC target("avx2,fma,avx512f,avx512dq,avx512vl,prefer-vector-width=512")
#else
#pragma GCC target("avx2,fma")
#endif

namespace facula::loop::mapped {
namespace host {  // its elementary functions are found before libm's, and libm's before those on expressions
namespace {
using ::ceil, ::copysign, ::fabs, ::floor, ::fma, ::fmod, ::nearbyint, ::sqrt, ::trunc;

// The expansions of loop/elementary.h, printed as C99 (cmake/special_elementary.cpp).
#include "facula/special_elementary.h"
#define FACULA_FN(n)                                        \
  inline double n(std::same_as<double> auto... x)           \
    requires requires { facula_##n##_f64(x...); }           \
  {                                                         \
    return facula_##n##_f64(x...);                          \
  }
FACULA_SPECIAL_CALLS(FACULA_FN)
#undef FACULA_FN

// A few lanes, as a GCC vector.
#ifdef FACULA_WIDE_LANES
constexpr int64_t kLanes = 8;
#else
constexpr int64_t kLanes = 4;
#endif
using Lanes = double __attribute__((vector_size(8 * kLanes)));
using Mask = int64_t __attribute__((vector_size(8 * kLanes)));
bool any(bool c) { return c; }
#ifdef FACULA_WIDE_LANES
bool any(Mask c) {
  return __builtin_ia32_cvtq2mask512((long long __attribute__((vector_size(8 * kLanes)))) c);
}
// fma of all lanes, in the current rounding mode.
Lanes fma(Lanes x, auto y, auto z) {
  return __builtin_ia32_vfmaddpd512_mask(x, y - Lanes{}, z - Lanes{}, -1, 4);
}
#ifdef __clang__
Lanes sqrt(Lanes x) { return __builtin_ia32_sqrtpd512(x, 4); }
#else
Lanes sqrt(Lanes x) { return __builtin_ia32_sqrtpd512_mask(x, x, -1, 4); }
#endif
#else
bool any(Mask c) { return __builtin_ia32_movmskpd256((Lanes)c); }
Lanes fma(Lanes x, auto y, auto z) { return __builtin_ia32_vfmaddpd256(x, y - Lanes{}, z - Lanes{}); }
Lanes sqrt(Lanes x) { return __builtin_ia32_sqrtpd256(x); }
#endif
Lanes lanes_at(const double* x) {
  Lanes v;
  std::memcpy(&v, x, sizeof v);
  return v;
}
template <class F>
Lanes each(Lanes x, F&& f) {
  for (int64_t l = 0; l < kLanes; ++l) x[l] = f(x[l]);
  return x;
}
#define FACULA_INLINE __attribute__((always_inline))
// Applies an elementary function to all lanes through memory, where compilers vectorise branch-free code.
template <class F, class... Args>
Lanes together(F&& f, Args... x) {
  double lanes[kLanes];
  auto take = [&](auto&... in) {
    for (int64_t l = 0; l < kLanes; ++l) lanes[l] = f(in[l]...);
  };
  take(reinterpret_cast<const double(&)[kLanes]>(x)...);
  return lanes_at(lanes);
}
#define FACULA_FN(n)                                                                      \
  inline Lanes n(Lanes x, auto... y)                                                      \
    requires requires { straight::facula_##n##_f64(x[0], y[0]...); }                      \
  {                                                                                       \
    return together(                                                                      \
        [](auto... v) FACULA_INLINE { return straight::facula_##n##_f64(v...); }, x, y...); \
  }
FACULA_SPECIAL_CALLS(FACULA_FN)
#undef FACULA_FN

#define FACULA_CALLED(ulp) inline
#define FACULA_EXPANDED(ulp, name)
#define FACULA_LANED template <class Real>
#include "facula/loop/special_functions.h"

// ---- functions of many lanes: one lane at a time, or several where that is faster

template <double f(double)>
void in_lanes(double* x, const double*, int64_t count) {
  for (int64_t i = 0; i < count; ++i) x[i] = f(x[i]);
}
template <double f(double, double)>
void in_lanes(double* x, const double* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) x[i] = f(x[i], y[i]);
}
// x[i] := lanes(x[i], ...) for whole vectors, one(x[i]) for the rest.
template <class F, class G>
void side_by_side(double* x, int64_t count, F&& one, G&& lanes) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    Lanes v = lanes(lanes_at(x + i));
    std::memcpy(x + i, &v, sizeof v);
  }
  for (; i < count; ++i) x[i] = one(x[i]);
}

// J and Y: vectors for lanes whose angles are not huge, the others one by one.
template <double f(double), class Near>
void oscillating(double* all, int64_t count, int order, bool second, Near near) {
  constexpr double kFar = 0x1p19;  // twice this is an angle of the branch-free functions
  side_by_side(all, count, f, [&](Lanes v) {
    Mask none = second ? ~(v > 0.0) : Mask{};
    Lanes x = none ? Lanes{} + 1.0 : v, size = x < 0.0 ? -x : x, r = x;
    if (any(~(size < kFar))) return each(v, f);
    Mask is_near = size < 2.0, is_far = size >= 8.0;
    if (any(~(is_near | is_far))) r = bessel_middle(is_near | is_far ? Lanes{} + 2.0 : size, order, second);
    if (any(is_far)) r = is_far ? hankel(is_far ? size : Lanes{} + 8.0, order, second) : r;
    if (order && !second) r = x < 0.0 ? -r : r;
    if (any(is_near)) r = is_near ? near(is_near ? x : Lanes{} + 1.0) : r;
    return any(none) ? (none ? (v == 0.0 ? Lanes{} - INFINITY : Lanes{} + NAN) : r) : r;
  });
}
#define FACULA_OSCILLATING(f, near, order, second)                              \
  template <>                                                                   \
  void in_lanes<f>(double* x, const double*, int64_t count) {                   \
    oscillating<f>(x, count, order, second, [](Lanes v) { return near(v); });   \
  }
FACULA_OSCILLATING(bessel_j0, j0_near, 0, false)
FACULA_OSCILLATING(bessel_j1, j1_near, 1, false)
FACULA_OSCILLATING(bessel_y0, y0_near, 0, true)
FACULA_OSCILLATING(bessel_y1, y1_near, 1, true)
#undef FACULA_OSCILLATING

// K: vectors for lanes that are positive and whose exponential is a normal number, the others one by one.
Lanes decaying(Lanes x, int order, bool scaled) {
  if (any((x <= 0.0) | (x >= 700.0) | (x != x)))
    return each(x, [&](double v) { return bessel_k(v, order, scaled); });
  Mask near = x <= 1.0;
  Lanes r{};
  if (any(near)) {
    Lanes v = near ? x : Lanes{} + 1.0;
    r = k_near(order, v);
    if (scaled) r *= exp(v);
  }
  if (any(x > 1.0)) {
    Lanes v = near ? Lanes{} + 2.0 : x;
    Lanes f = scaled_decay(order, v) / sqrt(v);
    if (!scaled) f *= exp(-v);
    r = near ? r : f;
  }
  return r;
}
#define FACULA_DECAYING(f, order, scaled)                                            \
  template <>                                                                        \
  void in_lanes<f>(double* x, const double*, int64_t count) {                        \
    side_by_side(x, count, f, [](Lanes v) { return decaying(v, order, scaled); });   \
  }
FACULA_DECAYING(bessel_k0, 0, false)
FACULA_DECAYING(bessel_k1, 1, false)
FACULA_DECAYING(bessel_k0e, 0, true)
FACULA_DECAYING(bessel_k1e, 1, true)
#undef FACULA_DECAYING

// gamma_factor of the lanes `wanted`; those with a >= 10 one by one, because their branches differ.
Lanes gamma_factors(Mask wanted, Lanes a, Lanes x) {
  Mask small = wanted & (a < 10.0), others = wanted & ~small;
  Lanes r{};
  if (any(small)) {
    Lanes n = small ? a : Lanes{} + 1.0, v = small ? x : Lanes{} + 0.25;
    r = any_pow(v, n) * exp(-v) * gamma_reciprocal(n);
  }
  for (int64_t l = 0; l < kLanes && any(others); ++l)
    if (others[l]) r[l] = gamma_factor(a[l], x[l]);
  return r;
}
// Incomplete gamma functions: vectors where series or the continued fraction apply, other lanes one by one.
template <bool upper>
void gamma_ratios(double* all_a, const double* all_x) {
  Lanes a = lanes_at(all_a), x = lanes_at(all_x), y{};
  // For small a all powers are normal numbers.
  Mask ordinary = (a > 0.0) & (a <= 100.0) & (x > 1e-28) & (x < 600.0);
  Mask high = upper ? ordinary & by_upper_series(a, x) : Mask{};
  Mask low = ordinary & ~high & by_lower_series(a, x), beyond = ordinary & ~high & ~low;
  Lanes factor = gamma_factors(low | beyond, a, x);
  if (any(low)) {
    Lanes p = factor * lower_sum(low ? a : Lanes{} + 1.0, low ? x : Lanes{} + 0.25);
    y = upper ? 1.0 - p : p;
  }
  if (any(high)) {
    Lanes q = upper_series(high ? a : Lanes{} + 1.0, high ? x : Lanes{} + 0.25);
    y = high ? q : y;
  }
  if (any(beyond)) {
    Lanes n = beyond ? a : Lanes{} + 1.0, q = factor * n * upper_fraction(n, beyond ? x : Lanes{} + 2.0);
    y = beyond ? (upper ? q : 1.0 - q) : y;
  }
  Mask placed = high | low | beyond;
  for (int64_t l = 0; l < kLanes; ++l) {
    double r = placed[l] ? y[l] : gamma_ratio(a[l], x[l], upper);
    all_a[l] = r <= 0 ? 0 : r;
  }
}
// Lanes of zeta that are all poles or undefined: s[i] := zeta(s[i], q[i]); false if there are others.
bool diverges(double* s, const double* q) {
  Lanes v = lanes_at(s), w = lanes_at(q);
  if (any(~((v <= 1.0) | (w != w)))) return false;
  v = v == 1.0 ? Lanes{} + INFINITY : Lanes{} + NAN;
  std::memcpy(s, &v, sizeof v);
  return true;
}
// Hurwitz's zeta function: lanes that need the sum are collected into vectors, since other lanes have less work. A
// single lane is faster by itself.
template <>
void in_lanes<hurwitz_zeta>(double* all_s, const double* all_q, int64_t count) {
  constexpr int64_t kCollected = 16;
  for (int64_t i = 0; i < count; i += kCollected) {
    double *s = all_s + i, orders[kCollected], arguments[kCollected];
    const double* q = all_q + i;
    int64_t at[kCollected], sums = 0;
    for (int64_t l = 0, n = std::min(kCollected, count - i); l < n; ++l) {
      if (l % kLanes == 0 && l + kLanes <= n && diverges(s + l, q + l)) l += kLanes - 1;
      else if (s[l] > 1 && s[l] < 1e300 && q[l] > 0 && q[l] < 1e300) {
        orders[sums] = s[l], arguments[sums] = q[l];
        at[sums++] = l;
      } else {
        s[l] = hurwitz_zeta(s[l], q[l]);
      }
    }
    for (int64_t k = 0; k < sums; k += kLanes) {
      int64_t group = std::min(kLanes, sums - k);
      for (int64_t l = k + group; l < k + kLanes; ++l) orders[l] = orders[k], arguments[l] = arguments[k];
      Lanes r = group == 1 ? Lanes{} + hurwitz_zeta(orders[k], arguments[k])
                           : zeta_right(lanes_at(orders + k), lanes_at(arguments + k));
      for (int64_t l = 0; l < group; ++l) s[at[k + l]] = r[l];
    }
  }
}
#define FACULA_TOGETHER(f, lanes)                                    \
  template <>                                                        \
  void in_lanes<f>(double* x, const double* y, int64_t count) {      \
    int64_t i = 0;                                                   \
    for (; i + kLanes <= count; i += kLanes) lanes(x + i, y + i);    \
    for (; i < count; ++i) x[i] = f(x[i], y[i]);                     \
  }
FACULA_TOGETHER(igamma, gamma_ratios<false>)
FACULA_TOGETHER(igammac, gamma_ratios<true>)
#undef FACULA_TOGETHER

// The polynomials for vectors of low orders; false if a lane has a higher order.
constexpr double kFewSteps = 6;  // most steps of a recurrence, whose values are also exact at -1 and 1
template <int kind>
bool low_orders(double* x, const double* n) {
  Lanes v = lanes_at(x), order = lanes_at(n), p = first_polynomial(kind, v), before = Lanes{} + 1.0;
  if (any(order >= kFewSteps + 1)) return false;
  Lanes result = order > -1.0 ? (order < 1.0 ? before : p) : Lanes{};
  for (double k = 1; any(order >= k + 1); ++k) {
    Lanes following = next_polynomial(kind, k, v, p, before);
    before = p;
    p = following;
    result = order >= k + 1 ? p : result;
  }
  std::memcpy(x, &result, sizeof result);
  return true;
}
#define FACULA_POLYNOMIAL(f, kind)                                   \
  template <>                                                        \
  void in_lanes<f>(double* x, const double* n, int64_t count) {      \
    int64_t i = 0;                                                   \
    for (; i + kLanes <= count; i += kLanes)                         \
      if (!low_orders<kind>(x + i, n + i))                           \
        for (int64_t l = i; l < i + kLanes; ++l) x[l] = f(x[l], n[l]); \
    for (; i < count; ++i) x[i] = f(x[i], n[i]);                     \
  }
FACULA_POLYNOMIAL(chebyshev_t, 0)
FACULA_POLYNOMIAL(chebyshev_u, 1)
FACULA_POLYNOMIAL(chebyshev_v, 2)
FACULA_POLYNOMIAL(chebyshev_w, 3)
FACULA_POLYNOMIAL(hermite_h, 4)
FACULA_POLYNOMIAL(hermite_he, 5)
FACULA_POLYNOMIAL(laguerre_l, 6)
FACULA_POLYNOMIAL(legendre_p, 7)
#undef FACULA_POLYNOMIAL

}  // namespace
}  // namespace host

#ifdef FACULA_WIDE_LANES
#define FACULA_FN(n, ...) \
  void wide::n(double* x, const double* y, int64_t count) { host::in_lanes<host::n>(x, y, count); }
FACULA_MAPPED_UNARY(FACULA_FN)
FACULA_MAPPED_BINARY(FACULA_FN)
#undef FACULA_FN
#else
#define FACULA_FN(n, ...)                                                                     \
  double n(double x) { return host::n(x); }                                                   \
  void n(double* x, const double* y, int64_t count) { host::in_lanes<host::n>(x, y, count); }
FACULA_MAPPED_UNARY(FACULA_FN)
#undef FACULA_FN
#define FACULA_FN(n, ...)                                                                     \
  double n(double x, double y) { return host::n(x, y); }                                      \
  void n(double* x, const double* y, int64_t count) { host::in_lanes<host::n>(x, y, count); }
FACULA_MAPPED_BINARY(FACULA_FN)
#undef FACULA_FN
#endif

}  // namespace facula::loop::mapped
