// The steps of the routines of small.h, and what each file of routines (small_*.cpp) derives from them: a function for each type
// of element and width of register. The routines are spread over files because a compiler needs long for each of them.
#pragma once
#include "facula/base/processor.h"
#include "facula/numerics/numbers.h"
#include "facula/numerics/small.h"

namespace facula::numerics {

template <class T>
using SmallRoutine = uint32_t (*)(const SmallJob<T>&);

// The routine of a file for the processor at hand, null if another file holds it.
template <class T>
SmallRoutine<T> small_lu(Small);
template <class T>
SmallRoutine<T> small_factors(Small);
template <class T>
SmallRoutine<T> small_reflections(Small);
template <class T>
SmallRoutine<T> small_spectra(Small);

namespace {

constexpr int kSquare = kSmall * kSmall;
// number of rows for which routines with kSpellsOut have loops of constant length
constexpr int kFamiliar = 4;
#define FACULA_FEW _Pragma("GCC unroll 4")
#define FACULA_FEW_SQUARED _Pragma("GCC unroll 16")

// The steps of the routines, for matrices [n, n] whose elements are vectors in row-major order.
template <class T, int kBytes>
struct Steps : Numbers<T, kBytes> {
  using L = Numbers<T, kBytes>;
  using typename L::Mask;
  using typename L::R;
  using typename L::V;
  using typename L::W;
  using Pivots = Lanes<int32_t, 4 * L::kCount>;

  FACULA_LANES Mask finite(const V* a, int elements) {
    W rests = {};
    FACULA_FEW_SQUARED
    for (int e = 0; e < elements; ++e) L::note(rests, a[e]);
    return L::settled(rests == 0);
  }

  FACULA_LANES void store_pivots(const Mask* pivots, const SmallJob<T>& job, uint32_t done) {
    typename Pivots::V numbers[kSmall];
    FACULA_FEW
    for (int k = 0; k < job.n; ++k) numbers[k] = __builtin_convertvector(pivots[k], typename Pivots::V);
    Pivots::store(numbers, job.pivots, job.n, job.n, 1, 1, done);
  }

  // L and U of a, with the largest element of a column as pivot, the first of equal ones; pivots count from 0. False for
  // lanes in which a pivot's reciprocal is not a number.
  FACULA_LANES Mask factor(V* a, int n, Mask* pivots) {
    Mask good = L::everywhere();
    FACULA_FEW
    for (int k = 0; k < n; ++k) {
      W largest = L::size(a[k * n + k]);
      Mask at = Mask() + k;
      FACULA_FEW
      for (int i = k + 1; i < n; ++i) {
        W size = L::size(a[i * n + k]);
        Mask larger = size > largest;
        largest = larger ? size : largest;
        at = larger ? Mask() + i : at;
      }
      pivots[k] = L::settled(at);
      at = pivots[k];
      good &= L::invertible(largest);
      FACULA_FEW
      for (int i = k + 1; i < n; ++i) {
        FACULA_FEW
        for (int j = 0; j < n; ++j) L::swap_where(at == i, a[k * n + j], a[i * n + j]);
      }
      V scale = L::reciprocal(a[k * n + k]);
      FACULA_FEW
      for (int i = k + 1; i < n; ++i) {
        V factor = a[i * n + k] *= scale;
        FACULA_FEW
        for (int j = k + 1; j < n; ++j) a[i * n + j] -= factor * a[k * n + j];
      }
    }
    return good & finite(a, n * n);
  }

  FACULA_LANES void exchange(const Mask* pivots, int n, V* x, int columns) {
    FACULA_FEW
    for (int k = 0; k < n; ++k) {
      FACULA_FEW
      for (int i = k + 1; i < n; ++i)
        for (int c = 0; c < columns; ++c)
          L::swap_where(pivots[k] == i, x[k * columns + c], x[i * columns + c]);
    }
  }
  FACULA_LANES void exchange_back(const Mask* pivots, int n, V* x, int columns) {
    for (int k = n; k-- > 0;) {
      FACULA_FEW
      for (int i = k + 1; i < n; ++i)
        for (int c = 0; c < columns; ++c)
          L::swap_where(pivots[k] == i, x[k * columns + c], x[i * columns + c]);
    }
  }
  // Solves op(a) x = x in place for a triangle of op(a), whose element (i, j) is a[i * rows + j * across].
  FACULA_LANES void substitute(const V* a, int n, int rows, int across, bool upper, bool unit, V* x,
                               int columns) {
    FACULA_FEW
    for (int step = 0; step < n; ++step) {
      int i = upper ? n - 1 - step : step;
      V pivot = a[i * rows + i * across], inverse = L::reciprocal(pivot);
      for (int c = 0; c < columns; ++c) {
        V sum = x[i * columns + c];
        for (int j = upper ? i + 1 : 0; j < (upper ? n : i); ++j)
          sum -= a[i * rows + j * across] * x[j * columns + c];
        x[i * columns + c] = unit ? sum : L::quotient(sum, pivot, inverse);
      }
    }
  }
  FACULA_LANES void solve(const V* lu, const Mask* pivots, int n, V* x, int columns) {
    exchange(pivots, n, x, columns);
    substitute(lu, n, n, 1, false, true, x, columns);
    substitute(lu, n, n, 1, true, false, x, columns);
  }
  FACULA_LANES void identity(V* x, int n) {
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < n; ++j) x[i * n + j] = L::all(i == j);
  }
  // The product of the pivots with the sign of the exchanges; if `multiplies`, by a product with -1, which treats the
  // signs of zeros differently.
  FACULA_LANES V determinant(const V* lu, const Mask* pivots, int n, bool multiplies = false) {
    V det = L::all(1);
    FACULA_FEW
    for (int k = 0; k < n; ++k) {
      det *= lu[k * n + k];
      det = L::select(pivots[k] == k, det, multiplies ? det * L::all(-1) : -det);
    }
    return det;
  }

  // Calls f(x, columns of it) for the right-hand sides of a job, some columns at a time; stores x in lanes of `done`.
  // Complex systems count as done only if x is finite, because infinite parts depend on the order of operations; all of x
  // is then computed before any of it replaces b.
  template <class F>
  FACULA_LANES uint32_t each_right(const SmallJob<T>& job, uint32_t done, F&& f) {
    V x[kSquare];
    int64_t matrix = int64_t(job.n) * job.columns;
    bool looks_first = L::kIsComplex && job.columns > kSmall;
    for (bool looks : {true, false}) {
      if (looks && !looks_first) continue;
      for (int c = 0; c < job.columns && done; c += kSmall) {
        int some = std::min(kSmall, job.columns - c);
        L::load(x, job.b + c, matrix, job.n, some, job.columns, job.count);
        f(x, some);
        if (L::kIsComplex && looks == looks_first) done &= L::bits(finite(x, job.n * some), job.count);
        if (!looks) L::store(x, job.x + c, matrix, job.n, some, job.columns, done);
      }
    }
    return done;
  }

  FACULA_LANES void load_square(const SmallJob<T>& job, V* a) {
    L::load(a, job.a, job.n * job.n, job.n, job.n, job.n, job.count);
  }
  FACULA_LANES uint32_t left_of(uint32_t done, int count) { return ~done & ((uint32_t(1) << count) - 1); }

  // Turns x[0], x[stride], ... (m elements) into the reflection that maps them to (beta, 0, ...), as larfg does: x
  // becomes (beta, v), where v has a leading 1. False for lanes in which the sum of squares is not a normal number.
  FACULA_LANES Mask reflection(V* x, int m, int stride, V& tau) {
    W squares = {}, largest = {};
    V alpha = x[0];
    for (int i = 1; i < m; ++i) {
      squares += L::norm(x[i * stride]);
      largest = L::max(largest, L::largest_part(x[i * stride]));
    }
    Mask none = L::settled(largest == 0) & L::is_real(alpha);
    squares += L::norm(alpha);
    W beta = L::root(squares);
    beta = L::real(alpha) >= 0 ? -beta : beta;
    V scale = L::select(none, L::all(0), L::reciprocal(alpha - L::of_real(beta)));
    tau = L::select(none, L::all(0), (L::of_real(beta) - alpha) / beta);
    for (int i = 1; i < m; ++i) x[i * stride] *= scale;
    x[0] = L::select(none, alpha, L::of_real(beta));
    constexpr R kLowest = L::kLeast / std::numeric_limits<R>::epsilon();
    return none | (L::settled(squares >= kLowest) & L::settled(squares <= L::kMost / 16));
  }
  // Applies I - tau v v^H (with 1, v[stride], ..., m elements) to `vectors` columns, or from the right to as many rows:
  // element i of vector j is a[i * along + j * across].
  template <bool kRows = false>
  FACULA_LANES void reflect(const V* v, int stride, V tau, int m, V* a, int along, int across, int vectors) {
    for (int j = 0; j < vectors; ++j) {
      V* x = a + j * across;
      V sum = x[0];
      for (int i = 1; i < m; ++i) sum += (kRows ? v[i * stride] : L::conj(v[i * stride])) * x[i * along];
      sum *= tau;
      x[0] -= sum;
      for (int i = 1; i < m; ++i) x[i * along] -= (kRows ? L::conj(v[i * stride]) : v[i * stride]) * sum;
    }
  }
  // Applies the product of `count` reflections to q [rows, columns]. Reflection k begins at row k + shift and is stored at
  // v + k * (ld + 1). If q is the identity, columns before a reflection's first row stay as they are.
  FACULA_LANES void apply(const V* v, int stride, int ld, const V* tau, int count, int rows, int columns,
                          int shift, V* q, bool to_identity) {
    for (int k = count; k-- > 0;) {
      int first = k + shift, column = to_identity ? first : 0;
      reflect(v + k * (ld + 1), stride, tau[k], rows - first, q + first * columns + column, columns, 1,
              columns - column);
    }
  }
  // The first columns of that product.
  FACULA_LANES void product(const V* v, int stride, int ld, const V* tau, int count, int rows, int columns,
                            int shift, V* q) {
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < columns; ++j) q[i * columns + j] = L::all(i == j);
    apply(v, stride, ld, tau, count, rows, columns, shift, q, true);
  }
  // The power of 2 that brings the largest of a's elements to 1 or just above, if they are finite, and its inverse.
  FACULA_LANES W scale(V* a, int elements) {
    W largest = {};
    for (int e = 0; e < elements; ++e) largest = L::max(largest, L::largest_part(a[e]));
    constexpr int kMantissa = std::numeric_limits<R>::digits - 1;
    constexpr auto kBias = decltype(Mask()[0] + 0)(std::numeric_limits<R>::max_exponent - 1);
    Mask exponent = (Mask)largest >> kMantissa;
    exponent = exponent < 1 ? Mask() + 1 : exponent;
    exponent = exponent > 2 * kBias - 1 ? Mask() + (2 * kBias - 1) : exponent;
    W up = (W)((2 * kBias - exponent) << kMantissa);
    for (int e = 0; e < elements; ++e) a[e] *= up;
    return (W)(exponent << kMantissa);
  }

  // Reduces a Hermitian A, stored in both triangles, to a real tridiagonal Q^H A Q with diagonal d and off-diagonal e.
  // Reflections stay below the diagonal.
  FACULA_LANES Mask tridiagonalize(V* a, int n, W* d, W* e, V* tau) {
    Mask good = L::everywhere();
    for (int k = 0; k < n - 1; ++k) {
      V *x = a + (k + 1) * n + k, *rest = x + 1, w[kSmall];
      int m = n - 1 - k;
      good &= reflection(x, m, n, tau[k]);
      d[k] = L::real(a[k * n + k]);
      e[k] = L::real(x[0]);
      auto v = [&](int i) __attribute__((always_inline)) { return i ? x[i * n] : L::all(1); };
      V along = {};
      for (int i = 0; i < m; ++i) {
        w[i] = rest[i * n];
        for (int j = 1; j < m; ++j) w[i] += rest[i * n + j] * x[j * n];
        w[i] *= tau[k];
        along += L::conj(w[i]) * v(i);
      }
      along *= tau[k] * L::reals(R(0.5));
      for (int i = 0; i < m; ++i) w[i] -= along * v(i);
      for (int i = 0; i < m; ++i)
        for (int j = 0; j < m; ++j) rest[i * n + j] -= v(i) * L::conj(w[j]) + w[i] * L::conj(v(j));
    }
    d[n - 1] = L::real(a[n * n - 1]);
    return good;
  }
  // Computes the eigenvalues, ascending in d, of the matrix with diagonal d [n] and off-diagonal e [n - 1], by QL steps
  // without square roots and with Wilkinson's shifts (Parlett, "The symmetric eigenvalue problem", 8.15). False for lanes
  // in which squares of e would vanish or steps do not converge. Finished lanes do not change.
  FACULA_LANES Mask eigenvalues(W* d, W* e, int n) {
    constexpr R kRounding = std::numeric_limits<R>::epsilon() / 2;
    Mask good = L::everywhere(),
         // the end with the smaller elements comes first
        reversed = L::settled(L::abs(d[n - 1]) < L::abs(d[0]));
    for (int i = 0; i < n / 2; ++i) L::swap_where(reversed, d[i], d[n - 1 - i]);
    for (int i = 0; i < (n - 1) / 2; ++i) L::swap_where(reversed, e[i], e[n - 2 - i]);
    for (int i = 0; i < n - 1; ++i) {
      constexpr R kVanishing = (R(1) / (uint64_t(1) << (std::numeric_limits<R>::digits - 1)));
      good &= L::settled(e[i] == 0) | L::settled(L::abs(e[i]) >= kVanishing * kVanishing);
      e[i] *= e[i];
    }
    for (int l = 0; l < n - 1; ++l) {
      Mask active = {};
      for (int step = 0; step < kMostSteps; ++step) {
        active = good & L::settled(e[l] > kRounding * kRounding * L::abs(d[l] * d[l + 1]) + L::kLeast);
        if (!L::any(active)) break;
        ql_step(d, e, l, n, active);
      }
      good &= ~active;
    }
    sort(d, n);
    return good;
  }
  static constexpr int kMostSteps = 30;  // for one eigenvalue
  FACULA_LANES void ql_step(W* d, W* e, int l, int n, Mask active) {
    W root = L::root(e[l]), p = d[l], shift = (d[l + 1] - p) / (2 * root), r = L::root(shift * shift + 1);
    shift = p - root / (shift + (shift < 0 ? -r : r));
    W c = L::reals(1), s = {}, gamma = d[n - 1] - shift;
    p = gamma * gamma;
    for (int i = n - 2; i >= l; --i) {
      W r = p + e[i], old_c = c, old_gamma = gamma, inverse = 1 / r;
      if (i != n - 2) e[i + 1] = active ? s * r : e[i + 1];
      c = r == 0 ? L::reals(1) : p * inverse;
      s = r == 0 ? L::reals(0) : e[i] * inverse;
      gamma = c * (d[i] - shift) - s * old_gamma;
      d[i + 1] = active ? old_gamma + (d[i] - gamma) : d[i + 1];
      p = c == 0 ? old_c * e[i] : gamma * gamma / c;
    }
    e[l] = active ? s * p : e[l];
    d[l] = active ? shift + gamma : d[l];
  }
  FACULA_LANES void sort(W* d, int n) {  // ascending
    for (int i = 1; i < n; ++i)
      for (int j = i; j > 0; --j) L::swap_where(d[j] < d[j - 1], d[j], d[j - 1]);
  }

  // Computes the singular values, ascending in d, of n columns of m elements: column j of a begins at a[j * across], its
  // elements are `along` apart. Pairs of columns are rotated until all are orthogonal (Hestenes, "Inversion of matrices
  // by biorthogonalization and related results", 1958), which preserves the relative accuracy of small values. False for
  // lanes in which squares of a column would vanish or rotations do not converge.
  FACULA_LANES Mask singular_values(V* a, int m, int n, int along, int across, W* d) {
    constexpr R kRounding = std::numeric_limits<R>::epsilon();
    constexpr int kMostSweeps = 15;
    const R orthogonal = kRounding * R(m);
    Mask active = L::everywhere();
    for (int sweep = 0; sweep < kMostSweeps && L::any(active); ++sweep) {
      active = Mask();
      for (int j = 0; j < n; ++j) d[j] = squares(a + j * across, m, along);
      for (int distance = 1; distance < n; ++distance)
        for (int first = 0; first < n - distance; ++first) {
          V *x = a + first * across, *y = x + distance * across;
          active |= rotate_pair(x, y, m, along, orthogonal, d[first], d[first + distance]);
        }
    }
    Mask good = ~active;
    constexpr R kVanishing = L::kLeast / kRounding / kRounding;
    for (int j = 0; j < n; ++j) {
      d[j] = squares(a + j * across, m, along);
      good &= L::settled(d[j] == 0) | L::settled(d[j] * d[j] >= kVanishing);
      d[j] = L::root(d[j]);
    }
    sort(d, n);
    return good;
  }
  FACULA_LANES W squares(const V* x, int m, int along) {
    W sum = L::norm(x[0]);
    for (int i = 1; i < m; ++i) sum += L::norm(x[i * along]);
    return sum;
  }
  FACULA_LANES V dot(const V* x, const V* y, int m, int along) {
    V sum = L::conj(x[0]) * y[0];
    for (int i = 1; i < m; ++i) sum += L::conj(x[i * along]) * y[i * along];
    return sum;
  }
  // Makes two columns orthogonal if they are not, and updates their squares; returns the lanes in which they were not.
  FACULA_LANES Mask rotate_pair(V* x, V* y, int m, int along, R orthogonal, W& of_x, W& of_y) {
    V inner = dot(x, y, m, along);
    W size = L::modulus(inner), both = L::real(inner);
    Mask turns = L::settled(size > orthogonal * L::root(of_x * of_y));
    if (!L::any(turns)) return turns;
    if constexpr (L::kIsComplex) {  // a phase of y makes it real
      V phase = L::select(turns, L::conj(inner) / size, L::all(1));
      for (int i = 0; i < m; ++i) y[i * along] *= phase;
      both = size;
    }
    W zeta = (of_y - of_x) / (2 * both), t = 1 / (L::abs(zeta) + L::root(1 + zeta * zeta));
    t = turns ? (zeta < 0 ? -t : t) : L::reals(0);
    W c = 1 / L::root(1 + t * t), s = c * t;
    of_x = L::max(of_x - t * both, W());
    of_y += t * both;
    for (int i = 0; i < m; ++i) {
      V next = s * x[i * along] + c * y[i * along];
      x[i * along] = c * x[i * along] - s * y[i * along];
      y[i * along] = next;
    }
    return turns;
  }

  // Reduces A [m, n], with no more columns than rows, to a real bidiagonal Q^H A P with diagonal d and e above it.
  // Reflections stay in a: Q's below the diagonal, P's right of e.
  FACULA_LANES Mask bidiagonalize(V* a, int m, int n, W* d, W* e, V* tau_q, V* tau_p) {
    Mask good = L::everywhere();
    for (int k = 0; k < n; ++k) {
      V* x = a + k * n + k;
      good &= reflection(x, m - k, n, tau_q[k]);
      d[k] = L::real(x[0]);
      reflect(x, n, L::conj(tau_q[k]), m - k, x + 1, n, 1, n - k - 1);
      if (k == n - 1) break;
      for (int j = 1; L::kIsComplex && j < n - k; ++j) x[j] = L::conj(x[j]);
      good &= reflection(x + 1, n - k - 1, 1, tau_p[k]);
      e[k] = L::real(x[1]);
      reflect<true>(x + 1, 1, tau_p[k], n - k - 1, x + n + 1, 1, n, m - k - 1);
    }
    return good;
  }
  FACULA_LANES void conjugate(V* a, int elements) {
    for (int e = 0; L::kIsComplex && e < elements; ++e) a[e] = L::conj(a[e]);
  }
};

#define FACULA_USE_STEPS                    \
  using S = Steps<T, kBytes>;               \
  using V [[maybe_unused]] = typename S::V; \
  using W [[maybe_unused]] = typename S::W; \
  using Mask [[maybe_unused]] = typename S::Mask;

// Unrolled, steps with few operations take two thirds of the time.
template <class R, class T, int kBytes>
FACULA_LANES uint32_t run(const SmallJob<T>& job) {
  if constexpr (requires { R::kSpellsOut; })
    if (job.n == kFamiliar) {
      SmallJob<T> familiar = job;
      familiar.n = kFamiliar;
      return R::template run<T, kBytes>(familiar);
    }
  return R::template run<T, kBytes>(job);
}

// A routine for each width of register. Results depend on the instructions: with FMA, products are added unrounded.
template <class R, class T>
struct ByWidth {
  __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma"))) static uint32_t of_64(
      const SmallJob<T>& job) {
    return run<R, T, 64>(job);
  }
  __attribute__((target("avx2,fma"))) static uint32_t of_32(const SmallJob<T>& job) {
    return run<R, T, 32>(job);
  }
};
template <class R, class T>
SmallRoutine<T> routine_of() {
  return vector_bytes() == 64 ? ByWidth<R, T>::of_64 : ByWidth<R, T>::of_32;
}

#define FACULA_INSTANTIATE_SMALL(group)                    \
  template SmallRoutine<float> group(Small);               \
  template SmallRoutine<double> group(Small);              \
  template SmallRoutine<std::complex<float>> group(Small); \
  template SmallRoutine<std::complex<double>> group(Small);

}  // namespace
}  // namespace facula::numerics
