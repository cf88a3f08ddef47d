#include "facula/numerics/batched_products.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "facula/numerics/clones.h"

namespace facula::numerics {

namespace {

// An element has kParts numbers: 2 for complex ones, the real and the imaginary part.

// Unaligned rows of kWidth numbers.
template <class T, int kWidth>
struct OfRow {
  typedef T Row __attribute__((vector_size(kWidth * sizeof(T)), aligned(alignof(T)), may_alias));
};
// Number of elements of a row in one register.
template <class T, int kWidth>
constexpr int kPiece = std::min(kWidth, 32 / int(sizeof(T)));

// x + i y.
template <class V, int... kLane>
[[gnu::always_inline]] inline V plus_turned(V x, V y, std::integer_sequence<int, kLane...>) {
  V turned = __builtin_shufflevector(y, y, (kLane ^ 1)...), added = x + turned, less = x - turned;
  constexpr int kWidth = sizeof...(kLane);
  return __builtin_shufflevector(less, added, (kLane % 2 ? kWidth + kLane : kLane)...);
}
// Selects four units of kParts numbers each from x and y.
template <int kParts, int k0, int k1, int k2, int k3, class V, int... kLane>
[[gnu::always_inline]] inline V units(V x, V y, std::integer_sequence<int, kLane...>) {
  constexpr int kUnits[] = {k0, k1, k2, k3};
  return __builtin_shufflevector(x, y, (kUnits[kLane / kParts] * kParts + kLane % kParts)...);
}
template <int kParts, int k0, int k1, int k2, int k3, class V>
[[gnu::always_inline]] inline V units(V x, V y) {
  return units<kParts, k0, k1, k2, k3>(x, y, std::make_integer_sequence<int, 4 * kParts>());
}

template <class T, int kParts>
struct Left {
  const T* first;
  int64_t rs, cs;
  [[gnu::always_inline]] T at(int64_t i, int64_t j, int part) const {
    return first[(i * rs + j * cs) * kParts + part];
  }
};

// Computes rows of `out` [m, columns], from the i-th on, from rows of b that are ldb numbers apart and kWidth long. If
// there are fewer columns, the first elements of the next row are overwritten before they get their values. Complex
// numbers are multiplied by parts: sums with the real parts of a, and sums with the imaginary ones, times i.
template <int kRows, int kWidth, int kParts, class T>
[[gnu::always_inline]] inline void rows_of(int64_t i, int64_t m, int64_t columns, int64_t from, int64_t k,
                                           T alpha, Left<T, kParts> a, const T* b, int64_t ldb, T beta,
                                           T* out) {
  using Row = typename OfRow<T, kWidth>::Row;
  Row sum[kRows] = {}, turned[kRows] = {};
#pragma GCC unroll 4
  for (int64_t q = 0; q < k; ++q) {
    Row x = *reinterpret_cast<const Row*>(b + q * ldb + from);
#pragma GCC unroll 4  // sums stay in registers
    for (int r = 0; r < kRows; ++r) {
      sum[r] += a.at(i + r, q, 0) * x;
      if constexpr (kParts == 2) turned[r] += a.at(i + r, q, 1) * x;
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    if constexpr (kParts == 2)
      sum[r] = plus_turned(sum[r], turned[r], std::make_integer_sequence<int, kWidth>());
    int64_t at = (i + r) * columns + from;
    bool fits = from + kWidth <= columns || (from == 0 && columns < kWidth && at + kWidth <= m * columns);
    if (alpha == 1 && beta == 0 && fits) {
      *reinterpret_cast<Row*>(out + at) = sum[r];
      continue;
    }
    T part[kWidth];
    std::memcpy(part, &sum[r], sizeof part);
    for (int64_t l = 0; l < std::min<int64_t>(kWidth, columns - from); ++l) {
      T& to = out[at + l];
      to = beta == 0 ? alpha * part[l] : alpha * part[l] + beta * to;
    }
  }
}
template <int kWidth, int kParts, class T>
[[gnu::always_inline]] inline void all_rows(int64_t m, int64_t n, int64_t k, T alpha, Left<T, kParts> a,
                                            const T* b, int64_t ldb, T beta, T* out) {
  constexpr int kAtOnce = 4, kPart = kPiece<T, kWidth>;
  auto some = [&](auto rows, int64_t i) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int64_t from = 0; from < n * kParts; from += kPart)
      rows_of<rows(), kPart>(i, m, n * kParts, from, k, alpha, a, b, ldb, beta, out);
  };
  int64_t i = 0;
  for (; i + kAtOnce <= m; i += kAtOnce) some(std::integral_constant<int, kAtOnce>(), i);
  for (; i < m; ++i) some(std::integral_constant<int, 1>(), i);
}

// Writes to [4, 4] = from^T; elements are moved as numbers of type T.
template <class T>
[[gnu::always_inline]] inline void turn_four(const T* from, int64_t step, T* to) {
  using Four = typename OfRow<T, 4>::Row;
  Four rows[4], turned[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) rows[i] = *reinterpret_cast<const Four*>(from + i * step);
  if constexpr (sizeof(T) == 8) {  // first within each half of a register
    Four even = units<1, 0, 4, 2, 6>(rows[0], rows[1]), even2 = units<1, 0, 4, 2, 6>(rows[2], rows[3]),
         odd = units<1, 1, 5, 3, 7>(rows[0], rows[1]), odd2 = units<1, 1, 5, 3, 7>(rows[2], rows[3]);
    turned[0] = units<1, 0, 1, 4, 5>(even, even2), turned[1] = units<1, 0, 1, 4, 5>(odd, odd2);
    turned[2] = units<1, 2, 3, 6, 7>(even, even2), turned[3] = units<1, 2, 3, 6, 7>(odd, odd2);
  } else {
    Four low = units<1, 0, 4, 1, 5>(rows[0], rows[1]), low2 = units<1, 0, 4, 1, 5>(rows[2], rows[3]),
         high = units<1, 2, 6, 3, 7>(rows[0], rows[1]), high2 = units<1, 2, 6, 3, 7>(rows[2], rows[3]);
    turned[0] = units<1, 0, 1, 4, 5>(low, low2), turned[1] = units<1, 2, 3, 6, 7>(low, low2);
    turned[2] = units<1, 0, 1, 4, 5>(high, high2), turned[3] = units<1, 2, 3, 6, 7>(high, high2);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) *reinterpret_cast<Four*>(to + i * 4) = turned[i];
}

// A copy of the right operand in rows of kWidth numbers.
template <class T, int kParts, int kWidth>
struct InRows {
  T b[kFew * kWidth];

  [[gnu::always_inline]] void take(int64_t rows, int64_t columns, const T* from, int64_t rs, int64_t cs) {
    using Element = std::conditional_t<kParts == 1, T, double>;  // complex64 is moved as a double
    if constexpr (sizeof(Element) == kParts * sizeof(T) && kWidth == 4 * kParts)
      if (rows == 4 && columns == 4 && rs == 1)
        return turn_four(reinterpret_cast<const Element*>(from), cs, reinterpret_cast<Element*>(b));
    using Part = typename OfRow<T, kPiece<T, kWidth>>::Row;
    for (int64_t i = 0; i < rows; ++i, from += rs * kParts) {
      T* row = b + i * kWidth;
      if (cs == 1 &&
          // also reads the elements behind the row, which belong to the matrix
          (rows - 1 - i) * rs + columns >= kWidth / kParts) {
        for (int l = 0; l < kWidth; l += kPiece<T, kWidth>)
          *reinterpret_cast<Part*>(row + l) = *reinterpret_cast<const Part*>(from + l);
        continue;
      }
      for (int64_t j = 0; j < columns; ++j)
        for (int part = 0; part < kParts; ++part) row[j * kParts + part] = from[j * cs * kParts + part];
      std::fill(row + columns * kParts, row + kWidth, T(0));
    }
  }
};

template <class T, int kParts, int kWidth>
[[gnu::always_inline]] inline void of_sizes(int64_t m, int64_t n, int64_t k, const BatchedProducts& p,
                                            const T* a, const T* b, T* out, int64_t count) {
  InRows<T, kParts, kWidth> own;
  bool in_place = p.b_cs == 1 && n * kParts == kWidth;
  int64_t ldb = in_place ? p.b_rs * kParts : kWidth;
  if (!in_place && p.b_step == 0) own.take(k, n, b, p.b_rs, p.b_cs);
  for (; count-- > 0; a += p.a_step * kParts, b += p.b_step * kParts, out += p.out_step * kParts) {
    if (!in_place && p.b_step != 0) own.take(k, n, b, p.b_rs, p.b_cs);
    all_rows<kWidth>(m, n, k, T(p.alpha), Left<T, kParts>{a, p.a_rs, p.a_cs}, in_place ? b : own.b, ldb,
                     T(p.beta), out);
  }
}
template <class T, int kParts, int kWidth>
[[gnu::always_inline]] inline void of_width(const BatchedProducts& p, const T* a, const T* b, T* out,
                                            int64_t count) {
  if (kWidth == 4 * kParts && p.m == 4 && p.n == 4 && p.k == 4 && p.alpha == 1 && p.beta == 0) {
    BatchedProducts plain = p;  // constants let the compiler unroll the loops
    plain.alpha = 1, plain.beta = 0;
    return of_sizes<T, kParts, kWidth>(4, 4, 4, plain, a, b, out, count);
  }
  of_sizes<T, kParts, kWidth>(p.m, p.n, p.k, p, a, b, out, count);
}
template <class T, int kParts>
[[gnu::always_inline]] inline void of_type(const BatchedProducts& p, const char* a_bytes, const char* b_bytes,
                                           char* out_bytes, int64_t count) {
  auto *a = reinterpret_cast<const T*>(a_bytes), *b = reinterpret_cast<const T*>(b_bytes);
  auto* out = reinterpret_cast<T*>(out_bytes);
  int64_t columns = p.n * kParts;
  if (columns <= 4) of_width<T, kParts, 4>(p, a, b, out, count);
  else if (columns <= 8) of_width<T, kParts, 8>(p, a, b, out, count);
  else of_width<T, kParts, 16>(p, a, b, out, count);
}

// Rows of 4 by a vector of 4 each: four rows of products are summed horizontally.
template <class T, int kParts>
[[gnu::always_inline]] inline void fours_by_vectors(const BatchedProducts& p, const char* a_bytes,
                                                    const char* b_bytes, char* out_bytes, int64_t count) {
  using Four = typename OfRow<T, 4 * kParts>::Row;
  auto *a = reinterpret_cast<const T*>(a_bytes), *b = reinterpret_cast<const T*>(b_bytes);
  auto* out = reinterpret_cast<T*>(out_bytes);
  for (; count-- > 0; a += p.a_step * kParts, b += p.b_step * kParts, out += p.out_step * kParts) {
    Four re, im = {}, rows[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const T* x = b + j * p.b_rs * kParts;
      for (int part = 0; part < kParts; ++part) re[j * kParts + part] = x[0];
      if constexpr (kParts == 2) im[2 * j] = -x[1], im[2 * j + 1] = x[1];
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      Four row = *reinterpret_cast<const Four*>(a + i * p.a_rs * kParts);
      rows[i] = row * re;
      if constexpr (kParts == 2) rows[i] += __builtin_shufflevector(row, row, 1, 0, 3, 2, 5, 4, 7, 6) * im;
    }
    auto pairs = [](Four x, Four y) __attribute__((always_inline)) {
      if constexpr (sizeof(Four) == 16)
        return units<kParts, 0, 2, 4, 6>(x, y) + units<kParts, 1, 3, 5, 7>(x, y);
      else return units<kParts, 0, 4, 2, 6>(x, y) + units<kParts, 1, 5, 3, 7>(x, y);
    };
    Four first = pairs(rows[0], rows[1]), last = pairs(rows[2], rows[3]);
    Four& to = *reinterpret_cast<Four*>(out);
    if constexpr (sizeof(Four) == 16) to = pairs(first, last);
    else to = units<kParts, 0, 1, 4, 5>(first, last) + units<kParts, 2, 3, 6, 7>(first, last);
  }
}

FACULA_CLONES("arch=x86-64-v3", "default")
void fours_of_any_type(DType d, const BatchedProducts& p, const char* a, const char* b, char* out,
                       int64_t count) {
  switch (d) {
    case DType::Float32: return fours_by_vectors<float, 1>(p, a, b, out, count);
    case DType::Float64: return fours_by_vectors<double, 1>(p, a, b, out, count);
    default: return fours_by_vectors<float, 2>(p, a, b, out, count);
  }
}

FACULA_CLONES("arch=x86-64-v3", "default")
void of_any_type(DType d, const BatchedProducts& p, const char* a, const char* b, char* out, int64_t count) {
  switch (d) {
    case DType::Float32: return of_type<float, 1>(p, a, b, out, count);
    case DType::Float64: return of_type<double, 1>(p, a, b, out, count);
    case DType::Complex64: return of_type<float, 2>(p, a, b, out, count);
    default: return of_type<double, 2>(p, a, b, out, count);
  }
}

}  // namespace

void batched_products(DType d, const BatchedProducts& p, const char* a, const char* b, char* out,
                      int64_t count) {
  bool plain = p.alpha == 1 && p.beta == 0 && d != DType::Complex128;
  if (plain && p.m == 4 && p.k == 4 && p.n == 1 && p.a_cs == 1)
    return fours_of_any_type(d, p, a, b, out, count);
  if (p.n > 1 || p.m == 1) return of_any_type(d, p, a, b, out, count);
  // For products with a vector: the transposed product has one row.
  BatchedProducts turned{p.n,    p.m,     p.k,    p.b_cs,   p.b_rs,   p.a_cs,
                         p.a_rs, p.alpha, p.beta, p.b_step, p.a_step, p.out_step};
  of_any_type(d, turned, b, a, out, count);
}

}  // namespace facula::numerics
