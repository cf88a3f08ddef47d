#include "facula/backend/cpu/few.h"

#include <cstring>
#include <utility>

#include "facula/backend/cpu/clones.h"

namespace facula::backend::cpu {

namespace {

// Rows of `out` [n columns] from rows of a and rows of b that are kWidth long.
template <int kRows, int kWidth, class T>
[[gnu::always_inline]] inline void rows_of(int64_t n, int64_t k, T alpha, const T* a, int64_t lda, const T* b,
                                           int64_t ldb, T beta, T* out) {
  typedef T Row __attribute__((vector_size(kWidth * sizeof(T)), aligned(alignof(T)), may_alias));
  Row sum[kRows] = {};
  for (int64_t q = 0; q < k; ++q) {
    Row x = *reinterpret_cast<const Row*>(b + q * ldb);
#pragma GCC unroll 4  // sums stay in registers
    for (int r = 0; r < kRows; ++r) sum[r] += a[r * lda + q] * x;
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    T* to = out + r * n;
    if (n == kWidth && alpha == 1 && beta == 0) {
      *reinterpret_cast<Row*>(to) = sum[r];
      continue;
    }
    T part[kWidth];
    std::memcpy(part, &sum[r], sizeof part);
    for (int64_t l = 0; l < n; ++l) to[l] = beta == 0 ? alpha * part[l] : alpha * part[l] + beta * to[l];
  }
}
template <int kWidth, class T>
[[gnu::always_inline]] inline void all_rows(int64_t m, int64_t n, int64_t k, T alpha, const T* a, int64_t lda,
                                            const T* b, int64_t ldb, T beta, T* out) {
  if (m == 4 && n == 4 && k == 4) return rows_of<4, kWidth>(4, 4, alpha, a, lda, b, ldb, beta, out);
  int64_t i = 0;
  for (; i + 4 <= m; i += 4) rows_of<4, kWidth>(n, k, alpha, a + i * lda, lda, b, ldb, beta, out + i * n);
  for (; i < m; ++i) rows_of<1, kWidth>(n, k, alpha, a + i * lda, lda, b, ldb, beta, out + i * n);
}

// to [4, 4] = from^T.
template <class T>
[[gnu::always_inline]] inline void turn_four(const T* from, int64_t step, T* to, int64_t to_step) {
  typedef T Four __attribute__((vector_size(4 * sizeof(T)), aligned(alignof(T)), may_alias));
  Four rows[4], turned[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) rows[i] = *reinterpret_cast<const Four*>(from + i * step);
  Four low = __builtin_shufflevector(rows[0], rows[1], 0, 4, 1, 5),
       low2 = __builtin_shufflevector(rows[2], rows[3], 0, 4, 1, 5),
       high = __builtin_shufflevector(rows[0], rows[1], 2, 6, 3, 7),
       high2 = __builtin_shufflevector(rows[2], rows[3], 2, 6, 3, 7);
  turned[0] = __builtin_shufflevector(low, low2, 0, 1, 4, 5);
  turned[1] = __builtin_shufflevector(low, low2, 2, 3, 6, 7);
  turned[2] = __builtin_shufflevector(high, high2, 0, 1, 4, 5);
  turned[3] = __builtin_shufflevector(high, high2, 2, 3, 6, 7);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) *reinterpret_cast<Four*>(to + i * to_step) = turned[i];
}

// The operands of one product as real matrices in rows: of complex numbers a has both parts of each element, and each row of b
// is followed by itself times i.
template <class T, int kParts>
struct InRows {
  static constexpr int64_t kWidest = kParts * kFew;
  T a[kFew * kWidest], b[kWidest * kWidest];

  [[gnu::always_inline]] void take_a(int64_t rows, int64_t columns, const T* from, int64_t rs, int64_t cs) {
    if (kParts == 1 && rows == 4 && columns == 4 && rs == 1) return turn_four(from, cs, a, 4);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        for (int part = 0; part < kParts; ++part)
          a[(i * columns + j) * kParts + part] = from[(i * rs + j * cs) * kParts + part];
  }
  [[gnu::always_inline]] void take_b(int64_t rows, int64_t columns, int64_t width, const T* from, int64_t rs,
                                     int64_t cs) {
    if (kParts == 1 && rows == 4 && columns == 4 && width == 4 && rs == 1) return turn_four(from, cs, b, 4);
    for (int64_t i = 0; i < rows; ++i) {
      T *row = b + i * kParts * width, *turned = row + (kParts - 1) * width;
      for (int64_t j = 0; j < columns; ++j) {
        const T* x = from + (i * rs + j * cs) * kParts;
        row[j * kParts] = x[0];
        if constexpr (kParts == 2) row[2 * j + 1] = x[1], turned[2 * j] = -x[1], turned[2 * j + 1] = x[0];
      }
      for (int64_t l = columns * kParts; l < width; ++l) row[l] = turned[l] = 0;
    }
  }
};

template <class T, int kParts, int kWidth>
[[gnu::always_inline]] inline void of_width(const FewProducts& p, const T* a, const T* b, T* out,
                                            int64_t count) {
  InRows<T, kParts> own;
  bool a_lies = p.a_cs == 1, b_lies = kParts == 1 && p.b_cs == 1 && p.n == kWidth;
  int64_t lda = (a_lies ? p.a_rs : p.k) * kParts, ldb = b_lies ? p.b_rs : kWidth;
  if (!b_lies && p.b_step == 0) own.take_b(p.k, p.n, kWidth, b, p.b_rs, p.b_cs);
  for (; count-- > 0; a += p.a_step * kParts, b += p.b_step * kParts, out += p.out_step * kParts) {
    if (!a_lies) own.take_a(p.m, p.k, a, p.a_rs, p.a_cs);
    if (!b_lies && p.b_step != 0) own.take_b(p.k, p.n, kWidth, b, p.b_rs, p.b_cs);
    all_rows<kWidth>(p.m, p.n * kParts, p.k * kParts, T(p.alpha), a_lies ? a : own.a, lda, b_lies ? b : own.b,
                     ldb, T(p.beta), out);
  }
}
template <class T, int kParts>
[[gnu::always_inline]] inline void of_type(const FewProducts& p, const char* a_bytes, const char* b_bytes,
                                           char* out_bytes, int64_t count) {
  auto *a = reinterpret_cast<const T*>(a_bytes), *b = reinterpret_cast<const T*>(b_bytes);
  auto* out = reinterpret_cast<T*>(out_bytes);
  int64_t columns = p.n * kParts;
  if (columns <= 4) of_width<T, kParts, 4>(p, a, b, out, count);
  else if (columns <= 8) of_width<T, kParts, 8>(p, a, b, out, count);
  else of_width<T, kParts, 16>(p, a, b, out, count);
}

// Rows of 4 by a vector of 4 each: the four rows' products are added across.
template <class T>
[[gnu::always_inline]] inline void fours_by_vectors(const FewProducts& p, const char* a_bytes,
                                                    const char* b_bytes, char* out_bytes, int64_t count) {
  typedef T Four __attribute__((vector_size(4 * sizeof(T)), aligned(alignof(T)), may_alias));
  auto *a = reinterpret_cast<const T*>(a_bytes), *b = reinterpret_cast<const T*>(b_bytes);
  auto* out = reinterpret_cast<T*>(out_bytes);
  for (; count-- > 0; a += p.a_step, b += p.b_step, out += p.out_step) {
    Four x = {b[0], b[p.b_rs], b[2 * p.b_rs], b[3 * p.b_rs]}, rows[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) rows[i] = *reinterpret_cast<const Four*>(a + i * p.a_rs) * x;
    auto pairs = [](Four x, Four y) __attribute__((always_inline)) {
      return __builtin_shufflevector(x, y, 0, 2, 4, 6) + __builtin_shufflevector(x, y, 1, 3, 5, 7);
    };
    *reinterpret_cast<Four*>(out) = pairs(pairs(rows[0], rows[1]), pairs(rows[2], rows[3]));
  }
}

FACULA_CLONES("fma", "default")
void fours_of_any_type(DType d, const FewProducts& p, const char* a, const char* b, char* out,
                       int64_t count) {
  if (d == DType::Float32) fours_by_vectors<float>(p, a, b, out, count);
  else fours_by_vectors<double>(p, a, b, out, count);
}

FACULA_CLONES("fma", "default")
void of_any_type(DType d, const FewProducts& p, const char* a, const char* b, char* out, int64_t count) {
  switch (d) {
    case DType::Float32: return of_type<float, 1>(p, a, b, out, count);
    case DType::Float64: return of_type<double, 1>(p, a, b, out, count);
    case DType::Complex64: return of_type<float, 2>(p, a, b, out, count);
    default: return of_type<double, 2>(p, a, b, out, count);
  }
}

}  // namespace

void few_products(DType d, const FewProducts& p, const char* a, const char* b, char* out, int64_t count) {
  bool plain = p.alpha == 1 && p.beta == 0 && (d == DType::Float32 || d == DType::Float64);
  if (plain && p.m == 4 && p.k == 4 && p.n == 1 && p.a_cs == 1)
    return fours_of_any_type(d, p, a, b, out, count);
  if (p.n > 1 || p.m == 1) return of_any_type(d, p, a, b, out, count);
  // A vector each: transposed, one row.
  FewProducts turned{p.n,    p.m,     p.k,    p.b_cs,   p.b_rs,   p.a_cs,
                     p.a_rs, p.alpha, p.beta, p.b_step, p.a_step, p.out_step};
  of_any_type(d, turned, b, a, out, count);
}

}  // namespace facula::backend::cpu
