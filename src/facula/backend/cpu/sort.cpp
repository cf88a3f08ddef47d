// Sorting. Keys are mapped to unsigned integers that order alike (NaN last), with the position as tie-breaker
// in the low bits: one sort of plain integers, by Highway's vectorised quicksort, is then stable and yields
// the indices.
#include <algorithm>
#include <cstring>
#include <vector>

#include "facula/backend/cpu/cpu.h"
#include "facula/base/library.h"
#include "facula/base/parallel.h"

namespace facula::backend::cpu {

namespace {

template <class T>
struct Bits {
  using type = std::make_unsigned_t<T>;
};
template <>
struct Bits<bool> {
  using type = uint8_t;
};
template <>
struct Bits<Half> {
  using type = uint16_t;
};
template <>
struct Bits<BFloat16> {
  using type = uint16_t;
};
template <>
struct Bits<float> {
  using type = uint32_t;
};
template <>
struct Bits<double> {
  using type = uint64_t;
};

// An unsigned integer that orders as the value does: NaN the largest and all alike, -0 as 0.
template <class T>
typename Bits<T>::type key_of(T value) {
  using U = typename Bits<T>::type;
  constexpr U top = U(U(1) << (8 * sizeof(U) - 1));
  U bits;
  std::memcpy(&bits, &value, sizeof bits);
  if constexpr (std::is_same_v<T, bool> || std::is_unsigned_v<T>) return bits;
  else if constexpr (std::is_integral_v<T>) return U(bits ^ top);
  else {  // without branches, for vectors
    auto f = [&] {
      if constexpr (std::is_same_v<T, double>) return value;
      else return float(value);
    }();
    bits = f == 0 ? U(0) : bits;
    U negative = U(-U(bits >> (8 * sizeof(U) - 1)));
    return f != f ? U(~U(0)) : U(bits ^ (negative | top));
  }
}

// Keys with their positions, in one number that orders by both.
struct Narrow {
  using Entry = uint64_t;
  static Entry entry(uint64_t key, int64_t i) { return key << 32 | uint64_t(i); }
  static uint64_t key(Entry e) { return e >> 32; }
  static int64_t position(Entry e) { return int64_t(e & 0xffffffffu); }
  static bool before(Entry a, Entry b) { return a < b; }
  static constexpr const char* kSort = "facula_sort_64";
};
struct Wide {
  struct alignas(16) Entry {  // as Highway lays out a number of 128 bits
    uint64_t lo, hi;
  };
  static Entry entry(uint64_t key, int64_t i) { return {uint64_t(i), key}; }
  static uint64_t key(Entry e) { return e.hi; }
  static int64_t position(Entry e) { return int64_t(e.lo); }
  static bool before(Entry a, Entry b) { return a.hi != b.hi ? a.hi < b.hi : a.lo < b.lo; }
  static constexpr const char* kSort = "facula_sort_128";
};
// Of a thread.
struct Buffers {
  std::vector<Narrow::Entry> narrow;
  std::vector<Wide::Entry> wide;
};

// The first `wanted` of n values in order, with few wanted: most are passed over in blocks, none of which
// comes before the last one that counts so far. Very few are kept in order, others looked through from time
// to time.
template <class E, class Key>
void select(Key key, int64_t n, int64_t wanted, std::vector<typename E::Entry>& found) {
  constexpr int64_t kBlock = 64, kVeryFew = 16;
  bool in_order = wanted <= kVeryFew;
  found.clear();
  size_t room = size_t(2 * wanted + kBlock);
  uint64_t limit = ~uint64_t(0);
  auto shrink = [&] {
    std::nth_element(found.begin(), found.begin() + wanted - 1, found.end(), E::before);
    found.resize(size_t(wanted));
    limit = E::key(found.back());
  };
  using K = decltype(key(0));
  K keys[kBlock];
  for (int64_t from = 0; from < n; from += kBlock) {
    int64_t count = std::min(kBlock, n - from);
    K least = K(~K(0));
    for (int64_t k = 0; k < count; ++k) {
      keys[k] = key(from + k);
      least = std::min(least, keys[k]);
    }
    bool full = int64_t(found.size()) >= wanted;
    if (full && uint64_t(least) >= limit) continue;
    if (in_order) {
      for (int64_t k = 0; k < count; ++k) {
        if (int64_t(found.size()) == wanted) {
          if (uint64_t(keys[k]) >= limit) continue;
          found.pop_back();
        }
        auto e = E::entry(keys[k], from + k);
        found.push_back(e);
        size_t at = found.size() - 1;
        for (; at > 0 && E::before(e, found[at - 1]); --at) found[at] = found[at - 1];
        found[at] = e;
        limit = E::key(found.back());
      }
      continue;
    }
    for (int64_t k = 0; k < count; ++k)
      if (!full || uint64_t(keys[k]) < limit) found.push_back(E::entry(keys[k], from + k));
    if (int64_t(found.size()) >= wanted && (!full || found.size() + kBlock > room)) shrink();
  }
  if (in_order) return;
  if (int64_t(found.size()) > wanted) shrink();
  std::sort(found.begin(), found.end(), E::before);
}

// Each of few entries goes where the number of those before it says: no branch depends on what they are.
constexpr int64_t kShort = 24;
template <class E>
void rank(const typename E::Entry* b, int n, int64_t wanted, int64_t* order) {
  int ranks[kShort] = {};
  for (int i = 1; i < n; ++i)
    for (int j = 0; j < i; ++j) {
      int before = E::before(b[j], b[i]);
      ranks[i] += before;
      ranks[j] += 1 - before;
    }
  for (int i = 0; i < n; ++i)
    if (ranks[i] < wanted) order[ranks[i]] = E::position(b[i]);
}

// The first `wanted` of one line of n values: order[k] is the position of the k-th.
template <class E, class Key>
void order_line(Key key, int64_t n, int64_t wanted, int64_t* order, std::vector<typename E::Entry>& b) {
  if (wanted <= n / 8) {
    if (wanted) select<E>(key, n, wanted, b);
  } else {
    b.resize(size_t(n));
    for (int64_t i = 0; i < n; ++i) b[size_t(i)] = E::entry(key(i), i);
    if (n <= kShort) return rank<E>(b.data(), int(n), wanted, order);
    if (wanted < n) {
      std::nth_element(b.begin(), b.begin() + wanted, b.end(), E::before);
      std::sort(b.begin(), b.begin() + wanted, E::before);
    } else {
      static const auto sort = reinterpret_cast<void (*)(typename E::Entry*, size_t)>(
          symbol_beside("libfacula_sort.so", E::kSort, "sort"));
      sort(b.data(), size_t(n));
    }
  }
  for (int64_t k = 0; k < wanted; ++k) order[k] = E::position(b[size_t(k)]);
}
template <class T>
void order_line(const T* x, int64_t stride, int64_t n, int64_t wanted, bool descending, int64_t* order,
                Buffers& buffers) {
  using U = typename Bits<T>::type;
  constexpr int64_t kNarrow = int64_t(1) << 32;
  bool narrow = sizeof(U) <= 4 && n <= kNarrow;
  auto run = [&](auto key) {
    if constexpr (std::is_integral_v<T> && sizeof(T) == 8)
      if (wanted > n / 8) {  // numbers near each other are as good as narrow ones
        U least = ~U(0), most = 0;
        for (int64_t i = 0; i < n; ++i) {
          least = std::min(least, key(i));
          most = std::max(most, key(i));
        }
        if (n <= kNarrow && n && most - least < U(kNarrow)) {
          auto beyond = [=](int64_t i) { return uint32_t(key(i) - least); };
          return order_line<Narrow>(beyond, n, wanted, order, buffers.narrow);
        }
      }
    narrow ? order_line<Narrow>(key, n, wanted, order, buffers.narrow)
           : order_line<Wide>(key, n, wanted, order, buffers.wide);
  };
  auto ascending = [=](int64_t i) { return key_of(x[i * stride]); };
  auto falling = [=](int64_t i) { return U(~key_of(x[i * stride])); };
  if (descending) run(falling);
  else run(ascending);
}

// The first `wanted` along dimension `dim`: values and positions, into plain tensors.
void sorted(const Tensor& self, int dim, int64_t wanted, bool descending, const Tensor& values,
            const Tensor& indices) {
  auto sizes = self.int_sizes();
  int64_t n = sizes.empty() ? 1 : sizes[size_t(dim)], inner = 1, outer = 1;
  for (int k = 0; k < dim; ++k) outer *= sizes[size_t(k)];
  for (int k = dim + 1; k < int(sizes.size()); ++k) inner *= sizes[size_t(k)];
  int64_t lines = outer * inner;
  dispatch_stored(self.dtype(), [&](auto zero) {
    using T = decltype(zero);
    if constexpr (is_complex(dtype_of<T>()) || is_float8(dtype_of<T>()))
      internal_check(false) << self.dtype() << " is not sorted";
    else {
      const T* x = self.data<T>();
      T* value = values.data<T>();
      auto* index = indices.data<int64_t>();
      parallel_for(lines, std::max<int64_t>(1, 8192 / std::max<int64_t>(1, n)),
                   [&](int64_t begin, int64_t end) {
                     Buffers buffers;
                     std::vector<int64_t> order(static_cast<size_t>(wanted));
                     for (int64_t line = begin; line < end; ++line) {
                       int64_t o = line / inner, i = line % inner;
                       const T* from = x + o * n * inner + i;
                       order_line(from, inner, n, wanted, descending, order.data(), buffers);
                       int64_t at = o * wanted * inner + i;
                       for (int64_t k = 0; k < wanted; ++k) {
                         value[at + k * inner] = from[order[size_t(k)] * inner];
                         index[at + k * inner] = order[size_t(k)];
                       }
                     }
                   });
    }
  });
}

Results run(const Call& c, Out out, bool descending) {
  Tensor self = c.tensor("self");
  Destination values(out[0]), indices(out[1]);
  if (out[0].numel() != SymInt(int64_t(0))) {
    int d = self.dim() ? c.dim("dim") : 0;
    int64_t wanted = self.dim() ? out[0].int_sizes()[size_t(d)] : 1;
    sorted(dense(self), d, wanted, descending, values.tensor(), indices.tensor());
  }
  values.finish();
  indices.finish();
  return Results{out[0], out[1]};
}

}  // namespace

Results sort(const Call& c, Out out) { return run(c, out, c.flag("descending")); }
Results topk(const Call& c, Out out) { return run(c, out, c.flag("largest")); }

}  // namespace facula::backend::cpu
