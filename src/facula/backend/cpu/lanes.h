// Vectors with a number in each lane, for routines that are made for each width of register (small.cpp). All is inlined
// into functions that say by an attribute which instructions they may use.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#define FACULA_LANES [[gnu::always_inline]] static inline

namespace facula::backend::cpu {

template <class T, int kBytes>
struct Lanes {
  typedef T V __attribute__((vector_size(kBytes)));
  using Mask = decltype(V() < V());  // of integers: -1 where it is so
  static constexpr int kCount = kBytes / int(sizeof(T));
  static constexpr T kLeast = std::numeric_limits<T>::min(), kMost = std::numeric_limits<T>::max();

  FACULA_LANES V all(T x) { return V() + x; }
  FACULA_LANES Mask everywhere() { return V() == V(); }
  FACULA_LANES V abs(V x) { return x < 0 ? -x : x; }
  FACULA_LANES V max(V a, V b) { return a > b ? a : b; }
  FACULA_LANES V root(V x) {
    T lanes[kCount];
    std::memcpy(lanes, &x, sizeof x);
    for (int l = 0; l < kCount; ++l) lanes[l] = std::sqrt(lanes[l]);
    std::memcpy(&x, lanes, sizeof x);
    return x;
  }
  FACULA_LANES T total(V x) {
    typedef T Part __attribute__((vector_size(16)));
    Part parts[kBytes / 16];
    std::memcpy(parts, &x, sizeof x);
#pragma GCC unroll 16
    for (int p = 1; p < kBytes / 16; ++p) parts[0] += parts[p];
    T sum = parts[0][0];
#pragma GCC unroll 16
    for (int l = 1; l < 16 / int(sizeof(T)); ++l) sum += parts[0][l];
    return sum;
  }
  FACULA_LANES bool any(Mask m) { return bits(m, kCount) != 0; }
  FACULA_LANES void swap_where(Mask where, V& a, V& b) {
    V first = where ? b : a;
    b = where ? a : b;
    a = first;
  }
  // 0 where all numbers so far are finite, else NaN.
  FACULA_LANES void note(V& rests, V x) { rests += x - x; }
  FACULA_LANES uint32_t bits(Mask m, int count) {
    uint32_t set = 0;
    for (int l = 0; l < kCount; ++l) set |= uint32_t(m[l] != 0) << l;
    return count < 32 ? set & ((uint32_t(1) << count) - 1) : set;
  }

  // Lane l of vector i and lane i of vector l change places.
  FACULA_LANES void turn(V* x) { turn_by<1>(x); }

  // Elements [rows, columns], `stride` from row to row, of `count` matrices, `matrix` from one to the next; lanes without
  // one take the first.
  FACULA_LANES void load(V* to, const T* from, int64_t matrix, int rows, int columns, int64_t stride,
                         int count) {
    int elements = rows * columns;
    if (stride == columns && elements >= kCount) {
      each_part(elements, [&](int first) __attribute__((always_inline)) {
        V x[kCount];
#pragma GCC unroll 16  // vectors stay in registers
        for (int l = 0; l < kCount; ++l)
          std::memcpy(x + l, from + (l < count ? l : 0) * matrix + first, kBytes);
        turn(x);
#pragma GCC unroll 16
        for (int l = 0; l < kCount; ++l) to[first + l] = x[l];
      });
      return;
    }
    T* element = reinterpret_cast<T*>(to);
    if (count < kCount)
      for (int i = 0; i < rows; ++i)
        for (int j = 0; j < columns; ++j) to[i * columns + j] = all(from[i * stride + j]);
    for (int l = count < kCount; l < count; ++l) {
      const T* one = from + l * matrix;
      for (int i = 0; i < rows; ++i)
        for (int j = 0; j < columns; ++j) element[(i * columns + j) * kCount + l] = one[i * stride + j];
    }
  }
  // Those of the lanes in `which`.
  FACULA_LANES void store(const V* from, T* to, int64_t matrix, int rows, int columns, int64_t stride,
                          uint32_t which) {
    int elements = rows * columns;
    if (stride == columns && elements >= kCount) {
      each_part(elements, [&](int first) __attribute__((always_inline)) {
        V x[kCount];
#pragma GCC unroll 16
        for (int l = 0; l < kCount; ++l) x[l] = from[first + l];
        turn(x);
        if (which == (kCount < 32 ? (uint32_t(1) << kCount) - 1 : ~uint32_t(0))) {
#pragma GCC unroll 16
          for (int l = 0; l < kCount; ++l) std::memcpy(to + l * matrix + first, x + l, kBytes);
          return;
        }
        for (uint32_t some = which; some; some &= some - 1) {
          int l = __builtin_ctz(some);
          std::memcpy(to + l * matrix + first, x + l, kBytes);
        }
      });
      return;
    }
    const T* element = reinterpret_cast<const T*>(from);
    for (; which; which &= which - 1) {
      int l = __builtin_ctz(which);
      T* one = to + l * matrix;
      for (int i = 0; i < rows; ++i)
        for (int j = 0; j < columns; ++j) one[i * stride + j] = element[(i * columns + j) * kCount + l];
    }
  }

 private:
  template <int kStep, size_t... kLane>
  FACULA_LANES void exchange(V& a, V& b, std::index_sequence<kLane...>) {
    V low = __builtin_shufflevector(a, b, (kLane & kStep ? kCount + int(kLane) - kStep : int(kLane))...);
    b = __builtin_shufflevector(a, b, (kLane & kStep ? kCount + int(kLane) : int(kLane) + kStep)...);
    a = low;
  }
  template <int kStep>
  FACULA_LANES void turn_by(V* x) {
#pragma GCC unroll 16  // vectors stay in registers
    for (int i = 0; i < kCount; ++i)
      if (!(i & kStep)) exchange<kStep>(x[i], x[i + kStep], std::make_index_sequence<size_t(kCount)>());
    if constexpr (2 * kStep < kCount) turn_by<2 * kStep>(x);
  }
  // f(first element) for parts of kCount elements; the last one may overlap the one before.
  template <class F>
  FACULA_LANES void each_part(int elements, F&& f) {
#pragma GCC unroll 4
    for (int first = 0; first < elements; first += kCount) f(std::min(first, elements - kCount));
  }
};

}  // namespace facula::backend::cpu
