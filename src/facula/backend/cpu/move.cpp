// Operators that move memory or draw from the generator.
#include <numeric>
#include <vector>

#include "facula/backend/cpu/cpu.h"
#include "facula/base/parallel.h"
#include "facula/base/random.h"

namespace facula::backend::cpu {

// Pieces that lie plainly in memory are copied as rows of bytes; the rest through the operator `copy`.
Results cat(const Call& c, Out out) {
  Destination to(out[0]);
  const Tensor& whole = to.tensor();
  int rank = whole.dim();
  if (whole.numel() == SymInt(int64_t(0))) return Results(out[0]);
  int d = wrap_dim("cat", c.integer("dim").concrete(), rank);
  auto sizes = whole.int_sizes();
  int64_t item = whole.itemsize(), outer = 1, inner = 1;
  for (int k = 0; k < d; ++k) outer *= sizes[size_t(k)];
  for (int k = d + 1; k < rank; ++k) inner *= sizes[size_t(k)];
  int64_t row = sizes[size_t(d)] * inner * item, at = 0;
  struct Piece {
    const char* from;
    int64_t bytes, at;
  };
  std::vector<Piece> plain;
  for (auto& t : c.tensors("tensors")) {
    if (t.numel() == SymInt(int64_t(0))) continue;
    int64_t n = t.int_sizes()[size_t(d)], bytes = n * inner * item;
    // Shorter rows are quicker by strides.
    if (t.dtype() == whole.dtype() && t.is_contiguous() && (outer == 1 || bytes >= 64)) {
      plain.push_back({t.data<char>(), bytes, at * inner * item});
    } else {
      Dims part(whole.sizes());
      part[size_t(d)] = n;
      copy(whole.alias(part, whole.strides(), whole.offset() + whole.stride(d) * SymInt(at)), t);
    }
    at += n;
  }
  auto* dst = whole.data<char>();
  if (outer == 1) {
    for (auto& p : plain)
      parallel_for(p.bytes, 1 << 17, [&](int64_t begin, int64_t end) {
        std::memcpy(dst + p.at + begin, p.from + begin, size_t(end - begin));
      });
  } else {
    parallel_for(outer, std::max<int64_t>(1, (1 << 17) / row), [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k)
        for (auto& p : plain) std::memcpy(dst + k * row + p.at, p.from + k * p.bytes, size_t(p.bytes));
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

// Two passes over pieces: count, then write from the sum of the counts before.
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
        for (int64_t i = first; i < last; ++i) {  // written always, kept if set: no branch to mispredict
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
  supported_check(self.dim() <= 64, "nonzero") << "at most 64 dimensions, got " << self.dim();
  return Results(dispatch(self.dtype(), [&](auto x) { return positions<decltype(x)>(self); }));
}

Results rng_take(const Call& c, Out out) {
  auto& v = c["generator"];
  Generator& g = v.is_none() ? default_generator() : *v.generator;
  Destination to(out[0]);
  auto* state = to.data<int64_t>();
  state[0] = int64_t(g.seed());
  state[1] = int64_t(g.take(uint64_t(c.integer("n").concrete())));
  to.finish();
  return Results(out[0]);
}

}  // namespace facula::backend::cpu
