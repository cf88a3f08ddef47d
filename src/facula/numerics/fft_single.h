// Fourier transforms of lines whose points are adjacent in memory, one line at a time: neighbouring points are in the
// lanes, so that a line stays in the first-level cache. A line is treated as a matrix with as many columns as there are
// lanes; columns are transformed side by side (fft_steps.h), multiplied by roots of unity and transposed, and rows are
// transformed in registers.
#pragma once
#include "facula/numerics/fft_steps.h"

namespace facula::numerics {

template <class M, class T>
class AloneSteps {
 public:
  using L = LineLanes<T, M::kBytes>;
  using V = typename L::V;
  using Lane = LaneSteps<M, T>;
  using C = typename Lane::C;
  static constexpr int64_t kCount = L::kCount;
  static bool serve(int64_t n) { return n % (kCount * kCount) == 0 && Steps<T>::serve(n); }

  explicit AloneSteps(int64_t n) : steps_(n / kCount), roots_(size_t(2 * n / kCount)) {
    ducc0::UnityRoots<T, std::complex<T>> roots{size_t(n)};
    T* to = reinterpret_cast<T*>(roots_.data());
    for (int64_t k = 0; k < n / kCount; ++k)
      for (int64_t l = 0; l < kCount; ++l) {
        auto root = roots[size_t(k * l)];
        to[2 * k * kCount + l] = root.real();
        to[(2 * k + 1) * kCount + l] = -root.imag();
      }
  }
  int64_t length() const { return steps_.length() * kCount; }
  size_t footprint() const { return steps_.footprint() + roots_.size() * sizeof(V); }
  int64_t room() const { return 4 * steps_.length(); }  // vectors

  void run(const T* from, T* to, bool forward, T factor, V* room) const {
    forward ? run<false>(from, to, factor, room) : run<true>(from, to, factor, room);
  }

 private:
  template <bool kBackward>
  void run(const T* from, T* to, T factor, V* room) const {
    V* rows = room + 2 * steps_.length();
    Lane::run(steps_, Line<kBackward>{from}, room, Multiplied{rows, roots_.data()});
    M::run([&]() __attribute__((always_inline)) {
      for (int64_t k = 0; k < steps_.length(); k += kCount) {
        V re[kCount], im[kCount];
#pragma GCC unroll 16
        for (int i = 0; i < kCount; ++i) re[i] = rows[2 * (k + i)], im[i] = rows[2 * (k + i) + 1];
        L::L::turn(re);
        L::L::turn(im);
        C x[kCount];
#pragma GCC unroll 16
        for (int i = 0; i < kCount; ++i) x[i] = {re[i], im[i]};
        Lane::P::of(x);
#pragma GCC unroll 16
        for (int i = 0; i < kCount; ++i) {
          V row[2] = {(kBackward ? x[i].im : x[i].re) * factor, (kBackward ? x[i].re : x[i].im) * factor};
          L::template store_across<2>(row, to + 2 * (i * steps_.length() + k));
        }
      }
    });
  }

  // The inverse transform is the forward one with real and imaginary parts exchanged in both operand and result.
  template <bool kBackward>
  struct Line {
    const T* from;
    FACULA_MEMBER C operator()(int64_t i) const {
      V row[2];
      L::template load_across<2>(from + 2 * i * kCount, row);
      return {row[kBackward], row[!kBackward]};
    }
  };
  struct Multiplied {
    V* rows;
    const V* roots;
    FACULA_MEMBER void operator()(int64_t k, C x) const {
      V c = roots[2 * k], s = roots[2 * k + 1];
      rows[2 * k] = x.re * c - x.im * s;
      rows[2 * k + 1] = x.re * s + x.im * c;
    }
  };
  Steps<T> steps_;
  Workspace<V> roots_;  // of the product of lane and row numbers
};

// The same for real lines of twice the length.
template <class M, class T>
class AloneReal {
 public:
  using Alone = AloneSteps<M, T>;
  using L = typename Alone::L;
  using V = typename L::V;
  using P = typename Alone::Lane::P;
  using C = typename P::C;
  static constexpr int64_t kCount = L::kCount;
  static bool serve(int64_t n) { return n % 2 == 0 && Alone::serve(n / 2); }

  explicit AloneReal(int64_t n) : alone_(n / 2), halves_(n / 2) {}
  size_t footprint() const { return alone_.footprint() + halves_.footprint(); }
  int64_t room() const { return alone_.room() + 2 * alone_.length() / kCount + 2; }  // vectors

  void forward(const T* from, T* to, T factor, V* room) const {
    int64_t n = alone_.length();
    T* z = reinterpret_cast<T*>(room + alone_.room());
    alone_.run(from, z, true, factor / 2, room);
    z[2 * n] = z[0], z[2 * n + 1] = z[1];
    M::run([&]() __attribute__((always_inline)) {
      pass(z, to, [](C a, C b, V c, V s) __attribute__((always_inline)) {
        return Halves<T>::template of_spectrum<P>(a, b, c, s);
      });
    });
    to[0] = (z[0] + z[1]) * 2, to[1] = 0;
    to[2 * n] = (z[0] - z[1]) * 2, to[2 * n + 1] = 0;
  }
  void backward(const T* from, T* to, T factor, V* room) const {
    int64_t n = alone_.length();
    T* z = reinterpret_cast<T*>(room + alone_.room());
    M::run([&]() __attribute__((always_inline)) {
      pass(from, z, [](C a, C b, V c, V s) __attribute__((always_inline)) {
        return Halves<T>::template of_transform<P>(a, b, c, s);
      });
    });
    // imaginary parts of the first and the last point are ignored
    z[0] = from[0] + from[2 * n], z[1] = from[0] - from[2 * n];
    alone_.run(z, to, false, factor, room);
  }

 private:
  // Rewrites points k in [0, n) of n + 1 by f(point k, point n - k, root).
  template <class F>
  FACULA_MEMBER void pass(const T* from, T* to, const F& f) const {
    int64_t n = alone_.length();
    auto* roots = reinterpret_cast<const T*>(halves_.roots());
    for (int64_t k = 0; k < n; k += kCount) {
      V a[2], b[2], w[2];
      L::template load_across<2>(from + 2 * k, a);
      L::template load_across<2>(from + 2 * (n - k - kCount + 1), b);
      L::template load_across<2>(roots + 2 * k, w);
      C x = f(C{a[0], a[1]}, C{L::reversed(b[0]), L::reversed(b[1])}, w[0], w[1]);
      V row[2] = {x.re, x.im};
      L::template store_across<2>(row, to + 2 * k);
    }
  }
  Alone alone_;
  Halves<T> halves_;
};

}  // namespace facula::numerics
