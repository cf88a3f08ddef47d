// Linear algebra: small matrices side by side (small.h), larger ones by strips (blocked.h), others by LAPACK one by one.
// Threads share a batch.
#include "facula/device/cpu/lapack.h"

namespace facula::device::cpu {

namespace {

// Real matrices are factored as LAPACK sees them in memory: as their transposes.
template <class T>
constexpr bool kOfTranspose = std::is_floating_point_v<T>;
// The argument of getrs that solves with the adjoint, for the factors of `each_lu`.
template <class T>
constexpr const char* kAdjoint = kOfTranspose<T> ? "N" : "C";

// P L U of a matrix, stored by columns; of its transpose if `turned`. `info` is the number of the first zero pivot.
template <class T>
struct Factors {
  T* lu;
  const int* pivots;
  int info;
  bool turned;
  bool ordinary;            // false: solve by division, element by element
  bool all_finite = false;  // all elements are finite
  bool blocked = false;     // the factors are those of the matrix itself, row-major (blocked.h)
};
// Returns whether a factor contains NaN; then all results are NaN.
template <class T>
bool lost(const T* lu, int n) {
  return std::any_of(lu, lu + int64_t(n) * n, [](T x) { return x != x; });
}
// The factors to compute for a real matrix that is singular or not finite, for which those of the transpose differ:
// either, or its own.
enum class Order { either, own };

// Factors a copy of an ordinary matrix in blocks, if that is faster. Returns false if not.
template <class T>
bool factor_blocked(int n, const T* matrix, T* lu, int* pivots) {
  if constexpr (kOfTranspose<T>) {
    if (n < kFewestBlocked) return false;
    return factor_in_rows<T>(n, {matrix, n}, {lu, n}, pivots);
  }
  return false;
}

// Factors a copy of each matrix (of its transpose, if real and ordinary) and calls f(matrix number, factors, room).
// `routine` computes small ones; `more` (job, first matrix) adds its operands besides the matrices.
template <class T, class J, class F>
void each_lu(const Tensor& a, int n, size_t extra, Order order, Small routine, J&& more, F&& f) {
  const T* from = a.data<T>();
  size_t square = size_t(n) * size_t(n);
  auto job = [&](int64_t k) {
    SmallJob<T> some{.m = n, .n = n, .a = from + k * int64_t(square)};
    more(some, k);
    return some;
  };
  each<T>(matrices(a), n, square + extra + size_t(n), routine, job, [&](int64_t k, T* lu) {
    const T* matrix = from + k * int64_t(square);
    int* pivots = reinterpret_cast<int*>(lu + square + extra);
    bool own = !kOfTranspose<T> || order == Order::own;
    if (factor_blocked(n, matrix, lu, pivots))
      return f(k, Factors<T>{lu, pivots, 0, false, true, true, true}, lu + square);
    if constexpr (kOfTranspose<T>) std::copy(matrix, matrix + square, lu);
    else transpose_into(matrix, n, n, lu);
    int info = n ? factor_lu(n, lu, pivots) : 0;
    // A matrix that is not finite has factors that are not finite.
    bool all_finite = own && finite(lu, int64_t(square)),
         ordinary = all_finite || !own || finite(matrix, int64_t(square));
    if (own && (!ordinary || (kOfTranspose<T> && info > 0))) {
      transpose_into(matrix, n, n, lu);
      int second = ordinary ? factor_lu(n, lu, pivots) : eliminate(n, n, lu, pivots);
      info = second ? second : info;
      // the transpose's factors may have numbers in place of NaN
      if (kOfTranspose<T> && !ordinary && lost(lu, n)) {
        std::copy(matrix, matrix + square, lu);
        info = factor_lu(n, lu, pivots);
        ordinary = true;
      } else {
        ordinary = false;
      }
    }
    f(k, Factors<T>{lu, pivots, info, kOfTranspose<T> && ordinary, ordinary && !info, all_finite && ordinary},
      lu + square);
  });
}

// Sets the result of small routines that write one matrix for each.
template <class T>
auto squares_into(const Destination& to) {
  return [&to](SmallJob<T>& job, int64_t k) { job.x = to.data<T>() + k * int64_t(job.n) * job.n; };
}

// Solves op(A) X = B in place for a triangular A [n, n], by division, so that a zero on the diagonal gives what IEEE
// arithmetic says: infinities, and NaN for 0 / 0. at(i, j) is the element of op(A); `upper` is op(A)'s triangle.
template <class T, class A>
void substitute(int n, int columns, bool upper, bool unit, A&& at, T* b) {
  for (int step = 0; step < n; ++step) {
    int i = upper ? n - 1 - step : step;
    for (int c = 0; c < columns; ++c) {
      T* x = b + int64_t(c) * n;
      T sum = x[i];
      for (int j = upper ? i + 1 : 0; j < (upper ? n : i); ++j) sum -= by_parts(at(i, j), x[j]);
      x[i] = unit ? sum : quotient(sum, at(i, i));
    }
  }
}

template <class T>
T conjugate_of(T x) {
  if constexpr (std::is_floating_point_v<T>) return x;
  else return std::conj(x);
}

template <class T>
void exchange_rows(const Factors<T>& f, int n, int columns, T* x, bool back = false) {
  for (int step = 0; step < n; ++step) {
    int i = back ? n - 1 - step : step, p = f.pivots[i] - 1;
    for (int c = 0; p != i && c < columns; ++c) std::swap(x[int64_t(c) * n + i], x[int64_t(c) * n + p]);
  }
}

// Solves A X = B in place, stored by columns, from factors of A itself, by division.
template <class T>
void solve_by_division(const Factors<T>& f, int n, int columns, T* x) {
  auto factor = [&](int i, int j) { return f.lu[int64_t(j) * n + i]; };
  exchange_rows(f, n, columns, x);
  substitute(n, columns, false, true, factor, x);
  substitute(n, columns, true, false, factor, x);
}

template <class T>
void fill_identity(T* x, int n, T diagonal = T(1)) {
  std::fill(x, x + int64_t(n) * n, T(0));
  for (int i = 0; i < n; ++i) x[int64_t(i) * n + i] = diagonal;
}

// Solves A^H X = `diagonal` times 1, stored by columns, from the factors of `each_lu`, singular or not.
template <class T>
void solve_adjoint(const Factors<T>& f, int n, T* x, T diagonal = T(1), bool divides = false) {
  fill_identity(x, n, diagonal);
  if constexpr (kOfTranspose<T>)
    if (f.blocked && !divides) return invert_factored_in_rows(n, f.lu, f.pivots, x);
  if (f.ordinary && !divides) {
    int ok = 0;
    Lapack<T>::getrs(kAdjoint<T>, &n, &n, f.lu, &n, f.pivots, x, &n, &ok, 1);
    return;
  }
  if (f.blocked) {  // A^T = U^T L^T P^T
    auto turned = [&](int i, int j) { return f.lu[int64_t(j) * n + i]; };
    substitute(n, n, false, false, turned, x);
    substitute(n, n, true, true, turned, x);
    return exchange_rows(f, n, n, x, true);
  }
  if (f.turned) return solve_by_division(f, n, n, x);
  auto turned = [&](int i, int j) { return conjugate_of(f.lu[int64_t(i) * n + j]); };
  substitute(n, n, false, false, turned, x);
  substitute(n, n, true, true, turned, x);
  exchange_rows(f, n, n, x, true);
}

template <class T>
constexpr T kNone = T(std::numeric_limits<decltype(std::abs(T{}))>::quiet_NaN());

template <class T>
T determinant(const T* lu, const int* pivots, int n) {
  T det(1);
  for (int i = 0; i < n; ++i) {
    det = by_parts(det, lu[size_t(i) * size_t(n) + size_t(i)]);
    if (pivots[size_t(i)] != i + 1) det = -det;
  }
  if constexpr (!std::is_floating_point_v<T>)
    if (det - det != T(0)) det = by_parts(det, T(1));  // times the sign, which is a complex number in PyTorch
  return det;
}

}  // namespace

namespace {
// The error codes, one per matrix, if they are a separate result.
class Codes {
 public:
  Codes(Out out, size_t at) : wanted_(out.size() > at), to_(out[wanted_ ? at : 0]) {
    if (wanted_) fill_zero(to_.tensor());
  }
  bool wanted() const { return wanted_; }
  void note(Failure& failure, int64_t k, int info) {
    if (wanted_) to_.data<int32_t>()[k] = info;
    else failure.note(k, info);
  }
  Results finish(Out out) const {
    if (!wanted_) return Results(out[0]);
    to_.finish();
    return Results{out[0], out[1]};
  }

 private:
  bool wanted_;
  Destination to_;
};
}  // namespace

Results linalg_lu_solve(const Call& c, Out out) {
  Tensor a = dense(c.tensor("A")), b = dense(c.tensor("B"));
  Destination to(out[0]);
  int n = order_of("linalg.solve", a);
  int64_t columns = b.int_sizes().back();
  Failure failure;
  Codes codes(out, 1);
  of_type(a.dtype(), [&](auto zero) {
    using T = decltype(zero);
    size_t block = size_t(n) * size_t(columns);
    auto more = [&](SmallJob<T>& job, int64_t k) {
      job.columns = int(columns);
      job.b = b.data<T>() + k * int64_t(block);
      job.x = to.data<T>() + k * int64_t(block);
    };
    each_lu<T>(a, n, block, Order::own, Small::solve, more, [&](int64_t k, const Factors<T>& f, T* rhs) {
      if (f.info > 0) codes.note(failure, k, f.info);
      if (!block || (f.info > 0 && !codes.wanted())) return;
      if (!f.all_finite && lost(f.lu, n)) {
        T* x = to.data<T>() + k * int64_t(block);
        return std::fill(x, x + block, kNone<T>);
      }
      const T* from = b.data<T>() + k * int64_t(block);
      if constexpr (kOfTranspose<T>)
        if (f.blocked) {
          T* x = to.data<T>() + k * int64_t(block);
          return solve_factored_in_rows(n, columns, f.lu, f.pivots, from, x);
        }
      transpose_into(from, n, columns, rhs);
      if (!f.ordinary) solve_by_division(f, n, int(columns), rhs);
      else if constexpr (kOfTranspose<T>) solve_lu_transposed(n, int(columns), f.lu, f.pivots, rhs);
      else solve_lu(n, int(columns), f.lu, f.pivots, rhs);
      transpose_into(rhs, columns, n, to.data<T>() + k * int64_t(block));
    });
  });
  linalg_check(!failure.any(), "linalg.solve")
      << failure.where(a) << "the solver failed because the input matrix is singular.";
  to.finish();
  return codes.finish(out);
}

Results linalg_inv(const Call& c, Out out) {
  Tensor a = dense(c.tensor("A"));
  Destination to(out[0]);
  int n = order_of("linalg.inv", a);
  Failure failure;
  Codes codes(out, 1);
  of_type(a.dtype(), [&](auto zero) {
    using T = decltype(zero);
    each_lu<T>(a, n, size_t(n) * size_t(std::max(64, n)), Order::own, Small::inverse, squares_into<T>(to),
               [&](int64_t k, const Factors<T>& f, T* work) {
                 if (f.info > 0) codes.note(failure, k, f.info);
                 if (!n || (f.info > 0 && !codes.wanted())) return;
                 T* y = to.data<T>() + k * int64_t(n) * n;
                 if (!f.all_finite && lost(f.lu, n)) return std::fill(y, y + int64_t(n) * n, kNone<T>);
                 if constexpr (kOfTranspose<T>)
                   if (f.blocked) return invert_factored_in_rows(n, f.lu, f.pivots, y);
                 if (!f.ordinary) {  // NaN and infinities propagate to the inverse
                   fill_identity(work, n);
                   solve_by_division(f, n, n, work);
                   return transpose_into(work, n, n, y);
                 }
                 invert_lu(n, f.lu, f.pivots, work);
                 if constexpr (kOfTranspose<T>) std::copy(f.lu, f.lu + int64_t(n) * n, y);
                 else transpose_into(f.lu, n, n, y);
               });
  });
  linalg_check(!failure.any(), "linalg.inv")
      << failure.where(a) << "the diagonal element " << failure.info()
      << " is zero, the inversion could not be completed because the input matrix is singular.";
  to.finish();
  return codes.finish(out);
}

// inv^H, with infinities and NaN if the matrix is singular.
Results linalg_inv_adjoint(const Call& c, Out out) {
  Tensor a = dense(c.tensor("A"));
  Destination to(out[0]);
  int n = order_of("linalg.slogdet", a);
  of_type(a.dtype(), [&](auto zero) {
    using T = decltype(zero);
    auto f = [&](int64_t k, const Factors<T>& f, T* x) {
      if (!n) return;
      if (!f.all_finite && lost(f.lu, n)) std::fill(x, x + int64_t(n) * n, kNone<T>);
      else solve_adjoint(f, n, x);
      transpose_into(x, n, n, to.data<T>() + k * int64_t(n) * n);
    };
    each_lu<T>(a, n, size_t(n) * size_t(n), Order::either, Small::inverse_adjoint, squares_into<T>(to), f);
  });
  to.finish();
  return Results(out[0]);
}

// conj(det of a [n, n] without row i and column j), signed, by separate factorizations: for small singular matrices.
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
      T det = determinant(rest.data(), pivots.data(), m);
      y[int64_t(i) * n + j] = conjugate_of((i + j) % 2 ? -det : det);
    }
}

// conj(det) inv^H. For singular matrices that are too large for their minors, a zero pivot is replaced by a tiny one: the
// product of determinant and inverse tends to the cofactors.
Results linalg_cofactor(const Call& c, Out out) {
  Tensor a = dense(c.tensor("A"));
  Destination to(out[0]);
  int n = order_of("linalg.det", a);
  of_type(a.dtype(), [&](auto zero) {
    using T = decltype(zero);
    using R = decltype(std::abs(T{}));
    each_lu<T>(a, n, size_t(n) * size_t(std::max(n, 64)), Order::either, Small::cofactor, squares_into<T>(to),
               [&](int64_t k, const Factors<T>& f, T* work) {
                 if (!n) return;
                 T* lu = f.lu;
                 constexpr int kByMinors = 16;
                 if (f.info > 0 && n <= kByMinors)
                   return minors(a.data<T>() + k * int64_t(n) * n, n, to.data<T>() + k * int64_t(n) * n);
                 R largest = 0;
                 for (int i = 0; i < n; ++i)
                   largest = std::max(largest, std::abs(lu[size_t(i) * size_t(n) + size_t(i)]));
                 R tiny = std::sqrt(std::numeric_limits<R>::epsilon()) * std::numeric_limits<R>::epsilon() *
                          (largest > 0 ? largest : R(1));
                 for (int i = 0; i < n; ++i)
                   if (auto& pivot = lu[size_t(i) * size_t(n) + size_t(i)]; std::abs(pivot) < tiny)
                     pivot = T(tiny);
                 T det = determinant(lu, f.pivots, n);
                 T* y = to.data<T>() + k * int64_t(n) * n;
                 if (det - det != T(0)) {  // infinite or NaN: the result depends on the order of operations
                   solve_adjoint(f, n, work, conjugate_of(det), true);
                   return transpose_into(work, n, n, y);
                 }
                 if constexpr (kOfTranspose<T>)
                   if (f.blocked) {
                     invert_factored_in_rows(n, lu, f.pivots, work);
                     std::copy(work, work + int64_t(n) * n, lu);
                   }
                 if (!f.blocked) invert_lu(n, lu, f.pivots, work);
                 // The buffer holds inv (of a real matrix inv^T) by columns: read by rows it is inv^T (or inv).
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
    auto more = [&](SmallJob<T>& job, int64_t k) { job.x = to.data<T>() + k; };
    each_lu<T>(a, n, 0, Order::either, Small::det, more,
               [&](int64_t k, const Factors<T>& f, T*) { to.data<T>()[k] = determinant(f.lu, f.pivots, n); });
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
    auto more = [&](SmallJob<T>& job, int64_t k) {
      job.x = to_sign.data<T>() + k;
      job.values = to_log.data<R>() + k;
    };
    each_lu<T>(a, n, 0, Order::either, Small::slogdet, more, [&](int64_t k, const Factors<T>& f, T*) {
      T sign(1);
      R log_size = 0;
      for (int i = 0; i < n; ++i) {
        T pivot = f.lu[size_t(i) * size_t(n) + size_t(i)];
        R size = pivot != pivot ? std::numeric_limits<R>::quiet_NaN() : std::abs(pivot);
        log_size += std::log(size);
        if constexpr (std::is_floating_point_v<T>) sign *= T((pivot > 0) - (pivot < 0));
        else sign *= size == 0 ? T(0) : pivot / size;
        // multiplication keeps an imaginary part of 0 positive
        if (f.pivots[i] != i + 1) sign = sign * T(-1);
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
  Codes codes(out, 1);
  of_type(a.dtype(), [&](auto zero) {
    using T = decltype(zero);
    int64_t square = int64_t(n) * n;
    auto job = [&](int64_t k) {
      return SmallJob<T>{.n = n, .a = a.data<T>() + k * square, .x = to.data<T>() + k * square};
    };
    each<T>(matrices(a), n, size_t(square), Small::cholesky, job, [&](int64_t k, T* l) {
      transpose_into(a.data<T>() + k * square, n, n, l);
      int info = 0;
      if (n) Lapack<T>::potrf("L", &n, l, &n, &info, 1);
      for (int i = 0; i < n && info == 0; ++i)
        if (l[int64_t(i) * n + i] != l[int64_t(i) * n + i]) info = i + 1;  // LAPACK accepts NaN
      if (info > 0) codes.note(failure, k, info);
      if (info > 0 && !codes.wanted()) return;
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
  return codes.finish(out);
}

Results linalg_triangular(const Call& c, Out out) {
  Tensor a = dense(c.tensor("A")), b = dense(c.tensor("B"));
  Destination to(out[0]);
  int n = order_of("linalg.solve_triangular", a);
  int64_t columns = b.int_sizes().back();
  // A row-major A is A^T by columns, so the other triangle is used; results are transposed back.
  const char *uplo = c.flag("upper") ? "L" : "U", *diag = c.flag("unit") ? "U" : "N";
  of_type(a.dtype(), [&](auto zero) {
    using T = decltype(zero);
    size_t block = size_t(n) * size_t(columns);
    if (!block) return;
    auto job = [&](int64_t k) {
      return SmallJob<T>{.n = n,
                         .columns = int(columns),
                         .a = a.data<T>() + k * int64_t(n) * n,
                         .b = b.data<T>() + k * int64_t(block),
                         .x = to.data<T>() + k * int64_t(block),
                         .upper = c.flag("upper"),
                         .unit = c.flag("unit")};
    };
    each<T>(matrices(a), n, block, Small::triangular, job, [&](int64_t k, T* rhs) {
      if constexpr (kOfTranspose<T>) {
        const T *rows = a.data<T>() + k * int64_t(n) * n, *from = b.data<T>() + k * int64_t(block);
        T* x = to.data<T>() + k * int64_t(block);
        bool singular = false;
        for (int64_t i = 0; i < n; ++i) singular |= rows[i * n + i] == 0;
        if (n >= kFewestBlocked && columns >= kFewestBlocked / 2 && (c.flag("unit") || !singular)) {
          return solve_in_rows<T>({c.flag("upper"), c.flag("unit")}, n, columns, {rows, n}, {from, columns},
                                  {x, columns});
        }
      }
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

}  // namespace facula::device::cpu
