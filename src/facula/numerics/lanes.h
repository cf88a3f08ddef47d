// Vectors with a number in each lane, for routines that are compiled for each width of register (small_*.cpp). All
// functions are inlined into functions whose attributes name the instructions that they may use.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#define FACULA_LANES [[gnu::always_inline]] static inline

namespace facula::numerics {

template <class T, int kBytes>
struct Lanes {
  typedef T V __attribute__((vector_size(kBytes)));
  using Mask = decltype(V() < V());  // of integers: -1 for true
  static constexpr int kCount = kBytes / int(sizeof(T));
  static constexpr T kLeast = std::numeric_limits<T>::min(), kMost = std::numeric_limits<T>::max();

  FACULA_LANES V all(T x) { return x - V(); }  // not a sum, which makes 0 of -0
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
  // Returns m as a value that the compiler cannot look into: GCC 12 computes combined conditions, and conditions that
  // choose operands of a comparison, lane by lane.
  FACULA_LANES Mask settled(Mask m) {
#ifdef __x86_64__
    asm("" : "+v"(m));
#endif
    return m;
  }
  FACULA_LANES bool any(Mask m) { return together<kCount / 2>(settled(m), kLanes)[0] != 0; }
  FACULA_LANES void swap_where(Mask where, V& a, V& b) {
    V first = where ? b : a;
    b = where ? a : b;
    a = first;
  }
  // Adds 0 to `rests` for finite numbers, else NaN.
  FACULA_LANES void note(V& rests, V x) { rests += x - x; }
  FACULA_LANES uint32_t bits(Mask m, int count) {
    auto set = uint32_t(together<kCount / 2>(settled(m) & places(kLanes), kLanes)[0]);
    return set & ((uint32_t(1) << count) - 1);
  }

  // Transposes: lane l of vector i and lane i of vector l change places.
  FACULA_LANES void turn(V* x) { turn_by<1>(x); }

  // Loads elements [rows, columns], `stride` from row to row, of `count` matrices, `matrix` from one to the next; lanes
  // without a matrix take the first one. Adjacent matrices with few elements, a power of two, are loaded as full vectors.
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
    if (stride == columns && matrix == elements && count == kCount &&
        of_power_of_two(elements, [&](auto constant) __attribute__((always_inline)) {
          V x[constant()];
          std::memcpy(x, from, sizeof x);
          for_each_bit<constant()>([&] __attribute__((always_inline)) { unzip<constant()>(x); });
          std::memcpy(to, x, sizeof x);
        }))
      return;
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
  // Stores the lanes in `which`.
  FACULA_LANES void store(const V* from, T* to, int64_t matrix, int rows, int columns, int64_t stride,
                          uint32_t which) {
    int elements = rows * columns;
    if (stride == columns && elements >= kCount) {
      each_part(elements, [&](int first) __attribute__((always_inline)) {
        V x[kCount];
#pragma GCC unroll 16
        for (int l = 0; l < kCount; ++l) x[l] = from[first + l];
        turn(x);
        if (which == kEvery) {
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
    if (stride == columns && matrix == elements && which == kEvery &&
        of_power_of_two(elements, [&](auto constant) __attribute__((always_inline)) {
          V x[constant()];
          std::memcpy(x, from, sizeof x);
          for_each_bit<constant()>([&] __attribute__((always_inline)) { zip<constant()>(x); });
          std::memcpy(to, x, sizeof x);
        }))
      return;
    const T* element = reinterpret_cast<const T*>(from);
    for (; which; which &= which - 1) {
      int l = __builtin_ctz(which);
      T* one = to + l * matrix;
      for (int i = 0; i < rows; ++i)
        for (int j = 0; j < columns; ++j) one[i * stride + j] = element[(i * columns + j) * kCount + l];
    }
  }

 private:
  static_assert(kCount <= 16);
  static constexpr uint32_t kEvery = (uint32_t(1) << kCount) - 1;
  static constexpr auto kLanes = std::make_index_sequence<size_t(kCount)>();

  template <size_t... kLane>
  FACULA_LANES Mask places(std::index_sequence<kLane...>) {
    Mask m = {(1 << int(kLane))...};
    return m;
  }
  // Combines the bits of all lanes in each lane.
  template <int kStep, size_t... kLane>
  FACULA_LANES Mask together(Mask m, std::index_sequence<kLane...> lanes) {
    m |= __builtin_shufflevector(m, m, ((int(kLane) + kStep) % kCount)...);
    if constexpr (kStep > 1) return together<kStep / 2>(m, lanes);
    return m;
  }

  // Separates the numbers of x at even positions from those at odd ones. Repeated once per bit of an element's number,
  // this brings the first elements of all matrices together, then the second ones, and so on.
  template <int kVectors, size_t... kLane>
  FACULA_LANES void unzip(V* x, std::index_sequence<kLane...>) {
    V odd[kVectors / 2];
#pragma GCC unroll 16
    for (int i = 0; i < kVectors / 2; ++i) {
      V a = x[2 * i], b = x[2 * i + 1];
      x[i] = __builtin_shufflevector(a, b, (2 * int(kLane))...);
      odd[i] = __builtin_shufflevector(a, b, (2 * int(kLane) + 1)...);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kVectors / 2; ++i) x[kVectors / 2 + i] = odd[i];
  }
  template <int kVectors>
  FACULA_LANES void unzip(V* x) {
    unzip<kVectors>(x, kLanes);
  }
  // The inverse of unzip.
  template <int kVectors, size_t... kLane>
  FACULA_LANES void zip(V* x, std::index_sequence<kLane...>) {
    V all[kVectors];
#pragma GCC unroll 16
    for (int i = 0; i < kVectors / 2; ++i) {
      V even = x[i], odd = x[kVectors / 2 + i];
      all[2 * i] = __builtin_shufflevector(even, odd, (int(kLane) / 2 + int(kLane) % 2 * kCount)...);
      all[2 * i + 1] =
          __builtin_shufflevector(even, odd, (kCount / 2 + int(kLane) / 2 + int(kLane) % 2 * kCount)...);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kVectors; ++i) x[i] = all[i];
  }
  template <int kVectors>
  FACULA_LANES void zip(V* x) {
    zip<kVectors>(x, kLanes);
  }
  template <int kNumber, class F>
  FACULA_LANES void for_each_bit(F&& f) {
    if constexpr (kNumber > 1) {
      f();
      for_each_bit<kNumber / 2>(f);
    }
  }
  // Calls f(elements as a constant) if their number is a power of two below kCount.
  template <int kMost = kCount / 2, class F>
  FACULA_LANES bool of_power_of_two(int elements, F&& f) {
    if (elements == kMost) {
      f(std::integral_constant<int, kMost>());
      return true;
    }
    if constexpr (kMost > 1) return of_power_of_two<kMost / 2>(elements, f);
    return false;
  }

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
      if (!(i & kStep)) exchange<kStep>(x[i], x[i + kStep], kLanes);
    if constexpr (2 * kStep < kCount) turn_by<2 * kStep>(x);
  }
  // Calls f(first element) for parts of kCount elements; the last part may overlap the one before.
  template <class F>
  FACULA_LANES void each_part(int elements, F&& f) {
#pragma GCC unroll 4
    for (int first = 0; first < elements; first += kCount) f(std::min(first, elements - kCount));
  }
};

}  // namespace facula::numerics
