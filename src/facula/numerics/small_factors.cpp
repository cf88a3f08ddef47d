// Factors of symmetric matrices, triangular solutions, and transposition.
#include "facula/numerics/small_steps.h"

namespace facula::numerics {

namespace {

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

#undef FACULA_FEW
#undef FACULA_FEW_SQUARED
}  // namespace

template <class T>
SmallRoutine<T> small_factors(Small routine) {
  switch (routine) {
    case Small::cholesky: return routine_of<Cholesky, T>();
    case Small::factor_inverse: return routine_of<FactorInverse, T>();
    case Small::ldl: return routine_of<Ldl, T>();
    case Small::triangular: return routine_of<Triangular, T>();
    case Small::turn: return routine_of<Turn, T>();
    default: return nullptr;
  }
}
FACULA_INSTANTIATE_SMALL(small_factors)

}  // namespace facula::numerics
