// Operators that move memory or draw from the generator.
#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "facula/base/parallel.h"
#include "facula/base/random.h"
#include "facula/codegen/kernel.h"
#include "facula/device/cpu/cpu.h"
#include "facula/op/registry.h"

namespace facula::device::cpu {

namespace {

// Dimensions of a dense tensor from the outermost in memory to the innermost; for other tensors in their given order.
Ints order_in_memory(const Tensor& t) {
  Ints order;
  for (int d = 0; d < t.dim(); ++d) order.push_back(d);
  if (t.is_contiguous() || !t.is_non_overlapping_and_dense()) return order;
  auto strides = t.int_strides();
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return strides[size_t(a)] > strides[size_t(b)]; });
  return order;
}

Tensor permuted(const Tensor& t, const Ints& order) {
  if (std::is_sorted(order.begin(), order.end())) return t;
  Dims sizes, strides;
  for (auto d : order) {
    sizes.push_back(t.size(int(d)));
    strides.push_back(t.stride(int(d)));
  }
  return t.alias(sizes, strides, t.offset());
}

// Copies `rows` adjacent rows of `bytes` to places `apart`. A short row is moved as full pieces and one more piece that
// ends at its end, without a call.
using MoveRows = void (*)(char* to, int64_t apart, const char* from, int64_t bytes, int64_t rows);
template <int64_t kPiece, int kWhole>
[[gnu::target("avx2")]] void move_short(char* to, int64_t apart, const char* from, int64_t bytes,
                                        int64_t rows) {
  typedef int64_t Piece __attribute__((vector_size(kPiece), aligned(1), may_alias));
  auto move = [](char* to, const char* from) __attribute__((always_inline, target("avx2"))) {
    *reinterpret_cast<Piece*>(to) = *reinterpret_cast<const Piece*>(from);
  };
  int64_t rest = bytes - kPiece;
  bool exact = bytes == kWhole * kPiece;
  for (int64_t k = 0; k < rows; ++k, to += apart, from += bytes) {
    for (int64_t i = 0; i < kWhole; ++i) move(to + i * kPiece, from + i * kPiece);
    if (!exact) move(to + rest, from + rest);
  }
}
void move_long(char* to, int64_t apart, const char* from, int64_t bytes, int64_t rows) {
  for (int64_t k = 0; k < rows; ++k, to += apart, from += bytes) std::memcpy(to, from, size_t(bytes));
}
MoveRows move_rows(int64_t bytes) {
  return bytes > 128    ? move_long
         : bytes == 128 ? move_short<32, 4>
         : bytes >= 96  ? move_short<32, 3>
         : bytes >= 64  ? move_short<32, 2>
         : bytes >= 32  ? move_short<32, 1>
                        : move_short<16, 1>;
}

}  // namespace

// Handles dimensions in the memory order of the result. Pieces with that order are copied as rows of bytes, other ones by
// the operator `copy`.
Results cat(const Call& c, Out out) {
  Ints order = order_in_memory(out[0]);
  Tensor ordered = permuted(out[0], order);
  Destination to(ordered);
  const Tensor& result = to.tensor();
  int rank = result.dim();
  if (result.numel() == SymInt(int64_t(0))) return Results(out[0]);
  int named = wrap_dim("cat", c.integer("dim").concrete(), rank);
  int d = int(std::find(order.begin(), order.end(), named) - order.begin());
  auto sizes = result.int_sizes();
  int64_t item = result.itemsize(), outer = 1, inner = 1;
  for (int k = 0; k < d; ++k) outer *= sizes[size_t(k)];
  for (int k = d + 1; k < rank; ++k) inner *= sizes[size_t(k)];
  int64_t row = sizes[size_t(d)] * inner * item, at = 0;
  struct Piece {
    const char* from;
    int64_t bytes, at;
  };
  std::vector<Piece> plain;
  for (auto& input : c.tensors("tensors")) {
    if (input.numel() == SymInt(int64_t(0))) continue;
    Tensor t = permuted(input, order);
    int64_t n = t.int_sizes()[size_t(d)], bytes = n * inner * item;
    // Strided copies are faster for shorter rows.
    if (t.dtype() == result.dtype() && t.is_contiguous() && (outer == 1 || bytes >= 16)) {
      plain.push_back({t.data<char>(), bytes, at * inner * item});
    } else {
      Dims part(result.sizes());
      part[size_t(d)] = n;
      copy(result.alias(part, result.strides(), result.offset() + result.stride(d) * SymInt(at)), t);
    }
    at += n;
  }
  auto* dst = result.data<char>();
  if (outer == 1) {
    for (auto& p : plain)
      parallel_for(p.bytes, 1 << 17, [&](int64_t begin, int64_t end) {
        std::memcpy(dst + p.at + begin, p.from + begin, size_t(end - begin));
      });
  } else {
    parallel_for(outer, std::max<int64_t>(1, (1 << 17) / row), [&](int64_t begin, int64_t end) {
      // rows whose destinations stay in the first-level cache
      const int64_t together = std::max<int64_t>(1, 4096 / row);
      for (int64_t k = begin; k < end; k += together)
        for (auto& p : plain)
          move_rows(p.bytes)(dst + k * row + p.at, row, p.from + k * p.bytes, p.bytes,
                             std::min(together, end - k));
    });
  }
  to.finish();
  return Results(out[0]);
}

namespace {

template <class T>
bool is_set(const T& x) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) return (x.bits & 0x7fff) != 0;
  else return x != T(0);
}

// Two passes over pieces: count, then write at the sum of the previous counts.
template <class T>
Tensor positions(const Tensor& dense) {
  auto sizes = dense.int_sizes();
  int64_t n = dense.numel().concrete();
  auto rank = int64_t(sizes.size());
  const T* x = dense.data<T>();
  constexpr int64_t kPiece = 1 << 15;
  int64_t pieces = (n + kPiece - 1) / kPiece;
  std::vector<int64_t> start(size_t(pieces) + 1, 0);
  parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      int64_t count = 0;
      for (int64_t i = p * kPiece; i < std::min(n, (p + 1) * kPiece); ++i) count += is_set(x[i]);
      start[size_t(p) + 1] = count;
    }
  });
  std::partial_sum(start.begin(), start.end(), start.begin());
  Tensor out = Tensor::empty(IntSpan(Ints{start.back(), rank}), DType::Int64);
  auto* to = out.data<int64_t>();
  if (rank == 0) return out;
  parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      int64_t* row = to + start[size_t(p)] * rank;
      int64_t first = p * kPiece, last = std::min(n, first + kPiece);
      if (rank == 1) {
        for (int64_t i = first; i < last; ++i) {  // always written, kept only if set: no branch to mispredict
          if (row - to == start[size_t(p) + 1]) break;  // the next piece begins here
          *row = i;
          row += is_set(x[i]);
        }
        continue;
      }
      int64_t width = sizes[size_t(rank) - 1];
      for (int64_t i = first; i < last;) {
        int64_t line = i / width, from = i % width, to_column = std::min(width, from + last - i), rest = line;
        int64_t lead[64];
        for (int64_t k = rank - 2; k >= 0; --k) {
          lead[k] = rest % sizes[size_t(k)];
          rest /= sizes[size_t(k)];
        }
        const T* here = x + line * width;
        for (int64_t column = from; column < to_column; ++column) {
          if (!is_set(here[column])) continue;
          for (int64_t k = 0; k < rank - 1; ++k) row[k] = lead[k];
          row[rank - 1] = column;
          row += rank;
        }
        i += to_column - from;
      }
    }
  });
  return out;
}

}  // namespace

Results nonzero(const Call& c, Out) {
  Tensor self = dense(c.tensor("self"));
  if (is_limited(self.dtype())) {
    op::Value args[] = {self, DType::Bool};
    self = op::call(op::get("to_dtype"), args)[0];
  }
  supported_check(self.dim() <= 64, "nonzero") << "at most 64 dimensions, got " << self.dim();
  return Results(dispatch(self.dtype(), [&](auto x) { return positions<decltype(x)>(self); }));
}

Results repeated_positions(const Call& c, Out) {
  Tensor counts = dense(c.tensor("counts"));
  auto* n = static_cast<const int64_t*>(counts.data_ptr());
  int64_t size = counts.numel().concrete(), total = 0;
  for (int64_t k = 0; k < size; ++k) {
    runtime_check(n[k] >= 0, "repeat_interleave") << "repeats can not be negative";
    runtime_check(!__builtin_add_overflow(total, n[k], &total) && total < int64_t(1) << 58,
                  "repeat_interleave")
        << "the repeats are more than a tensor has elements";
  }
  Tensor out = Tensor::empty(IntSpan(Ints{total}), DType::Int64);
  auto* to = static_cast<int64_t*>(out.data_ptr());
  for (int64_t k = 0; k < size; ++k) to = std::fill_n(to, n[k], k);
  return Results(out);
}

Results rng_take(const Call& c, Out out) {
  auto& v = c["generator"];
  Generator& g = v.is_none() ? default_generator() : *v.generator;
  Destination to(out[0]);
  auto* state = to.data<int64_t>();
  // Kernels draw from the beginning of a block; draws of single words may have ended within one.
  if (g.offset() % 4) g.set_state(g.seed(), (g.offset() + 3) / 4 * 4);
  state[0] = int64_t(g.seed());
  state[1] = int64_t(g.take(uint64_t(c.integer("n").concrete())));
  to.finish();
  return Results(out[0]);
}

namespace {

constexpr uint64_t kPhiloxBatch = 16;  // blocks of four words
constexpr uint32_t kPhiloxFactor0 = 0xD2511F53, kPhiloxFactor1 = 0xCD9E8D57, kPhiloxStep0 = 0x9E3779B9,
                   kPhiloxStep1 = 0xBB67AE85;

// Blocks `first`, `first` + 1, ... of philox(seed, ...), side by side.
void philox_batch_plain(uint64_t seed, uint64_t first, uint32_t* words) {
  for (uint64_t k = 0; k < kPhiloxBatch; ++k) {
    uint32_t c[4] = {uint32_t(first + k), uint32_t((first + k) >> 32), 0, 0};
    uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
    for (int round = 0; round < 10; ++round, k0 += kPhiloxStep0, k1 += kPhiloxStep1) {
      uint64_t a = uint64_t(kPhiloxFactor0) * c[0], b = uint64_t(kPhiloxFactor1) * c[2];
      c[0] = uint32_t(b >> 32) ^ c[1] ^ k0, c[1] = uint32_t(b);
      c[2] = uint32_t(a >> 32) ^ c[3] ^ k1, c[3] = uint32_t(a);
    }
    std::copy_n(c, 4, words + 4 * k);
  }
}
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"  // a false warning about GCC 12's own header
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

// Compilers multiply 64 by 64 bits in vectors although 32 by 32 suffice. Only the lower half of each number counts.
__attribute__((target("avx512f"))) void philox_batch_512(uint64_t seed, uint64_t first, uint32_t* words) {
  const __m512i factor0 = _mm512_set1_epi64(kPhiloxFactor0), factor1 = _mm512_set1_epi64(kPhiloxFactor1),
                lower = _mm512_set1_epi64(0xffffffff);
  const __m512i even = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11),
                odd = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
  for (uint64_t k = 0; k < kPhiloxBatch; k += 8) {
    __m512i c0 =
        _mm512_add_epi64(_mm512_set1_epi64(int64_t(first + k)), _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7));
    __m512i c1 = _mm512_srli_epi64(c0, 32), c2 = _mm512_setzero_si512(), c3 = c2;
    uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
    for (int round = 0; round < 10; ++round, k0 += kPhiloxStep0, k1 += kPhiloxStep1) {
      __m512i a = _mm512_mul_epu32(c0, factor0), b = _mm512_mul_epu32(c2, factor1);
      c0 = _mm512_xor_si512(_mm512_xor_si512(_mm512_srli_epi64(b, 32), c1), _mm512_set1_epi64(k0)), c1 = b;
      c2 = _mm512_xor_si512(_mm512_xor_si512(_mm512_srli_epi64(a, 32), c3), _mm512_set1_epi64(k1)), c3 = a;
    }
    __m512i front = _mm512_or_si512(_mm512_and_si512(c0, lower), _mm512_slli_epi64(c1, 32)),
            back = _mm512_or_si512(_mm512_and_si512(c2, lower), _mm512_slli_epi64(c3, 32));
    _mm512_storeu_si512(words + 4 * k, _mm512_permutex2var_epi64(front, even, back));
    _mm512_storeu_si512(words + 4 * k + 16, _mm512_permutex2var_epi64(front, odd, back));
  }
}
void philox_batch(uint64_t seed, uint64_t first, uint32_t* words) {
  (codegen::vector_lanes() == 16 ? philox_batch_512 : philox_batch_plain)(seed, first, words);
}

// Random 32-bit words of a part of a generator's sequence, in order.
class Words {
 public:
  Words(const int64_t* state, int64_t skip) : seed_(uint64_t(state[0])), at_(uint64_t(state[1] + skip)) {}
  uint32_t next() {
    refill();
    return words_[at_++ % kCount];
  }
  void take(uint32_t* to, int64_t count) {
    while (count > 0) {
      refill();
      auto here = std::min(count, int64_t(kCount - at_ % kCount));
      to = std::copy_n(words_ + at_ % kCount, here, to);
      at_ += uint64_t(here);
      count -= here;
    }
  }

 private:
  void refill() {
    if (at_ / kCount != batch_) philox_batch(seed_, (batch_ = at_ / kCount) * (kCount / 4), words_);
  }
  static constexpr uint64_t kCount = 4 * kPhiloxBatch;
  uint64_t seed_, at_, batch_ = ~uint64_t(0);
  uint32_t words_[kCount];
};

constexpr int64_t kAhead = 64;

// Computes random numbers below `range`, `range` - 1, ...: the upper halves of products with random words. Returns true
// if a lower half is so small that its word may have to be drawn again. Numbers beyond a range smaller than kAhead are
// undefined.
bool scale_words_plain(const uint32_t* words, uint32_t range, uint32_t* numbers) {
  uint32_t low = 0;
  for (uint32_t k = 0; k < kAhead; ++k) {
    uint32_t limit = range - k;
    uint64_t product = uint64_t(words[k]) * limit;
    numbers[k] = uint32_t(product >> 32);
    low |= uint32_t(uint32_t(product) < limit);
  }
  return low;
}
__attribute__((target("avx512f"))) bool scale_words_512(const uint32_t* words, uint32_t range,
                                                        uint32_t* numbers) {
  const __mmask16 odd = 0xaaaa;
  __mmask16 low = 0;
  __m512i limit = _mm512_sub_epi32(_mm512_set1_epi32(int(range)),
                                   _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  for (int64_t k = 0; k < kAhead; k += 16, limit = _mm512_sub_epi32(limit, _mm512_set1_epi32(16))) {
    __m512i word = _mm512_loadu_si512(words + k), first = _mm512_mul_epu32(word, limit),
            second = _mm512_mul_epu32(_mm512_srli_epi64(word, 32), _mm512_srli_epi64(limit, 32));
    _mm512_storeu_si512(numbers + k, _mm512_mask_mov_epi32(_mm512_srli_epi64(first, 32), odd, second));
    __m512i lower = _mm512_mask_mov_epi32(first, odd, _mm512_slli_epi64(second, 32));
    low = _mm512_kor(low, _mm512_cmplt_epu32_mask(lower, limit));
  }
  return low;
}
#pragma GCC diagnostic pop
bool scale_words(const uint32_t* words, uint32_t range, uint32_t* numbers) {
  return (codegen::vector_lanes() == 16 ? scale_words_512 : scale_words_plain)(words, range, numbers);
}
void widen(const uint32_t* from, int64_t count, int64_t* to) {
  int64_t blocked = count & -kAhead;  // blocks of constant length vectorize
  for (int64_t first = 0; first < blocked; first += kAhead)
    for (int64_t k = 0; k < kAhead; ++k) to[first + k] = from[first + k];
  for (int64_t k = blocked; k < count; ++k) to[k] = from[k];
}

// Writes a permutation of 0 .. n - 1: element i changes places with one of i .. n - 1. `draw` returns the distances of
// the partners for some elements from `first` on, so that their memory can be prefetched.
template <class T, class F>
void shuffle(T* order, int64_t n, F&& draw) {
  std::iota(order, order + n, T(0));
  T partner[kAhead];
  for (int64_t first = 0; first < n; first += kAhead) {
    int64_t count = std::min(kAhead, n - first);
    draw(first, count, partner);
    T* here = order + first;
    for (int64_t k = 0; k < count; ++k) __builtin_prefetch(here + k + partner[k], 1);
    for (int64_t k = 0; k < count; ++k) std::swap(here[k], here[k + int64_t(partner[k])]);
  }
}

}  // namespace

// The piece has 2 n words. Below 2^32 one word per number suffices, unless it would make some numbers more likely than
// others (Lemire, "Fast random integer generation in an interval", 2019); then the second half provides another word.
Results randperm(const Call& c, Out out) {
  Tensor state = dense(c.tensor("state"));
  int64_t n = c.integer("n").concrete();
  Destination to(out[0]);
  auto* order = to.data<int64_t>();
  Words words(state.data<int64_t>(), 0), others(state.data<int64_t>(), n);
  if (n >> 32) {
    shuffle(order, n, [&](int64_t first, int64_t count, int64_t* partner) {
      for (int64_t k = 0; k < count; ++k) {
        uint64_t word = uint64_t(words.next()) << 32;
        partner[k] = int64_t((unsigned __int128)(word | words.next()) * uint64_t(n - first - k) >> 64);
      }
    });
  } else {
    std::unique_ptr<uint32_t[]> small(new uint32_t[size_t(n)]);
    uint32_t drawn[kAhead] = {};
    shuffle(small.get(), n, [&](int64_t first, int64_t count, uint32_t* partner) {
      words.take(drawn, count);
      if (!scale_words(drawn, uint32_t(n - first), partner)) return;
      for (int64_t k = 0; k < count; ++k) {
        uint64_t range = uint64_t(n - first - k), product = drawn[k] * range;
        while (uint32_t(product) < range && uint32_t(product) < (uint64_t(1) << 32) % range)
          product = others.next() * range;
        partner[k] = uint32_t(product >> 32);
      }
    });
    widen(small.get(), n, order);
  }
  to.finish();
  return Results(out[0]);
}

}  // namespace facula::device::cpu
