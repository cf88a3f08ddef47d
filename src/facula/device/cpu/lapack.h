// LAPACK for the CPU backend: the routines of each element type under one name, and helpers of the operators that use
// them. LAPACK stores matrices by columns: a row-major matrix is its transpose, so operands are transposed on the way in
// and out.
#pragma once
#include <algorithm>
#include <atomic>
#include <cmath>
#include <complex>
#include <limits>
#include <string>
#include <vector>

#include "facula/base/parallel.h"
#include "facula/device/cpu/cpu.h"
#include "facula/device/cpu/openblas.h"
#include "facula/numerics/blocked.h"
#include "facula/numerics/elements.h"
#include "facula/numerics/small.h"
#include "facula/numerics/workspace.h"

#define FACULA_LAPACK(name) FACULA_PREFIXED(name##_)

// (letter, element type) of each precision, for routines with equal declarations.
#define FACULA_LAPACK_TYPES(_) _(s, float) _(d, double) _(c, std::complex<float>) _(z, std::complex<double>)

extern "C" {
#define FACULA_DECLARE(p, T)                                                                                              \
  void FACULA_LAPACK(p##getrf)(const int* m, const int* n, T* a, const int* lda, int* pivots, int* info);                 \
  void FACULA_LAPACK(p##getrs)(const char* trans, const int* n, const int* k, const T* a, const int* lda, const int* pivots, \
                               T* b, const int* ldb, int* info, size_t);                                                  \
  void FACULA_LAPACK(p##getri)(const int* n, T* a, const int* lda, const int* pivots, T* work, const int* size, int* info); \
  void FACULA_LAPACK(p##potrf)(const char* uplo, const int* n, T* a, const int* lda, int* info, size_t);                  \
  void FACULA_LAPACK(p##potri)(const char* uplo, const int* n, T* a, const int* lda, int* info, size_t);                  \
  void FACULA_LAPACK(p##trtrs)(const char* uplo, const char* trans, const char* diag, const int* n, const int* k, const T* a, \
                               const int* lda, T* b, const int* ldb, int* info, size_t, size_t, size_t);
FACULA_LAPACK_TYPES(FACULA_DECLARE)
#undef FACULA_DECLARE
// Routines whose arguments differ between real and complex types; R is an array of real numbers, for complex types only.
#define FACULA_DECLARE_PLAIN(p, T)                                                                                          \
  void FACULA_LAPACK(p##geqrf)(const int* m, const int* n, T* a, const int* lda, T* tau, T* work, const int* size, int* info); \
  void FACULA_LAPACK(p##sytrf)(const char* uplo, const int* n, T* a, const int* lda, int* pivots, T* work, const int* size, \
                               int* info, size_t);                                                                          \
  void FACULA_LAPACK(p##sytrs)(const char* uplo, const int* n, const int* k, const T* a, const int* lda, const int* pivots, \
                               T* b, const int* ldb, int* info, size_t);                                                    \
  void FACULA_LAPACK(p##gels)(const char* trans, const int* m, const int* n, const int* k, T* a, const int* lda, T* b,      \
                              const int* ldb, T* work, const int* size, int* info, size_t);
FACULA_LAPACK_TYPES(FACULA_DECLARE_PLAIN)
#undef FACULA_DECLARE_PLAIN
#define FACULA_DECLARE_HERMITIAN(p, T)                                                                                      \
  void FACULA_LAPACK(p##hetrf)(const char* uplo, const int* n, T* a, const int* lda, int* pivots, T* work, const int* size, \
                               int* info, size_t);                                                                          \
  void FACULA_LAPACK(p##hetrs)(const char* uplo, const int* n, const int* k, const T* a, const int* lda, const int* pivots, \
                               T* b, const int* ldb, int* info, size_t);
FACULA_DECLARE_HERMITIAN(c, std::complex<float>)
FACULA_DECLARE_HERMITIAN(z, std::complex<double>)
#undef FACULA_DECLARE_HERMITIAN
#define FACULA_DECLARE_UNITARY(p, g, m, T)                                                                                     \
  void FACULA_LAPACK(p##g##qr)(const int* m, const int* n, const int* k, T* a, const int* lda, const T* tau, T* work,     \
                                 const int* size, int* info);                                                               \
  void FACULA_LAPACK(p##m##qr)(const char* side, const char* trans, const int* m, const int* n, const int* k, const T* a, \
                                 const int* lda, const T* tau, T* c, const int* ldc, T* work, const int* size, int* info,   \
                                 size_t, size_t);
FACULA_DECLARE_UNITARY(s, org, orm, float)
FACULA_DECLARE_UNITARY(d, org, orm, double)
FACULA_DECLARE_UNITARY(c, ung, unm, std::complex<float>)
FACULA_DECLARE_UNITARY(z, ung, unm, std::complex<double>)
#undef FACULA_DECLARE_UNITARY
#define FACULA_DECLARE_REAL(p, T)                                                                                           \
  void FACULA_LAPACK(p##gesdd)(const char* job, const int* m, const int* n, T* a, const int* lda, T* s, T* u, const int* ldu, \
                               T* vt, const int* ldvt, T* work, const int* size, int* integers, int* info, size_t);         \
  void FACULA_LAPACK(p##syevd)(const char* job, const char* uplo, const int* n, T* a, const int* lda, T* w, T* work,        \
                               const int* size, int* integers, const int* isize, int* info, size_t, size_t);                \
  void FACULA_LAPACK(p##sterf)(const int* n, T* d, T* e, int* info);                                                         \
  void FACULA_LAPACK(p##bdsdc)(const char* uplo, const char* job, const int* n, T* d, T* e, T* u, const int* ldu, T* vt,     \
                               const int* ldvt, T* q, int* iq, T* work, int* integers, int* info, size_t, size_t);          \
  void FACULA_LAPACK(p##geev)(const char* left, const char* right, const int* n, T* a, const int* lda, T* wr, T* wi, T* vl, \
                              const int* ldvl, T* vr, const int* ldvr, T* work, const int* size, int* info, size_t, size_t); \
  void FACULA_LAPACK(p##gelsy)(const int* m, const int* n, const int* k, T* a, const int* lda, T* b, const int* ldb,        \
                               int* exchanged, const T* rcond, int* rank, T* work, const int* size, int* info);             \
  void FACULA_LAPACK(p##gelsd)(const int* m, const int* n, const int* k, T* a, const int* lda, T* b, const int* ldb, T* s,  \
                               const T* rcond, int* rank, T* work, const int* size, int* integers, int* info);              \
  void FACULA_LAPACK(p##gelss)(const int* m, const int* n, const int* k, T* a, const int* lda, T* b, const int* ldb, T* s,  \
                               const T* rcond, int* rank, T* work, const int* size, int* info);
FACULA_DECLARE_REAL(s, float)
FACULA_DECLARE_REAL(d, double)
#undef FACULA_DECLARE_REAL
#define FACULA_DECLARE_COMPLEX(p, T, R)                                                                                     \
  void FACULA_LAPACK(p##gesdd)(const char* job, const int* m, const int* n, T* a, const int* lda, R* s, T* u, const int* ldu, \
                               T* vt, const int* ldvt, T* work, const int* size, R* reals, int* integers, int* info, size_t); \
  void FACULA_LAPACK(p##heevd)(const char* job, const char* uplo, const int* n, T* a, const int* lda, R* w, T* work,        \
                               const int* size, R* reals, const int* rsize, int* integers, const int* isize, int* info,     \
                               size_t, size_t);                                                                             \
  void FACULA_LAPACK(p##geev)(const char* left, const char* right, const int* n, T* a, const int* lda, T* w, T* vl,         \
                              const int* ldvl, T* vr, const int* ldvr, T* work, const int* size, R* reals, int* info, size_t, \
                              size_t);                                                                                      \
  void FACULA_LAPACK(p##gelsy)(const int* m, const int* n, const int* k, T* a, const int* lda, T* b, const int* ldb,        \
                               int* exchanged, const R* rcond, int* rank, T* work, const int* size, R* reals, int* info);   \
  void FACULA_LAPACK(p##gelsd)(const int* m, const int* n, const int* k, T* a, const int* lda, T* b, const int* ldb, R* s,  \
                               const R* rcond, int* rank, T* work, const int* size, R* reals, int* integers, int* info);    \
  void FACULA_LAPACK(p##gelss)(const int* m, const int* n, const int* k, T* a, const int* lda, T* b, const int* ldb, R* s,  \
                               const R* rcond, int* rank, T* work, const int* size, R* reals, int* info);
FACULA_DECLARE_COMPLEX(c, std::complex<float>, float)
FACULA_DECLARE_COMPLEX(z, std::complex<double>, double)
#undef FACULA_DECLARE_COMPLEX
}

namespace facula::device::cpu {

template <class T>
struct Lapack;
#define FACULA_ROUTINES(p, T, R, g, m, he)                  \
  template <> struct Lapack<T> {                             \
    using Real = R;                                          \
    static constinit inline const auto getrf = FACULA_ROUTINE(FACULA_LAPACK(p##getrf)); \
    static constinit inline const auto getrs = FACULA_ROUTINE(FACULA_LAPACK(p##getrs)); \
    static constinit inline const auto getri = FACULA_ROUTINE(FACULA_LAPACK(p##getri)); \
    static constinit inline const auto potrf = FACULA_ROUTINE(FACULA_LAPACK(p##potrf)); \
    static constinit inline const auto potri = FACULA_ROUTINE(FACULA_LAPACK(p##potri)); \
    static constinit inline const auto trtrs = FACULA_ROUTINE(FACULA_LAPACK(p##trtrs)); \
    static constinit inline const auto geqrf = FACULA_ROUTINE(FACULA_LAPACK(p##geqrf)); \
    static constinit inline const auto orgqr = FACULA_ROUTINE(FACULA_LAPACK(p##g##qr)); \
    static constinit inline const auto ormqr = FACULA_ROUTINE(FACULA_LAPACK(p##m##qr)); \
    static constinit inline const auto gesdd = FACULA_ROUTINE(FACULA_LAPACK(p##gesdd)); \
    static constinit inline const auto heevd = FACULA_ROUTINE(FACULA_LAPACK(p##he##evd)); \
    static constinit inline const auto geev = FACULA_ROUTINE(FACULA_LAPACK(p##geev)); \
    static constinit inline const auto sytrf = FACULA_ROUTINE(FACULA_LAPACK(p##sytrf)); \
    static constinit inline const auto sytrs = FACULA_ROUTINE(FACULA_LAPACK(p##sytrs)); \
    static constinit inline const auto hetrf = FACULA_ROUTINE(FACULA_LAPACK(p##he##trf)); \
    static constinit inline const auto hetrs = FACULA_ROUTINE(FACULA_LAPACK(p##he##trs)); \
    static constinit inline const auto gels = FACULA_ROUTINE(FACULA_LAPACK(p##gels)); \
    static constinit inline const auto gelsy = FACULA_ROUTINE(FACULA_LAPACK(p##gelsy)); \
    static constinit inline const auto gelsd = FACULA_ROUTINE(FACULA_LAPACK(p##gelsd)); \
    static constinit inline const auto gelss = FACULA_ROUTINE(FACULA_LAPACK(p##gelss)); \
  };
FACULA_ROUTINES(s, float, float, org, orm, sy)
FACULA_ROUTINES(d, double, double, org, orm, sy)
FACULA_ROUTINES(c, std::complex<float>, float, ung, unm, he)
FACULA_ROUTINES(z, std::complex<double>, double, ung, unm, he)
#undef FACULA_ROUTINES
// The parts of `heevd` and `gesdd`, for real matrices.
template <class T>
struct TwoDiagonals;
#define FACULA_TRIDIAGONAL(p, T)                                                      \
  template <> struct TwoDiagonals<T> {                                                  \
    static constinit inline const auto sterf = FACULA_ROUTINE(FACULA_LAPACK(p##sterf)); \
    static constinit inline const auto bdsdc = FACULA_ROUTINE(FACULA_LAPACK(p##bdsdc)); \
  };
FACULA_TRIDIAGONAL(s, float)
FACULA_TRIDIAGONAL(d, double)
#undef FACULA_TRIDIAGONAL

template <class F>
void of_type(DType d, F&& f) {
  switch (d) {
    case DType::Float32: return f(float{});
    case DType::Float64: return f(double{});
    case DType::Complex64: return f(std::complex<float>{});
    case DType::Complex128: return f(std::complex<double>{});
    default: internal_check(false) << "LAPACK has no " << d;
  }
}

template <class T>
void transpose_into(RowMajor<const T> from, int64_t rows, int64_t cols, RowMajor<T> to) {
  if constexpr (std::is_floating_point_v<T>) return turn_in_rows(rows, cols, from, to);
  constexpr int64_t kTile = 32;
  for (int64_t i = 0; i < rows; i += kTile)
    for (int64_t j = 0; j < cols; j += kTile)
      for (int64_t r = i; r < std::min(rows, i + kTile); ++r)
        for (int64_t c = j; c < std::min(cols, j + kTile); ++c) to[c][r] = from[r][c];
}
template <class T>
void transpose_into(const T* from, int64_t rows, int64_t cols, T* to) {
  transpose_into<T>({from, cols}, rows, cols, {to, rows});
}

inline int order_of(const char* name, const Tensor& a) {
  int64_t n = a.int_sizes().back();
  runtime_check(n <= 46340, name) << "matrices of " << n
                                  << " rows are too large for LAPACK's 32-bit integers";
  return int(n);
}

inline int64_t matrices(const Tensor& a) { return product(a.sizes().first(size_t(a.dim() - 2))).concrete(); }

// Records which matrix failed and how: the first one of a batch, whatever the number of threads.
class Failure {
 public:
  void note(int64_t matrix, int info) {
    int64_t word = matrix << 32 | info, seen = first_.load();
    while (word < seen && !first_.compare_exchange_weak(seen, word)) {}
  }
  bool any() const { return first_.load() != kNone; }
  std::string where(const Tensor& a) const {
    return a.dim() > 2 ? "(Batch element " + std::to_string(first_.load() >> 32) + "): " : "";
  }
  int info() const { return int(first_.load() & 0x7fffffff); }

 private:
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  std::atomic<int64_t> first_{kNone};
};

// Calls f(matrix number, buffer of `elements`) for each matrix; for one large matrix the library uses its own threads.
template <class T, class F>
void each(int64_t count, int n, size_t elements, F&& f) {
  blas_threads(count == 1 && n >= 384 && !in_parallel() ? num_threads() : 1);
  auto grain = int64_t(std::max(1.0, 20000.0 / (double(n) * n * n + 1)));
  parallel_for(count, grain, [&](int64_t begin, int64_t end) {
    Workspace<T> buffer(elements);
    for (int64_t k = begin; k < end; ++k) f(k, buffer.data());
  });
  blas_threads(1);
}

// The same, but `routine` (small.h) computes small matrices of [n, n]; `job` (first matrix) returns its operands.
template <class T, class J, class F>
void each(int64_t count, int n, size_t elements, Small routine, J&& job, F&& f) {
  auto alone = [&](int64_t k) {
    Workspace<T> buffer(elements);
    f(k, buffer.data());
  };
  if (!each_small<T>(routine, count, n, n, job, alone)) each<T>(count, n, elements, f);
}

// ---- Matrices so small that a call of LAPACK takes longer than its arithmetic: the same algorithms as loops.
constexpr int kFewRows = 8;

// LU of a [n, n], stored by columns, with row exchanges as in getrf.
template <class T>
int factor_lu(int n, T* a, int* pivots) {
  if (n > kFewRows) {
    int info = 0;
    Lapack<T>::getrf(&n, &n, a, &n, pivots, &info);
    return info;
  }
  int info = 0;
  for (int k = 0; k < n; ++k) {
    int p = k;
    auto largest = pivot_size(a[k * n + k]);
    for (int i = k + 1; i < n; ++i)
      if (auto size = pivot_size(a[k * n + i]); size > largest) largest = size, p = i;
    pivots[k] = p + 1;
    if (a[k * n + p] == T(0)) {
      info = info ? info : k + 1;
      continue;
    }
    if (p != k)
      for (int j = 0; j < n; ++j) std::swap(a[j * n + k], a[j * n + p]);
    T scale = T(1) / a[k * n + k];
    for (int i = k + 1; i < n; ++i) a[k * n + i] *= scale;
    for (int j = k + 1; j < n; ++j) {
      T x = a[j * n + k];
      for (int i = k + 1; i < n; ++i) a[j * n + i] -= a[k * n + i] * x;
    }
  }
  return info;
}

// Solves A X = B, stored by columns, with the factors, as getrs without transposition.
template <class T>
void solve_lu(int n, int columns, const T* lu, const int* pivots, T* b) {
  if (n > kFewRows) {
    int ok = 0;
    return Lapack<T>::getrs("N", &n, &columns, lu, &n, pivots, b, &n, &ok, 1);
  }
  for (int c = 0; c < columns; ++c) {
    T* x = b + int64_t(c) * n;
    for (int i = 0; i < n; ++i)
      if (int p = pivots[i] - 1; p != i) std::swap(x[i], x[p]);
    for (int k = 0; k < n; ++k)
      for (int i = k + 1; i < n; ++i) x[i] -= by_parts(lu[k * n + i], x[k]);
    for (int k = n; k-- > 0;) {
      x[k] = quotient(x[k], lu[k * n + k]);
      for (int i = 0; i < k; ++i) x[i] -= by_parts(lu[k * n + i], x[k]);
    }
  }
}

// The same for A^T X = B.
template <class T>
void solve_lu_transposed(int n, int columns, const T* lu, const int* pivots, T* b) {
  if (n > kFewRows) {
    int ok = 0;
    return Lapack<T>::getrs("T", &n, &columns, lu, &n, pivots, b, &n, &ok, 1);
  }
  for (int c = 0; c < columns; ++c) {
    T* x = b + int64_t(c) * n;
    for (int k = 0; k < n; ++k) {
      for (int i = 0; i < k; ++i) x[k] -= lu[k * n + i] * x[i];
      x[k] /= lu[k * n + k];
    }
    for (int k = n; k-- > 0;)
      for (int i = k + 1; i < n; ++i) x[k] -= lu[k * n + i] * x[i];
    for (int i = n; i-- > 0;)
      if (int p = pivots[i] - 1; p != i) std::swap(x[i], x[p]);
  }
}

// Replaces the factors by the inverse, as getri; `work` has n max(n, 64) elements.
template <class T>
void invert_lu(int n, T* lu, const int* pivots, T* work) {
  if (n > kFewRows) {
    int size = n * 64, ok = 0;
    return Lapack<T>::getri(&n, lu, &n, pivots, work, &size, &ok);
  }
  std::fill(work, work + n * n, T(0));
  for (int i = 0; i < n; ++i) work[i * n + i] = T(1);
  solve_lu(n, n, lu, pivots, work);
  std::copy(work, work + n * n, lu);
}

}  // namespace facula::device::cpu
