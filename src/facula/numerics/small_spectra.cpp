// Eigenvalues of Hermitian matrices and singular values, with and without vectors.
#include "facula/numerics/iterate.h"
#include "facula/numerics/small_steps.h"

namespace facula::numerics {

namespace {

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

#undef FACULA_FEW
#undef FACULA_FEW_SQUARED
}  // namespace

template <class T>
SmallRoutine<T> small_spectra(Small routine) {
  switch (routine) {
    case Small::eigh: return routine_of<Eigh<true>, T>();
    case Small::eigvalsh: return routine_of<Eigh<false>, T>();
    case Small::svd: return routine_of<Svd, T>();
    case Small::svdvals: return routine_of<SvdVals, T>();
    default: return nullptr;
  }
}
FACULA_INSTANTIATE_SMALL(small_spectra)

}  // namespace facula::numerics
