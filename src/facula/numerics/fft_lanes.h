// Loads points of lines into lanes and stores them again: point i of line l becomes lane l of row i; a complex point
// takes two rows, one per part. Included by sources that are compiled for AVX2 (cmake/rooms.cmake).
#pragma once
#include <array>

#include "facula/numerics/lanes.h"

namespace facula::numerics {

template <class T, int kBytes = 32>
struct LineLanes {
  using L = Lanes<T, kBytes>;
  using V = typename L::V;
  static constexpr int kCount = L::kCount;
  static constexpr size_t kAll = size_t(kCount);
  static constexpr size_t kQuarter =
      16 / sizeof(T);  // numbers of half a register, within which shuffles are cheap
  using Indices = std::make_index_sequence<kAll>;

  // The addresses at which the lines of a block begin; missing lines repeat the first.
  template <class P>
  struct Starts {
    std::array<P, kAll> at;
    int count;
    // Returns whether the lines are adjacent, `parts` numbers apart.
    bool adjacent(int parts) const {
      for (int l = 1; l < kCount; ++l)
        if (at[size_t(l)] != at[0] + l * parts) return false;
      return count == kCount;
    }
  };
  using From = Starts<const T*>;
  using To = Starts<T*>;

  FACULA_LANES V read(const T* from) {
    V x;
    std::memcpy(&x, from, sizeof x);
    return x;
  }
  FACULA_LANES void write(T* to, V x) { std::memcpy(to, &x, sizeof x); }

  // Splits complex numbers a, b in memory order into their real and imaginary parts; the next function is the inverse.
  FACULA_LANES void part(V& a, V& b) {
    if constexpr (kBytes == 64) return part_at_once(a, b, Indices());
    halves(a, b, Indices());
    V re = parts<0>(a, b, Indices());
    b = parts<1>(a, b, Indices());
    a = re;
  }
  FACULA_LANES void join(V& a, V& b) {
    if constexpr (kBytes == 64) return join_at_once(a, b, Indices());
    V low = joined<0>(a, b, Indices());
    b = joined<kQuarter / 2>(a, b, Indices());
    a = low;
    halves(a, b, Indices());
  }

  FACULA_LANES V reversed(V x) { return reversed(x, Indices()); }

  // Loads `n` numbers that are adjacent within each line.
  FACULA_LANES void load_along(const From& from, int64_t n, V* rows) {
    int64_t i = 0;
    for (; i + kCount <= n; i += kCount) {
      V x[kCount];
      for (size_t l = 0; l < kAll; ++l) x[l] = read(from.at[l] + i);
      L::turn(x);
      for (int l = 0; l < kCount; ++l) rows[i + l] = x[l];
    }
    for (; i < n; ++i)
      for (size_t l = 0; l < kAll; ++l) rows[i][l] = from.at[l][i];
  }
  FACULA_LANES void store_along(const V* rows, int64_t n, const To& to) {
    int64_t i = 0;
    for (; i + kCount <= n; i += kCount) {
      V x[kCount];
      for (int l = 0; l < kCount; ++l) x[l] = rows[i + l];
      L::turn(x);
      for (size_t l = 0; l < size_t(to.count); ++l) write(to.at[l] + i, x[l]);
    }
    for (; i < n; ++i)
      for (size_t l = 0; l < size_t(to.count); ++l) to.at[l][i] = rows[i][l];
  }

  // Loads a point of lines that are adjacent in memory.
  template <int kParts>
  FACULA_LANES void load_across(const T* from, V* row) {
    row[0] = read(from);
    if constexpr (kParts == 2) {
      row[1] = read(from + kCount);
      part(row[0], row[1]);
    }
  }
  template <int kParts>
  FACULA_LANES void store_across(const V* row, T* to) {
    if constexpr (kParts == 1) return write(to, row[0]);
    V a = row[0], b = row[kParts - 1];
    join(a, b);
    write(to, a);
    write(to + kCount, b);
  }

  // Loads points `step` numbers apart in lines at any addresses.
  template <int kParts>
  FACULA_LANES void load_apart(const From& from, int64_t step, int64_t points, V* rows) {
    for (int64_t i = 0; i < points; ++i)
      for (size_t l = 0; l < kAll; ++l)
        for (int p = 0; p < kParts; ++p) rows[i * kParts + p][l] = from.at[l][i * step + p];
  }
  template <int kParts>
  FACULA_LANES void store_apart(const V* rows, int64_t step, int64_t points, const To& to) {
    for (int64_t i = 0; i < points; ++i)
      for (size_t l = 0; l < size_t(to.count); ++l)
        for (int p = 0; p < kParts; ++p) to.at[l][i * step + p] = rows[i * kParts + p][l];
  }

 private:
  // With AVX-512 one instruction moves a number from any lane to any other.
  template <size_t... i>
  FACULA_LANES void part_at_once(V& a, V& b, std::index_sequence<i...>) {
    V re = __builtin_shufflevector(a, b, int(2 * i)...);
    b = __builtin_shufflevector(a, b, int(2 * i + 1)...);
    a = re;
  }
  template <size_t... i>
  FACULA_LANES void join_at_once(V& a, V& b, std::index_sequence<i...>) {
    V low = __builtin_shufflevector(a, b, int(i / 2 + i % 2 * kAll)...);
    b = __builtin_shufflevector(a, b, int((i + kAll) / 2 + i % 2 * kAll)...);
    a = low;
  }

  template <size_t... i>
  FACULA_LANES V reversed(V x, std::index_sequence<i...>) {
    return __builtin_shufflevector(x, x, int(kAll - 1 - i)...);
  }
  // Combines the first halves of both, and the second halves of both.
  template <size_t... i>
  FACULA_LANES void halves(V& a, V& b, std::index_sequence<i...>) {
    constexpr size_t half = kAll / 2;
    V first = __builtin_shufflevector(a, b, int(i < half ? i : i + half)...);
    b = __builtin_shufflevector(a, b, int(i < half ? i + half : i + kAll)...);
    a = first;
  }
  template <size_t kPart, size_t... i>
  FACULA_LANES V parts(V a, V b, std::index_sequence<i...>) {
    constexpr size_t q = kQuarter;
    return __builtin_shufflevector(a, b,
                                   int((i % q < q / 2 ? 0 : kAll) + i / q * q + 2 * (i % (q / 2)) +
                                       kPart)...);
  }
  template <size_t kFirst, size_t... i>
  FACULA_LANES V joined(V re, V im, std::index_sequence<i...>) {
    constexpr size_t q = kQuarter;
    return __builtin_shufflevector(re, im, int((i % 2 ? kAll : 0) + i / q * q + i % q / 2 + kFirst)...);
  }
};

}  // namespace facula::numerics
