#include "facula/numerics/small.h"

#include "facula/base/processor.h"
#include "facula/numerics/iterate.h"
#include "facula/numerics/numbers.h"

namespace facula::numerics {

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
  // Applies the product of `count` reflections, of which the k-th begins at row k + shift and is stored at v + k * (ld +
  // 1), to q [rows, columns]. If q is the identity, columns before a reflection's first row stay as they are.
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

// The routines: run(job) computes what run_small promises.
struct Lu {
  static constexpr bool kSpellsOut = true;
  template <class T, int kBytes>
  FACULA_LANES uint32_t run(const SmallJob<T>& job) {
    FACULA_USE_STEPS
    int n = job.n;
    V a[kSquare];
    Mask pivots[kSmall];
    S::load_square(job, a);
    uint32_t done = S::bits(S::factor(a, n, pivots), job.count);
    S::store(a, job.x, n * n, n, n, n, done);
    FACULA_FEW
    for (int k = 0; k < n; ++k) pivots[k] += 1;
    S::store_pivots(pivots, job, done);
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
    done = S::each_right(job, done, [&](V* x, int columns) __attribute__((always_inline)) {
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
      W largest = {};
      det = S::determinant(a, pivots, n);
      for (int k = 0; k < n; ++k) largest = S::max(largest, S::size(a[k * n + k]));
      // A bound for matrices so close to singular that their minors are needed instead of the inverse; twice as large,
      // because size() is not the modulus.
      using R = typename S::R;
      R tiny = 2 * std::sqrt(std::numeric_limits<R>::epsilon()) * std::numeric_limits<R>::epsilon();
      for (int k = 0; k < n; ++k) good &= S::settled(S::size(a[k * n + k]) >= tiny * largest);
      good &= S::settled(S::size(det) >= S::kLeast) & S::settled(S::size(det) <= S::kMost);
    }
    S::identity(x, n);
    S::solve(a, pivots, n, x, n);
    if (kWhich != Inverse::plain) {
      for (int i = 0; i < n; ++i)
        for (int j = 0; j < i; ++j) std::swap(x[i * n + j], x[j * n + i]);
      S::conjugate(x, n * n);
    }
    for (int e = 0; kWhich == Inverse::cofactor && e < n * n; ++e) x[e] *= S::conj(det);
    if (S::kIsComplex) good &= S::finite(x, n * n);
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
    Mask good = S::factor(a, job.n, pivots);
    V det = S::determinant(a, pivots, job.n);
    if (S::kIsComplex) good &= S::finite(&det, 1);
    uint32_t done = S::bits(good, job.count);
    S::store(&det, job.x, 1, 1, 1, 1, done);
    return S::left_of(done, job.count);
  }
};

struct SLogDet {
  static constexpr bool kSpellsOut = true;
  template <class T, int kBytes>
  FACULA_LANES uint32_t run(const SmallJob<T>& job) {
    FACULA_USE_STEPS
    V a[kSquare];
    Mask pivots[kSmall];
    S::load_square(job, a);
    uint32_t done = S::bits(S::factor(a, job.n, pivots), job.count);
    V dets = S::determinant(a, pivots, job.n, S::kIsComplex);
    if constexpr (S::kIsComplex) {
      done &= S::bits(S::invertible(S::size(dets)), job.count);
      W sizes = S::modulus(dets);
      V signs = dets / sizes;
      S::store(&signs, job.x, 1, 1, 1, 1, done);
      for (int l = 0; l < job.count; ++l)
        if (done >> l & 1) job.values[l] = std::log(sizes[l]);
      return S::left_of(done, job.count);
    } else {
      for (int l = 0; l < job.count; ++l)
        if (done >> l & 1) of_lane<S>(job, a, pivots, dets, l);
      return S::left_of(done, job.count);
    }
  }

 private:
  template <class S, class T>
  FACULA_LANES void of_lane(const SmallJob<T>& job, const typename S::V* a, const typename S::Mask* pivots,
                            typename S::V dets, int l) {
    T det = dets[l], size = std::abs(det), sum = 0;
    if (size >= S::kLeast && size <= S::kMost) {
      job.x[l] = std::copysign(T(1), det);
      job.values[l] = std::log(size);
      return;
    }
    bool negative = false;
    for (int k = 0; k < job.n; ++k) {
      T pivot = a[k * job.n + k][l];
      sum += std::log(std::abs(pivot));
      negative ^= (pivot < 0) == (pivots[k][l] == k);
    }
    job.x[l] = negative ? T(-1) : T(1);
    job.values[l] = sum;
  }
};

struct SolveFactored {
  static constexpr bool kSpellsOut = true;
  template <class T, int kBytes>
  FACULA_LANES uint32_t run(const SmallJob<T>& job) {
    FACULA_USE_STEPS
    int n = job.n;
    V a[kSquare];
    Mask pivots[kSmall], good = S::everywhere();
    S::load_square(job, a);
    good &= S::finite(a, n * n);
    using P = typename S::Pivots;
    typename P::V numbers[kSmall];
    P::load(numbers, job.pivots, n, n, 1, 1, job.count);
    FACULA_FEW
    for (int k = 0; k < n; ++k) {
      pivots[k] = S::settled(__builtin_convertvector(numbers[k], Mask) - 1);
      good &= S::invertible(S::size(a[k * n + k]));
      good &= S::settled(pivots[k] >= k);  // else not the pivots of `lu`
    }
    if (job.transposed) S::conjugate(a, n * n);
    uint32_t done = S::bits(good, job.count);
    done = S::each_right(job, done, [&](V* x, int columns) __attribute__((always_inline)) {
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
    V a[kSquare];
    W rests = {};
    Mask good = S::everywhere();
    S::load_square(job, a);
    for (int j = 0; j < n; ++j) {
      W pivot = S::real(a[j * n + j]);
      for (int k = 0; k < j; ++k) pivot -= S::norm(a[j * n + k]);
      good &= S::settled(pivot >= S::kLeast);
      pivot = S::root(pivot);
      a[j * n + j] = S::of_real(pivot);
      S::note(rests, pivot);
      W scale = 1 / pivot;
      for (int i = j + 1; i < n; ++i) {
        V x = a[i * n + j];
        for (int k = 0; k < j; ++k) x -= a[i * n + k] * S::conj(a[j * n + k]);
        a[i * n + j] = x *= scale;
        a[j * n + i] = S::all(0);
        S::note(rests, x);
      }
    }
    uint32_t done = S::bits(good & S::settled(rests == 0), job.count);
    S::store(a, job.x, n * n, n, n, n, done);
    return S::left_of(done, job.count);
  }
};

struct FactorInverse {
  template <class T, int kBytes>
  FACULA_LANES uint32_t run(const SmallJob<T>& job) {
    FACULA_USE_STEPS
    int n = job.n;
    V a[kSquare], x[kSquare];
    W rests = {};
    Mask good = S::everywhere();
    S::load_square(job, a);
    for (int i = 0; i < n; ++i)  // first the lower factor, then its inverse
      for (int j = 0; j <= i; ++j) {
        if (job.upper) a[i * n + j] = S::conj(a[j * n + i]);
        S::note(rests, a[i * n + j]);
      }
    for (int i = 0; i < n; ++i) {
      V *row = a + i * n, scale = S::reciprocal(row[i]);
      good &= S::invertible(S::size(row[i]));
      row[i] = scale;
      for (int j = 0; j < i; ++j) {
        V sum = row[j] * a[j * n + j];
        for (int k = j + 1; k < i; ++k) sum += row[k] * a[k * n + j];
        row[j] = -(sum * scale);
      }
    }
    for (int i = 0; i < n; ++i)
      for (int j = 0; j <= i; ++j) {
        V sum = S::conj(a[i * n + i]) * a[i * n + j];
        for (int k = i + 1; k < n; ++k) sum += S::conj(a[k * n + i]) * a[k * n + j];
        x[i * n + j] = i == j ? S::of_real(S::real(sum)) : sum;
        x[j * n + i] = S::conj(x[i * n + j]);
      }
    uint32_t done = S::bits(good & S::settled(rests == 0) & S::finite(x, n * n), job.count);
    S::store(x, job.x, n * n, n, n, n, done);
    return S::left_of(done, job.count);
  }
};

struct Turn {
  template <class T, int kBytes>
  FACULA_LANES uint32_t run(const SmallJob<T>& job) {
    FACULA_USE_STEPS
    int m = job.m, n = job.n;
    V a[kSquare], x[kSquare];
    S::load(a, job.a, m * n, m, n, n, job.count);
    for (int i = 0; i < m; ++i)
      for (int j = 0; j < n; ++j) x[j * m + i] = a[i * n + j];
    S::store(x, job.x, m * n, n, m, m, (uint32_t(1) << job.count) - 1);
    return 0;
  }
};

// Bunch's and Kaufman's diagonal pivoting, as in pivoted.h for one matrix, but with both triangles, so that the row of a
// pivot is found by selections.
struct Ldl {
  template <class T, int kBytes>
  FACULA_LANES uint32_t run(const SmallJob<T>& job) {
    FACULA_USE_STEPS
    int n = job.n;
    V a[kSquare];
    S::load_square(job, a);
    auto other = [&](V x) __attribute__((always_inline)) { return job.hermitian ? S::conj(x) : x; };
    for (int i = 0; i < n; ++i) {
      if (job.hermitian) a[i * n + i] = S::of_real(S::real(a[i * n + i]));
      for (int j = 0; j < i; ++j) a[j * n + i] = other(a[i * n + j]);
    }
    Mask good = S::finite(a, n * n), second = {}, pivots[kSmall];
    for (int k = 0; k < n; ++k) {
      Mask has_pivot = second;
      Choice<S> c = choose<S>(a, n, k, has_pivot);
      good &= has_pivot;
      Mask two = c.two & ~second;
      exchange<S>(a, n, k, c.row, ~second & ~two);
      if (k + 1 < n) exchange<S>(a, n, k + 1, c.row, two, k);
      Mask number = (c.row + 1) ^ two, one_less = two & 1;  // the negative number of a row
      number += one_less;
      pivots[k] = k ? (second & pivots[k - 1]) | (~second & number) : number;
      eliminate<S>(a, n, k, ~second, two, job.hermitian, other, good);
      second = two;
    }
    good &= S::finite(a, n * n);
    for (int i = 0; i < n; ++i)
      for (int j = i + 1; j < n; ++j) a[i * n + j] = S::all(0);
    uint32_t done = S::bits(good, job.count);
    S::store(a, job.x, n * n, n, n, n, done);
    S::store_pivots(pivots, job, done);
    return S::left_of(done, job.count);
  }

 private:
  template <class S>
  struct Choice {
    // the row to be exchanged with the last one of a block of one or two rows; whether the block has two
    typename S::Mask row, two;
  };
  template <class S>
  FACULA_LANES Choice<S> choose(const typename S::V* a, int n, int k, typename S::Mask& has_pivot) {
    using R = typename S::R;
    const R alpha = (1 + std::sqrt(R(17))) / 8;
    auto size = [&](int i, int j) __attribute__((always_inline)) { return S::size(a[i * n + j]); };
    typename S::Mask largest = typename S::Mask() + k;
    typename S::W column = {}, row = {}, diagonal = size(k, k), there = diagonal;
    for (int i = k + 1; i < n; ++i) {
      auto larger = S::settled(size(i, k) > column);
      column = larger ? size(i, k) : column;
      there = larger ? size(i, i) : there;
      largest = S::settled((larger & i) | (~larger & largest));
    }
    for (int i = k; i < n; ++i)
      for (int j = k; j < n; ++j)
        if (i != j) row = S::settled(largest == i) & S::settled(size(i, j) > row) ? size(i, j) : row;
    has_pivot |= S::settled(S::max(diagonal, column) > 0);  // otherwise there is no block
    auto stays =
             S::settled(diagonal >= alpha * column) | S::settled(diagonal >= alpha * column * (column / row)),
         moves = S::settled(there >= alpha * row);
    return {(stays & k) | (~stays & largest), ~stays & ~moves};
  }
  // Exchanges rows and columns `from` and `to`; only elements from row and column `first` on.
  template <class S>
  FACULA_LANES void exchange(typename S::V* a, int n, int from, typename S::Mask to, typename S::Mask where,
                             int first = -1) {
    for (int i = from + 1; i < n; ++i) {
      auto here = S::settled(to == i) & where;
      if (!S::any(here)) continue;
      for (int j = first < 0 ? from : first; j < n; ++j) S::swap_where(here, a[from * n + j], a[i * n + j]);
      for (int j = first < 0 ? from : first; j < n; ++j) S::swap_where(here, a[j * n + from], a[j * n + i]);
    }
  }
  template <class S, class F>
  FACULA_LANES void eliminate(typename S::V* a, int n, int k, typename S::Mask some, typename S::Mask two,
                              bool hermitian, F&& other, typename S::Mask& good) {
    using V = typename S::V;
    auto one = some & ~two;
    V scale = S::reciprocal(a[k * n + k]), first[kSmall], second[kSmall];
    good &= S::invertible(S::size(a[k * n + k])) | ~one;
    for (int i = k + 1; i < n; ++i) first[i] = a[i * n + k] * scale, second[i] = S::all(0);
    if (S::any(two)) {
      // For D = (low d^*; d high), or with d in place of d^*: the rows below times its inverse.
      V d = a[(k + 1) * n + k], across = other(d), low = a[k * n + k] * S::reciprocal(d),
        high = a[(k + 1) * n + k + 1] * S::reciprocal(across), rest = high * low - S::all(1);
      good &= (S::invertible(S::size(d)) & S::invertible(S::size(rest))) | ~two;
      V inverse = S::reciprocal(rest);
      for (int i = k + 2; i < n; ++i) {
        V x = a[i * n + k] * S::reciprocal(d), y = a[i * n + k + 1] * S::reciprocal(across);
        first[i] = S::select(two, (high * x - y) * inverse, first[i]);
        second[i] = S::select(two, (low * y - x) * inverse, second[i]);
      }
    }
    V next[kSmall];  // the second row of a block, or zeros
    for (int i = k + 1; i < n; ++i) next[i] = S::select(two, a[i * n + k + 1], S::all(0));
    for (int j = k + 1; j < n; ++j) {
      auto changed = j == k + 1 ? one : some;
      for (int i = j; i < n; ++i) {
        V x = a[i * n + j] - first[i] * other(a[j * n + k]) - second[i] * other(next[j]);
        if (i == j && hermitian) x = S::of_real(S::real(x));
        a[i * n + j] = S::select(changed, x, a[i * n + j]);
      }
    }
    for (int i = k + 1; i < n; ++i) {
      auto changed = i == k + 1 ? one : some;
      a[i * n + k] = S::select(changed, first[i], a[i * n + k]);
      if (i > k + 1) a[i * n + k + 1] = S::select(two, second[i], a[i * n + k + 1]);
      for (int j = k + 1; j < i; ++j) a[j * n + i] = other(a[i * n + j]);
    }
  }
};

struct Triangular {
  template <class T, int kBytes>
  FACULA_LANES uint32_t run(const SmallJob<T>& job) {
    FACULA_USE_STEPS
    int n = job.n;
    V a[kSquare];
    W rests = {};
    Mask good = S::everywhere();
    S::load_square(job, a);
    for (int i = 0; i < n; ++i) {
      if (!job.unit) good &= S::invertible(S::size(a[i * n + i]));
      for (int j = job.upper ? i : 0; j < (job.upper ? n : i + 1); ++j)
        if (!job.unit || i != j) S::note(rests, a[i * n + j]);
    }
    uint32_t done = S::bits(good & S::settled(rests == 0), job.count);
    done = S::each_right(job, done, [&](V* x, int columns) __attribute__((always_inline)) {
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
      S::reflect(x, n, S::conj(tau[k]), m - k, x + 1, n, 1, n - k - 1);
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
      x[0] = S::all(1) - tau[k];
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
      V factor = job.transposed ? S::conj(tau[k]) : tau[k], *v = a + k * (n + 1), *first = x + k * along;
      if (job.right) S::template reflect<true>(v, n, factor, m - k, first, along, across, job.columns);
      else S::reflect(v, n, factor, m - k, first, along, across, job.columns);
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
    // A = Q R, or A^H of wide ones: columns of `most` elements, `across` from one to the next.
    bool wide = job.m < job.n;
    int n = job.n, most = std::max(job.m, n), rank = std::min(job.m, n), along = wide ? 1 : n,
        across = wide ? n : 1;
    V a[kSquare], tau[kSmall];
    S::load(a, job.a, job.m * n, job.m, n, n, job.count);
    Mask good = S::finite(a, job.m * n);
    if (wide) S::conjugate(a, job.m * n);
    for (int k = 0; k < rank; ++k) {
      V* x = a + k * (n + 1);
      good &= S::reflection(x, most - k, along, tau[k]);
      S::reflect(x, along, S::conj(tau[k]), most - k, x + across, along, across, rank - k - 1);
    }
    W values[kSmall];
    good &= has_full_rank<S>(job, a, rank, along, across, values);
    uint32_t done = S::bits(good, job.count);
    if (done) done &= solve<S>(job, a, tau, most, rank, along, across, wide);
    if (job.values) S::store(values, job.values, rank, 1, rank, rank, done);
    return S::left_of(done, job.count);
  }

 private:
  // Returns whether the least singular value is above the limit: by a bound from the norms of R and its inverse, or by
  // the singular values themselves if they are wanted.
  template <class S, class T>
  FACULA_LANES auto has_full_rank(const SmallJob<T>& job, const typename S::V* a, int rank, int along,
                                  int across, typename S::W* values) {
    typename S::V r[kSquare], x[kSquare];
    typename S::W of_r = {}, of_inverse = {};
    auto good = S::everywhere();
    for (int i = 0; i < rank; ++i) {
      for (int j = 0; j < rank; ++j) {
        r[i * rank + j] = j < i ? S::all(0) : a[i * along + j * across];
        of_r += S::norm(r[i * rank + j]);
      }
      good &= S::invertible(S::size(r[i * rank + i]));
    }
    if (job.values) {
      good &= S::singular_values(r, rank, rank, rank, 1, values);
      for (int i = 0; i < rank / 2; ++i) std::swap(values[i], values[rank - 1 - i]);
      return good & S::settled(values[rank - 1] > 2 * job.rcond * values[0]);
    }
    S::identity(x, rank);
    S::substitute(r, rank, rank, 1, true, false, x, rank);
    for (int e = 0; e < rank * rank; ++e) of_inverse += S::norm(x[e]);
    return good & S::settled(2 * job.rcond * S::root(of_r) * S::root(of_inverse) < 1);
  }
  template <class S, class T>
  FACULA_LANES uint32_t solve(const SmallJob<T>& job, const typename S::V* a, const typename S::V* tau,
                              int most, int rank, int along, int across, bool wide) {
    typename S::V x[kSquare], r[kSquare];  // for wide matrices, R^H
    if (wide) {
      std::copy(a, a + job.m * job.n, r);
      S::conjugate(r, job.m * job.n);
    }
    uint32_t done = ~uint32_t(0);
    for (int c = 0; c < job.columns; c += kSmall) {
      int some = std::min(kSmall, job.columns - c);
      S::load(x, job.b + c, int64_t(job.m) * job.columns, job.m, some, job.columns, job.count);
      auto reflect = [&](int k) __attribute__((always_inline)) {
        auto factor = wide ? tau[k] : S::conj(tau[k]);
        S::reflect(a + k * (job.n + 1), along, factor, most - k, x + k * some, some, 1, some);
      };
      if (wide) {
        S::substitute(r, rank, across, along, false, false, x, some);
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

// The numbers of lane l in some vectors: real ones, or one part of complex ones.
template <class R, int kBytes>
struct OfLane {
  int l;
  template <class W>
  [[gnu::always_inline]] R operator()(const W* from, int e) const {
    return reinterpret_cast<const R*>(from)[e * Lanes<R, kBytes>::kCount + l];
  }
  template <class W>
  [[gnu::always_inline]] R operator()(const ComplexVector<W>* from, int e, int part) const {
    return (*this)(reinterpret_cast<const W*>(from), 2 * e + part);
  }
  template <class W>
  [[gnu::always_inline]] R operator()(const W* from, int e, int) const {
    return (*this)(from, e);
  }
};

// Vectors of decompositions, kRows real numbers each; for complex ones first all real parts, then all imaginary ones.
template <class S, int kRows>
struct Parts {
  using T = typename S::Number;
  using R = typename S::R;
  static constexpr int kParts = S::kIsComplex ? 2 : 1;
  typedef R Vector __attribute__((vector_size(kRows * sizeof(R))));

  [[gnu::always_inline]] static int place(int row, int part) { return row + part * (kRows / 2); }
  [[gnu::always_inline]] static T number(const Vector& x, int row) {
    if constexpr (S::kIsComplex) return {x[place(row, 0)], x[place(row, 1)]};
    else return x[row];
  }
  [[gnu::always_inline]] static T conjugate(const Vector& x, int row) {
    if constexpr (S::kIsComplex) return std::conj(number(x, row));
    else return x[row];
  }
  template <class Of, class V>
  [[gnu::always_inline]] static void take(Of of, const V* from, int e, Vector& x, int row) {
    for (int part = 0; part < kParts; ++part) x[place(row, part)] = of(from, e, part);
  }
  template <class Of, class V>
  [[gnu::always_inline]] static T number_of(Of of, const V* from, int e) {
    if constexpr (S::kIsComplex) return {of(from, e, 0), of(from, e, 1)};
    else return of(from, e);
  }
};

// Calls f(lane, parts, steps of vectors of 4 or 8 rows) for the lanes in `which`; returns the bits of those for which it
// is true.
template <class S, class F>
FACULA_LANES uint32_t each_lane(uint32_t which, int rows, F&& f) {
  using R = typename S::R;
  constexpr int kParts = S::kIsComplex ? 2 : 1;
  uint32_t done = 0;
  for (; which; which &= which - 1) {
    int l = __builtin_ctz(which);
    bool good = rows <= 4 ? f(l, Parts<S, 4 * kParts>(), Iterate<R, 4 * kParts>())
                          : f(l, Parts<S, 8 * kParts>(), Iterate<R, 8 * kParts>());
    done |= uint32_t(good) << l;
  }
  return done;
}

template <bool kVectors>
struct Eigh {
  // Mirrors the triangle that is read. The upper one is reduced from the other end, as the lower one of the matrix with
  // rows and columns in reverse order. The diagonal is real.
  template <class S>
  FACULA_LANES void hermitian(typename S::V* a, int n, bool upper) {
    for (int e = 0; upper && e < n * n / 2; ++e) std::swap(a[e], a[n * n - 1 - e]);
    for (int i = 0; i < n; ++i) {
      a[i * n + i] = S::of_real(S::real(a[i * n + i]));
      for (int j = 0; j < i; ++j) a[j * n + i] = S::conj(a[i * n + j]);
    }
  }
  template <class T, int kBytes>
  FACULA_LANES uint32_t run(const SmallJob<T>& job) {
    FACULA_USE_STEPS
    int n = job.n;
    V a[kSquare], q[kSquare], tau[kSmall];
    W d[kSmall], e[kSmall];
    S::load_square(job, a);
    hermitian<S>(a, n, job.upper);
    Mask good = S::finite(a, n * n);
    W size = S::scale(a, n * n);
    good &= S::tridiagonalize(a, n, d, e, tau);
    if (kVectors) S::product(a + n, n, n, tau, n - 1, n, n, 1, q);
    uint32_t some = S::bits(good, job.count), done = 0;
    if (!kVectors) {
      W values[kSmall], off_diagonal[kSmall];
      std::copy(d, d + n, values);
      std::copy(e, e + n - 1, off_diagonal);
      done = some & S::bits(S::eigenvalues(values, off_diagonal, n), job.count);
      for (int i = 0; i < n; ++i) values[i] *= size;
      S::store(values, job.values, n, 1, n, n, done);
    }
    done |= each_lane<S>(some & ~done, n, [&](int l, auto parts, auto steps) __attribute__((always_inline)) {
      using R = typename S::R;
      OfLane<R, kBytes> of{l};
      R values[kSmall] = {}, off_diagonal[kSmall] = {};
      typename decltype(steps)::Vector z[kSmall] = {};
      auto at = [&](int i, int count)
                    __attribute__((always_inline)) { return job.upper ? count - 1 - i : i; };
      for (int i = 0; i < n; ++i) {
        values[i] = of(d, at(i, n));
        if (i < n - 1) off_diagonal[i] = of(e, at(i, n - 1));
        for (int j = 0; kVectors && j < n; ++j) parts.take(of, q, at(i, n) * n + at(j, n), z[j], i);
      }
      if (!steps.diagonalize(values, off_diagonal, kVectors ? z : nullptr, n)) return false;
      for (int i = 0; i < n; ++i) {
        job.values[l * n + i] = values[i] * of(&size, 0);
        for (int j = 0; kVectors && j < n; ++j) job.y[(l * n + i) * n + j] = parts.number(z[j], i);
      }
      return true;
    });
    return S::left_of(done, job.count);
  }
};

struct Svd {
  // Follows LAPACK's gesdd: for a matrix with many more rows than columns, R is reduced, where PyTorch's library does so too.
  // Complex matrices with many more columns, for which LAPACK reduces L, are left to it.
  template <class T, int kBytes>
  FACULA_LANES uint32_t run(const SmallJob<T>& job) {
    FACULA_USE_STEPS
    using R = typename S::R;
    int m = job.m, n = job.n, most = std::max(m, n), k = std::min(m, n), columns = job.full ? most : k;
    bool wide = m < n, lengthy = most >= (S::kIsComplex ? k * 17 / 9 : k * 3 / 2);
    if (S::kIsComplex && wide && lengthy) return S::left_of(0, job.count);
    V a[kSquare], along[kSquare], across[kSquare];  // vectors of the longer and the shorter side
    W d[kSmall], e[kSmall];
    S::load(a, job.a, m * n, m, n, n, job.count);
    Mask good = S::finite(a, m * n);
    W size = S::scale(a, m * n);
    if (wide) turn<S>(a, m, n);
    good &= lengthy && !wide ? by_triangle<S>(a, m, n, columns, d, e, along, across)
                             : directly<S>(a, most, k, columns, d, e, along, across);
    const V *left = wide ? across : along, *right = wide ? along : across;
    int left_columns = wide ? k : columns, right_columns = wide ? columns : k;
    auto one = [&](int l, auto parts, auto steps) __attribute__((always_inline)) {
      OfLane<R, kBytes> of{l};
      R values[kSmall] = {}, off_diagonal[kSmall] = {};
      typename decltype(steps)::Vector u[kSmall] = {}, v[kSmall] = {};
      for (int j = 0; j < k; ++j) {
        values[j] = of(d, j);
        if (j < k - 1) off_diagonal[j] = of(e, j);
        for (int i = 0; i < m; ++i) parts.take(of, left, i * left_columns + j, u[j], i);
        for (int i = 0; i < n; ++i) parts.take(of, right, i * right_columns + j, v[j], i);
      }
      if (wide) steps.make_upper(values, off_diagonal, u, k);
      if (!steps.singular_values(values, off_diagonal, u, v, k)) return false;
      T *to_u = job.y + int64_t(l) * m * left_columns, *to_v = job.z + int64_t(l) * n * right_columns;
      for (int j = 0; j < k; ++j) job.values[l * k + j] = values[j] * of(&size, 0);
      for (int j = 0; j < left_columns; ++j)
        for (int i = 0; i < m; ++i)
          to_u[i * left_columns + j] =
              j < k ? parts.number(u[j], i) : parts.number_of(of, left, i * left_columns + j);
      for (int j = 0; j < right_columns; ++j)
        for (int i = 0; i < n; ++i)
          to_v[j * n + i] =
              j < k ? parts.conjugate(v[j], i) : conjugate(parts.number_of(of, right, i * right_columns + j));
      return true;
    };
    uint32_t done = each_lane<S>(S::bits(good, job.count), most, one);
    return S::left_of(done, job.count);
  }

 private:
  template <class T>
  FACULA_LANES T conjugate(T x) {
    if constexpr (std::is_floating_point_v<T>) return x;
    else return std::conj(x);
  }
  template <class S>
  FACULA_LANES void turn(typename S::V* a, int m, int n) {  // a [n, m] = a^H
    typename S::V rows[kSquare];
    std::copy(a, a + m * n, rows);
    for (int i = 0; i < m; ++i)
      for (int j = 0; j < n; ++j) a[j * m + i] = S::conj(rows[i * n + j]);
  }
  template <class S>
  FACULA_LANES auto directly(typename S::V* a, int most, int k, int columns, typename S::W* d,
                             typename S::W* e, typename S::V* along, typename S::V* across) {
    typename S::V tau_q[kSmall], tau_p[kSmall];
    auto good = S::bidiagonalize(a, most, k, d, e, tau_q, tau_p);
    S::product(a, k, k, tau_q, k, most, columns, 0, along);
    S::product(a + 1, 1, k, tau_p, k - 1, k, k, 1, across);
    return good;
  }
  template <class S>
  FACULA_LANES auto by_triangle(typename S::V* a, int m, int n, int columns, typename S::W* d,
                                typename S::W* e, typename S::V* along, typename S::V* across) {
    typename S::V r[kSquare], tau[kSmall], tau_q[kSmall], tau_p[kSmall], own[kSquare];
    auto good = S::everywhere();
    for (int k = 0; k < n; ++k) {
      auto* x = a + k * n + k;
      good &= S::reflection(x, m - k, n, tau[k]);
      S::reflect(x, n, S::conj(tau[k]), m - k, x + 1, n, 1, n - k - 1);
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
    V a[kSquare];
    W d[std::max(kSmall, S::kCount)];
    S::load(a, job.a, m * n, m, n, n, job.count);
    Mask good = S::finite(a, m * n);
    W size = S::scale(a, m * n);
    good &= S::singular_values(a, most, least, m < n ? 1 : n, m < n ? n : 1, d);
    for (int i = 0; i < least / 2; ++i) std::swap(d[i], d[least - 1 - i]);
    for (int i = 0; i < least; ++i) d[i] *= size;
    uint32_t done = S::bits(good, job.count);
    S::store(d, job.values, least, 1, least, least, done);
    return S::left_of(done, job.count);
  }
};

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
template <class T>
using Routine = uint32_t (*)(const SmallJob<T>&);
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

template <class T, class R>
Routine<T> make_routine() {
  return vector_bytes() == 64 ? ByWidth<R, T>::of_64 : ByWidth<R, T>::of_32;
}
template <class T, class... R>
struct Table {
  static_assert(sizeof...(R) == size_t(Small::kCount));
  Routine<T> routines[sizeof...(R)] = {make_routine<T, R>()...};
};
template <class T>  // in the order of `Small`
using All = Table<T, Lu, Solve, Invert<Inverse::plain>, Invert<Inverse::adjoint>, Invert<Inverse::cofactor>,
                  Det, SLogDet, SolveFactored, Cholesky, FactorInverse, Ldl, Triangular, Qr, Reflections,
                  Reflect, Eigh<true>, Eigh<false>, Svd, SvdVals, LeastSquares, Turn>;

#undef FACULA_FEW
#undef FACULA_FEW_SQUARED
}  // namespace

template <class T>
int small_lanes() {
  return vector_bytes() / int(sizeof(typename SmallJob<T>::R));
}

template <class T>
uint32_t run_small(Small routine, const SmallJob<T>& job) {
  static const All<T> all;
  return all.routines[size_t(routine)](job);
}

#define FACULA_INSTANTIATE(T)   \
  template int small_lanes<T>(); \
  template uint32_t run_small(Small, const SmallJob<T>&);
FACULA_INSTANTIATE(float)
FACULA_INSTANTIATE(double)
FACULA_INSTANTIATE(std::complex<float>)
FACULA_INSTANTIATE(std::complex<double>)
#undef FACULA_INSTANTIATE

}  // namespace facula::numerics
