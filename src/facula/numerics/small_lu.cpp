// LU factors with partial pivoting and what follows from them: solutions, inverses, determinants.
#include "facula/numerics/small_steps.h"

namespace facula::numerics {

namespace {

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

#undef FACULA_FEW
#undef FACULA_FEW_SQUARED
}  // namespace

template <class T>
SmallRoutine<T> small_lu(Small routine) {
  switch (routine) {
    case Small::lu: return routine_of<Lu, T>();
    case Small::solve: return routine_of<Solve, T>();
    case Small::inverse: return routine_of<Invert<Inverse::plain>, T>();
    case Small::inverse_adjoint: return routine_of<Invert<Inverse::adjoint>, T>();
    case Small::cofactor: return routine_of<Invert<Inverse::cofactor>, T>();
    case Small::det: return routine_of<Det, T>();
    case Small::slogdet: return routine_of<SLogDet, T>();
    case Small::solve_factored: return routine_of<SolveFactored, T>();
    default: return nullptr;
  }
}
FACULA_INSTANTIATE_SMALL(small_lu)

}  // namespace facula::numerics
