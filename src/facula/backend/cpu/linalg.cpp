// Linear algebra by LAPACK, matrix by matrix; a batch is shared out among threads. LAPACK stores columns: a
// row-major matrix is its transpose, so operands are transposed on the way in and out.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include "facula/backend/cpu/cpu.h"
#include "facula/base/parallel.h"

#define FACULA_LAPACK_NAME2(prefix, name) prefix##name##_
#define FACULA_LAPACK_NAME1(prefix, name) FACULA_LAPACK_NAME2(prefix, name)
#define FACULA_LAPACK(name) FACULA_LAPACK_NAME1(FACULA_LAPACK_PREFIX, name)

// (letter, element type) of each precision; the routines declared and named alike for all.
#define FACULA_LAPACK_TYPES(_) _(s, float) _(d, double) _(c, std::complex<float>) _(z, std::complex<double>)

extern "C" {
#define FACULA_DECLARE(p, T)                                                                                              \
  void FACULA_LAPACK(p##getrf)(const int* m, const int* n, T* a, const int* lda, int* pivots, int* info);                 \
  void FACULA_LAPACK(p##getrs)(const char* trans, const int* n, const int* k, const T* a, const int* lda, const int* pivots, \
                               T* b, const int* ldb, int* info, size_t);                                                  \
  void FACULA_LAPACK(p##getri)(const int* n, T* a, const int* lda, const int* pivots, T* work, const int* size, int* info); \
  void FACULA_LAPACK(p##potrf)(const char* uplo, const int* n, T* a, const int* lda, int* info, size_t);                  \
  void FACULA_LAPACK(p##trtrs)(const char* uplo, const char* trans, const char* diag, const int* n, const int* k, const T* a, \
                               const int* lda, T* b, const int* ldb, int* info, size_t, size_t, size_t);
FACULA_LAPACK_TYPES(FACULA_DECLARE)
#undef FACULA_DECLARE
}

namespace facula::backend::cpu {

namespace {

template <class T>
struct Lapack;
#define FACULA_ROUTINES(p, T)                                    \
  template <> struct Lapack<T> {                                 \
    static constexpr auto getrf = FACULA_LAPACK(p##getrf);       \
    static constexpr auto getrs = FACULA_LAPACK(p##getrs);       \
    static constexpr auto getri = FACULA_LAPACK(p##getri);       \
    static constexpr auto potrf = FACULA_LAPACK(p##potrf);       \
    static constexpr auto trtrs = FACULA_LAPACK(p##trtrs);       \
  };
FACULA_LAPACK_TYPES(FACULA_ROUTINES)
#undef FACULA_ROUTINES

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
void transpose_into(const T* from, int64_t rows, int64_t cols, T* to) {
  constexpr int64_t kTile = 32;
  for (int64_t i = 0; i < rows; i += kTile)
    for (int64_t j = 0; j < cols; j += kTile)
      for (int64_t r = i; r < std::min(rows, i + kTile); ++r)
        for (int64_t c = j; c < std::min(cols, j + kTile); ++c) to[c * rows + r] = from[r * cols + c];
}

int order_of(const char* name, const Tensor& a) {
  int64_t n = a.int_sizes().back();
  runtime_check(n <= 46340, name) << "matrices of " << n
                                  << " rows are too large for LAPACK's 32-bit integers";
  return int(n);
}

int64_t matrices(const Tensor& a) { return product(a.sizes().first(size_t(a.dim() - 2))).concrete(); }

// Which matrix failed and how; the first one of a batch, whatever the number of threads.
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

// f(matrix number, buffer of `elements`) for each matrix; the threads of one large matrix are the library's
// own.
template <class T, class F>
void each(int64_t count, int n, size_t elements, F&& f) {
  blas_threads(count == 1 && n >= 384 && !in_parallel() ? num_threads() : 1);
  auto grain = int64_t(std::max(1.0, 20000.0 / (double(n) * n * n + 1)));
  parallel_for(count, grain, [&](int64_t begin, int64_t end) {
    std::vector<T> buffer(elements);
    for (int64_t k = begin; k < end; ++k) f(k, buffer.data());
  });
  blas_threads(1);
}

// Real matrices are factored as LAPACK finds them in memory: as their transposes.
template <class T>
constexpr bool kOfTranspose = std::is_floating_point_v<T>;
// To solve with the matrix itself, and with its adjoint, by the factors of `each_lu`.
template <class T>
constexpr const char* kPlain = kOfTranspose<T> ? "T" : "N";
template <class T>
constexpr const char* kAdjoint = kOfTranspose<T> ? "N" : "C";

// Factors a copy of each matrix (of its transpose, if real); f(matrix number, LU, pivots, info).
template <class T, class F>
void each_lu(const Tensor& a, int n, size_t extra, F&& f) {
  const T* from = a.data<T>();
  size_t square = size_t(n) * size_t(n);
  each<T>(matrices(a), n, square + extra, [&](int64_t k, T* lu) {
    const T* matrix = from + k * int64_t(square);
    if constexpr (kOfTranspose<T>) std::copy(matrix, matrix + square, lu);
    else transpose_into(matrix, n, n, lu);
    std::vector<int> pivots(size_t(std::max(n, 1)));
    int info = 0, ld = std::max(n, 1);
    if (n) Lapack<T>::getrf(&n, &n, lu, &ld, pivots.data(), &info);
    f(k, lu, pivots, info, lu + square);
  });
}

// Products and quotients part by part, as LAPACK's: C++'s own look for infinities behind a NaN (C, annex G).
template <class T>
T product(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return a * b;
  else return T(a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real());
}
template <class T>
T quotient(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return a / b;
  } else if (std::abs(b.real()) >= std::abs(b.imag())) {  // Smith, 1962
    auto r = b.imag() / b.real(), size = b.real() + b.imag() * r;
    return T((a.real() + a.imag() * r) / size, (a.imag() - a.real() * r) / size);
  } else {
    auto r = b.real() / b.imag(), size = b.imag() + b.real() * r;
    return T((a.real() * r + a.imag()) / size, (a.imag() * r - a.real()) / size);
  }
}

// op(A) X = B in place for a triangular A [n, n], by division, so that a zero on the diagonal gives what IEEE
// arithmetic says: infinities, and NaN for 0 / 0. A(i, j) is the element of op(A); `upper` is op(A)'s triangle.
template <class T, class A>
void substitute(int n, int columns, bool upper, bool unit, A&& at, T* b) {
  for (int step = 0; step < n; ++step) {
    int i = upper ? n - 1 - step : step;
    for (int c = 0; c < columns; ++c) {
      T* x = b + int64_t(c) * n;
      T sum = x[i];
      for (int j = upper ? i + 1 : 0; j < (upper ? n : i); ++j) sum -= product(at(i, j), x[j]);
      x[i] = unit ? sum : quotient(sum, at(i, i));
    }
  }
}

template <class T>
T conjugate_of(T x) {
  if constexpr (std::is_floating_point_v<T>) return x;
  else return std::conj(x);
}

// X of A^H X = `diagonal` times 1, in columns, from the factors of `each_lu`, singular or not.
template <class T>
void solve_adjoint(const T* lu, const std::vector<int>& pivots, int n, bool singular, T* x,
                   T diagonal = T(1)) {
  std::fill(x, x + int64_t(n) * n, T(0));
  for (int i = 0; i < n; ++i) x[int64_t(i) * n + i] = diagonal;
  if (!singular) {
    int ok = 0;
    Lapack<T>::getrs(kAdjoint<T>, &n, &n, lu, &n, pivots.data(), x, &n, &ok, 1);
    return;
  }
  auto exchange = [&](int i) {
    int p = pivots[size_t(i)] - 1;
    for (int c = 0; p != i && c < n; ++c) std::swap(x[int64_t(c) * n + i], x[int64_t(c) * n + p]);
  };
  auto factor = [&](int i, int j) { return lu[int64_t(j) * n + i]; };
  auto turned = [&](int i, int j) { return conjugate_of(lu[int64_t(i) * n + j]); };
  if constexpr (kOfTranspose<T>) {
    for (int i = 0; i < n; ++i) exchange(i);
    substitute(n, n, false, true, factor, x);
    substitute(n, n, true, false, factor, x);
  } else {
    substitute(n, n, false, false, turned, x);
    substitute(n, n, true, true, turned, x);
    for (int i = n; i-- > 0;) exchange(i);
  }
}

// Whether the factors have no numbers: then nothing that is made of them has any. Of complex infinities the
// quotients have none either.
template <class T>
bool lost(const T* lu, int n) {
  return std::any_of(lu, lu + int64_t(n) * n, [](T x) {
    if constexpr (std::is_floating_point_v<T>) return std::isnan(x);
    else return !std::isfinite(x.real()) || !std::isfinite(x.imag());
  });
}
template <class T>
constexpr T kNone = T(std::numeric_limits<decltype(std::abs(T{}))>::quiet_NaN());

template <class T>
T determinant(const T* lu, const std::vector<int>& pivots, int n) {
  T det(1);
  for (int i = 0; i < n; ++i) {
    det = product(det, lu[size_t(i) * size_t(n) + size_t(i)]);
    if (pivots[size_t(i)] != i + 1) det = -det;
  }
  return det;
}

}  // namespace

Results linalg_lu_solve(const Call& c, Out out) {
  Tensor a = dense(c.tensor("A")), b = dense(c.tensor("B"));
  Destination to(out[0]);
  int n = order_of("linalg.solve", a);
  int64_t columns = b.int_sizes().back();
  Failure failure;
  of_type(a.dtype(), [&](auto zero) {
    using T = decltype(zero);
    size_t block = size_t(n) * size_t(columns);
    each_lu<T>(a, n, block, [&](int64_t k, T* lu, const std::vector<int>& pivots, int info, T* rhs) {
      if (info > 0) return failure.note(k, info);
      if (!block) return;
      if (lost(lu, n)) {
        T* x = to.data<T>() + k * int64_t(block);
        return std::fill(x, x + block, kNone<T>);
      }
      transpose_into(b.data<T>() + k * int64_t(block), n, columns, rhs);
      int cols = int(columns), ok = 0;
      Lapack<T>::getrs(kPlain<T>, &n, &cols, lu, &n, pivots.data(), rhs, &n, &ok, 1);
      transpose_into(rhs, columns, n, to.data<T>() + k * int64_t(block));
    });
  });
  linalg_check(!failure.any(), "linalg.solve")
      << failure.where(a) << "the solver failed because the input matrix is singular.";
  to.finish();
  return Results(out[0]);
}

Results linalg_inv(const Call& c, Out out) {
  Tensor a = dense(c.tensor("A"));
  Destination to(out[0]);
  int n = order_of("linalg.inv", a);
  Failure failure;
  of_type(a.dtype(), [&](auto zero) {
    using T = decltype(zero);
    each_lu<T>(a, n, size_t(n) * 64,
               [&](int64_t k, T* lu, const std::vector<int>& pivots, int info, T* work) {
                 if (info > 0) return failure.note(k, info);
                 if (!n) return;
                 int size = n * 64, ok = 0;
                 if (lost(lu, n)) std::fill(lu, lu + int64_t(n) * n, kNone<T>);
                 else Lapack<T>::getri(&n, lu, &n, pivots.data(), work, &size, &ok);
                 T* y = to.data<T>() + k * int64_t(n) * n;
                 if constexpr (kOfTranspose<T>) std::copy(lu, lu + int64_t(n) * n, y);
                 else transpose_into(lu, n, n, y);
               });
  });
  linalg_check(!failure.any(), "linalg.inv")
      << failure.where(a) << "the diagonal element " << failure.info()
      << " is zero, the inversion could not be completed because the input matrix is singular.";
  to.finish();
  return Results(out[0]);
}

// inv^H, with infinities and NaN where the matrix is singular.
Results linalg_inv_adjoint(const Call& c, Out out) {
  Tensor a = dense(c.tensor("A"));
  Destination to(out[0]);
  int n = order_of("linalg.slogdet", a);
  of_type(a.dtype(), [&](auto zero) {
    using T = decltype(zero);
    each_lu<T>(a, n, size_t(n) * size_t(n),
               [&](int64_t k, T* lu, const std::vector<int>& pivots, int info, T* x) {
                 if (!n) return;
                 if (lost(lu, n)) std::fill(x, x + int64_t(n) * n, kNone<T>);
                 else solve_adjoint(lu, pivots, n, info > 0, x);
                 transpose_into(x, n, n, to.data<T>() + k * int64_t(n) * n);
               });
  });
  to.finish();
  return Results(out[0]);
}

// conj(det of a [n, n] without row i and column j), signed, by factors of their own: for small singular matrices.
template <class T>
void minors(const T* a, int n, T* y) {
  int m = n - 1, info = 0, ld = std::max(m, 1);
  std::vector<T> rest(size_t(m) * size_t(m));
  std::vector<int> pivots(size_t(std::max(m, 1)));
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) {
      T* to = rest.data();
      for (int r = 0; r < n; ++r)
        for (int c = 0; r != i && c < n; ++c)
          if (c != j) *to++ = a[int64_t(r) * n + c];
      if (m) Lapack<T>::getrf(&m, &m, rest.data(), &ld, pivots.data(), &info);
      T det = determinant(rest.data(), pivots, m);
      y[int64_t(i) * n + j] = conjugate_of((i + j) % 2 ? -det : det);
    }
}

// conj(det) inv^H. Of singular matrices too large for their minors a zero pivot is replaced by a tiny one: the
// product of determinant and inverse tends to the cofactors.
Results linalg_cofactor(const Call& c, Out out) {
  Tensor a = dense(c.tensor("A"));
  Destination to(out[0]);
  int n = order_of("linalg.det", a);
  of_type(a.dtype(), [&](auto zero) {
    using T = decltype(zero);
    using R = decltype(std::abs(T{}));
    each_lu<T>(a, n, size_t(n) * size_t(std::max(n, 64)),
               [&](int64_t k, T* lu, const std::vector<int>& pivots, int info, T* work) {
                 if (!n) return;
                 constexpr int kFewRows = 16;
                 if (info > 0 && n <= kFewRows)
                   return minors(a.data<T>() + k * int64_t(n) * n, n, to.data<T>() + k * int64_t(n) * n);
                 R largest = 0;
                 for (int i = 0; i < n; ++i)
                   largest = std::max(largest, std::abs(lu[size_t(i) * size_t(n) + size_t(i)]));
                 R tiny = std::sqrt(std::numeric_limits<R>::epsilon()) * std::numeric_limits<R>::epsilon() *
                          (largest > 0 ? largest : R(1));
                 for (int i = 0; i < n; ++i)
                   if (auto& pivot = lu[size_t(i) * size_t(n) + size_t(i)]; std::abs(pivot) < tiny)
                     pivot = T(tiny);
                 T det = determinant(lu, pivots, n);
                 T* y = to.data<T>() + k * int64_t(n) * n;
                 if (det - det != T(0)) {  // infinite or NaN: what is left of it is a question of the order
                   solve_adjoint(lu, pivots, n, true, work, conjugate_of(det));
                   return transpose_into(work, n, n, y);
                 }
                 int size = n * 64, ok = 0;
                 Lapack<T>::getri(&n, lu, &n, pivots.data(), work, &size, &ok);
                 // The buffer holds inv (of a real matrix inv^T) in columns: read as rows it is inv^T (or inv).
                 for (int64_t i = 0; i < int64_t(n) * n; ++i) lu[i] = conjugate_of(det * lu[i]);
                 if constexpr (kOfTranspose<T>) transpose_into(lu, n, n, y);
                 else std::copy(lu, lu + int64_t(n) * n, y);
               });
  });
  to.finish();
  return Results(out[0]);
}

Results linalg_det(const Call& c, Out out) {
  Tensor a = dense(c.tensor("A"));
  Destination to(out[0]);
  int n = order_of("linalg.det", a);
  of_type(a.dtype(), [&](auto zero) {
    using T = decltype(zero);
    each_lu<T>(a, n, 0, [&](int64_t k, T* lu, const std::vector<int>& pivots, int, T*) {
      to.data<T>()[k] = determinant(lu, pivots, n);
    });
  });
  to.finish();
  return Results(out[0]);
}

Results linalg_slogdet(const Call& c, Out out) {
  Tensor a = dense(c.tensor("A"));
  Destination to_sign(out[0]), to_log(out[1]);
  int n = order_of("linalg.slogdet", a);
  of_type(a.dtype(), [&](auto zero) {
    using T = decltype(zero);
    using R = decltype(std::abs(T{}));
    each_lu<T>(a, n, 0, [&](int64_t k, T* lu, const std::vector<int>& pivots, int, T*) {
      T sign(1);
      R log_size = 0;
      for (int i = 0; i < n; ++i) {
        T pivot = lu[size_t(i) * size_t(n) + size_t(i)];
        R size = pivot != pivot ? std::numeric_limits<R>::quiet_NaN() : std::abs(pivot);
        log_size += std::log(size);
        if constexpr (std::is_floating_point_v<T>) sign *= T((pivot > 0) - (pivot < 0));
        else sign *= size == 0 ? T(0) : pivot / size;
        if (pivots[size_t(i)] != i + 1) sign = sign * T(-1);  // an imaginary part of 0 stays positive
      }
      to_sign.data<T>()[k] = sign;
      to_log.data<R>()[k] = log_size;
    });
  });
  to_sign.finish();
  to_log.finish();
  return Results{out[0], out[1]};
}

Results linalg_cholesky(const Call& c, Out out) {
  Tensor a = dense(c.tensor("A"));
  Destination to(out[0]);
  int n = order_of("linalg.cholesky", a);
  Failure failure;
  of_type(a.dtype(), [&](auto zero) {
    using T = decltype(zero);
    int64_t square = int64_t(n) * n;
    each<T>(matrices(a), n, size_t(square), [&](int64_t k, T* l) {
      transpose_into(a.data<T>() + k * square, n, n, l);
      int info = 0;
      if (n) Lapack<T>::potrf("L", &n, l, &n, &info, 1);
      for (int i = 0; i < n && info == 0; ++i)
        if (l[int64_t(i) * n + i] != l[int64_t(i) * n + i]) info = i + 1;  // NaN passes LAPACK
      if (info > 0) return failure.note(k, info);
      T* y = to.data<T>() + k * square;
      transpose_into(l, n, n, y);
      for (int i = 0; i < n; ++i) std::fill(y + int64_t(i) * n + i + 1, y + int64_t(i + 1) * n, T(0));
    });
  });
  linalg_check(!failure.any(), "linalg.cholesky")
      << failure.where(a)
      << "the factorization could not be completed because the input is not positive-definite (the leading minor of order "
      << failure.info() << " is not positive-definite).";
  to.finish();
  return Results(out[0]);
}

Results linalg_triangular(const Call& c, Out out) {
  Tensor a = dense(c.tensor("A")), b = dense(c.tensor("B"));
  Destination to(out[0]);
  int n = order_of("linalg.solve_triangular", a);
  int64_t columns = b.int_sizes().back();
  // Row-major A is A^T in columns: the other triangle, to be transposed back.
  const char *uplo = c.flag("upper") ? "L" : "U", *diag = c.flag("unit") ? "U" : "N";
  of_type(a.dtype(), [&](auto zero) {
    using T = decltype(zero);
    size_t block = size_t(n) * size_t(columns);
    if (!block) return;
    each<T>(matrices(a), n, block, [&](int64_t k, T* rhs) {
      transpose_into(b.data<T>() + k * int64_t(block), n, columns, rhs);
      int cols = int(columns), info = 0;
      Lapack<T>::trtrs(uplo, "T", diag, &n, &cols, a.data<T>() + k * int64_t(n) * n, &n, rhs, &n, &info, 1, 1,
                       1);
      if (info > 0) {  // a zero on the diagonal
        const T* rows = a.data<T>() + k * int64_t(n) * n;
        substitute(
            n, cols, c.flag("upper"), false, [&](int i, int j) { return rows[int64_t(i) * n + j]; }, rhs);
      }
      transpose_into(rhs, columns, n, to.data<T>() + k * int64_t(block));
    });
  });
  to.finish();
  return Results(out[0]);
}

}  // namespace facula::backend::cpu
