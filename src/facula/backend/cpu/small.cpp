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
  // Applies the product of reflections, k of which begins at row k + shift, at v + k * (ld + 1), to q [rows, columns]. Of the columns
  // of 1 those before a reflection's first row stay as they are.
  FACULA_LANES void apply(const V* v, int stride, int ld, const V* tau, int count, int rows, int columns,
                          int shift, V* q, bool to_identity) {
    for (int k = count; k-- > 0;) {
      int first = k + shift, column = to_identity ? first : 0;
      reflect(v + k * (ld + 1), stride, tau[k], rows - first, q + first * columns + column, columns, 1,
              columns - column);
    }
  }
  // Its first columns.
  FACULA_LANES void product(const V* v, int stride, int ld, const V* tau, int count, int rows, int columns,
                            int shift, V* q) {
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < columns; ++j) q[i * columns + j] = L::all(i == j);
    apply(v, stride, ld, tau, count, rows, columns, shift, q, true);
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
  // The eigenvalues of the matrix with diagonal d [n] beside e [n - 1], ascending in d: QL steps that need no roots, with
  // Wilkinson's shifts (Parlett, "The symmetric eigenvalue problem", 8.15). False where squares of e would vanish or
  // steps do not converge. Lanes that need no more steps stay as they are.
  FACULA_LANES Mask eigenvalues(V* d, V* e, int n) {
    constexpr T kRounding = std::numeric_limits<T>::epsilon() / 2;
    Mask good = L::everywhere(),
         reversed = L::abs(d[n - 1]) < L::abs(d[0]);  // the end with the smaller ones first
    for (int i = 0; i < n / 2; ++i) L::swap_where(reversed, d[i], d[n - 1 - i]);
    for (int i = 0; i < (n - 1) / 2; ++i) L::swap_where(reversed, e[i], e[n - 2 - i]);
    for (int i = 0; i < n - 1; ++i) {
      constexpr T kVanishing = (T(1) / (uint64_t(1) << (std::numeric_limits<T>::digits - 1)));
      good &= (e[i] == 0) | (L::abs(e[i]) >= kVanishing * kVanishing);
      e[i] *= e[i];
    }
    for (int l = 0; l < n - 1; ++l) {
      Mask active = {};
      for (int step = 0; step < kMostSteps; ++step) {
        active = good & (e[l] > kRounding * kRounding * L::abs(d[l] * d[l + 1]) + L::kLeast);
        if (!L::any(active)) break;
        ql_step(d, e, l, n, active);
      }
      good &= ~active;
    }
    sort(d, n);
    return good;
  }
  static constexpr int kMostSteps = 30;  // for one eigenvalue
  FACULA_LANES void ql_step(V* d, V* e, int l, int n, Mask active) {
    V root = L::root(e[l]), p = d[l], shift = (d[l + 1] - p) / (2 * root), r = L::root(shift * shift + 1);
    shift = p - root / (shift + (shift < 0 ? -r : r));
    V c = L::all(1), s = {}, gamma = d[n - 1] - shift;
    p = gamma * gamma;
    for (int i = n - 2; i >= l; --i) {
      V r = p + e[i], old_c = c, old_gamma = gamma, inverse = 1 / r;
      if (i != n - 2) e[i + 1] = active ? s * r : e[i + 1];
      c = r == 0 ? L::all(1) : p * inverse;
      s = r == 0 ? L::all(0) : e[i] * inverse;
      gamma = c * (d[i] - shift) - s * old_gamma;
      d[i + 1] = active ? old_gamma + (d[i] - gamma) : d[i + 1];
      p = c == 0 ? old_c * e[i] : gamma * gamma / c;
    }
    e[l] = active ? s * p : e[l];
    d[l] = active ? shift + gamma : d[l];
  }
  FACULA_LANES void sort(V* d, int n) {  // ascending
    for (int i = 1; i < n; ++i)
      for (int j = i; j > 0; --j) L::swap_where(d[j] < d[j - 1], d[j], d[j - 1]);
  }

  // The singular values of n columns of m elements, ascending in d: column j of a begins at a[j * across], its elements are
  // `along` apart. By rotations of pairs of columns until all are orthogonal (Hestenes, "Inversion of matrices by
  // biorthogonalization and related results", 1958), which keeps the relative accuracy of small ones. False where squares
  // of a column would vanish or rotations do not converge.
  FACULA_LANES Mask singular_values(V* a, int m, int n, int along, int across, V* d) {
    constexpr T kRounding = std::numeric_limits<T>::epsilon();
    constexpr int kMostSweeps = 15;
    const T orthogonal = kRounding * T(m);
    Mask active = L::everywhere();
    for (int sweep = 0; sweep < kMostSweeps && L::any(active); ++sweep) {
      active = Mask();
      for (int j = 0; j < n; ++j) d[j] = dot(a + j * across, a + j * across, m, along);
      for (int distance = 1; distance < n; ++distance)
        for (int first = 0; first < n - distance; ++first) {
          V *x = a + first * across, *y = x + distance * across;
          active |= rotate_pair(x, y, m, along, orthogonal, d[first], d[first + distance]);
        }
    }
    Mask good = ~active;
    constexpr T kVanishing = L::kLeast / kRounding / kRounding;
    for (int j = 0; j < n; ++j) {
      d[j] = dot(a + j * across, a + j * across, m, along);
      good &= (d[j] == 0) | (d[j] * d[j] >= kVanishing);
      d[j] = L::root(d[j]);
    }
    sort(d, n);
    return good;
  }
  FACULA_LANES V dot(const V* x, const V* y, int m, int along) {
    V sum = x[0] * y[0];
    for (int i = 1; i < m; ++i) sum += x[i * along] * y[i * along];
    return sum;
  }
  // Makes two columns orthogonal that are not, and their squares; where they were not.
  FACULA_LANES Mask rotate_pair(V* x, V* y, int m, int along, T orthogonal, V& of_x, V& of_y) {
    V both = dot(x, y, m, along);
    Mask turns = L::abs(both) > orthogonal * L::root(of_x * of_y);
    if (!L::any(turns)) return turns;
    V zeta = (of_y - of_x) / (2 * both), size = L::abs(zeta), t = 1 / (size + L::root(1 + zeta * zeta));
    t = turns ? (zeta < 0 ? -t : t) : L::all(0);
    V c = 1 / L::root(1 + t * t), s = c * t;
    of_x = L::max(of_x - t * both, V());
    of_y += t * both;
    for (int i = 0; i < m; ++i) {
      V next = s * x[i * along] + c * y[i * along];
      x[i * along] = c * x[i * along] - s * y[i * along];
      y[i * along] = next;
    }
    return turns;
  }

  // Q^T A P is bidiagonal, with d below e, for A [m, n] of no more columns than rows. Reflections stay in a, Q's below the
  // diagonal, P's behind e.
  FACULA_LANES Mask bidiagonalize(V* a, int m, int n, V* d, V* e, V* tau_q, V* tau_p) {
    Mask good = L::everywhere();
    for (int k = 0; k < n; ++k) {
      V* x = a + k * n + k;
      good &= reflection(x, m - k, n, tau_q[k]);
      d[k] = x[0];
      reflect(x, n, tau_q[k], m - k, x + 1, n, 1, n - k - 1);
      if (k == n - 1) break;
      good &= reflection(x + 1, n - k - 1, 1, tau_p[k]);
      e[k] = x[1];
      reflect(x + 1, 1, tau_p[k], n - k - 1, x + n + 1, 1, n, m - k - 1);
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
    V dets = S::determinant(a, pivots, job.n);
    for (int l = 0; l < job.count; ++l) {
      if (!(done >> l & 1)) continue;
      T det = dets[l], size = std::abs(det), sum = 0;
      if (size >= S::kLeast && size <= S::kMost) {
        job.x[l] = std::copysign(T(1), det);
        job.y[l] = std::log(size);
        continue;
      }
      bool negative = false;
      for (int k = 0; k < job.n; ++k) {
        T pivot = a[k * job.n + k][l];
        sum += std::log(std::abs(pivot));
        negative ^= (pivot < 0) == (pivots[k][l] == k);
      }
      job.x[l] = negative ? T(-1) : T(1);
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
    auto* numbers = reinterpret_cast<std::remove_reference_t<decltype(pivots[0][0])>*>(pivots);
    for (int l = 0; l < S::kCount; ++l)
      for (int k = 0; k < n; ++k)
        numbers[k * S::kCount + l] = job.pivots[(l < job.count ? l : 0) * n + k] - 1;
    for (int k = 0; k < n; ++k) {
      good &= S::abs(a[k * n + k]) >= S::kLeast;
      good &= pivots[k] >= k;  // else of no factors that `lu` gives
    }
    uint32_t done = S::bits(good, job.count);
    S::each_right(job, done, [&](V* x, int columns) __attribute__((always_inline)) {
      if (!job.transposed) return S::solve(a, pivots, n, x, columns);
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
    int m = job.m, n = job.n, reflections = job.reflections;
    V a[kSquare], tau[std::max(kSmall, S::kCount)];  // as many as load and store may move
    S::load(a, job.a, m * n, m, n, n, job.count);
    S::load(tau, job.factors, reflections, 1, reflections, reflections, job.count);
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

struct Reflect {
  template <class T, int kBytes>
  FACULA_LANES uint32_t run(const SmallJob<T>& job) {
    FACULA_USE_STEPS
    int m = job.m, n = job.n, reflections = job.reflections, elements = m * job.columns;
    int rows = job.right ? job.columns : m, along = job.right ? 1 : job.columns, across = job.right ? m : 1;
    V a[kSquare], x[kSquare], tau[std::max(kSmall, S::kCount)];  // as many as load and store may move
    S::load(a, job.a, m * n, m, n, n, job.count);
    S::load(tau, job.factors, reflections, 1, reflections, reflections, job.count);
    S::load(x, job.b, elements, rows, elements / rows, elements / rows, job.count);
    Mask good = S::finite(a, m * n) & S::finite(tau, reflections) & S::finite(x, elements);
    for (int step = 0; step < reflections; ++step) {
      int k = job.transposed == job.right ? reflections - 1 - step : step;
      S::reflect(a + k * (n + 1), n, tau[k], m - k, x + k * along, along, across, job.columns);
    }
    uint32_t done = S::bits(good, job.count);
    S::store(x, job.x, elements, rows, elements / rows, elements / rows, done);
    return S::left_of(done, job.count);
  }
};

struct LeastSquares {
  template <class T, int kBytes>
  FACULA_LANES uint32_t run(const SmallJob<T>& job) {
    FACULA_USE_STEPS
    // A = Q R, or A^T of wide ones: columns of `most` elements, `across` from one to the next.
    bool wide = job.m < job.n;
    int n = job.n, most = std::max(job.m, n), rank = std::min(job.m, n), along = wide ? 1 : n,
        across = wide ? n : 1;
    V a[kSquare], tau[kSmall];
    S::load(a, job.a, job.m * n, job.m, n, n, job.count);
    Mask good = S::finite(a, job.m * n);
    for (int k = 0; k < rank; ++k) {
      V* x = a + k * (n + 1);
      good &= S::reflection(x, most - k, along, tau[k]);
      S::reflect(x, along, tau[k], most - k, x + across, along, across, rank - k - 1);
    }
    V values[kSmall];
    good &= has_full_rank<S>(job, a, rank, along, across, values);
    uint32_t done = S::bits(good, job.count);
    if (done) done &= solve<S>(job, a, tau, most, rank, along, across, wide);
    if (job.y) S::store(values, job.y, rank, 1, rank, rank, done);
    return S::left_of(done, job.count);
  }

 private:
  // Whether even the norms of R and its inverse tell that the least singular value is above the limit, or the singular
  // values themselves if they are wanted.
  template <class S, class T>
  FACULA_LANES auto has_full_rank(const SmallJob<T>& job, const typename S::V* a, int rank, int along,
                                  int across, typename S::V* values) {
    using V = typename S::V;
    V r[kSquare], of_r = {}, of_inverse = {};
    auto good = S::everywhere();
    for (int i = 0; i < rank; ++i) {
      for (int j = 0; j < rank; ++j) {
        r[i * rank + j] = j < i ? S::all(0) : a[i * along + j * across];
        of_r += r[i * rank + j] * r[i * rank + j];
      }
      good &= S::abs(r[i * rank + i]) >= S::kLeast;
    }
    if (job.y) {
      good &= S::singular_values(r, rank, rank, rank, 1, values);
      for (int i = 0; i < rank / 2; ++i) std::swap(values[i], values[rank - 1 - i]);
      return good & (values[rank - 1] > 2 * job.rcond * values[0]);
    }
    V x[kSquare];
    S::identity(x, rank);
    S::substitute(r, rank, rank, 1, true, false, x, rank);
    for (int e = 0; e < rank * rank; ++e) of_inverse += x[e] * x[e];
    return good & (2 * job.rcond * S::root(of_r) * S::root(of_inverse) < 1);
  }
  template <class S, class T>
  FACULA_LANES uint32_t solve(const SmallJob<T>& job, const typename S::V* a, const typename S::V* tau,
                              int most, int rank, int along, int across, bool wide) {
    using V = typename S::V;
    V x[kSquare];
    uint32_t done = ~uint32_t(0);
    for (int c = 0; c < job.columns; c += kSmall) {
      int some = std::min(kSmall, job.columns - c);
      S::load(x, job.b + c, int64_t(job.m) * job.columns, job.m, some, job.columns, job.count);
      auto reflect = [&](int k) __attribute__((always_inline)) {
        S::reflect(a + k * (job.n + 1), along, tau[k], most - k, x + k * some, some, 1, some);
      };
      if (wide) {
        S::substitute(a, rank, across, along, false, false, x, some);
        for (int e = rank * some; e < most * some; ++e) x[e] = S::all(0);
        for (int k = rank; k-- > 0;) reflect(k);
      } else {
        for (int k = 0; k < rank; ++k) reflect(k);
        S::substitute(a, rank, along, across, true, false, x, some);
      }
      done &= S::bits(S::finite(x, job.n * some), job.count);
      S::store(x, job.x + c, int64_t(job.n) * job.columns, job.n, some, job.columns, done);
    }
    return done;
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
    if (kVectors) S::product(a + n, n, n, tau, n - 1, n, n, 1, q);
    uint32_t some = S::bits(good, job.count), done = 0;
    if (!kVectors) {
      V values[kSmall], beside[kSmall];
      std::copy(d, d + n, values);
      std::copy(e, e + n - 1, beside);
      done = some & S::bits(S::eigenvalues(values, beside, n), job.count);
      for (int i = 0; i < n; ++i) values[i] *= size;
      S::store(values, job.x, n, 1, n, n, done);
    }
    done |= each_lane<T>(some & ~done, n, [&](int l, auto steps) __attribute__((always_inline)) {
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

struct Svd {
  // As LAPACK's gesdd, and where PyTorch's library does so: of a matrix with many more rows than columns R is reduced.
  template <class T, int kBytes>
  FACULA_LANES uint32_t run(const SmallJob<T>& job) {
    FACULA_USE_STEPS
    int m = job.m, n = job.n, most = std::max(m, n), k = std::min(m, n), columns = job.full ? most : k;
    bool wide = m < n, lengthy = !wide && m >= n * 3 / 2;
    V a[kSquare], d[kSmall], e[kSmall], along[kSquare],
        across[kSquare];  // vectors of the longer and the shorter side
    S::load(a, job.a, m * n, m, n, n, job.count);
    Mask good = S::finite(a, m * n);
    V size = S::scale(a, m * n);
    if (wide) turn<S>(a, m, n);
    good &= lengthy ? by_triangle<S>(a, m, n, columns, d, e, along, across)
                    : directly<S>(a, most, k, columns, d, e, along, across);
    const V *left = wide ? across : along, *right = wide ? along : across;
    int left_columns = wide ? k : columns, right_columns = wide ? columns : k;
    uint32_t done =
        each_lane<T>(S::bits(good, job.count), most, [&](int l, auto steps) __attribute__((always_inline)) {
          OfLane<T, kBytes> of{l};
          T values[kSmall] = {}, beside[kSmall] = {};
          typename decltype(steps)::Vector u[kSmall] = {}, v[kSmall] = {};
          for (int j = 0; j < k; ++j) {
            values[j] = of(d, j);
            if (j < k - 1) beside[j] = of(e, j);
            for (int i = 0; i < m; ++i) u[j][i] = of(left, i * left_columns + j);
            for (int i = 0; i < n; ++i) v[j][i] = of(right, i * right_columns + j);
          }
          if (wide) steps.make_upper(values, beside, u, k);
          if (!steps.singular_values(values, beside, u, v, k)) return false;
          T *to_u = job.y + int64_t(l) * m * left_columns, *to_v = job.z + int64_t(l) * n * right_columns;
          for (int j = 0; j < k; ++j) job.x[l * k + j] = values[j] * of(&size, 0);
          for (int j = 0; j < left_columns; ++j)
            for (int i = 0; i < m; ++i)
              to_u[i * left_columns + j] = j < k ? u[j][i] : of(left, i * left_columns + j);
          for (int j = 0; j < right_columns; ++j)
            for (int i = 0; i < n; ++i) to_v[j * n + i] = j < k ? v[j][i] : of(right, i * right_columns + j);
          return true;
        });
    return S::left_of(done, job.count);
  }

 private:
  template <class S>
  FACULA_LANES void turn(typename S::V* a, int m, int n) {  // a [n, m] = a^T
    typename S::V rows[kSquare];
    std::copy(a, a + m * n, rows);
    for (int i = 0; i < m; ++i)
      for (int j = 0; j < n; ++j) a[j * m + i] = rows[i * n + j];
  }
  template <class S>
  FACULA_LANES auto directly(typename S::V* a, int most, int k, int columns, typename S::V* d,
                             typename S::V* e, typename S::V* along, typename S::V* across) {
    typename S::V tau_q[kSmall], tau_p[kSmall];
    auto good = S::bidiagonalize(a, most, k, d, e, tau_q, tau_p);
    S::product(a, k, k, tau_q, k, most, columns, 0, along);
    S::product(a + 1, 1, k, tau_p, k - 1, k, k, 1, across);
    return good;
  }
  template <class S>
  FACULA_LANES auto by_triangle(typename S::V* a, int m, int n, int columns, typename S::V* d,
                                typename S::V* e, typename S::V* along, typename S::V* across) {
    typename S::V r[kSquare], tau[kSmall], tau_q[kSmall], tau_p[kSmall], own[kSquare];
    auto good = S::everywhere();
    for (int k = 0; k < n; ++k) {
      auto* x = a + k * n + k;
      good &= S::reflection(x, m - k, n, tau[k]);
      S::reflect(x, n, tau[k], m - k, x + 1, n, 1, n - k - 1);
    }
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < n; ++j) r[i * n + j] = i <= j ? a[i * n + j] : S::all(0);
    good &= S::bidiagonalize(r, n, n, d, e, tau_q, tau_p);
    S::product(r, n, n, tau_q, n, n, n, 0, own);
    S::product(r + 1, 1, n, tau_p, n - 1, n, n, 1, across);
    for (int i = 0; i < m; ++i)
      for (int j = 0; j < columns; ++j)
        along[i * columns + j] = i < n && j < n ? own[i * n + j] : S::all(i == j);
    S::apply(a, n, n, tau, n, m, columns, 0, along, false);
    return good;
  }
};

struct SvdVals {
  template <class T, int kBytes>
  FACULA_LANES uint32_t run(const SmallJob<T>& job) {
    FACULA_USE_STEPS
    int m = job.m, n = job.n, most = std::max(m, n), least = std::min(m, n);
    V a[kSquare], d[std::max(kSmall, S::kCount)];
    S::load(a, job.a, m * n, m, n, n, job.count);
    Mask good = S::finite(a, m * n);
    V size = S::scale(a, m * n);
    good &= S::singular_values(a, most, least, m < n ? 1 : n, m < n ? n : 1, d);
    for (int i = 0; i < least / 2; ++i) std::swap(d[i], d[least - 1 - i]);
    for (int i = 0; i < least; ++i) d[i] *= size;
    uint32_t done = S::bits(good, job.count);
    S::store(d, job.x, least, 1, least, least, done);
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
                  Det, SLogDet, SolveFactored, Cholesky, Triangular, Qr, Reflections, Reflect, Eigh<true>,
                  Eigh<false>, Svd, SvdVals, LeastSquares>;

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
