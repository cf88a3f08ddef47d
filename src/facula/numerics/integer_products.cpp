#include "facula/numerics/integer_products.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "facula/base/parallel.h"
#include "facula/numerics/clones.h"

namespace facula::numerics {

namespace {

constexpr int kRowBytes = 64;           // bytes of a strip's row: one vector of AVX-512, two of AVX2
constexpr int64_t kRows = 4;            // rows whose sums stay in registers
constexpr int64_t kTaskRows = 256;      // rows of a task, which share a packed strip of b
constexpr int64_t kWorthATask = 32768;  // multiplications

// Copies columns [from, from + lanes) of b as rows of the wider type W, padded with zeros.
template <class U, class W>
[[gnu::always_inline]] inline void pack(const IntegerProduct& p, const U* b, int64_t from, W* to) {
  constexpr int64_t lanes = kRowBytes / sizeof(W);
  int64_t count = std::min(lanes, p.n - from);
  b += from * p.b_cs;
  for (int64_t q = 0; q < p.k; ++q, to += lanes) {
    const U* row = b + q * p.b_rs;
    if (count == lanes && p.b_cs == 1) {
      for (int64_t l = 0; l < lanes; ++l) to[l] = row[l];
      continue;
    }
    for (int64_t l = 0; l < lanes; ++l) to[l] = l < count ? W(row[l * p.b_cs]) : W(0);
  }
}

// Computes rows [i, i + rows) of out in one strip of columns.
template <int rows, class U, class W>
[[gnu::always_inline]] inline void rows_of(const IntegerProduct& p, const U* a, const W* strip, int64_t from,
                                           int64_t i, U* out) {
  typedef W Row __attribute__((vector_size(kRowBytes), aligned(alignof(W)), may_alias));
  constexpr int64_t lanes = kRowBytes / sizeof(W);
  Row sum[rows] = {};
  const U* at = a + i * p.a_rs;
  for (int64_t q = 0; q < p.k; ++q, at += p.a_cs) {
    Row x = *reinterpret_cast<const Row*>(strip + q * lanes);
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) sum[r] += W(at[r * p.a_rs]) * x;
  }
  int64_t count = std::min(lanes, p.n - from);
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) {
    W part[lanes];
    std::memcpy(part, &sum[r], sizeof part);
    U* to = out + (i + r) * p.n + from;
    // Without a factor the old contents may be anything.
    for (int64_t l = 0; l < count; ++l) to[l] = U(W(p.alpha) * part[l] + (p.beta ? W(p.beta) * to[l] : W(0)));
  }
}

// Computes a piece of one strip: rows [first, last). The arithmetic type W has at least as many bits as U.
template <class U, class W>
[[gnu::always_inline]] inline void piece(const IntegerProduct& p, const char* a_bytes, const char* b_bytes,
                                         char* out_bytes, int64_t from, int64_t first, int64_t last,
                                         char* room) {
  auto *a = reinterpret_cast<const U*>(a_bytes), *b = reinterpret_cast<const U*>(b_bytes);
  auto* out = reinterpret_cast<U*>(out_bytes);
  auto* strip = reinterpret_cast<W*>(room);
  pack(p, b, from, strip);
  int64_t i = first;
  for (; i + kRows <= last; i += kRows) rows_of<kRows>(p, a, strip, from, i, out);
  for (; i < last; ++i) rows_of<1>(p, a, strip, from, i, out);
}

// Single bytes are computed in a wider type, because there are no vector products of bytes.
FACULA_CLONES("avx512f", "avx2", "default")
void piece_of(int bytes, const IntegerProduct& p, const char* a, const char* b, char* out, int64_t from,
              int64_t first, int64_t last, char* room) {
  switch (bytes) {
    case 1: return piece<uint8_t, uint16_t>(p, a, b, out, from, first, last, room);
    case 2: return piece<uint16_t, uint16_t>(p, a, b, out, from, first, last, room);
    case 4: return piece<uint32_t, uint32_t>(p, a, b, out, from, first, last, room);
    default: return piece<uint64_t, uint64_t>(p, a, b, out, from, first, last, room);
  }
}

}  // namespace

void integer_product(int bytes, const IntegerProduct& p, const char* a, const char* b, char* out) {
  int64_t lanes = kRowBytes / std::max(bytes, 2), strips = (p.n + lanes - 1) / lanes;
  int64_t pieces = (p.m + kTaskRows - 1) / kTaskRows;
  int64_t work = std::max<int64_t>(1, std::min(p.m, kTaskRows) * lanes * p.k);
  parallel_for(strips * pieces, std::max<int64_t>(1, kWorthATask / work), [&](int64_t begin, int64_t end) {
    std::unique_ptr<char[]> room(new char[size_t(p.k) * kRowBytes]);
    for (int64_t t = begin; t < end; ++t) {
      int64_t first = t % pieces * kTaskRows;
      piece_of(bytes, p, a, b, out, t / pieces * lanes, first, std::min(first + kTaskRows, p.m), room.get());
    }
  });
}

}  // namespace facula::numerics
