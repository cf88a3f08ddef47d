#include "facula/backend/cpu/small.h"

#include "facula/backend/cpu/iterate.h"
#include "facula/backend/cpu/lanes.h"
#include "facula/codegen/kernel.h"

namespace facula::backend::cpu {

namespace {

constexpr int kSquare = kSmall * kSmall;

// What the routines are made of, for matrices [n, n] whose elements lie one vector after another in rows.
template <class T, int kBytes>
struct Steps : Lanes<T, kBytes> {
  using L = Lanes<T, kBytes>;
  using typename L::Mask;
  using typename L::V;

  FACULA_LANES Mask finite(const V* a, int elements) {
    V rests = {};
    for (int e = 0; e < elements; ++e) L::note(rests, a[e]);
    return rests == 0;
  }

  // L and U of a, with the largest of a column as pivot, the first of equal ones; pivots from 0. False where a pivot's
  // reciprocal is no number.
  FACULA_LANES Mask factor(V* a, int n, Mask* pivots) {
    Mask good = L::everywhere();
    for (int k = 0; k < n; ++k) {
      V largest = L::abs(a[k * n + k]);
      Mask at = Mask() + k;
      for (int i = k + 1; i < n; ++i) {
        V size = L::abs(a[i * n + k]);
        Mask larger = size > largest;
        largest = larger ? size : largest;
        at = larger ? Mask() + i : at;
      }
      pivots[k] = at;
      good &= largest >= L::kLeast;
      for (int i = k + 1; i < n; ++i)
        for (int j = 0; j < n; ++j) L::swap_where(at == i, a[k * n + j], a[i * n + j]);
      V scale = 1 / a[k * n + k];
      for (int i = k + 1; i < n; ++i) {
        V factor = a[i * n + k] *= scale;
        for (int j = k + 1; j < n; ++j) a[i * n + j] -= factor * a[k * n + j];
      }
    }
    return good & finite(a, n * n);
  }

  FACULA_LANES void exchange(const Mask* pivots, int n, V* x, int columns) {
    for (int k = 0; k < n; ++k)
      for (int i = k + 1; i < n; ++i)
        for (int c = 0; c < columns; ++c)
          L::swap_where(pivots[k] == i, x[k * columns + c], x[i * columns + c]);
  }
  FACULA_LANES void exchange_back(const Mask* pivots, int n, V* x, int columns) {
    for (int k = n; k-- > 0;)
      for (int i = k + 1; i < n; ++i)
        for (int c = 0; c < columns; ++c)
          L::swap_where(pivots[k] == i, x[k * columns + c], x[i * columns + c]);
  }
  // x of op(a) x = x in place for a triangle of op(a), element (i, j) of which is a[i * rows + j * across].
  FACULA_LANES void substitute(const V* a, int n, int rows, int across, bool upper, bool unit, V* x,
                               int columns) {
    for (int step = 0; step < n; ++step) {
      int i = upper ? n - 1 - step : step;
      for (int c = 0; c < columns; ++c) {
        V sum = x[i * columns + c];
        for (int j = upper ? i + 1 : 0; j < (upper ? n : i); ++j)
          sum -= a[i * rows + j * across] * x[j * columns + c];
        x[i * columns + c] = unit ? sum : sum / a[i * rows + i * across];
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
  // The product of the pivots, and the sign of the exchanges.
  FACULA_LANES V determinant(const V* lu, const Mask* pivots, int n) {
    V det = L::all(1);
    for (int k = 0; k < n; ++k) {
      det *= lu[k * n + k];
      det = pivots[k] == k ? det : -det;
    }
    return det;
  }

  // f(x, columns of it) for the right-hand sides of a job, some columns at a time; x is stored where `done`.
  template <class F>
  FACULA_LANES void each_right(const SmallJob<T>& job, uint32_t done, F&& f) {
    V x[kSquare];
    int64_t matrix = int64_t(job.n) * job.columns;
    for (int c = 0; c < job.columns; c += kSmall) {
      int some = std::min(kSmall, job.columns - c);
      L::load(x, job.b + c, matrix, job.n, some, job.columns, job.count);
      f(x, some);
      L::store(x, job.x + c, matrix, job.n, some, job.columns, done);
    }
  }

  FACULA_LANES void load_square(const SmallJob<T>& job, V* a) {
    L::load(a, job.a, job.n * job.n, job.n, job.n, job.n, job.count);
  }
  FACULA_LANES uint32_t left_of(uint32_t done, int count) { return ~done & ((uint32_t(1) << count) - 1); }

  // Makes x[0], x[stride], ... (m of them) the reflection that leads them to (beta, 0, ...), as larfg does: x becomes (beta, v)
  // for v with 1 in front. False where the sum of squares is no normal number.
  FACULA_LANES Mask reflection(V* x, int m, int stride, V& tau) {
    V squares = {}, largest = {}, alpha = x[0];
    for (int i = 1; i < m; ++i) {
      squares += x[i * stride] * x[i * stride];
      largest = L::max(largest, L::abs(x[i * stride]));
    }
    Mask none = largest == 0;
    squares += alpha * alpha;
    V beta = L::root(squares);
    beta = alpha >= 0 ? -beta : beta;
    V scale = none ? L::all(0) : 1 / (alpha - beta);
    tau = none ? L::all(0) : (beta - alpha) / beta;
    for (int i = 1; i < m; ++i) x[i * stride] *= scale;
    x[0] = none ? alpha : beta;
    constexpr T kLowest = L::kLeast / std::numeric_limits<T>::epsilon();
    return none | ((squares >= kLowest) & (squares <= L::kMost / 16));
  }
  // Applies the reflection v (1 in front of v[1], v[stride], ...; m in all) to `vectors` vectors: element i of vector j is
  // a[i * along + j * across].
  FACULA_LANES void reflect(const V* v, int stride, V tau, int m, V* a, int along, int across, int vectors) {
    for (int j = 0; j < vectors; ++j) {
      V* x = a + j * across;
      V sum = x[0];
      for (int i = 1; i < m; ++i) sum += v[i * stride] * x[i * along];
      sum *= tau;
      x[0] -= sum;
      for (int i = 1; i < m; ++i) x[i * along] -= v[i * stride] * sum;
    }
  }
  // The product q [n, n] of reflections, k of which begins at row k + shift: at v + k * (n + 1).
  FACULA_LANES void product(const V* v, int stride, const V* tau, int count, int n, int shift, V* q) {
    identity(q, n);
    for (int k = count; k-- > 0;) {
      int first = k + shift;
      reflect(v + k * (n + 1), stride, tau[k], n - first, q + first * (n + 1), n, 1, n - first);
    }
  }
  // The power of 2 that brings the largest of a's elements to 1 or just above, if they are finite, and its inverse.
  FACULA_LANES V scale(V* a, int elements) {
    V largest = {};
    for (int e = 0; e < elements; ++e) largest = L::max(largest, L::abs(a[e]));
    constexpr int kMantissa = std::numeric_limits<T>::digits - 1;
    constexpr auto kBias = decltype(Mask()[0] + 0)(std::numeric_limits<T>::max_exponent - 1);
    Mask exponent = (Mask)largest >> kMantissa;
    exponent = exponent < 1 ? Mask() + 1 : exponent;
    exponent = exponent > 2 * kBias - 1 ? Mask() + (2 * kBias - 1) : exponent;
    V up = (V)((2 * kBias - exponent) << kMantissa);
    for (int e = 0; e < elements; ++e) a[e] *= up;
    return (V)(exponent << kMantissa);
  }

  // Q^T A Q is tridiagonal, with d beside e, for symmetric A, all of which is read. Reflections stay below the diagonal.
  FACULA_LANES Mask tridiagonalize(V* a, int n, V* d, V* e, V* tau) {
    Mask good = L::everywhere();
    for (int k = 0; k < n - 1; ++k) {
      V *x = a + (k + 1) * n + k, *rest = x + 1, w[kSmall];
      int m = n - 1 - k;
      good &= reflection(x, m, n, tau[k]);
      d[k] = a[k * n + k];
      e[k] = x[0];
      auto v = [&](int i) __attribute__((always_inline)) { return i ? x[i * n] : L::all(1); };
      V along = {};
      for (int i = 0; i < m; ++i) {
        w[i] = rest[i * n];
        for (int j = 1; j < m; ++j) w[i] += rest[i * n + j] * x[j * n];
        w[i] *= tau[k];
        along += w[i] * v(i);
      }
      along *= tau[k] / 2;
      for (int i = 0; i < m; ++i) w[i] -= along * v(i);
      for (int i = 0; i < m; ++i)
        for (int j = 0; j < m; ++j) rest[i * n + j] -= v(i) * w[j] + w[i] * v(j);
    }
    d[n - 1] = a[n * n - 1];
    return good;
  }
  // Q^T A P is bidiagonal, with d below e. Reflections stay in a, Q's below the diagonal, P's behind e.
  FACULA_LANES Mask bidiagonalize(V* a, int n, V* d, V* e, V* tau_q, V* tau_p) {
    Mask good = L::everywhere();
    for (int k = 0; k < n; ++k) {
      V* x = a + k * n + k;
      good &= reflection(x, n - k, n, tau_q[k]);
      d[k] = x[0];
      reflect(x, n, tau_q[k], n - k, x + 1, n, 1, n - k - 1);
      if (k == n - 1) break;
      good &= reflection(x + 1, n - k - 1, 1, tau_p[k]);
      e[k] = x[1];
      reflect(x + 1, 1, tau_p[k], n - k - 1, x + n + 1, 1, n, n - k - 1);
    }
    return good;
  }
};

#define FACULA_USE_STEPS                   \
  using S = Steps<T, kBytes>;              \
  using V = typename S::V;                 \
  using Mask = typename S::Mask;

// The routines: run(job) as run_small says.
struct Lu {
  template <class T, int kBytes>
  FACULA_LANES uint32_t run(const SmallJob<T>& job) {
    FACULA_USE_STEPS
    int n = job.n;
    V a[kSquare];
    Mask pivots[kSmall];
    S::load_square(job, a);
    uint32_t done = S::bits(S::factor(a, n, pivots), job.count);
    S::store(a, job.x, n * n, n, n, n, done);
    for (int k = 0; k < n; ++k)
      for (int l = 0; l < job.count; ++l)
        if (done >> l & 1) job.pivots[l * n + k] = int32_t(pivots[k][l]) + 1;
    return S::left_of(done, job.count);
  }
};

struct Solve {
  template <class T, int kBytes>
  FACULA_LANES uint32_t run(const SmallJob<T>& job) {
    FACULA_USE_STEPS
    V a[kSquare];
    Mask pivots[kSmall];
    S::load_square(job, a);
    uint32_t done = S::bits(S::factor(a, job.n, pivots), job.count);
    if (done)
      S::each_right(job, done, [&](V* x, int columns) __attribute__((always_inline)) {
        S::solve(a, pivots, job.n, x, columns);
      });
    return S::left_of(done, job.count);
  }
};

enum class Inverse { plain, adjoint, cofactor };
template <Inverse kWhich>
struct Invert {
  template <class T, int kBytes>
  FACULA_LANES uint32_t run(const SmallJob<T>& job) {
    FACULA_USE_STEPS
    int n = job.n;
    V a[kSquare], x[kSquare];
    Mask pivots[kSmall];
    S::load_square(job, a);
    Mask good = S::factor(a, n, pivots);
    V det = S::all(1);
    if (kWhich == Inverse::cofactor) {
      V largest = {};
      det = S::determinant(a, pivots, n);
      for (int k = 0; k < n; ++k) largest = S::max(largest, S::abs(a[k * n + k]));
      // As singular as a matrix may be for its minors to be wanted, not the inverse.
      T tiny = std::sqrt(std::numeric_limits<T>::epsilon()) * std::numeric_limits<T>::epsilon();
      for (int k = 0; k < n; ++k) good &= S::abs(a[k * n + k]) >= tiny * largest;
      good &= (S::abs(det) >= S::kLeast) & (S::abs(det) <= S::kMost);
    }
    S::identity(x, n);
    S::solve(a, pivots, n, x, n);
    if (kWhich != Inverse::plain)
      for (int i = 0; i < n; ++i)
        for (int j = 0; j < i; ++j) std::swap(x[i * n + j], x[j * n + i]);
    for (int e = 0; kWhich == Inverse::cofactor && e < n * n; ++e) x[e] *= det;
    uint32_t done = S::bits(good, job.count);
    S::store(x, job.x, n * n, n, n, n, done);
    return S::left_of(done, job.count);
  }
};

struct Det {
  template <class T, int kBytes>
  FACULA_LANES uint32_t run(const SmallJob<T>& job) {
    FACULA_USE_STEPS
    V a[kSquare];
    Mask pivots[kSmall];
    S::load_square(job, a);
    uint32_t done = S::bits(S::factor(a, job.n, pivots), job.count);
    V det = S::determinant(a, pivots, job.n);
    S::store(&det, job.x, 1, 1, 1, 1, done);
    return S::left_of(done, job.count);
  }
};

struct SLogDet {
  template <class T, int kBytes>
  FACULA_LANES uint32_t run(const SmallJob<T>& job) {
    FACULA_USE_STEPS
    V a[kSquare];
    Mask pivots[kSmall];
    S::load_square(job, a);
    uint32_t done = S::bits(S::factor(a, job.n, pivots), job.count);
    for (int l = 0; l < job.count; ++l) {
      if (!(done >> l & 1)) continue;
      T sum = 0, sign = 1;
      for (int k = 0; k < job.n; ++k) {
        T pivot = a[k * job.n + k][l];
        sum += std::log(std::abs(pivot));
        sign = (pivot < 0) == (pivots[k][l] == k) ? -sign : sign;
      }
      job.x[l] = sign;
      job.y[l] = sum;
    }
    return S::left_of(done, job.count);
  }
};

struct SolveFactored {
  template <class T, int kBytes>
  FACULA_LANES uint32_t run(const SmallJob<T>& job) {
    FACULA_USE_STEPS
    int n = job.n;
    V a[kSquare];
    Mask pivots[kSmall], good = S::everywhere();
    S::load_square(job, a);
    good &= S::finite(a, n * n);
    for (int k = 0; k < n; ++k) {
      good &= S::abs(a[k * n + k]) >= S::kLeast;
      for (int l = 0; l < S::kCount; ++l) {
        int p = job.pivots[(l < job.count ? l : 0) * n + k] - 1;
        pivots[k][l] = p;
        if (p < k) good[l] = 0;  // of no factors that `lu` gives
      }
    }
    uint32_t done = S::bits(good, job.count);
    S::each_right(job, done, [&](V* x, int columns) __attribute__((always_inline)) {
      if (!job.upper) return S::solve(a, pivots, n, x, columns);
      S::substitute(a, n, 1, n, false, false, x, columns);
      S::substitute(a, n, 1, n, true, true, x, columns);
      S::exchange_back(pivots, n, x, columns);
    });
    return S::left_of(done, job.count);
  }
};

struct Cholesky {
  template <class T, int kBytes>
  FACULA_LANES uint32_t run(const SmallJob<T>& job) {
    FACULA_USE_STEPS
    int n = job.n;
    V a[kSquare], rests = {};
    Mask good = S::everywhere();
    S::load_square(job, a);
    for (int j = 0; j < n; ++j) {
      V pivot = a[j * n + j];
      for (int k = 0; k < j; ++k) pivot -= a[j * n + k] * a[j * n + k];
      good &= pivot >= S::kLeast;
      pivot = a[j * n + j] = S::root(pivot);
      S::note(rests, pivot);
      V scale = 1 / pivot;
      for (int i = j + 1; i < n; ++i) {
        V x = a[i * n + j];
        for (int k = 0; k < j; ++k) x -= a[i * n + k] * a[j * n + k];
        a[i * n + j] = x *= scale;
        a[j * n + i] = S::all(0);
        S::note(rests, x);
      }
    }
    uint32_t done = S::bits(good & (rests == 0), job.count);
    S::store(a, job.x, n * n, n, n, n, done);
    return S::left_of(done, job.count);
  }
};

struct Triangular {
  template <class T, int kBytes>
  FACULA_LANES uint32_t run(const SmallJob<T>& job) {
    FACULA_USE_STEPS
    int n = job.n;
    V a[kSquare], rests = {};
    Mask good = S::everywhere();
    S::load_square(job, a);
    for (int i = 0; i < n; ++i) {
      if (!job.unit) good &= S::abs(a[i * n + i]) >= S::kLeast;
      for (int j = job.upper ? i : 0; j < (job.upper ? n : i + 1); ++j)
        if (!job.unit || i != j) S::note(rests, a[i * n + j]);
    }
    uint32_t done = S::bits(good & (rests == 0), job.count);
    if (done)
      S::each_right(job, done, [&](V* x, int columns) __attribute__((always_inline)) {
        S::substitute(a, n, n, 1, job.upper, job.unit, x, columns);
      });
    return S::left_of(done, job.count);
  }
};

struct Qr {
  template <class T, int kBytes>
  FACULA_LANES uint32_t run(const SmallJob<T>& job) {
    FACULA_USE_STEPS
    int m = job.m, n = job.n, reflections = std::min(m, n);
    V a[kSquare], tau[std::max(kSmall, S::kCount)];  // as many as load and store may move
    Mask good = S::everywhere();
    S::load(a, job.a, m * n, m, n, n, job.count);
    for (int k = 0; k < reflections; ++k) {
      V* x = a + k * n + k;
      good &= S::reflection(x, m - k, n, tau[k]);
      S::reflect(x, n, tau[k], m - k, x + 1, n, 1, n - k - 1);
    }
    uint32_t done = S::bits(good & S::finite(a, m * n), job.count);
    S::store(a, job.x, m * n, m, n, n, done);
    S::store(tau, job.y, reflections, 1, reflections, reflections, done);
    return S::left_of(done, job.count);
  }
};

struct Reflections {
  template <class T, int kBytes>
  FACULA_LANES uint32_t run(const SmallJob<T>& job) {
    FACULA_USE_STEPS
    int m = job.m, n = job.n, reflections = job.columns;
    V a[kSquare], tau[std::max(kSmall, S::kCount)];  // as many as load and store may move
    S::load(a, job.a, m * n, m, n, n, job.count);
    S::load(tau, job.b, reflections, 1, reflections, reflections, job.count);
    Mask good = S::finite(a, m * n) & S::finite(tau, reflections);
    for (int j = reflections; j < n; ++j)
      for (int i = 0; i < m; ++i) a[i * n + j] = S::all(i == j);
    for (int k = reflections; k-- > 0;) {
      V* x = a + k * n + k;
      S::reflect(x, n, tau[k], m - k, x + 1, n, 1, n - k - 1);
      for (int i = 1; i < m - k; ++i) x[i * n] *= -tau[k];
      x[0] = 1 - tau[k];
      for (int i = 1; i <= k; ++i) x[-i * n] = S::all(0);
    }
    uint32_t done = S::bits(good, job.count);
    S::store(a, job.x, m * n, m, n, n, done);
    return S::left_of(done, job.count);
  }
};

// What lane l has of some vectors.
template <class T, int kBytes>
struct OfLane {
  int l;
  template <class V>
  [[gnu::always_inline]] T operator()(const V* from, int e) const {
    return reinterpret_cast<const T*>(from)[e * Lanes<T, kBytes>::kCount + l];
  }
};

// f(lane, steps of vectors of 4 or 8 rows) for the lanes in `which`; bits of those for which it is true.
template <class T, class F>
FACULA_LANES uint32_t each_lane(uint32_t which, int rows, F&& f) {
  uint32_t done = 0;
  for (; which; which &= which - 1) {
    int l = __builtin_ctz(which);
    bool good = rows <= 4 ? f(l, Iterate<T, 4>()) : f(l, Iterate<T, 8>());
    done |= uint32_t(good) << l;
  }
  return done;
}

template <bool kVectors>
struct Eigh {
  // The triangle that is read, mirrored. The upper one is reduced from the other end: as the lower one of the matrix whose
  // rows and columns are reversed.
  template <class S>
  FACULA_LANES void symmetric(typename S::V* a, int n, bool upper) {
    for (int e = 0; upper && e < n * n / 2; ++e) std::swap(a[e], a[n * n - 1 - e]);
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < i; ++j) a[j * n + i] = a[i * n + j];
  }
  template <class T, int kBytes>
  FACULA_LANES uint32_t run(const SmallJob<T>& job) {
    FACULA_USE_STEPS
    int n = job.n;
    V a[kSquare], q[kSquare], d[kSmall], e[kSmall], tau[kSmall];
    S::load_square(job, a);
    symmetric<S>(a, n, job.upper);
    Mask good = S::finite(a, n * n);
    V size = S::scale(a, n * n);
    good &= S::tridiagonalize(a, n, d, e, tau);
    if (kVectors) S::product(a + n, n, tau, n - 1, n, 1, q);
    uint32_t done =
        each_lane<T>(S::bits(good, job.count), n, [&](int l, auto steps) __attribute__((always_inline)) {
          OfLane<T, kBytes> of{l};
          T values[kSmall] = {}, beside[kSmall] = {};
          typename decltype(steps)::Vector z[kSmall] = {};
          auto at = [&](int i, int count)
                        __attribute__((always_inline)) { return job.upper ? count - 1 - i : i; };
          for (int i = 0; i < n; ++i) {
            values[i] = of(d, at(i, n));
            if (i < n - 1) beside[i] = of(e, at(i, n - 1));
            for (int j = 0; kVectors && j < n; ++j) z[j][i] = of(q, at(i, n) * n + at(j, n));
          }
          if (!steps.diagonalize(values, beside, kVectors ? z : nullptr, n)) return false;
          for (int i = 0; i < n; ++i) {
            job.x[l * n + i] = values[i] * of(&size, 0);
            for (int j = 0; kVectors && j < n; ++j) job.y[(l * n + i) * n + j] = z[j][i];
          }
          return true;
        });
    return S::left_of(done, job.count);
  }
};

template <bool kVectors>
struct Svd {
  template <class T, int kBytes>
  FACULA_LANES uint32_t run(const SmallJob<T>& job) {
    FACULA_USE_STEPS
    int n = job.n;
    V a[kSquare], q[kSquare], p[kSquare], d[kSmall], e[kSmall], tau_q[kSmall], tau_p[kSmall];
    S::load_square(job, a);
    Mask good = S::finite(a, n * n);
    V size = S::scale(a, n * n);
    good &= S::bidiagonalize(a, n, d, e, tau_q, tau_p);
    if (kVectors) {
      S::product(a, n, tau_q, n, n, 0, q);
      S::product(a + 1, 1, tau_p, n - 1, n, 1, p);
    }
    uint32_t done =
        each_lane<T>(S::bits(good, job.count), n, [&](int l, auto steps) __attribute__((always_inline)) {
          OfLane<T, kBytes> of{l};
          T values[kSmall] = {}, beside[kSmall] = {};
          typename decltype(steps)::Vector u[kSmall] = {}, v[kSmall] = {};
          for (int i = 0; i < n; ++i) {
            values[i] = of(d, i);
            if (i < n - 1) beside[i] = of(e, i);
            for (int j = 0; kVectors && j < n; ++j) u[j][i] = of(q, i * n + j), v[j][i] = of(p, i * n + j);
          }
          if (!steps.singular_values(values, beside, kVectors ? u : nullptr, kVectors ? v : nullptr, n))
            return false;
          for (int i = 0; i < n; ++i) {
            job.x[l * n + i] = values[i] * of(&size, 0);
            for (int j = 0; kVectors && j < n; ++j) {
              job.y[(l * n + i) * n + j] = u[j][i];
              job.z[(l * n + i) * n + j] = v[i][j];
            }
          }
          return true;
        });
    return S::left_of(done, job.count);
  }
};

// A routine for each width of register. The bits are those of the instructions: with FMA products are added unrounded.
template <class T>
using Routine = uint32_t (*)(const SmallJob<T>&);
template <class R, class T>
struct ByWidth {
  __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma"))) static uint32_t of_64(
      const SmallJob<T>& job) {
    return R::template run<T, 64>(job);
  }
  __attribute__((target("avx2,fma"))) static uint32_t of_32(const SmallJob<T>& job) {
    return R::template run<T, 32>(job);
  }
};

// Of a vector of generated kernels.
int register_bytes() { return 4 * codegen::vector_lanes(); }

template <class T, class R>
Routine<T> made() {
  return register_bytes() == 64 ? ByWidth<R, T>::of_64 : ByWidth<R, T>::of_32;
}
template <class T, class... R>
struct Table {
  static_assert(sizeof...(R) == size_t(Small::kCount));
  Routine<T> routines[sizeof...(R)] = {made<T, R>()...};
};
template <class T>  // in the order of `Small`
using All = Table<T, Lu, Solve, Invert<Inverse::plain>, Invert<Inverse::adjoint>, Invert<Inverse::cofactor>,
                  Det, SLogDet, SolveFactored, Cholesky, Triangular, Qr, Reflections, Eigh<true>, Eigh<false>,
                  Svd<true>, Svd<false>>;

}  // namespace

template <class T>
int small_lanes() {
  return register_bytes() / int(sizeof(T));
}

template <class T>
uint32_t run_small(Small routine, const SmallJob<T>& job) {
  static const All<T> all;
  return all.routines[size_t(routine)](job);
}

template int small_lanes<float>();
template int small_lanes<double>();
template uint32_t run_small(Small, const SmallJob<float>&);
template uint32_t run_small(Small, const SmallJob<double>&);

}  // namespace facula::backend::cpu
