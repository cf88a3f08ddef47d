#include "facula/numerics/sort.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "facula/base/dtype.h"
#include "facula/base/library.h"
#include "facula/base/parallel.h"

// Functions of this file use these instructions: every processor that runs generated kernels has them.
#pragma GCC target("avx2,bmi,bmi2,lzcnt,popcnt")
#pragma GCC optimize("vect-cost-model=dynamic")  // vectorize loops of any length

namespace facula::numerics {

namespace {

// The unsigned integer of a number's size.
template <class T>
struct Bits {
  using type = std::conditional_t<std::is_integral_v<T>, T, uint16_t>;
};
template <>
struct Bits<float> {
  using type = uint32_t;
};
template <>
struct Bits<double> {
  using type = uint64_t;
};

// An unsigned integer with the order of the value: all NaN are equal and the largest, -0 is 0.
template <class T>
typename Bits<T>::type key_of(T value) {
  using U = typename Bits<T>::type;
  if constexpr (std::is_integral_v<T>) return value;
  else {  // without branches, for vectors
    constexpr U top = U(U(1) << (8 * sizeof(U) - 1));
    U bits;
    std::memcpy(&bits, &value, sizeof bits);
    auto f = [&] {
      if constexpr (std::is_same_v<T, double>) return value;
      else return float(value);
    }();
    bits = f == 0 ? U(0) : bits;
    U negative = U(-U(bits >> (8 * sizeof(U) - 1)));
    return f != f ? U(~U(0)) : U(bits ^ (negative | top));
  }
}

// A line of numbers, by keys in the requested order. T is an unsigned integer or a floating-point number: a signed integer
// has its top bit inverted, and the descending order all bits, so that one function serves all of these.
template <class T>
struct Line {
  using U = typename Bits<T>::type;
  const T* x;
  U inverted;
  U operator()(int64_t i) const { return U(key_of(x[i]) ^ inverted); }
};
template <class T>
auto line_of(const T* x, bool descending) {
  if constexpr (std::is_integral_v<T>) {
    using Byte = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;
    using U = std::make_unsigned_t<Byte>;
    U inverted = descending ? U(~U(0)) : U(0);
    if (std::is_signed_v<T>) inverted ^= U(U(1) << (8 * sizeof(U) - 1));
    return Line<U>{reinterpret_cast<const U*>(x), inverted};
  } else {
    using U = typename Bits<T>::type;
    return Line<T>{x, descending ? U(~U(0)) : U(0)};
  }
}

// Keys with their positions in one number, which orders by both.
struct Narrow {
  static constexpr int64_t kMost = int64_t(1) << 32;  // positions
  using Entry = uint64_t;
  static Entry entry(uint64_t key, int64_t i) { return key << 32 | uint64_t(i); }
  static uint64_t key(Entry e) { return e >> 32; }
  static int64_t position(Entry e) { return int64_t(e & 0xffffffffu); }
  static bool before(Entry a, Entry b) { return a < b; }
  static constexpr const char* kSort = "facula_sort_64";
};
struct Wide {
  struct alignas(16) Entry {  // Highway's layout of a number of 128 bits
    uint64_t lo, hi;
  };
  static Entry entry(uint64_t key, int64_t i) { return {uint64_t(i), key}; }
  static uint64_t key(Entry e) { return e.hi; }
  static int64_t position(Entry e) { return int64_t(e.lo); }
  static bool before(Entry a, Entry b) { return a.hi != b.hi ? a.hi < b.hi : a.lo < b.lo; }
  static constexpr const char* kSort = "facula_sort_128";
};
// Long lines of narrow keys are sorted digit by digit, the lowest first; each pass is stable. A single line is cut into
// pieces for the threads: the resulting order is the same for any number of them.
struct Digits {
  static constexpr int64_t kLeast = 4096, kPiece = 65536;
  static constexpr int kBits = 11;
  int passes, bits;
  int64_t pieces;
  // by pass and piece; then the position of the next entry
  std::vector<std::array<uint32_t, 1 << kBits>> counts;

  Digits(int64_t n, int significant)
      : passes(std::max(1, (significant + kBits - 1) / kBits)),
        bits((significant + passes - 1) / passes),
        pieces(std::clamp<int64_t>(n / kPiece, 1, num_threads())),
        counts(size_t(pieces)) {}

  template <class F>
  void each_piece(int64_t n, F&& f) const {
    parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) f(p, n * p / pieces, n * (p + 1) / pieces);
    });
  }
  // Stable, by one digit: calls put(to, i) for each i, whose key is `key(i)`.
  template <class Key, class Put>
  void pass(int which, int64_t n, Key key, Put put) {
    int shift = which * bits;
    uint32_t mask = (1u << bits) - 1;
    auto digit = [=](int64_t i) { return (key(i) >> shift) & mask; };
    each_piece(n, [&](int64_t p, int64_t begin, int64_t end) {
      counts[size_t(p)].fill(0);
      for (int64_t i = begin; i < end; ++i) ++counts[size_t(p)][digit(i)];
    });
    uint32_t next = 0;
    for (uint32_t d = 0; d <= mask; ++d)
      for (auto& count : counts) next += std::exchange(count[d], next);
    each_piece(n, [&](int64_t p, int64_t begin, int64_t end) {
      auto& to = counts[size_t(p)];
      for (int64_t i = begin; i < end; ++i) put(to[digit(i)]++, i);
    });
  }
  template <class Key>
  void order(Key key, int64_t n, int64_t* order, SortBuffers& b) {
    using E = Narrow;
    auto *from = passes > 1 ? b.room<E::Entry>(0, n) : nullptr,
         *to = passes > 2 ? b.room<E::Entry>(1, n) : nullptr;
    for (int k = 0; k < passes; ++k) {
      bool last = k == passes - 1;
      auto entry_key = [&](int64_t i) { return uint32_t(E::key(from[i])); };
      if (k == 0 && last) pass(k, n, key, [=](uint32_t at, int64_t i) { order[at] = i; });
      else if (k == 0) pass(k, n, key, [=](uint32_t at, int64_t i) { from[at] = E::entry(key(i), i); });
      else if (last) pass(k, n, entry_key, [=](uint32_t at, int64_t i) { order[at] = E::position(from[i]); });
      else {
        pass(k, n, entry_key, [=](uint32_t at, int64_t i) { to[at] = from[i]; });
        std::swap(from, to);
      }
    }
  }
};

// Among n values, from `from` on, visits those whose key is less than a limit: take(i, key) returns the next limit. For
// most blocks a vector comparison finds that there are none.
template <class Key, class K, class Take>
void each_less(Key key, int64_t from, int64_t n, K limit, Take take) {
  constexpr int64_t kBlock = 64;
  K keys[kBlock];
  uint8_t is_less[kBlock];
  for (; from < n; from += kBlock) {
    int64_t count = std::min(kBlock, n - from);
    if (count < kBlock) std::memset(is_less, 0, sizeof is_less);
    auto look = [&](int64_t count) {
      for (int64_t k = 0; k < count; ++k) {
        keys[k] = key(from + k);
        is_less[k] = keys[k] < limit;
      }
    };
    if (count == kBlock) look(kBlock);  // in vectors
    else look(count);
    for (int64_t eight = 0; eight < kBlock; eight += 8) {
      uint64_t marks;
      std::memcpy(&marks, is_less + eight, 8);
      for (; marks; marks &= marks - 1) {
        int64_t k = eight + std::countr_zero(marks) / 8;
        if (keys[k] < limit) limit = take(from + k, keys[k]);
      }
    }
  }
}

// For a few keys, counts how many come before each, by key and position: for all at once, so that no branch depends on
// the keys.
template <class U>
struct Counted {
  using S = std::conditional_t<sizeof(U) <= 4, int32_t, int64_t>;
  typedef S V __attribute__((vector_size(32)));
  static constexpr int kLanes = 32 / sizeof(S), kBlocks = 8;
  static constexpr int64_t kMost = kLanes * kBlocks;

  // take(before) gets an array with n meaningful elements.
  template <int kUsed = 1, class Key, class Take>
  static auto count(Key key, int64_t n, Take take) {
    if constexpr (kUsed < kBlocks)
      if (n > kUsed * kLanes) return count<kUsed + 1>(key, n, take);
    constexpr int kAll = kUsed * kLanes;
    // signed numbers, which vectors can compare
    constexpr S bias = sizeof(U) == sizeof(S) ? std::numeric_limits<S>::min() : 0;
    alignas(32) S keys[kAll], before[kAll];
    if (n == kAll)
      for (int i = 0; i < kAll; ++i) keys[i] = S(S(key(i)) ^ bias);  // in vectors
    else
      for (int i = 0; i < kAll; ++i) keys[i] = i < n ? S(S(key(i)) ^ bias) : 0;
    V x[kUsed], index[kUsed], counts[kUsed] = {};
    std::memcpy(x, keys, sizeof x);
    for (int i = 0; i < kAll; ++i) index[i / kLanes][i % kLanes] = S(i);
    for (int64_t j = 0; j < n; ++j) {
      V y = V() + keys[j], at = V() + S(j);
      for (int b = 0; b < kUsed; ++b) counts[b] -= (y < x[b]) | ((y == x[b]) & (at < index[b]));
    }
    std::memcpy(before, counts, sizeof before);
    return take(before);
  }
};
constexpr int64_t kShort = 24;
template <class Key>
void rank(Key key, int64_t n, int64_t* order) {
  Counted<decltype(key(0))>::count(key, n, [=](const auto* before) {
    for (int64_t i = 0; i < n; ++i) order[before[i]] = i;
  });
}

template <class E>
void sort_entries(typename E::Entry* b, int64_t n) {
  using Entry = typename E::Entry;
  static const auto sort =
      reinterpret_cast<void (*)(Entry*, size_t)>(symbol_beside("libfacula_sort.so", E::kSort, "sort"));
  sort(b, size_t(n));
}

template <class E, class Key>
auto* entries(Key key, int64_t n, SortBuffers& buffers) {
  auto* b = buffers.room<typename E::Entry>(0, n);
  for (int64_t i = 0; i < n; ++i) b[i] = E::entry(key(i), i);
  return b;
}

// Orders one line of n values by Wide numbers: order[k] is the position of the k-th.
template <class Key>
void order_wide(Key key, int64_t n, int64_t* order, SortBuffers& buffers) {
  auto* b = entries<Wide>(key, n, buffers);
  sort_entries<Wide>(b, n);
  for (int64_t k = 0; k < n; ++k) order[k] = Wide::position(b[k]);
}

// The same by numbers of 64 bits: the position, preceded by as many leading bits of the key as fit, which suffice to
// order most lines. Entries with equal leading bits are ordered by the other bits afterwards.
template <class Key>
class Packed {
 public:
  static constexpr int64_t kPiece = 65536;
  using Entry = uint64_t;

  Packed(Key key, int key_bits, int64_t n, SortBuffers& buffers)
      : key_(key),
        n_(n),
        position_bits_(std::bit_width(uint64_t(n - 1))),
        dropped_(std::max(0, key_bits + position_bits_ - 64)),
        buffers_(buffers) {}

  void order(int64_t* order) {
    Entry* b = sorted();
    in_pieces([&, mask = position(~Entry(0))](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) order[k] = int64_t(b[k] & mask);
    });
    if (!dropped_) return;
    auto* scratch = buffers_.room<Entry>(b == buffers_.room<Entry>(0, n_), n_);
    in_pieces([&](int64_t begin, int64_t end) {
      auto begins_run = [&](int64_t k) { return !k || leading(b[k - 1]) != leading(b[k]); };
      for (int64_t k = begin; k < end; ++k) {
        if (!begins_run(k)) continue;
        int64_t last = k + 1;
        while (last < n_ && !begins_run(last)) ++last;
        if (last - k > 1) settle(order + k, last - k, scratch + k);
      }
    });
  }

 private:
  Entry position(Entry e) const { return e & ((Entry(1) << position_bits_) - 1); }
  Entry leading(Entry e) const { return e >> position_bits_; }
  template <class F>
  void in_pieces(F f) const {
    n_ > kPiece ? parallel_for(n_, kPiece, f) : f(0, n_);
  }

  // Threads sort pieces of a long line, and then merge pairs of them.
  Entry* sorted() {
    int64_t most = in_parallel() ? 1 : std::min<int64_t>(num_threads(), n_ / kPiece);
    int64_t pieces = int64_t(std::bit_floor(uint64_t(std::max<int64_t>(most, 1))));
    Entry *b = buffers_.room<Entry>(0, n_), *to = pieces > 1 ? buffers_.room<Entry>(1, n_) : nullptr;
    auto start = [&](int64_t p) { return n_ * p / pieces; };
    parallel_for(pieces, 1, [&](int64_t first, int64_t last) {
      for (int64_t p = first; p < last; ++p) {
        pack(b, start(p), start(p + 1));
        sort_entries<Narrow>(b + start(p), start(p + 1) - start(p));
      }
    });
    for (int64_t half = 1; half < pieces; half *= 2, std::swap(b, to))
      parallel_for(pieces, 1, [&](int64_t first, int64_t last) {
        for (int64_t p = first; p < last; ++p) {
          int64_t pair = p / (2 * half) * 2 * half, begin = start(pair), middle = start(pair + half);
          merge(b + begin, middle - begin, b + middle, start(pair + 2 * half) - middle, to + begin,
                start(p) - begin, start(p + 1) - begin);
        }
      });
    return b;
  }
  void pack(Entry* to, int64_t begin, int64_t end) const {
    auto key = key_;
    int down = dropped_, up = position_bits_;
    for (int64_t i = begin; i < end; ++i) to[i] = key(i) >> down << up | Entry(i);  // in vectors
  }
  // Writes elements `begin` to `end` of the merged list of two ordered lists.
  static void merge(const Entry* x, int64_t xs, const Entry* y, int64_t ys, Entry* to, int64_t begin,
                    int64_t end) {
    auto from_x = [&](int64_t count) {  // how many of the first `count` elements are from x
      int64_t low = std::max<int64_t>(0, count - ys), high = std::min(count, xs);
      while (low < high) {
        int64_t i = (low + high) / 2;
        if (x[i] < y[count - 1 - i]) low = i + 1;
        else high = i;
      }
      return low;
    };
    int64_t i = from_x(begin), j = begin - i, x_end = from_x(end), y_end = end - x_end;
    to += begin;
    while (i < x_end && j < y_end) {  // no branch depends on which is less
      Entry a = x[i], b = y[j];
      *to++ = std::min(a, b);
      i += a < b;
      j += !(a < b);
    }
    to = std::copy(x + i, x + x_end, to);
    std::copy(y + j, y + y_end, to);
  }

  // Orders positions whose keys differ only in the dropped bits.
  void settle(int64_t* order, int64_t n, Entry* scratch) const {
    auto before = [&](int64_t i, int64_t j) { return key_(i) < key_(j); };
    if (std::is_sorted(order, order + n, before)) return;
    if (n <= kShort) {
      for (int64_t k = 1; k < n; ++k)
        std::rotate(std::upper_bound(order, order + k, order[k], before), order + k, order + k + 1);
      return;
    }
    for (int64_t k = 0; k < n; ++k) {
      Entry rest = key_(order[k]) & ((Entry(1) << dropped_) - 1);
      scratch[k] = rest << position_bits_ | Entry(order[k]);
    }
    sort_entries<Narrow>(scratch, n);
    for (int64_t k = 0; k < n; ++k) order[k] = int64_t(position(scratch[k]));
  }

  Key key_;
  int64_t n_;
  int position_bits_, dropped_;
  SortBuffers& buffers_;
};

// Number of keys in a loop of constant length, which the compiler vectorizes.
constexpr int64_t kBlock = 32;

// The smallest and the largest of n keys.
template <class Key>
auto range_of(Key key, int64_t n) {
  using U = decltype(key(0));
  U least[kBlock], most[kBlock];
  std::fill_n(least, kBlock, U(~U(0)));
  std::fill_n(most, kBlock, U(0));
  auto look = [&](int64_t lane, U k) {
    least[lane] = k < least[lane] ? k : least[lane];
    most[lane] = k > most[lane] ? k : most[lane];
  };
  int64_t i = 0;
  for (; i + kBlock <= n; i += kBlock)
    for (int64_t lane = 0; lane < kBlock; ++lane) look(lane, key(i + lane));
  for (; i < n; ++i) look(0, key(i));
  return std::pair(*std::min_element(least, least + kBlock), *std::max_element(most, most + kBlock));
}

// Calls run(least, most, narrow) with the range of the keys of a line, which is computed if `look` and the numbers are
// integers, else taken to be whole; `narrow` tells whether 32 bits suffice for it.
template <class T, class Run>
void with_range(Line<T> key, int64_t n, bool look, Run run) {
  using U = typename Line<T>::U;
  bool narrow = sizeof(U) <= 4 && n < Narrow::kMost;
  U least = 0, most = ~U(0);
  if (std::is_integral_v<T> && look) {
    std::tie(least, most) = range_of(key, n);
    narrow = n < Narrow::kMost && uint64_t(U(most - least)) < uint64_t(Narrow::kMost);
  }
  run(least, most, narrow);
}

// In a heap of entries by key, the largest first, replaces the first entry.
template <class E>
void replace_first(typename E::Entry* heap, int64_t n, typename E::Entry e) {
  int64_t at = 0;
  while (2 * at + 2 < n) {  // the larger child goes up, down to the end
    int64_t child = 2 * at + 2;
    child -= E::key(heap[child]) < E::key(heap[child - 1]);
    heap[at] = heap[child];
    at = child;
  }
  if (2 * at + 1 < n) {
    heap[at] = heap[2 * at + 1];
    at = 2 * at + 1;
  }
  for (; at > 0 && E::key(heap[(at - 1) / 2]) < E::key(e); at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
  heap[at] = e;
}

// The algorithms of the GNU standard library, step by step, on keys alone: which of several equal entries come first
// follows from their steps. Introselect and introsort (Musser, 1997) with the median of the second, the middle and the
// last entry as pivot.
template <class E>
struct Introspective {
  using Entry = typename E::Entry;
  static bool less(const Entry& a, const Entry& b) { return E::key(a) < E::key(b); }

  // Hoare's partition; entries that equal the pivot change sides. In long ranges, entries that have to move are first
  // collected block by block, without branches (Edelkamp and Weiss, 2016), which pairs the same entries. Returns where
  // both ends stop: the first entry of the second part and the last one of the first part, or both at an entry between
  // them.
  static std::pair<Entry*, Entry*> partition(Entry* first, Entry* last, uint64_t pivot) {
    constexpr int kBlock = 32;
    uint8_t left[kBlock], right[kBlock];  // distances from the ends
    int lefts = 0, rights = 0, l = 0, r = 0;
    while (last - first > 2 * kBlock) {
      if (l == lefts) {
        l = lefts = 0;
        for (int k = 0; k < kBlock; ++k) {
          left[lefts] = uint8_t(k);
          lefts += !(E::key(first[k]) < pivot);
        }
      }
      if (r == rights) {
        r = rights = 0;
        for (int k = 0; k < kBlock; ++k) {
          right[rights] = uint8_t(k);
          rights += !(pivot < E::key(last[-1 - k]));
        }
      }
      for (; l < lefts && r < rights; ++l, ++r) std::swap(first[left[l]], last[-1 - right[r]]);
      if (l == lefts) first += kBlock;
      if (r == rights) last -= kBlock;
    }
    if (l < lefts) first += left[l];
    if (r < rights) last -= right[r];
    for (;; ++first) {
      while (E::key(*first) < pivot) ++first;
      do --last;
      while (pivot < E::key(*last));
      if (first >= last) return {first, last};
      std::swap(*first, *last);
    }
  }
  static Entry* cut(Entry* first, Entry* last) {
    Entry *a = first + 1, *b = first + (last - first) / 2, *c = last - 1;
    if (!less(*a, *b)) std::swap(a, b);
    Entry* median = less(*b, *c) ? b : less(*a, *c) ? c : a;
    std::swap(*first, *median);
    return partition(first + 1, last, E::key(*first)).first;
  }
  static void insert(Entry* first, Entry* last) {  // keeps equal ones in order
    for (Entry* i = first; i < last; ++i) {
      Entry e = *i, *to = i;
      for (; to > first && less(e, to[-1]); --to) *to = to[-1];
      *to = e;
    }
  }
  static int depth(Entry* first, Entry* last) { return 2 * (std::bit_width(uint64_t(last - first)) - 1); }

  static void nth_element(Entry* first, Entry* nth, Entry* last) {
    for (int left = depth(first, last); last - first > 3; --left) {
      if (!left) {
        int64_t n = nth + 1 - first;
        std::make_heap(first, nth + 1, less);
        for (Entry* i = nth + 1; i < last; ++i)
          if (less(*i, *first)) {
            Entry e = std::exchange(*i, *first);
            replace_first<E>(first, n, e);
          }
        return std::swap(*first, *nth);
      }
      Entry* middle = cut(first, last);
      (middle <= nth ? first : last) = middle;
    }
    insert(first, last);
  }
  static void sort(Entry* first, Entry* last, int left) {
    for (; last - first > 16; --left) {
      if (!left) return std::partial_sort(first, last, last, less);
      Entry* middle = cut(first, last);
      sort(middle, last, left - 1);
      last = middle;
    }
    insert(first, last);
  }
  static void sort(Entry* first, Entry* last) {
    if (first < last) sort(first, last, depth(first, last));
  }
};

// The first `wanted` > 0 of a line. The choice among equal elements and their order follow from PyTorch's calls of the
// standard library: partial_sort for few, which is fast when blocks without candidates are skipped, else nth_element and
// sort. A full line is sorted in vectors if no two elements are equal.
template <class E, class Key>
void top_of_line(Key key, int64_t n, int64_t wanted, bool equal_likely, int64_t* order,
                 SortBuffers& buffers) {
  using Entry = typename E::Entry;
  using K = decltype(key(0));
  using Steps = Introspective<E>;
  const Entry* first;
  auto follow = [&] {
    auto* b = entries<E>(key, n, buffers);
    Steps::nth_element(b, b + wanted - 1, b + n);
    Steps::sort(b, b + wanted - 1);
    first = b;
  };
  if (wanted <= n / 64) {
    auto* heap = entries<E>(key, wanted, buffers);
    std::make_heap(heap, heap + wanted, Steps::less);
    each_less(key, wanted, n, K(E::key(heap[0])), [&](int64_t i, K k) {
      replace_first<E>(heap, wanted, E::entry(k, i));
      return K(E::key(heap[0]));
    });
    std::sort_heap(heap, heap + wanted, Steps::less);
    first = heap;
  } else if (wanted == n && n > kShort && !equal_likely) {
    auto* b = entries<E>(key, n, buffers);
    sort_entries<E>(b, n);
    first = b;
    auto equal = [](Entry a, Entry b) { return E::key(a) == E::key(b); };
    if (std::adjacent_find(b, b + n, equal) != b + n) follow();
  } else {
    follow();
  }
  for (int64_t k = 0; k < wanted; ++k) order[k] = E::position(first[k]);
}

// The first of a short line, by counting how many come before each. Returns false if two of them, or the last one and the
// next, are equal: then counting does not decide.
template <class Key>
bool top_of_short(Key key, int64_t n, int64_t wanted, int64_t* order) {
  int64_t all[kShort];
  rank(key, n, all);
  bool equal = false;
  for (int64_t k = 1; k < std::min(n, wanted + 1); ++k) equal |= key(all[k - 1]) == key(all[k]);
  if (!equal) std::copy(all, all + wanted, order);
  return !equal;
}

// Selects the k-th entry by key with the median of three as pivot (Sedgewick, 1978). PyTorch's kthvalue selects in this
// way, which decides among equal elements.
template <class E>
int64_t selected(typename E::Entry* b, int64_t n, int64_t k) {
  auto *first = b, *last = b + n - 1, *kth = b + k;
  auto order = [](auto* x, auto* y) {
    if (Introspective<E>::less(*y, *x)) std::swap(*x, *y);
  };
  while (first + 1 < last) {
    std::swap(first[(last - first) / 2], first[1]);
    order(first + 1, last);
    order(first, last);
    order(first + 1, first);
    auto [i, j] = Introspective<E>::partition(first + 2, last, E::key(*first));
    if (i == j) ++i, --j;
    std::swap(*first, *j);
    if (j <= kth) first = i;
    if (j >= kth) last = j - 1;
  }
  if (first + 1 == last) order(first, last);
  return E::position(*kth);
}

// The k-th in order (from 0). In all but short lines, counting by leading digits limits the search to a few candidates.
// Among equal elements it is the k-th by position, or the one that PyTorch's kthvalue finds.
template <class E, class Key>
int64_t position_of_kth(Key key, int64_t n, int64_t k, bool by_position, SortBuffers& buffers) {
  using U = decltype(key(0));
  auto kth_of = [&](int64_t count, auto wanted) {  // among `count` wanted ones
    auto* b = buffers.room<typename E::Entry>(0, count);
    int64_t matches = 0, i = 0;
    auto look = [&](int64_t end) {
      for (; i < end; ++i)
        if (wanted(i)) b[matches++] = E::entry(key(i), i);
    };
    while (i + kBlock <= n) {  // most blocks have none
      U any = 0;
      for (int64_t j = 0; j < kBlock; ++j) any |= U(wanted(i + j));
      if (any) look(i + kBlock);
      else i += kBlock;
    }
    look(n);
    std::nth_element(b, b + k, b + matches, E::before);
    return E::position(b[k]);
  };
  auto of_equal = [&, k](int64_t position) {
    if (by_position) return position;
    int64_t equal = 0;
    for (int64_t i = 0; i < n; ++i) equal += key(i) == key(position);
    return equal == 1 ? position : selected<E>(entries<E>(key, n, buffers), n, k);
  };
  if (n <= Counted<U>::kMost)
    return of_equal(Counted<U>::count(key, n, [=](const auto* before) {
      return std::find(before, before + n, k) - before;
    }));
  auto [least, most] = range_of(key, n);
  int bits = std::min(Digits::kBits, int(std::bit_width(uint64_t(n))));  // about as many counts as elements
  int shift = std::max(0, int(std::bit_width(uint64_t(U(most - least)))) - bits);
  auto digit = [=, least = least](int64_t i) { return U(U(key(i) - least) >> shift); };
  std::array<int64_t, 1 << Digits::kBits> counts;
  std::fill_n(counts.begin(), 1 << bits, 0);
  int64_t i = 0;
  for (; i + kBlock <= n; i += kBlock) {
    std::array<U, kBlock> digits;
    for (int64_t j = 0; j < kBlock; ++j) digits[size_t(j)] = digit(i + j);
    for (U one : digits) ++counts[one];
  }
  for (; i < n; ++i) ++counts[digit(i)];
  U d = 0;
  for (; k >= counts[d]; ++d) k -= counts[d];
  return of_equal(kth_of(counts[d], [=](int64_t i) { return digit(i) == d; }));
}

template <class T>
void order_keys(Line<T> key, int64_t n, int64_t* order, SortBuffers& buffers) {
  if (n <= kShort) return rank(key, n, order);
  bool look = sizeof(T) == 8 || n >= Digits::kLeast;
  with_range(key, n, look, [&](auto least, auto most, bool) {
    auto from_least = [=](int64_t i) { return uint64_t(key(i) - least); };
    uint64_t range = most - least;
    if (n >= Narrow::kMost) order_wide(key, n, order, buffers);
    else if (n >= Digits::kLeast && range < (uint64_t(1) << 2 * Digits::kBits))
      Digits(n, std::bit_width(range)).order(from_least, n, order, buffers);
    else Packed(from_least, std::bit_width(range), n, buffers).order(order);
  });
}

template <class T>
void top_keys(Line<T> key, int64_t n, int64_t wanted, int64_t* order, SortBuffers& buffers) {
  if (n <= kShort && top_of_short(key, n, wanted, order)) return;
  bool look = sizeof(T) == 8 && wanted > n / 64, equal_likely = sizeof(T) <= 2;
  with_range(key, n, look, [&](auto least, auto, bool narrow) {
    auto from_least = [=](int64_t i) { return uint32_t(key(i) - least); };
    if (narrow) top_of_line<Narrow>(from_least, n, wanted, equal_likely, order, buffers);
    else top_of_line<Wide>(key, n, wanted, equal_likely, order, buffers);
  });
}

template <class T>
int64_t kth_key(Line<T> key, int64_t n, int64_t k, bool by_position, SortBuffers& buffers) {
  bool narrow = sizeof(T) <= 4 && n < Narrow::kMost;
  return narrow ? position_of_kth<Narrow>(key, n, k, by_position, buffers)
                : position_of_kth<Wide>(key, n, k, by_position, buffers);
}

}  // namespace

// These functions are declared without the instructions above, and only call the ones that have them.
template <class T>
void order_line(const T* x, int64_t n, bool descending, int64_t* order, SortBuffers& buffers) {
  order_keys(line_of(x, descending), n, order, buffers);
}
template <class T>
void top_line(const T* x, int64_t n, int64_t wanted, bool largest, int64_t* order, SortBuffers& buffers) {
  top_keys(line_of(x, largest), n, wanted, order, buffers);
}
template <class T>
int64_t kth_position(const T* x, int64_t n, int64_t k, bool by_position, SortBuffers& buffers) {
  return kth_key(line_of(x, false), n, k, by_position, buffers);
}

#define FACULA_SORT(T)                                                                    \
  template void order_line(const T*, int64_t, bool, int64_t*, SortBuffers&);              \
  template void top_line(const T*, int64_t, int64_t, bool, int64_t*, SortBuffers&);       \
  template int64_t kth_position(const T*, int64_t, int64_t, bool, SortBuffers&);
FACULA_SORT(bool)
FACULA_SORT(uint8_t)
FACULA_SORT(int8_t)
FACULA_SORT(int16_t)
FACULA_SORT(int32_t)
FACULA_SORT(int64_t)
FACULA_SORT(uint16_t)
FACULA_SORT(uint32_t)
FACULA_SORT(uint64_t)
FACULA_SORT(Half)
FACULA_SORT(BFloat16)
FACULA_SORT(float)
FACULA_SORT(double)
#undef FACULA_SORT

}  // namespace facula::numerics
