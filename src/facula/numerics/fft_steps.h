// Fourier transforms of lines in lanes, a line to a lane, for lengths without prime factors above 7: steps of 2 to 16
// points in registers (Cooley and Tukey, "An algorithm for the machine calculation of complex Fourier series", 1965).
// Each step leaves contiguous pieces, which the next steps finish one by one while they are in the first-level cache.
// Compiled for each width of register; a processor without AVX-512 runs the AVX2 variant.
#pragma once
#include <ducc0/infra/useful_macros.h>
#include <ducc0/math/unity_roots.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <vector>

#include "facula/numerics/fft_lanes.h"
#include "facula/numerics/workspace.h"

#define FACULA_MEMBER [[gnu::always_inline]] inline

namespace facula::numerics {

// The instruction set that a function is compiled for. Callers of the AVX-512 variant have checked that the processor has
// it.
struct Avx2 {
  static constexpr int kBytes = 32;
  template <class F>
  [[gnu::noinline]] __attribute__((target("avx2,fma"))) static void run(const F& f) {
    f();
  }
};
struct Avx512 {
  static constexpr int kBytes = 64;
  template <class F>
  [[gnu::noinline]] __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma"))) static void run(
      const F& f) {
    f();
  }
};

// In-place transforms of a few points, re[k] + i im[k].
template <class V, class T>
struct Points {
  struct C {
    V re, im;
  };
  FACULA_LANES C add(C a, C b) { return {a.re + b.re, a.im + b.im}; }
  FACULA_LANES C sub(C a, C b) { return {a.re - b.re, a.im - b.im}; }
  FACULA_LANES C by(C a, T re, T im) { return {a.re * re - a.im * im, a.re * im + a.im * re}; }
  FACULA_LANES C scaled(C a, T s) { return {a.re * s, a.im * s}; }
  FACULA_LANES C down(C a) { return {a.im, -a.re}; }  // times -i
  FACULA_LANES C eighth(C a) {                        // times exp(-2 pi i / 8)
    constexpr T h = T(0.70710678118654752440L);
    return {(a.re + a.im) * h, (a.im - a.re) * h};
  }
  FACULA_LANES C three_eighths(C a) {
    constexpr T h = T(0.70710678118654752440L);
    return {(a.im - a.re) * h, (a.re + a.im) * -h};
  }

  FACULA_LANES void of(C (&)[1]) {}
  FACULA_LANES void of(C (&x)[2]) {
    C a = x[0];
    x[0] = add(a, x[1]);
    x[1] = sub(a, x[1]);
  }
  FACULA_LANES void of(C (&x)[4]) { four(x[0], x[1], x[2], x[3]); }
  FACULA_LANES void of(C (&x)[8]) {
    four(x[0], x[2], x[4], x[6]);
    four(x[1], x[3], x[5], x[7]);
    C odd[4] = {x[1], eighth(x[3]), down(x[5]), three_eighths(x[7])}, even[4] = {x[0], x[2], x[4], x[6]};
#pragma GCC unroll 4  // here and in the other loops of this class, so that points stay in registers
    for (int k = 0; k < 4; ++k) x[k] = add(even[k], odd[k]), x[k + 4] = sub(even[k], odd[k]);
  }
  FACULA_LANES void of(C (&x)[16]) {
    constexpr T c = T(0.92387953251128675613L), s = T(0.38268343236508977173L);
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) four(x[k], x[k + 4], x[k + 8], x[k + 12]);
    x[5] = by(x[5], c, -s), x[6] = eighth(x[6]), x[7] = by(x[7], s, -c);
    x[9] = eighth(x[9]), x[10] = down(x[10]), x[11] = three_eighths(x[11]);
    x[13] = by(x[13], s, -c), x[14] = three_eighths(x[14]), x[15] = by(x[15], -c, s);
#pragma GCC unroll 4
    for (int k = 0; k < 16; k += 4) four(x[k], x[k + 1], x[k + 2], x[k + 3]);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
#pragma GCC unroll 4
      for (int j = i + 1; j < 4; ++j) std::swap(x[4 * i + j], x[4 * j + i]);
  }
  FACULA_LANES void of(C (&x)[3]) {
    constexpr T s = T(0.86602540378443864676L);
    C sum = add(x[1], x[2]), turned = down(scaled(sub(x[1], x[2]), s)),
      middle = add(x[0], scaled(sum, T(-0.5)));
    x[0] = add(x[0], sum);
    x[1] = add(middle, turned);
    x[2] = sub(middle, turned);
  }
  // Uses sums and differences of points at equal distance from either end, times cosines and sines.
  FACULA_LANES void of(C (&x)[5]) {
    constexpr T c1 = T(0.30901699437494742410L), c2 = T(-0.80901699437494742410L),
                s1 = T(0.95105651629515357212L), s2 = T(0.58778525229247312917L);
    C a = add(x[1], x[4]), b = add(x[2], x[3]), d = sub(x[1], x[4]), e = sub(x[2], x[3]);
    C first = add(x[0], add(scaled(a, c1), scaled(b, c2))),
      second = add(x[0], add(scaled(a, c2), scaled(b, c1)));
    C turned = down(add(scaled(d, s1), scaled(e, s2))), other = down(sub(scaled(d, s2), scaled(e, s1)));
    x[0] = add(x[0], add(a, b));
    x[1] = add(first, turned), x[4] = sub(first, turned);
    x[2] = add(second, other), x[3] = sub(second, other);
  }
  FACULA_LANES void of(C (&x)[7]) {
    constexpr T c1 = T(0.62348980185873353053L), c2 = T(-0.22252093395631440429L),
                c3 = T(-0.90096886790241912624L), s1 = T(0.78183148246802980871L),
                s2 = T(0.97492791218182360702L), s3 = T(0.43388373911755812048L);
    C a = add(x[1], x[6]), b = add(x[2], x[5]), c = add(x[3], x[4]);
    C d = sub(x[1], x[6]), e = sub(x[2], x[5]), f = sub(x[3], x[4]);
    auto even = [&](T p, T q, T r) __attribute__((always_inline)) {
      return add(x[0], add(scaled(a, p), add(scaled(b, q), scaled(c, r))));
    };
    auto odd = [&](T p, T q, T r) __attribute__((always_inline)) {
      return down(add(scaled(d, p), add(scaled(e, q), scaled(f, r))));
    };
    C k1 = even(c1, c2, c3), k2 = even(c2, c3, c1), k3 = even(c3, c1, c2);
    C t1 = odd(s1, s2, s3), t2 = odd(s2, -s3, -s1), t3 = odd(s3, -s1, s2);
    x[0] = add(x[0], add(a, add(b, c)));
    x[1] = add(k1, t1), x[6] = sub(k1, t1);
    x[2] = add(k2, t2), x[5] = sub(k2, t2);
    x[3] = add(k3, t3), x[4] = sub(k3, t3);
  }

 private:
  FACULA_LANES void four(C& a, C& b, C& c, C& d) {
    C p = add(a, c), q = sub(a, c), r = add(b, d), s = down(sub(b, d));
    a = add(p, r);
    b = add(q, s);
    c = sub(p, r);
    d = sub(q, s);
  }
};

// exp(pi i k^2 / n), by which a transform of n points becomes a convolution.
template <class T>
std::vector<std::complex<T>> chirp_of(int64_t n) {
  ducc0::UnityRoots<T, std::complex<T>> roots{size_t(2 * n)};
  std::vector<std::complex<T>> chirp(static_cast<size_t>(n));
  uint64_t square = 0;  // modulo 2 n
  for (int64_t k = 0; k < n; ++k) {
    chirp[size_t(k)] = roots[size_t(square)];
    square = (square + 2 * uint64_t(k) + 1) % uint64_t(2 * n);
  }
  return chirp;
}

// The radices and roots for lines of n points.
template <class T>
class Steps {
 public:
  static bool serve(int64_t n) { return largest_factor(n) <= 7; }
  static int64_t largest_factor(int64_t n) {  // a prime
    int64_t largest = 1;
    for (int64_t p = 2; p * p <= n; ++p)
      for (; n % p == 0; n /= p) largest = p;
    return std::max(largest, n);
  }
  // The smallest supported length from n on that is a multiple of `part`, a power of 2.
  static int64_t least(int64_t n, int64_t part) {
    n = (n + part - 1) / part * part;
    while (!serve(n)) n += part;
    return n;
  }
  explicit Steps(int64_t n) : length_(n) {
    for (int r : {3, 5, 7})
      for (; n % r == 0; n /= r) radices_.push_back(r);
    while (n > 16) {
      int r = n == 32 ? 4 : 8;
      radices_.push_back(r);
      n /= r;
    }
    if (n > 1 || radices_.empty()) radices_.push_back(int(n));
    ducc0::UnityRoots<T, std::complex<T>> roots{size_t(length_)};
    int64_t piece = length_;
    for (int r : radices_) {
      first_root_.push_back(roots_.size());
      for (int64_t b = 0; b < piece / r; ++b)
        for (int64_t k = 1; k < r; ++k) {
          auto root = roots[size_t(b * k * (length_ / piece))];
          roots_.push_back(root.real());
          roots_.push_back(-root.imag());
        }
      piece /= r;
    }
  }
  int64_t length() const { return length_; }
  size_t count() const { return radices_.size(); }
  int radix(size_t step) const { return radices_[step]; }
  // exp(-2 pi i b k / n) for the n points of a piece at this step, as [b, k - 1].
  const T* roots(size_t step) const { return roots_.data() + first_root_[step]; }
  size_t footprint() const { return roots_.size() * sizeof(T); }

 private:
  int64_t length_;
  std::vector<int> radices_;
  std::vector<size_t> first_root_;
  std::vector<T> roots_;
};

// Runs those steps. from(i) returns point i; to(k, point) takes point k of the result; M is the instruction set.
template <class M, class T>
class LaneSteps {
 public:
  using V = typename LineLanes<T, M::kBytes>::V;
  using P = Points<V, T>;
  using C = typename P::C;

  // Points in rows, two rows per point.
  struct Rows {
    V* rows;
    FACULA_MEMBER C operator()(int64_t i) const { return {rows[2 * i], rows[2 * i + 1]}; }
    FACULA_MEMBER void operator()(int64_t k, C x) const { rows[2 * k] = x.re, rows[2 * k + 1] = x.im; }
  };

  // The position of point k. The inverse transform is the forward one with points in reverse order; then `reversed` is
  // their number.
  FACULA_LANES int64_t place(int64_t k, int64_t reversed) { return k && reversed ? reversed - k : k; }
  struct Scaled {
    V* rows;
    int64_t reversed;  // or 0
    T factor;
    FACULA_MEMBER void operator()(int64_t k, C x) const {
      V* row = rows + 2 * place(k, reversed);
      row[0] = x.re * factor, row[1] = x.im * factor;
    }
  };

  // `rows` holds intermediate points; it may be the memory that `from` reads.
  template <class From, class To>
  static void run(const Steps<T>& steps, const From& from, V* rows, const To& to) {
    if (steps.count() == 1) return of_radix(steps.radix(0), [&](auto r) { last<r>(1, from, to, 0, 1); });
    step(steps, 0, from, rows);
    pieces(steps, 1, rows, to, 0, 1);
  }

 private:
  // The last step has 2 to 16 points, earlier ones 3 to 8.
  template <class F>
  static void of_radix(int r, const F& f) {
    switch (r) {
      case 1: return f(std::integral_constant<int, 1>());
      case 2: return f(std::integral_constant<int, 2>());
      case 16: return f(std::integral_constant<int, 16>());
      default: return of_inner_radix(r, f);
    }
  }
  template <class F>
  static void of_inner_radix(int r, const F& f) {
    switch (r) {
      case 3: return f(std::integral_constant<int, 3>());
      case 4: return f(std::integral_constant<int, 4>());
      case 5: return f(std::integral_constant<int, 5>());
      case 7: return f(std::integral_constant<int, 7>());
      default: return f(std::integral_constant<int, 8>());
    }
  }

  template <class From>
  static void step(const Steps<T>& steps, size_t s, const From& from, V* rows) {
    int64_t piece = steps.length();
    for (size_t k = 0; k <= s; ++k) piece /= steps.radix(k);
    of_inner_radix(steps.radix(s), [&](auto r) { turn<r>(piece, from, rows, steps.roots(s)); });
  }
  // Finishes the pieces that step s - 1 left at `rows`: `apart` times as many, whose points are those of the result from
  // `at` on.
  template <class To>
  static void pieces(const Steps<T>& steps, size_t s, V* rows, const To& to, int64_t at, int64_t apart) {
    int count = steps.radix(s - 1);
    int64_t piece = steps.length() / apart / count;
    if (s + 1 == steps.count())
      return of_radix(steps.radix(s), [&](auto r) { last<r>(count, Rows{rows}, to, at, apart); });
    for (int k = 0; k < count; ++k) {
      V* mine = rows + 2 * k * piece;
      step(steps, s, Rows{mine}, mine);
      pieces(steps, s + 1, mine, to, at + k * apart, apart * count);
    }
  }

  template <int kRadix, class From>
  static void turn(int64_t piece, const From& from, V* rows, const T* roots) {
    M::run([&]() __attribute__((always_inline)) {
      for (int64_t b = 0; b < piece; ++b, roots += 2 * (kRadix - 1)) {
        C x[kRadix];
#pragma GCC unroll 16
        for (int a = 0; a < kRadix; ++a) x[a] = from(a * piece + b);
        P::of(x);
        Rows{rows}(b, x[0]);
#pragma GCC unroll 16
        for (int k = 1; k < kRadix; ++k)
          Rows{rows}(k * piece + b, P::by(x[k], roots[2 * k - 2], roots[2 * k - 1]));
      }
    });
  }
  template <int kRadix, class From, class To>
  static void last(int64_t count, const From& from, const To& to, int64_t at, int64_t apart) {
    M::run([&]() __attribute__((always_inline)) {
      for (int64_t k = 0; k < count; ++k) {
        C x[kRadix];
#pragma GCC unroll 16
        for (int b = 0; b < kRadix; ++b) x[b] = from(k * kRadix + b);
        P::of(x);
#pragma GCC unroll 16
        for (int j = 0; j < kRadix; ++j) to(at + (k + j * count) * apart, x[j]);
      }
    });
  }
};

// Converts the transform of n complex points, whose parts are 2 n real numbers in turn, to the spectrum of these, and
// back.
template <class T>
class Halves {
 public:
  explicit Halves(int64_t n) {
    ducc0::UnityRoots<T, std::complex<T>> roots{size_t(2 * n)};
    for (int64_t k = 0; k <= n; ++k) roots_.push_back(std::conj(roots[size_t(k)]));
  }
  const std::complex<T>* roots() const { return roots_.data(); }
  size_t footprint() const { return roots_.size() * sizeof(std::complex<T>); }

  // Twice point k of the spectrum, for points k (a) and n - k (b) of the transform.
  template <class P, class R>
  FACULA_LANES typename P::C of_spectrum(typename P::C a, typename P::C b, R c, R s) {
    auto re = a.im + b.im, im = b.re - a.re;
    return {(a.re + b.re) + (re * c - im * s), (a.im - b.im) + (re * s + im * c)};
  }
  // Point k of the transform, for points k (a) and n - k (b) of the spectrum.
  template <class P, class R>
  FACULA_LANES typename P::C of_transform(typename P::C a, typename P::C b, R c, R s) {
    auto re = a.re - b.re, im = a.im + b.im;
    return {(a.re + b.re) - (im * c - re * s), (a.im - b.im) + (re * c + im * s)};
  }

 private:
  std::vector<std::complex<T>> roots_;  // exp(-pi i k / n)
};

}  // namespace facula::numerics
