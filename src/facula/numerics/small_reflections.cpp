// Factors Q R by Householder reflections, products with reflections, least squares.
#include "facula/numerics/small_steps.h"

namespace facula::numerics {

namespace {

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

#undef FACULA_FEW
#undef FACULA_FEW_SQUARED
}  // namespace

template <class T>
SmallRoutine<T> small_reflections(Small routine) {
  switch (routine) {
    case Small::qr: return routine_of<Qr, T>();
    case Small::reflections: return routine_of<Reflections, T>();
    case Small::reflect: return routine_of<Reflect, T>();
    case Small::least_squares: return routine_of<LeastSquares, T>();
    default: return nullptr;
  }
}
FACULA_INSTANTIATE_SMALL(small_reflections)

}  // namespace facula::numerics
