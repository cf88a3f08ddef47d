// Orthogonal factorizations, singular values, eigenvalues, least squares and factors with pivots: by strips for larger
// real matrices (reflections.h, condense.h, tridiagonal.h), by LAPACK for others. Signs and phases of vectors are those
// that LAPACK's routines give for the matrix itself (not for its transpose).
#include "facula/device/cpu/lapack.h"
#include "facula/numerics/batched_products.h"
#include "facula/numerics/reflections.h"
#include "facula/numerics/small_eigen.h"
#include "facula/numerics/small_ldl.h"
#include "facula/numerics/tridiagonal.h"
#include "facula/numerics/tridiagonal_reduction.h"

namespace facula::device::cpu {

namespace {

template <class T>
using Real = typename Lapack<T>::Real;

// Temporary memory of a routine, reused for the matrices of a batch.
template <class T>
struct Room {
  Workspace<T> a, b, c, work;
  Workspace<Real<T>> reals;
  std::vector<Real<T>> values, more;
  std::vector<int> integers;
  int size = 0;  // elements of work; 0: not queried yet
};

// Calls f(work, size) with as much memory as the routine asks for.
template <class T, class F>
void with_work(Room<T>& room, F&& f) {
  if (room.size == 0) {
    T best{};
    int ask = -1;
    f(&best, &ask);
    // The routine returns an integer as a floating-point number, which may have been rounded.
    room.size = std::max(1, int(double(std::real(best)) * (1 + 1e-6)) + 1);
    room.work.resize(size_t(room.size));
  }
  f(room.work.data(), &room.size);
}

// Calls f(matrix number, room) for each matrix of a batch; a matrix costs as much as products of order n. LAPACK has one
// thread except for a single matrix of order `shared` or more: routines that consist of reflections and rotations only
// wait for more threads (with two, singular values of 512x512 take 56 ms instead of 42, eigenvalues of 2048x2048 1010
// instead of 830).
template <class T, class F>
void each_in_room(int64_t count, int n, F&& f, int shared = std::numeric_limits<int>::max()) {
  blas_threads(count == 1 && n >= shared && !in_parallel() ? num_threads() : 1);
  auto grain = int64_t(std::max(1.0, 20000.0 / (double(n) * n * n + 1)));
  parallel_for(count, grain, [&](int64_t begin, int64_t end) {
    Room<T> room;
    for (int64_t k = begin; k < end; ++k) f(k, room);
  });
  blas_threads(1);
}

// The same, but `routine` (small.h) computes small matrices [m, n]; `job` (first matrix) returns its operands.
template <class T, class J, class F>
void each_in_room(int64_t count, int m, int n, Small routine, J&& job, F&& f,
                  int shared = std::numeric_limits<int>::max()) {
  auto alone = [&](int64_t k) {
    Room<T> room;
    f(k, room);
  };
  if (!each_small<T>(routine, count, m, n, job, alone)) each_in_room<T>(count, std::max(m, n), f, shared);
}

// A batch of matrices [m, n].
struct Matrices {
  int m, n, k;  // k is the smaller one
  int64_t count, elements;
};
Matrices shape_of(const char* name, const Tensor& a) {
  auto sizes = a.int_sizes();
  int64_t m = sizes[sizes.size() - 2], n = sizes.back(), limit = 46340;
  runtime_check(m * n <= limit * limit && m + n < (int64_t(1) << 31), name)
      << "matrices of " << m << " by " << n << " are too large for LAPACK's 32-bit integers";
  return {int(m), int(n), int(std::min(m, n)), matrices(a), m * n};
}

// Element-wise copies between row-major and column-major order.
template <class T>
T* columns_of(const T* rows, int m, int n, Workspace<T>& to) {
  to.resize(size_t(m) * size_t(n) + 1);
  transpose_into(rows, m, n, to.data());
  return to.data();
}
// Distance between columns of m elements: columns of an integral number of cache lines would map to the same few sets.
constexpr int kLarge = 128;
constexpr int leading(int m) { return m < kLarge || m % 16 ? m : m + 16; }
template <class T>
void identity(T* a, int n) {
  std::fill(a, a + int64_t(n) * n, T(0));
  for (int i = 0; i < n; ++i) a[int64_t(i) * n + i] = T(1);
}
template <class T>
bool is_finite(T x) {
  if constexpr (kComplex<T>) return std::isfinite(x.real()) && std::isfinite(x.imag());
  else return std::isfinite(x);
}
template <class T>
bool is_nan(T x) {
  if constexpr (kComplex<T>) return std::isnan(x.real()) || std::isnan(x.imag());
  else return std::isnan(x);
}
// Returns whether a matrix that is not finite has no decomposition: if it contains NaN or nothing but infinities. For
// others PyTorch returns NaN as values, and unit vectors.
template <class T>
bool hopeless(const T* a, int64_t n) {
  return std::any_of(a, a + n, is_nan<T>) || std::none_of(a, a + n, is_finite<T>);
}
// Writes the unit vectors of the first k rows, by columns or, for a symmetric matrix, by rows; from the last one if
// `reversed`.
template <class T>
void unit_vectors(T* to, int rows, int columns, int k, bool reversed) {
  std::fill(to, to + int64_t(rows) * columns, T(0));
  for (int j = 0; j < std::min(rows, columns); ++j) {
    int at = j < k && reversed ? k - 1 - j : j;
    to[int64_t(at) * columns + j] = T(1);
  }
}
// Returns whether all infinities are real parts on the diagonal: others leave no vectors for complex matrices.
template <class T>
bool real_on_diagonal(const T* rows, int m, int n) {
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j, ++rows)
      if (!is_finite(*rows) && (i != j || std::isinf(std::imag(*rows)))) return false;
  return true;
}
template <class T>
constexpr T kNoNumber = std::numeric_limits<T>::quiet_NaN();
// Finishes results that have been written.
template <class... D>
Results finished(Out out, D&... destinations) {
  (destinations.finish(), ...);
  Results results;
  for (size_t k = 0; k < sizeof...(D); ++k) results.push_back(out[k]);
  return results;
}

constexpr int kNotFinite = std::numeric_limits<int>::max();  // larger than any LAPACK error code

}  // namespace

// ---- Householder reflections

namespace {
// If one part of a complex number is NaN, makes both NaN, as a further multiplication in PyTorch's library does.
template <class T>
void spread_nan(T* a, int64_t n) {
  if constexpr (kComplex<T>)
    for (; n-- > 0; ++a)
      if (is_nan(*a)) *a = T(kNoNumber<Real<T>>, kNoNumber<Real<T>>);
}
template <class T>
T conjugated(T x) {
  if constexpr (kComplex<T>) return std::conj(x);
  else return x;
}
// a [m, n] := a - tau v (v^H a) for v = (1, x[1], ..., x[m - 1]), where tau may be NaN. `scans`: as larf, which skips
// zeros at the end of v and products with 0.
template <class T>
void reflect(const T* x, T tau, int m, int n, T* a, int ld, bool scans) {
  while (scans && m > 1 && x[m - 1] == T(0)) --m;
  for (int j = 0; j < n; ++j, a += ld) {
    T sum = a[0];
    for (int i = 1; i < m; ++i) sum += by_parts(conjugated(x[i]), a[i]);
    if (scans && sum == T(0)) continue;
    sum = by_parts(tau, sum);
    a[0] -= sum;
    for (int i = 1; i < m; ++i) a[i] -= by_parts(x[i], sum);
  }
}
// Turns x [m] = (alpha, ...) into the reflection that maps it to (beta, 0, ...), as larfg does.
template <class T>
void reflection(int m, T* x, T* tau) {
  using R = Real<T>;
  R norm = 0;
  int64_t infinite = std::isinf(std::real(x[0]));
  for (int i = 1; i < m; ++i) {
    norm = is_nan(x[i]) || std::isnan(norm) ? kNoNumber<R> : std::hypot(norm, std::abs(x[i]));
    infinite += !is_nan(x[i]) && !is_finite(x[i]);
  }
  T alpha = x[0];
  *tau = T(0);
  if (norm == 0 && std::imag(alpha) == 0) return;
  // By quotients, which do not exist for several infinities nor for complex ones; for a NaN and a number, the number
  // counts twice.
  bool lost = infinite > 1 || std::isnan(norm);
  R length = std::hypot(norm, std::abs(alpha));
  if (std::isnan(std::real(alpha)) && !kComplex<T>) length = norm * std::sqrt(R(2));
  if (lost || (kComplex<T> && !std::isfinite(length))) length = kNoNumber<R>;
  R beta = -std::copysign(length, std::real(alpha));
  if (std::isnan(std::real(alpha))) beta = length;
  T scale = T(1) / (alpha - beta);
  if constexpr (kComplex<T>) {
    *tau = T((beta - alpha.real()) / beta, -alpha.imag() / beta);
    if (!std::isfinite(beta)) *tau = scale = T(kNoNumber<R>, kNoNumber<R>);
  } else {
    *tau = (beta - alpha) / beta;
  }
  for (int i = 1; i < m; ++i) x[i] = by_parts(x[i], scale);
  x[0] = T(beta);
}
// geqrf and orgqr, reflection by reflection, for matrices that are not finite: PyTorch's library does not look for zeros
// there.
template <class T>
void factor_by_reflections(int m, int n, T* a, T* tau) {
  for (int k = 0; k < std::min(m, n); ++k) {
    T* x = a + int64_t(k) * m + k;
    reflection(m - k, x, tau + k);
    reflect(x, conjugated(tau[k]), m - k, n - k - 1, x + m, m, false);
  }
}
template <class T>
void multiply_reflections(int m, int n, int k, T* a, const T* tau) {
  for (int j = k; j < n; ++j) {
    std::fill_n(a + int64_t(j) * m, m, T(0));
    a[int64_t(j) * m + j] = T(1);
  }
  for (int j = k; j-- > 0;) {
    T* x = a + int64_t(j) * m + j;
    reflect(x, tau[j], m - j, n - j - 1, x + m, m, !kComplex<T>);
    for (int i = 1; i < m - j; ++i) x[i] = by_parts(-tau[j], x[i]);
    x[0] = T(1) - tau[j];
    std::fill_n(a + int64_t(j) * m, j, T(0));
  }
}
// Returns whether squares of the elements, and their sums, are numbers.
template <class T>
bool tame(const T* a, int64_t n) {
  using R = Real<T>;
  R limit = std::numeric_limits<R>::max() / 4096;
  return std::all_of(a, a + n, [&](T x) { return std::abs(x) < limit; });
}
// Returns whether no square of an element overflows, nor a sum of a million of them: required when norms are not scaled.
template <class T>
bool has_squares(const T* a, int64_t n) {
  constexpr int64_t kSums = 16;  // independent sums without branches, which vectorize
  const T up = std::ldexp(T(1), std::numeric_limits<T>::max_exponent / 2 + 12);
  T rests[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums)
    for (int64_t l = 0; l < kSums; ++l) rests[l] += a[i + l] * up - a[i + l] * up;
  for (; i < n; ++i) rests[0] += a[i] * up - a[i] * up;
  return std::all_of(rests, rests + kSums, [](T x) { return x == T(0); });
}
}  // namespace

Results geqrf(const Call& c, Out out) {
  Tensor a = dense(c.tensor("self"));
  Destination to(out[0]), to_tau(out[1]);
  Matrices s = shape_of("geqrf", a);
  of_type(a.dtype(), [&](auto zero) {
    using T = decltype(zero);
    if (!s.elements) return;
    auto job = [&](int64_t i) {
      return SmallJob<T>{.m = s.m,
                         .n = s.n,
                         .a = a.data<T>() + i * s.elements,
                         .x = to.data<T>() + i * s.elements,
                         .y = to_tau.data<T>() + i * s.k};
    };
    each_in_room<T>(s.count, s.m, s.n, Small::qr, job, [&](int64_t i, Room<T>& room) {
      if constexpr (!kComplex<T>)
        if (s.k >= kFewestReflected && has_squares(a.data<T>() + i * s.elements, s.elements) &&
            reflect_in_rows(s.m, s.n, a.data<T>() + i * s.elements, to.data<T>() + i * s.elements,
                            to_tau.data<T>() + i * s.k))
          return;
      T* x = columns_of(a.data<T>() + i * s.elements, s.m, s.n, room.a);
      int info = 0;
      if (tame(x, s.elements))
        with_work(room, [&](T* work, int* size) {
          Lapack<T>::geqrf(&s.m, &s.n, x, &s.m, to_tau.data<T>() + i * s.k, work, size, &info);
        });
      else {
        factor_by_reflections(s.m, s.n, x, to_tau.data<T>() + i * s.k);
        spread_nan(x, s.elements);
      }
      transpose_into(x, s.n, s.m, to.data<T>() + i * s.elements);
    });
  });
  return finished(out, to, to_tau);
}

Results householder_product(const Call& c, Out out) {
  Tensor a = dense(c.tensor("input")), tau = dense(c.tensor("tau"));
  Destination to(out[0]);
  Matrices s = shape_of("linalg.householder_product", a);
  int k = int(tau.int_sizes().back());
  of_type(a.dtype(), [&](auto zero) {
    using T = decltype(zero);
    if (!s.elements) return;
    auto job = [&](int64_t i) {
      return SmallJob<T>{.m = s.m,
                         .n = s.n,
                         .reflections = k,
                         .a = a.data<T>() + i * s.elements,
                         .factors = tau.data<T>() + i * k,
                         .x = to.data<T>() + i * s.elements};
    };
    each_in_room<T>(s.count, s.m, s.n, Small::reflections, job, [&](int64_t i, Room<T>& room) {
      const T *from = a.data<T>() + i * s.elements, *factors = tau.data<T>() + i * k;
      if constexpr (!kComplex<T>)
        if (k >= kFewestReflected && has_squares(from, s.elements) && finite(factors, k))
          return multiply_reflections_in_rows(s.m, s.n, k, from, factors, to.data<T>() + i * s.elements);
      T* x = columns_of(from, s.m, s.n, room.a);
      int info = 0;
      if (finite(x, s.elements) && finite(factors, k))
        with_work(room, [&](T* work, int* size) {
          Lapack<T>::orgqr(&s.m, &s.n, &k, x, &s.m, factors, work, size, &info);
        });
      else multiply_reflections(s.m, s.n, k, x, factors), spread_nan(x, s.elements);
      transpose_into(x, s.n, s.m, to.data<T>() + i * s.elements);
    });
  });
  return finished(out, to);
}

Results ormqr(const Call& c, Out out) {
  Tensor a = dense(c.tensor("self")), tau = dense(c.tensor("input2")), other = dense(c.tensor("input3"));
  Destination to(out[0]);
  Matrices s = shape_of("ormqr", a), o = shape_of("ormqr", other);
  int k = int(tau.int_sizes().back());
  const char* side = c.flag("left") ? "L" : "R";
  of_type(a.dtype(), [&](auto zero) {
    using T = decltype(zero);
    if (!o.elements) return;
    const char* transposed = !c.flag("transpose") ? "N" : kComplex<T> ? "C" : "T";
    auto job = [&](int64_t i) {
      return SmallJob<T>{.m = s.m,
                         .n = s.n,
                         .columns = c.flag("left") ? o.n : o.m,
                         .reflections = k,
                         .a = a.data<T>() + i * s.elements,
                         .b = other.data<T>() + i * o.elements,
                         .factors = tau.data<T>() + i * k,
                         .x = to.data<T>() + i * o.elements,
                         .transposed = c.flag("transpose"),
                         .right = !c.flag("left")};
    };
    auto alone = [&](int64_t i, Room<T>& room) {
      T* x = columns_of(a.data<T>() + i * s.elements, s.m, s.n, room.a);
      T* y = columns_of(other.data<T>() + i * o.elements, o.m, o.n, room.b);
      int info = 0, ld = std::max(1, s.m);
      with_work(room, [&](T* work, int* size) {
        Lapack<T>::ormqr(side, transposed, &o.m, &o.n, &k, x, &ld, tau.data<T>() + i * k, y, &o.m, work, size,
                         &info, 1, 1);
      });
      transpose_into(y, o.n, o.m, to.data<T>() + i * o.elements);
    };
    if (k && is_small<T>(o.m, o.n)) each_in_room<T>(o.count, s.m, s.n, Small::reflect, job, alone);
    else each_in_room<T>(o.count, std::max(o.m, o.n), alone);
  });
  return finished(out, to);
}

// ---- Singular values

namespace {
// Singular values by divide and conquer; `job`: all vectors, some, or none. Vectors are stored by columns.
template <class T>
int gesdd(const char* job, const Matrices& s, T* a, int ld, Real<T>* values, T* u, T* vh, int ldvh,
          Room<T>& room) {
  int info = 0;
  int64_t k = s.k, l = std::max(s.m, s.n);
  room.integers.resize(size_t(8 * k));
  if constexpr (kComplex<T>)
    room.reals.resize(size_t(*job == 'N' ? 7 * k : k * std::max(5 * k + 7, 2 * l + 2 * k + 1)));
  with_work(room, [&](T* work, int* size) {
    if constexpr (kComplex<T>)
      Lapack<T>::gesdd(job, &s.m, &s.n, a, &ld, values, u, &ld, vh, &ldvh, work, size, room.reals.data(),
                       room.integers.data(), &info, 1);
    else
      Lapack<T>::gesdd(job, &s.m, &s.n, a, &ld, values, u, &ld, vh, &ldvh, work, size, room.integers.data(),
                       &info, 1);
  });
  return info;
}

template <class T>
T largest_of(const T* a, int64_t n) {
  constexpr int64_t kSide = 16;  // independent maxima without branches, which vectorize
  T most[kSide] = {};
  int64_t k = 0;
  auto look = [](T& m, T x) { m = std::abs(x) > m ? std::abs(x) : m; };
  for (; k + kSide <= n; k += kSide)
    for (int64_t l = 0; l < kSide; ++l) look(most[l], a[k + l]);
  for (; k < n; ++k) look(most[0], a[k]);
  return *std::max_element(most, most + kSide);
}
// A power of 2 whose square scales extreme elements to about 1; else 1.
template <class T>
T root_of_scale(T largest) {
  int up = largest > 0 ? -std::ilogb(largest) : 0;
  return std::abs(up) > std::numeric_limits<T>::max_exponent / 4 ? std::ldexp(T(1), up / 2) : 1;
}
// The finite matrix a[n], or its scaled copy in `room`.
template <class T>
const T* scaled(const T* a, int64_t n, T root, Workspace<T>& room) {
  if (root == 1) return a;
  room.resize(size_t(n));
  for (int64_t k = 0; k < n; ++k) room[size_t(k)] = a[k] * root * root;
  return room.data();
}

// Singular values of a large row-major real matrix, m >= n, and its vectors, `columns` of U, unless these are null.
template <class T>
int large_svd(int m, int n, const T* rows, T* values, int columns, T* u, T* vh) {
  Workspace<T> brought, left, right, work;
  T root = root_of_scale(largest_of(rows, int64_t(m) * n));
  std::vector<T> above(static_cast<size_t>(n));
  Bidiagonalized<T> parts(m, n, {scaled(rows, int64_t(m) * n, root, brought), n}, u != nullptr, values,
                          above.data());
  int info = 0, ld = u ? leading(n) : 1;
  size_t square = u ? size_t(n) * size_t(ld) : 1;
  left.resize(square);
  right.resize(square);
  work.resize(u ? size_t(n) * (3 * size_t(n) + 4) : 8 * size_t(n));
  std::vector<int> integers(8 * size_t(n));
  TwoDiagonals<T>::bdsdc("U", u ? "I" : "N", &n, values, above.data(), left.data(), &ld, right.data(), &ld,
                         nullptr, nullptr, work.data(), integers.data(), &info, 1, 1);
  for (int k = 0; k < n; ++k) values[k] = values[k] / root / root;
  if (info > 0 || !u) return info;
  parts.left(left.data(), ld, columns, u);
  parts.right(right.data(), ld, vh);
  return 0;
}

void check_converged(const Failure& failure, const Tensor& a, const char* name) {
  linalg_check(!failure.any(), name)
      << failure.where(a)
      << (failure.info() == kNotFinite
              ? "The algorithm failed to converge because the input matrix contained "
                "non-finite values."
              : "The algorithm failed to converge because the input matrix is "
                "ill-conditioned or has too many repeated singular values (error code: ")
      << (failure.info() == kNotFinite ? "" : std::to_string(failure.info()) + ").");
}
}  // namespace

Results linalg_svd(const Call& c, Out out) {
  Tensor a = dense(c.tensor("A"));
  Destination to_u(out[0]), to_s(out[1]), to_vh(out[2]);
  Matrices s = shape_of("linalg.svd", a);
  bool full = c.flag("full_matrices");
  int ku = full ? s.m : s.k, kv = full ? s.n : s.k;
  Failure failure;
  of_type(a.dtype(), [&](auto zero) {
    using T = decltype(zero);
    auto job = [&](int64_t i) {
      return SmallJob<T>{.m = s.m,
                         .n = s.n,
                         .a = a.data<T>() + i * s.elements,
                         .y = to_u.data<T>() + i * s.m * ku,
                         .z = to_vh.data<T>() + i * s.n * kv,
                         .values = to_s.data<Real<T>>() + i * s.k,
                         .full = full};
    };
    auto alone = [&](int64_t i, Room<T>& room) {
      T *u = to_u.data<T>() + i * s.m * ku, *vh = to_vh.data<T>() + i * s.n * kv;
      if (!s.k) {
        if (ku) identity(u, ku);
        if (kv) identity(vh, kv);
        return;
      }
      const T* rows = a.data<T>() + i * s.elements;
      if (!finite(rows, s.elements)) {
        if (hopeless(rows, s.elements)) return failure.note(i, kNotFinite);
        std::fill_n(to_s.data<Real<T>>() + i * s.k, s.k, kNoNumber<Real<T>>);
        unit_vectors(u, s.m, ku, s.k, true);
        unit_vectors(vh, kv, s.n, s.k, true);
        if constexpr (kComplex<T>) {
          if (real_on_diagonal(rows, s.m, s.n)) return;
          std::fill_n(u, int64_t(s.m) * ku, T(kNoNumber<Real<T>>, kNoNumber<Real<T>>));
          std::fill_n(vh, int64_t(s.n) * kv, T(kNoNumber<Real<T>>, kNoNumber<Real<T>>));
        }
        return;
      }
      if constexpr (!kComplex<T>)
        if (s.n >= kFewestCondensed && s.m >= s.n &&
            s.m < s.n * 11 / 6) {  // from this ratio on gesdd reduces to R first
          int info = large_svd(s.m, s.n, rows, to_s.data<T>() + i * s.k, ku, u, vh);
          return info > 0 ? failure.note(i, info) : void();
        }
      int ld = leading(s.m), ldvh = leading(kv);
      room.a.resize(size_t(ld) * size_t(s.n));
      room.b.resize(size_t(ld) * size_t(ku));
      room.c.resize(size_t(ldvh) * size_t(s.n));
      T *x = room.a.data(), *left = room.b.data(), *right = room.c.data();
      transpose_into<T>({rows, s.n}, s.m, s.n, {x, ld});
      int info = gesdd(full ? "A" : "S", s, x, ld, to_s.data<Real<T>>() + i * s.k, left, right, ldvh, room);
      if (info > 0) return failure.note(i, info);
      transpose_into<T>({left, ld}, ku, s.m, {u, ku});
      transpose_into<T>({right, ldvh}, s.n, kv, {vh, s.n});
    };
    each_in_room<T>(s.count, s.m, s.n, Small::svd, job, alone);
  });
  check_converged(failure, a, "linalg.svd");
  return finished(out, to_u, to_s, to_vh);
}

Results linalg_svdvals(const Call& c, Out out) {
  Tensor a = dense(c.tensor("A"));
  Destination to(out[0]);
  Matrices s = shape_of("linalg.svdvals", a);
  Failure failure;
  of_type(a.dtype(), [&](auto zero) {
    using T = decltype(zero);
    if (!s.k) return;
    auto job = [&](int64_t i) {
      return SmallJob<T>{.m = s.m,
                         .n = s.n,
                         .a = a.data<T>() + i * s.elements,
                         .values = to.data<Real<T>>() + i * s.k};
    };
    auto alone = [&](int64_t i, Room<T>& room) {
      const T* rows = a.data<T>() + i * s.elements;
      if (!finite(rows, s.elements)) {
        if (std::any_of(rows, rows + s.elements, is_nan<T>)) return failure.note(i, kNotFinite);
        return void(std::fill_n(to.data<Real<T>>() + i * s.k, s.k, kNoNumber<Real<T>>));
      }
      if constexpr (!kComplex<T>)
        if (s.k >= kFewestCondensed && std::max(s.m, s.n) < s.k * 11 / 6) {
          const T* from = s.m >= s.n ? rows : columns_of(rows, s.m, s.n, room.a);
          int info = large_svd<T>(std::max(s.m, s.n), s.k, from, to.data<T>() + i * s.k, 0, nullptr, nullptr);
          return info > 0 ? failure.note(i, info) : void();
        }
      T* x = columns_of(rows, s.m, s.n, room.a);
      int info = gesdd("N", s, x, s.m, to.data<Real<T>>() + i * s.k, x, x, 1, room);
      if (info > 0) failure.note(i, info);
    };
    each_in_room<T>(s.count, s.m, s.n, Small::svdvals, job, alone);
  });
  check_converged(failure, a, "linalg.svd");
  return finished(out, to);
}

// ---- Eigenvalues

namespace {
template <class T>
int heevd(const char* job, const char* uplo, int n, T* a, Real<T>* values, Room<T>& room) {
  int info = 0, ask = -1;
  if (room.integers.empty()) {
    T best{};
    Real<T> best_real{};
    int best_integer = 0;
    if constexpr (kComplex<T>)
      Lapack<T>::heevd(job, uplo, &n, a, &n, values, &best, &ask, &best_real, &ask, &best_integer, &ask,
                       &info, 1, 1);
    else Lapack<T>::heevd(job, uplo, &n, a, &n, values, &best, &ask, &best_integer, &ask, &info, 1, 1);
    room.integers.resize(size_t(std::max(1, best_integer)));
    room.reals.resize(size_t(double(best_real) * (1 + 1e-6)) + 1);
  }
  int integers = int(room.integers.size()), reals = int(room.reals.size());
  with_work(room, [&](T* work, int* size) {
    bool asks = *size == -1;
    if constexpr (kComplex<T>)
      Lapack<T>::heevd(job, uplo, &n, a, &n, values, work, size, room.reals.data(), asks ? &ask : &reals,
                       room.integers.data(), asks ? &ask : &integers, &info, 1, 1);
    else
      Lapack<T>::heevd(job, uplo, &n, a, &n, values, work, size, room.integers.data(),
                       asks ? &ask : &integers, &info, 1, 1);
    if (asks) room.integers.resize(size_t(integers)), room.reals.resize(size_t(reals));
  });
  return info;
}

// Number of rows from which eigenvalues alone are faster by divide and conquer than by LAPACK's root-free iteration.
template <class T>
constexpr int kFewestDivided = sizeof(T) == 4 ? 128 : 256;

// The same for a large row-major real matrix; its vectors are rows, unless null. LAPACK begins at the end of an upper
// triangle: this equals the beginning of a lower one with everything in reverse order.
template <class T>
int large_eigh(bool upper, int n, const T* rows, T* values, T* vectors) {
  Workspace<T> brought, turned;
  T largest = 0;
  for (int64_t i = 0; i < n; ++i)
    largest = std::max(largest, largest_of(rows + i * (n + (upper ? 1 : 0)), upper ? n - i : i + 1));
  T root = root_of_scale(largest);
  std::vector<T> beside(static_cast<size_t>(n));
  const T* a = scaled(rows, int64_t(n) * n, root, brought);
  if (upper) {
    turned.resize(size_t(n) * size_t(n));
    std::reverse_copy(a, a + int64_t(n) * n, turned.data());
    a = turned.data();
  }
  Tridiagonalized<T> parts(n, {a, n}, vectors != nullptr, values, beside.data());
  if (upper) std::reverse(values, values + n), std::reverse(beside.begin(), beside.begin() + n - 1);
  int64_t ld = leading(n);
  if (vectors) turned.resize(size_t(n * ld));
  int info = 0;
  if (!vectors && n < kFewestDivided<T>) TwoDiagonals<T>::sterf(&n, values, beside.data(), &info);
  else info = solve_tridiagonal<T>(n, values, beside.data(), {vectors ? turned.data() : nullptr, ld});
  if (vectors && info == 0) {
    for (int64_t k = 0; upper && k < n; ++k) std::reverse(turned.data() + k * ld, turned.data() + k * ld + n);
    parts.vectors(turned.data(), ld, vectors);
    for (int64_t i = 0; upper && i < n / 2; ++i)
      std::swap_ranges(vectors + i * n, vectors + (i + 1) * n, vectors + (n - 1 - i) * n);
  }
  for (int k = 0; k < n; ++k) values[k] = values[k] / root / root;
  return info;
}

// One triangle of a row-major Hermitian matrix, which is all that is read: its diagonal is real.
template <class T>
std::vector<T> triangle(const T* rows, int n, bool lower) {
  std::vector<T> all;
  for (int i = 0; i < n; ++i)
    for (int j = lower ? 0 : i; j < (lower ? i + 1 : n); ++j)
      all.push_back(i == j ? T(std::real(rows[int64_t(i) * n + j])) : rows[int64_t(i) * n + j]);
  return all;
}

// `vectors`: their destination, or null.
void hermitian_eigenvalues(const Call& c, const Tensor& a, const Tensor& to, const Tensor* vectors) {
  Matrices s = shape_of("linalg.eigh", a);
  const char* uplo = c.str("UPLO") == "L" || c.str("UPLO") == "l" ? "L" : "U";
  Failure failure;
  of_type(a.dtype(), [&](auto zero) {
    using T = decltype(zero);
    if (!s.n) return;
    auto deliver = [&](int64_t i, const T* x) {
      if (vectors) transpose_into(x, s.n, s.n, vectors->data<T>() + i * s.elements);
    };
    auto job = [&](int64_t i) {
      return SmallJob<T>{.n = s.n,
                         .a = a.data<T>() + i * s.elements,
                         .y = vectors ? vectors->data<T>() + i * s.elements : nullptr,
                         .values = to.data<Real<T>>() + i * s.n,
                         .upper = *uplo == 'U'};
    };
    Small routine = vectors ? Small::eigh : Small::eigvalsh;
    each_in_room<T>(s.count, s.n, s.n, routine, job, [&](int64_t i, Room<T>& room) {
      const T* rows = a.data<T>() + i * s.elements;
      auto read = finite(rows, s.elements) ? std::vector<T>() : triangle(rows, s.n, *uplo == 'L');
      auto count = int64_t(read.size());
      if constexpr (!kComplex<T>)
        if (s.n >= kFewestCondensed && !count) {
          int info = large_eigh(*uplo == 'U', s.n, rows, to.data<T>() + i * s.n,
                                vectors ? vectors->data<T>() + i * s.elements : nullptr);
          return info > 0 ? failure.note(i, info) : void();
        }
      T* x = columns_of(rows, s.n, s.n, room.a);
      if (s.n > 1 && !finite(read.data(), count)) {
        if (s.n > 2 && hopeless(read.data(), count)) return failure.note(i, s.n - 1);
        std::fill_n(to.data<Real<T>>() + i * s.n, s.n, kNoNumber<Real<T>>);
        unit_vectors(x, s.n, s.n, s.n, false);
        return deliver(i, x);
      }
      int info = heevd(vectors ? "V" : "N", uplo, s.n, x, to.data<Real<T>>() + i * s.n, room);
      if (info > 0) return failure.note(i, info);
      deliver(i, x);
    });
  });
  linalg_check(!failure.any(), "linalg.eigh")
      << failure.where(a)
      << "The algorithm failed to converge because the input matrix is ill-conditioned or has too many repeated "
         "eigenvalues (error code: "
      << failure.info() << ").";
}
}  // namespace

Results linalg_eigh(const Call& c, Out out) {
  Tensor a = dense(c.tensor("self"));
  Destination to(out[0]), vectors(out[1]);
  hermitian_eigenvalues(c, a, to.tensor(), &vectors.tensor());
  return finished(out, to, vectors);
}

Results linalg_eigvalsh(const Call& c, Out out) {
  Destination to(out[0]);
  hermitian_eigenvalues(c, dense(c.tensor("self")), to.tensor(), nullptr);
  return finished(out, to);
}

namespace {
// Eigenvalues, and the right eigenvectors as columns of a row-major [n, n] unless null.
template <class T>
int geev(int n, T* a, std::complex<Real<T>>* values, std::complex<Real<T>>* vectors, Room<T>& room) {
  int info = 0, one = 1, ld = vectors ? n : 1;
  const char* right = vectors ? "V" : "N";
  room.b.resize(size_t(vectors ? n * n : 1));
  if constexpr (kComplex<T>) {
    room.reals.resize(size_t(2 * n));
    with_work(room, [&](T* work, int* size) {
      Lapack<T>::geev("N", right, &n, a, &n, values, work, &one, room.b.data(), &ld, work, size,
                      room.reals.data(), &info, 1, 1);
    });
    if (vectors) transpose_into(room.b.data(), n, n, vectors);
  } else {
    room.values.resize(size_t(n));
    room.more.resize(size_t(n));
    with_work(room, [&](T* work, int* size) {
      Lapack<T>::geev("N", right, &n, a, &n, room.values.data(), room.more.data(), work, &one, room.b.data(),
                      &ld, work, size, &info, 1, 1);
    });
    for (int j = 0; j < n; ++j) values[j] = {room.values[size_t(j)], room.more[size_t(j)]};
    // For a conjugate pair, the columns hold the real and the imaginary part.
    for (int j = 0; vectors && j < n; ++j) {
      const T* x = room.b.data() + int64_t(j) * n;
      bool pair = values[j].imag() != 0 && j + 1 < n;
      for (int i = 0; i < n; ++i) {
        vectors[int64_t(i) * n + j] = {x[i], pair ? x[n + i] : T(0)};
        if (pair) vectors[int64_t(i) * n + j + 1] = {x[i], -x[n + i]};
      }
      j += pair;
    }
  }
  return info;
}

void eigenvalues(const Tensor& a, const char* name, const Tensor& to, const Tensor* vectors) {
  Matrices s = shape_of(name, a);
  Failure failure;
  of_type(a.dtype(), [&](auto zero) {
    using T = decltype(zero);
    using C = std::complex<Real<T>>;
    if (!s.n) return;
    if (s.n == 1 && !vectors) {  // not an error, but NaN
      constexpr auto none = kNoNumber<Real<T>>;
      for (int64_t i = 0; i < s.count; ++i)
        to.data<C>()[i] = is_finite(a.data<T>()[i]) ? C(a.data<T>()[i]) : C(none, none);
      return;
    }
    runtime_check(finite(a.data<T>(), s.count * s.elements), name)
        << "input tensor should not contain infs or NaNs.";
    each_in_room<T>(s.count, s.n, [&](int64_t i, Room<T>& room) {
      const T* rows = a.data<T>() + i * s.elements;
      C *values = to.data<C>() + i * s.n, *into = vectors ? vectors->data<C>() + i * s.elements : nullptr;
      if (s.n <= kMostEigenRows && small_eigenvalues(s.n, rows, values, into)) return;
      int info = geev(s.n, columns_of(rows, s.n, s.n, room.a), values, into, room);
      if (info > 0) failure.note(i, info);
    });
  });
  linalg_check(!failure.any(), name)
      << failure.where(a)
      << "The algorithm failed to converge because the input matrix is ill-conditioned "
         "or has too many repeated eigenvalues (error code: "
      << failure.info() << ").";
}
}  // namespace

Results linalg_eig(const Call& c, Out out) {
  Destination to(out[0]), vectors(out[1]);
  eigenvalues(dense(c.tensor("self")), "linalg.eig", to.tensor(), &vectors.tensor());
  return finished(out, to, vectors);
}
Results linalg_eigvals(const Call& c, Out out) {
  Destination to(out[0]);
  eigenvalues(dense(c.tensor("self")), "linalg.eigvals", to.tensor(), nullptr);
  return finished(out, to);
}

// ---- Least squares

namespace {
template <class T>
int least_squares(std::string_view driver, const Matrices& s, int columns, T* a, T* b, int ldb, Real<T> rcond,
                  int* rank, Real<T>* values, Room<T>& room) {
  int info = 0;
  int64_t k = s.k, l = std::max(s.m, s.n);
  room.integers.assign(size_t(std::max(l, k * (3 * 32 + 11))) + 1, 0);
  if constexpr (kComplex<T>)
    room.reals.resize(size_t(
        std::max<int64_t>(5 * k + 2 * l, 10 * l + 2 * l * 25 + 8 * k * 32 + 3 * 25 * columns +
                                             std::max<int64_t>(26 * 26, l * (1 + columns) + 2 * columns)) +
        1));
  with_work(room, [&](T* work, int* size) {
    int* n = room.integers.data();
    [[maybe_unused]] auto* r = room.reals.data();
    if (driver == "gels") Lapack<T>::gels("N", &s.m, &s.n, &columns, a, &s.m, b, &ldb, work, size, &info, 1);
    else if constexpr (kComplex<T>) {
      if (driver == "gelsy")
        Lapack<T>::gelsy(&s.m, &s.n, &columns, a, &s.m, b, &ldb, n, &rcond, rank, work, size, r, &info);
      else if (driver == "gelsd")
        Lapack<T>::gelsd(&s.m, &s.n, &columns, a, &s.m, b, &ldb, values, &rcond, rank, work, size, r, n,
                         &info);
      else
        Lapack<T>::gelss(&s.m, &s.n, &columns, a, &s.m, b, &ldb, values, &rcond, rank, work, size, r, &info);
    } else {
      if (driver == "gelsy")
        Lapack<T>::gelsy(&s.m, &s.n, &columns, a, &s.m, b, &ldb, n, &rcond, rank, work, size, &info);
      else if (driver == "gelsd")
        Lapack<T>::gelsd(&s.m, &s.n, &columns, a, &s.m, b, &ldb, values, &rcond, rank, work, size, n, &info);
      else Lapack<T>::gelss(&s.m, &s.n, &columns, a, &s.m, b, &ldb, values, &rcond, rank, work, size, &info);
    }
  });
  return info;
}
void check_solved(const Failure& failure, const Tensor& a, std::string_view driver) {
  linalg_check(!failure.any(), "linalg.lstsq")
      << failure.where(a)
      << (failure.info() == kNotFinite
              ? "The least squares solution could not be computed because an input matrix contained NaN (error code: "
          : driver == "gels"
              ? "The least squares solution could not be computed because the input matrix does not have "
                "full rank (error code: "
              : "The algorithm failed to converge (error code: ")
      << failure.info() << ").";
}
}  // namespace

Results linalg_lstsq(const Call& c, Out out) {
  Tensor a = dense(c.tensor("A")), b = dense(c.tensor("B"));
  Destination to(out[0]), ranks(out[1]), to_values(out[2]);
  Matrices s = shape_of("linalg.lstsq", a), o = shape_of("linalg.lstsq", b);
  std::string_view driver = c.str("driver");
  Failure failure;
  of_type(a.dtype(), [&](auto zero) {
    using T = decltype(zero);
    int rows = std::max(s.m, s.n);
    for (int64_t i = 0; i < ranks.tensor().numel().concrete(); ++i) ranks.data<int64_t>()[i] = 0;
    if (!s.elements) {
      fill_zero(to.tensor());
      return fill_zero(to_values.tensor());
    }
    bool spectral = driver == "gelsd" || driver == "gelss";
    auto job = [&](int64_t i) {
      SmallJob<T> some{.m = s.m,
                       .n = s.n,
                       .columns = o.n,
                       .a = a.data<T>() + i * s.elements,
                       .b = b.data<T>() + i * o.elements,
                       .x = to.data<T>() + i * int64_t(s.n) * o.n};
      if (spectral) some.values = to_values.data<Real<T>>() + i * s.k;
      constexpr double kRounding = std::numeric_limits<Real<T>>::epsilon();
      if (driver != "gels") some.rcond = Real<T>(c.real("rcond") < 0 ? kRounding : c.real("rcond"));
      return some;
    };
    if (driver != "gels") std::fill_n(ranks.data<int64_t>(), s.count, int64_t(s.k));
    auto alone = [&](int64_t i, Room<T>& room) {
      T* x = columns_of(a.data<T>() + i * s.elements, s.m, s.n, room.a);
      room.b.resize(size_t(rows) * size_t(o.n) + 1);
      std::fill_n(room.b.data(), room.b.size(), T(0));
      const T* from = b.data<T>() + i * o.elements;
      for (int r = 0; r < s.m; ++r)
        for (int j = 0; j < o.n; ++j)
          room.b[size_t(j) * size_t(rows) + size_t(r)] = from[int64_t(r) * o.n + j];
      if (std::any_of(x, x + s.elements, is_nan<T>) || std::any_of(from, from + o.elements, is_nan<T>))
        return failure.note(i, kNotFinite);
      int rank = 0;
      room.values.resize(size_t(s.k));
      int info = least_squares(driver, s, o.n, x, room.b.data(), rows, Real<T>(c.real("rcond")), &rank,
                               room.values.data(), room);
      if (info > 0) return failure.note(i, info);
      T* y = to.data<T>() + i * int64_t(s.n) * o.n;
      for (int r = 0; r < s.n; ++r)
        for (int j = 0; j < o.n; ++j) y[int64_t(r) * o.n + j] = room.b[size_t(j) * size_t(rows) + size_t(r)];
      if (driver != "gels") ranks.data<int64_t>()[i] = rank;
      if (driver == "gelsd" || driver == "gelss")
        std::copy(room.values.begin(), room.values.end(), to_values.data<Real<T>>() + i * s.k);
    };
    if (o.n) each_in_room<T>(s.count, s.m, s.n, Small::least_squares, job, alone);
    else each_in_room<T>(s.count, rows, alone);  // rank 0, for drivers that return the rank
  });
  check_solved(failure, a, driver);
  return finished(out, to, ranks, to_values);
}

// ---- Factors with pivots

namespace {
constexpr int kSharedFactors = 1024;
// Calls f(matrix by columns, pivots, room, info) for each matrix `arg`; it leaves factors, pivots and codes. `routine`
// computes small square matrices, and unblocked(matrix, factors, pivots, info), both row-major, those for which it
// returns true.
template <class F, class G>
Results factored(const Call& c, Out out, const char* name, const char* arg, Small routine, F&& f,
                 G&& unblocked) {
  Tensor a = dense(c.tensor(arg));
  Destination to(out[0]), pivots(out[1]), infos(out[2]);
  Matrices s = shape_of(name, a);
  of_type(a.dtype(), [&](auto zero) {
    using T = decltype(zero);
    std::fill_n(infos.data<int32_t>(), s.count, 0);
    if (!s.elements) return;
    auto job = [&](int64_t i) {
      return SmallJob<T>{.n = s.n,
                         .a = a.data<T>() + i * s.elements,
                         .x = to.data<T>() + i * s.elements,
                         .pivots = pivots.data<int32_t>() + i * s.k,
                         .hermitian = routine == Small::ldl && c.flag("hermitian")};
    };
    auto alone = [&](int64_t i, Room<T>& room) {
      if constexpr (!kComplex<T>)
        if (routine == Small::lu && s.m == s.n && s.n >= kFewestBlocked) {
          T* lu = to.data<T>() + i * s.elements;
          if (factor_in_rows<T>(s.n, {a.data<T>() + i * s.elements, s.n}, {lu, s.n},
                                pivots.data<int32_t>() + i * s.k))
            return;
        }
      const T* rows = a.data<T>() + i * s.elements;
      int32_t *into = pivots.data<int32_t>() + i * s.k, *info = infos.data<int32_t>() + i;
      if (unblocked(s, rows, to.data<T>() + i * s.elements, into, info)) return;
      T* x = columns_of(rows, s.m, s.n, room.a);
      f(s, x, into, room, info);
      transpose_into(x, s.n, s.m, to.data<T>() + i * s.elements);
    };
    if (s.m == s.n) each_in_room<T>(s.count, s.m, s.n, routine, job, alone, kSharedFactors);
    else each_in_room<T>(s.count, std::max(s.m, s.n), alone, kSharedFactors);
  });
  return finished(out, to, pivots, infos);
}

// Checks that all pivots are row numbers, counting from 1.
void check_rows(const char* name, int64_t n, const int32_t* pivots, int64_t count) {
  std::atomic<bool> good{true};
  parallel_for(count, 1 << 16, [&](int64_t begin, int64_t end) {
    constexpr int64_t kSide = 16;  // independent maxima without branches, which vectorize
    uint32_t most[kSide] = {};
    auto look = [](uint32_t& m, int32_t pivot) { m = std::max(m, uint32_t(pivot) - 1); };
    int64_t k = begin;
    for (; k + kSide <= end; k += kSide)
      for (int64_t l = 0; l < kSide; ++l) look(most[l], pivots[k + l]);
    for (; k < end; ++k) look(most[0], pivots[k]);
    if (*std::max_element(most, most + kSide) >= n) good = false;
  });
  if (good) return;
  const int32_t* bad = std::find_if(pivots, pivots + count, [&](int32_t p) { return p < 1 || p > n; });
  runtime_check(false, name) << "pivots must be between 1 and " << n << ", got " << *bad;
}
void check_pivots(const char* name, int n, const int32_t* pivots, int64_t count, bool pairs) {
  if (!pairs) return check_rows(name, n, pivots, count * n);
  for (int64_t i = 0; i < count; ++i, pivots += n)
    for (int k = 0; k < n; ++k) {
      int p = std::abs(pivots[k]);
      runtime_check(p >= 1 && p <= n, name)
          << "pivots must be between 1 and " << n << " or their negatives, got " << pivots[k];
      if (pivots[k] > 0) continue;
      runtime_check(k + 1 < n && pivots[k + 1] == pivots[k], name)
          << "negative pivots belong to blocks of two rows, and both are alike, got " << pivots[k]
          << " in row " << k << (k + 1 < n ? ", before " + std::to_string(pivots[k + 1]) : ", the last one");
      ++k;
    }
}

// Calls f(factor, pivots, right-hand side), both by columns, for each factor `arg`; it overwrites the right-hand side
// with the result. `pairs`: negative pivots denote blocks of two rows.
template <class F>
Results solved_by_factors(const Call& c, Out out, const char* name, const char* arg, bool pairs, F&& f) {
  Tensor a = dense(c.tensor(arg)), pivots = dense(c.tensor("pivots"), DType::Int32), b = dense(c.tensor("B"));
  Destination to(out[0]);
  Matrices s = shape_of(name, a), o = shape_of(name, b);
  check_pivots(name, s.n, pivots.data<int32_t>(), s.count, pairs);
  of_type(a.dtype(), [&](auto zero) {
    using T = decltype(zero);
    if (!o.elements) return;
    auto job = [&](int64_t i) {
      return SmallJob<T>{.n = s.n,
                         .columns = o.n,
                         .a = a.data<T>() + i * s.elements,
                         .b = b.data<T>() + i * o.elements,
                         .x = to.data<T>() + i * o.elements,
                         .pivots = pivots.data<int32_t>() + i * s.n,
                         .transposed = !pairs && c.flag("adjoint")};
    };
    auto alone = [&](int64_t i, Room<T>& room) {
      if constexpr (!kComplex<T>)
        if (!pairs && s.n >= kFewestBlocked) {
          const T *lu = a.data<T>() + i * s.elements, *from = b.data<T>() + i * o.elements;
          return solve_factored_in_rows(s.n, o.n, lu, pivots.data<int32_t>() + i * s.n, from,
                                        to.data<T>() + i * o.elements, c.flag("adjoint"));
        }
      const T *factors = a.data<T>() + i * s.elements, *from = b.data<T>() + i * o.elements;
      if (pairs && s.n <= kMostLdlRows && finite(factors, s.elements) && finite(from, o.elements)) {
        T* to_rows = to.data<T>() + i * o.elements;
        std::copy_n(from, from == to_rows ? 0 : o.elements, to_rows);
        return solve_small_ldl(s.n, o.n, factors, c.flag("hermitian"), pivots.data<int32_t>() + i * s.n,
                               to_rows);
      }
      T* x = columns_of(factors, s.n, s.n, room.a);
      T* y = columns_of(from, o.m, o.n, room.b);
      f(s.n, o.n, x, pivots.data<int32_t>() + i * s.n, y);
      transpose_into(y, o.n, o.m, to.data<T>() + i * o.elements);
    };
    if (!pairs) each_in_room<T>(s.count, s.n, s.n, Small::solve_factored, job, alone, kSharedFactors);
    else each_in_room<T>(s.count, s.n, alone, kSharedFactors);
  });
  return finished(out, to);
}
}  // namespace

Results linalg_lu_factor(const Call& c, Out out) {
  auto factor = []<class T>(const Matrices& s, T* x, int* pivots, Room<T>&, int* info) {
    if (finite(x, s.elements) && !subnormal(x, s.elements))
      Lapack<T>::getrf(&s.m, &s.n, x, &s.m, pivots, info);
    else *info = eliminate(s.m, s.n, x, pivots);
  };
  return factored(c, out, "linalg.lu_factor", "A", Small::lu, factor, [](auto&&...) { return false; });
}

Results linalg_lu_solve_factored(const Call& c, Out out) {
  const char* turned = c.flag("adjoint") ? "C" : "N";
  auto solve = [&]<class T>(int n, int columns, T* lu, const int* pivots, T* b) {
    int info = 0;
    Lapack<T>::getrs(turned, &n, &columns, lu, &n, pivots, b, &n, &info, 1);
  };
  return solved_by_factors(c, out, "linalg.lu_solve", "LU", false, solve);
}

// The order of rows after exchanging row i with row pivots[i] for i = ..., 1, 0: the positions of the ones of P.
Results lu_permutation(const Call& c, Out out) {
  Tensor pivots = dense(c.tensor("pivots"), DType::Int32);
  Destination to(out[0]);
  int64_t m = out[0].int_sizes().back(), k = pivots.int_sizes().back();
  int64_t count = product(out[0].sizes().first(size_t(out[0].dim() - 1))).concrete();
  const int32_t* all = pivots.data<int32_t>();
  check_rows("lu_unpack", m, all, count * k);
  parallel_for(count, 1 + 10000 / (m + k + 1), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t* order = to.data<int64_t>() + i * m;
      for (int64_t r = 0; r < m; ++r) order[r] = r;
      for (int64_t j = k; j-- > 0;) std::swap(order[j], order[all[i * k + j] - 1]);
    }
  });
  return finished(out, to);
}

Results linalg_ldl_factor(const Call& c, Out out) {
  auto factor = [&]<class T>(const Matrices& s, T* x, int* pivots, Room<T>& room, int* info) {
    for (int j = 1; j < s.n; ++j)
      std::fill(x + int64_t(j) * s.n, x + int64_t(j) * s.n + j, T(0));  // the other triangle
    auto& routine = c.flag("hermitian") ? Lapack<T>::hetrf : Lapack<T>::sytrf;
    with_work(room, [&](T* work, int* size) { routine("L", &s.n, x, &s.n, pivots, work, size, info, 1); });
  };
  auto unblocked = [&]<class T>(const Matrices& s, const T* rows, T* x, int* pivots, int* info) {
    if (s.n > kMostLdlRows || !finite(rows, s.elements)) return false;
    for (int i = 0; i < s.n; ++i)
      for (int j = 0; j < s.n; ++j) x[i * s.n + j] = j <= i ? rows[i * s.n + j] : T(0);
    *info = factor_small_ldl(s.n, x, c.flag("hermitian"), pivots);
    return true;
  };
  return factored(c, out, "linalg.ldl_factor", "self", Small::ldl, factor, unblocked);
}

Results linalg_ldl_solve(const Call& c, Out out) {
  auto solve = [&]<class T>(int n, int columns, T* ld, const int* pivots, T* b) {
    int info = 0;
    auto& routine = c.flag("hermitian") ? Lapack<T>::hetrs : Lapack<T>::sytrs;
    routine("L", &n, &columns, ld, &n, pivots, b, &n, &info, 1);
  };
  return solved_by_factors(c, out, "linalg.ldl_solve", "LD", true, solve);
}

namespace {
// potri of a row-major lower triangle, element by element: if it is not finite, only elements that depend on that become
// NaN. The diagonal is real, and complex reciprocals of numbers that are not finite are NaN.
template <class T>
void invert_factor(int n, T* a, T* y) {
  auto at = [&](int i, int j) -> T& { return a[int64_t(i) * n + j]; };
  for (int j = n; j-- > 0;) {
    T& pivot = at(j, j);
    if constexpr (kComplex<T>)
      pivot = is_finite(pivot) ? T(1) / pivot : T(kNoNumber<Real<T>>, kNoNumber<Real<T>>);
    else pivot = 1 / pivot;
    for (int i = n; i-- > j + 1;) {
      T sum = by_parts(at(i, i), at(i, j));
      for (int k = j + 1; k < i; ++k) sum += by_parts(at(i, k), at(k, j));
      at(i, j) = by_parts(-pivot, sum);
    }
  }
  for (int i = 0; i < n; ++i)
    for (int j = 0; j <= i; ++j) {
      T sum = std::real(at(i, i)) * (i == j ? T(std::real(at(i, j))) : at(i, j));
      for (int k = i + 1; k < n; ++k) sum += by_parts(conjugated(at(k, i)), at(k, j));
      if (i == j) sum = T(std::real(sum));
      y[int64_t(i) * n + j] = sum;
      y[int64_t(j) * n + i] = conjugated(sum);
    }
}
// Returns whether the lower triangle's elements, and the reciprocals of its diagonal, are finite.
template <class T>
bool is_invertible(int n, const T* a) {
  using R = Real<T>;
  for (int i = 0; i < n; ++i) {
    const T* row = a + int64_t(i) * n;
    if (!(std::abs(row[i]) >= 4 / std::numeric_limits<R>::max())) return false;
    for (int j = 0; j <= i; ++j)
      if (!is_finite(row[j])) return false;
  }
  return true;
}

// Writes L^T L for a lower triangle l [n, n] to x, by blocks of rows. Rows of l before a block's first row contribute
// nothing to it.
template <class T>
void multiply_by_transpose(int64_t n, const T* l, T* x) {
  constexpr int64_t kRows = 128;
  parallel_for((n + kRows - 1) / kRows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t first = begin * kRows; first < std::min(n, end * kRows); first += kRows) {
      int64_t count = std::min(kRows, n - first);
      const T* from = l + first * n;
      blas_gemm(dtype_of<T>(), count, first + count, n - first, Scalar(1.0), from + first, 1, n, from, n, 1,
                Scalar(0.0), x + first * n, n);
    }
  });
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < i; ++j) x[j * n + i] = x[i * n + j];
}
}  // namespace

Results cholesky_inverse(const Call& c, Out out) {
  Tensor a = dense(c.tensor("self"));
  Destination to(out[0]);
  Matrices s = shape_of("cholesky_inverse", a);
  bool upper = c.flag("upper");
  of_type(a.dtype(), [&](auto zero) {
    using T = decltype(zero);
    if (!s.elements) return;
    auto job = [&](int64_t i) {
      return SmallJob<T>{.n = s.n,
                         .a = a.data<T>() + i * s.elements,
                         .x = to.data<T>() + i * s.elements,
                         .upper = upper};
    };
    auto alone = [&](int64_t i, Room<T>& room) {
      const T* from = a.data<T>() + i * s.elements;
      room.a.assign(from, from + s.elements);
      for (int r = 0; upper && r < s.n; ++r)
        for (int j = 0; j <= r; ++j)
          room.a[size_t(r) * size_t(s.n) + size_t(j)] = conjugated(from[int64_t(j) * s.n + r]);
      T* y = to.data<T>() + i * s.elements;
      if (!is_invertible(s.n, room.a.data())) return invert_factor(s.n, room.a.data(), y);
      if constexpr (!kComplex<T>)
        if (s.n >= kFewestBlocked) {
          room.b.resize(size_t(s.elements));
          invert_triangle_in_rows(s.n, room.a.data(), room.b.data());
          return multiply_by_transpose(s.n, room.b.data(), y);
        }
      int info = 0;  // by columns, the triangle is that of the transpose
      Lapack<T>::potri("U", &s.n, room.a.data(), &s.n, &info, 1);
      for (int r = 0; r < s.n; ++r)
        for (int j = 0; j <= r; ++j) {
          T value = room.a[size_t(r) * size_t(s.n) + size_t(j)];
          y[int64_t(r) * s.n + j] = value, y[int64_t(j) * s.n + r] = conjugated(value);
        }
    };
    each_in_room<T>(s.count, s.n, s.n, Small::factor_inverse, job, alone);
  });
  return finished(out, to);
}

// ---- The exponential

namespace {
// exp(A) by scaling and squaring of a Taylor polynomial: Bader, Blanes, Casas, "Computing the matrix exponential with an
// optimized Taylor polynomial approximation", 2019, which gives these coefficients. Degrees 4, 8, 12 and 18 take 2, 3, 4
// and 5 products. Sums are computed in double precision, because each squaring doubles the error of a coefficient.
constexpr int kRooms = 7;  // temporary matrices
template <class T, class Times>
class Exponential {
  using R = Real<T>;
  using Wide = std::conditional_t<kComplex<T>, std::complex<double>, double>;
  struct Term {
    double factor;
    const T* x;
  };

 public:
  // times(a, b, c): c = a b of [n, n].
  Exponential(int n, T* room, Times times)
      : n_(n), square_(int64_t(n) * n), room_(room), times_(times), diagonal_(size_t(n)), sums_(size_t(n)) {}

  void run(const T* from, T* y) {
    double norm = one_norm(from);
    if (!std::isfinite(norm)) return std::fill(y, y + square_, T(std::numeric_limits<R>::quiet_NaN()));
    int degree = 0;
    while (degree < 3 && norm > kMostNorm[degree]) ++degree;
    int squarings = 0;
    while (std::ldexp(norm, -squarings) > kMostNorm[degree]) ++squarings;
    T *x = room(0), *other = room(1);
    if (squarings % 2) std::swap(y, other);  // so that the last squaring writes the result
    double scale = std::ldexp(1.0, -squarings);
    each([&](int64_t e) { x[e] = T(Wide(from[e]) * scale); });
    void (Exponential::* const polynomial[])(const T*, T*) = {&Exponential::degree4, &Exponential::degree8,
                                                              &Exponential::degree12, &Exponential::degree18};
    (this->*polynomial[degree])(x, y);
    for (int k = 0; k < squarings; ++k) {
      times_(y, y, other);
      std::swap(y, other);
    }
  }

 private:
  // The norms up to which the error of a degree is below the rounding error (table 2 of the paper).
  static constexpr double kMostNorm[] = {
      sizeof(R) == 8 ? 3.397168839976962e-4 : 5.116619363445086e-2,
      sizeof(R) == 8 ? 4.991228871115323e-2 : 5.800524627688768e-1,
      sizeof(R) == 8 ? 2.996158913811580e-1 : 1.461661507209034e+0,
      sizeof(R) == 8 ? 1.090863719290036e+0 : 3.010066362817634e+0,
  };

  T* room(int k) { return room_ + k * square_; }
  template <class F>
  void each(F f) {
    auto some = [&](int64_t begin, int64_t end) {
      for (int64_t e = begin; e < end; ++e) f(e);
    };
    constexpr int64_t kPiece = 1 << 16;
    square_ > kPiece ? parallel_for(square_, kPiece, some) : some(0, square_);
  }
  double one_norm(const T* a) {
    std::fill(sums_.begin(), sums_.end(), 0.0);
    for (int i = 0; i < n_; ++i)
      for (int j = 0; j < n_; ++j) sums_[size_t(j)] += std::abs(Wide(a[int64_t(i) * n_ + j]));
    double norm = 0;
    for (double sum : sums_) norm = sum > norm || std::isnan(sum) ? sum : norm;
    return norm;
  }
  // to = the sum of `terms` + identity * I; `to` may be one of the terms.
  template <class... Terms>
  void sum(T* to, double identity, Terms... terms) {
    auto at = [=](int64_t e) { return ((Wide(terms.x[e]) * terms.factor) + ...); };
    for (int64_t i = 0; i < n_; ++i) diagonal_[size_t(i)] = T(at(i * (n_ + 1)) + identity);
    each([=](int64_t e) { to[e] = T(at(e)); });
    for (int64_t i = 0; i < n_; ++i) to[i * (n_ + 1)] = diagonal_[size_t(i)];
  }

  void degree4(const T* a, T* y) {
    T *a2 = room(2), *left = room(3);
    times_(a, a, a2);
    sum(left, 1.0 / 2, Term{1.0 / 6, a}, Term{1.0 / 24, a2});
    times_(a2, left, y);
    sum(y, 1, Term{1, a}, Term{1, y});
  }
  void degree8(const T* a, T* y) {
    const double root = std::sqrt(177.0), x3 = 2.0 / 3;
    T *a2 = room(2), *a4 = room(3), *left = room(4), *right = room(5);
    times_(a, a, a2);
    sum(left, 0, Term{x3 * (1 + root) / 88, a}, Term{x3 * (1 + root) / 352, a2});
    times_(a2, left, a4);
    sum(left, 0, Term{x3, a2}, Term{1, a4});
    sum(right, (-271 + 29 * root) / (315 * x3), Term{11 * (-1 + root) / (1260 * x3), a},
        Term{11 * (-9 + root) / (5040 * x3), a2}, Term{(89 - root) / (5040 * x3 * x3), a4});
    times_(left, right, y);
    sum(y, 1, Term{1, a}, Term{(857 - 58 * root) / 630, a2}, Term{1, y});
  }
  void degree12(const T* a, T* y) {
    T *a2 = room(2), *a3 = room(3), *a6 = room(4), *left = room(5);
    times_(a, a, a2);
    times_(a2, a, a3);
    auto b = [&](T* to, double i, double c1, double c2, double c3, auto... more) {
      sum(to, i, Term{c1, a}, Term{c2, a2}, Term{c3, a3}, more...);
    };
    b(left, -2.0861320e-13, -0.13181061013830184015, -0.02027855540589259079, -0.00675951846863086359);
    times_(left, left, a6);
    b(a6, 0.18188869982170434744, 0.05502798439925399070, 0.09351590770535414968, 0.00610700528898058230,
      Term{1, a6});
    b(left, 5.31597895759871264183, 1.19926790417132231573, 0.01179296240992997031, 0.01108844528519167989,
      Term{1, a6});
    times_(left, a6, y);
    b(y, 9.0198e-16, 0.46932117595418237389, -0.20099424927047284052, -0.04623946134063071740, Term{1, y});
  }
  void degree18(const T* a, T* y) {
    T *a2 = room(2), *a3 = room(3), *a6 = room(4), *left = room(5), *right = room(6);
    times_(a, a, a2);
    times_(a2, a, a3);
    times_(a3, a3, a6);
    auto b = [&](T* to, double i, double c1, double c2, double c3, double c6, auto... more) {
      sum(to, i, Term{c1, a}, Term{c2, a2}, Term{c3, a3}, Term{c6, a6}, more...);
    };
    sum(left, 0, Term{-1.00365581030144618291e-1, a}, Term{-8.02924648241156932449e-3, a2},
        Term{-8.92138498045729985177e-4, a3});
    sum(right, 0, Term{-9.23364619367118555360e-2, a2}, Term{-1.69364939002081722752e-2, a3},
        Term{-1.40086798182036094347e-5, a6});
    T* a9 = y;
    times_(left, right, a9);
    b(a9, -9.04316832390810593223e-2, -6.76404519071381882256e-2, 6.75961301770459654925e-2,
      2.95552570429315521194e-2, -1.39180257516060693404e-5, Term{1, a9});
    b(left, -1.09676396052962061844e+1, 1.68015813878906206114e+0, 5.71779846478865511061e-2,
      -6.98210122488052056106e-3, 3.34975017086070470649e-5, Term{1, a9});
    times_(left, a9, right);
    b(y, 0, 3.97849749499645077844e-1, 1.36783778460411720168e+0, 4.98289622525382669416e-1,
      -6.37898194594723280150e-4, Term{1, right});
  }

  int n_;
  int64_t square_;
  T* room_;
  Times times_;
  SmallVector<T, kFew> diagonal_;
  SmallVector<double, kFew> sums_;
};

// Matrices with more rows are computed in their own precision. For others double precision takes no longer than the calls
// do, and rounds once: each squaring doubles the relative error.
constexpr int kInDouble = 64;
// Number of rows from which threads share the products; below that they share the matrices.
constexpr int kSharedProducts = 256;

template <class T>
void large_exponentials(const Matrices& s, const T* from, T* to) {
  SymInt n(int64_t(s.n)), one(int64_t(1));
  Tensor room = Tensor::empty(Dims{SymInt(int64_t(kRooms + 1)), n, n}, dtype_of<T>());
  T *first = room.data<T>(), *y = first + kRooms * s.elements;
  auto matrix = [&](const T* x) {
    return room.alias(Dims{n, n}, Dims{n, one}, room.offset() + SymInt(int64_t(x - first)));
  };
  auto times = [&](const T* a, const T* b, T* c) { product(matrix(a), matrix(b), matrix(c)); };
  Exponential<T, decltype(times)> exponential(s.n, first, times);
  for (int64_t k = 0; k < s.count; ++k) {
    exponential.run(from + k * s.elements, y);
    std::copy(y, y + s.elements, to + k * s.elements);
  }
}
template <class T>
void small_exponentials(const Matrices& s, const T* from, T* to) {
  each_in_room<T>(s.count, s.n, [&](int64_t k, Room<T>& room) {
    if (!s.n) return;
    BatchedProducts product{s.n, s.n, s.n, s.n, 1, s.n, 1, 1, 0, 0, 0, 0};
    auto as_bytes = [](const T* x) { return reinterpret_cast<const char*>(x); };
    auto times = [&](const T* a, const T* b, T* c) {
      if (s.n <= kFew)
        batched_products(dtype_of<T>(), product, as_bytes(a), as_bytes(b), reinterpret_cast<char*>(c), 1);
      else blas_gemm(dtype_of<T>(), s.n, s.n, s.n, 1.0, a, s.n, 1, b, s.n, 1, 0.0, c, s.n);
    };
    room.a.resize(size_t(kRooms * s.elements));
    Exponential(s.n, room.a.data(), times).run(from + k * s.elements, to + k * s.elements);
  });
}
}  // namespace

Results linalg_matrix_exp(const Call& c, Out out) {
  Tensor self = c.tensor("self");
  DType dtype = self.dtype();
  bool in_double =
      dtype == DType::Float64 || dtype == DType::Complex128 || self.int_sizes().back() <= kInDouble;
  DType real = in_double ? DType::Float64 : DType::Float32;
  DType computing = is_complex(dtype) ? complex_of(real) : real;
  Tensor a = dense(self, computing);
  Destination to(out[0], computing);
  Matrices s = shape_of("linalg.matrix_exp", a);
  of_type(a.dtype(), [&](auto zero) {
    using T = decltype(zero);
    auto exponentials = s.n >= kSharedProducts ? large_exponentials<T> : small_exponentials<T>;
    exponentials(s, a.data<T>(), to.data<T>());
  });
  return finished(out, to);
}

}  // namespace facula::device::cpu
