// Transforms of complex lines in lanes for lengths with large prime factors, as a convolution by transforms of another
// length. If n is prime and steps serve n - 1, the points after the first are taken in the order of powers of a primitive
// root (Rader, "Discrete Fourier transforms when the number of data samples is prime", 1968). Other lengths use a chirp
// (Bluestein, "A linear filtering approach to the computation of discrete Fourier transform", 1970).
#pragma once
#include <algorithm>

#include "facula/numerics/fft_steps.h"

namespace facula::numerics {

template <class M, class T>
class Convolved {
 public:
  using V = typename LineLanes<T, M::kBytes>::V;
  using Lane = LaneSteps<M, T>;
  using C = typename Lane::C;
  using Rows = typename Lane::Rows;

  explicit Convolved(int64_t n)
      : n_(n),
        steps_(by_powers(n) ? n - 1 : Steps<T>::least(2 * n - 1, 1)),
        kernel_(size_t(steps_.length())) {
    std::vector<std::complex<T>> kernel(kernel_.size());
    by_powers(n) ? make_powers(kernel) : make_chirp(kernel);
    transform(kernel);
  }
  size_t footprint() const {
    return steps_.footprint() + (chirp_.size() + kernel_.size()) * sizeof(kernel_[0]) + 16 * powers_.size();
  }
  int64_t room() const { return 4 * std::max(steps_.length(), n_); }  // vectors

  // Returns the position of the result in `buffer`. The inverse transform is the forward one with points in reverse
  // order.
  V* run(V* rows, V* buffer, bool forward, T factor) const {
    V *points = buffer, *other = buffer + room() / 2;
    Rows from{rows}, to{points};
    int64_t n = steps_.length(), reversed = forward ? 0 : n_;
    M::run([&]() __attribute__((always_inline)) {
      if (chirp_.empty())
        for (int64_t k = 0; k < n; ++k) to(k, from(powers_[size_t(k)]));
      else
        for (int64_t k = 0; k < n; ++k) to(k, k < n_ ? times(from(k), std::conj(chirp_[size_t(k)])) : C{});
    });
    Lane::run(steps_, to, points, Rows{other});
    C first = from(0), sum = Lane::P::add(first, Rows{other}(0));
    M::run([&]() __attribute__((always_inline)) {
      for (int64_t k = 0; k < n; ++k) Rows{other}(k, times(Rows{other}(k), kernel_[size_t(k)]));
      if (chirp_.empty()) Rows{other}(0, Lane::P::add(first, Rows{other}(0)));
    });
    Lane::run(steps_, Rows{other}, other, typename Lane::Scaled{points, n, factor});
    if (chirp_.empty()) return in_order(points, other, sum, reversed, factor);
    M::run([&]() __attribute__((always_inline)) {
      for (int64_t k = 0; k < n_; ++k)
        Rows{other}(Lane::place(k, reversed), times(to(k), std::conj(chirp_[size_t(k)])));
    });
    return other;
  }

 private:
  static bool by_powers(int64_t n) { return Steps<T>::largest_factor(n) == n && Steps<T>::serve(n - 1); }
  FACULA_LANES C times(C x, std::complex<T> by) { return Lane::P::by(x, by.real(), by.imag()); }

  void make_chirp(std::vector<std::complex<T>>& kernel) {
    chirp_ = chirp_of<T>(n_);
    for (int64_t k = 0; k < n_; ++k)
      kernel[size_t(k)] = kernel[size_t((steps_.length() - k) % steps_.length())] = chirp_[size_t(k)];
  }
  // Computes the roots of unity at the powers of the inverse of a primitive root; the powers of the root itself are the
  // positions of the points.
  void make_powers(std::vector<std::complex<T>>& kernel) {
    ducc0::UnityRoots<T, std::complex<T>> roots{size_t(n_)};
    powers_.resize(size_t(n_ - 1));
    for (int64_t root = 2;; ++root) {
      int64_t k = 0, power = 1;
      do powers_[size_t(k++)] = power, power = power * root % n_;
      while (power != 1 && k < n_ - 1);
      if (k == n_ - 1 && power == 1) break;
    }
    for (int64_t k = 0; k < n_ - 1; ++k)
      kernel[size_t(k)] = std::conj(roots[size_t(powers_[size_t((n_ - 1 - k) % (n_ - 1))])]);
  }
  // The kernel is divided by the length here, because the inverse transform does not divide.
  void transform(const std::vector<std::complex<T>>& kernel) {
    int64_t n = steps_.length();
    Workspace<V> rows(size_t(4 * n));
    V* result = rows.data() + 2 * n;
    for (size_t k = 0; k < kernel.size(); ++k)
      rows[2 * k] = V() + kernel[k].real() / T(n), rows[2 * k + 1] = V() + kernel[k].imag() / T(n);
    Lane::run(steps_, Rows{rows.data()}, rows.data(), Rows{result});
    for (size_t k = 0; k < kernel.size(); ++k) kernel_[k] = {result[2 * k][0], result[2 * k + 1][0]};
  }
  V* in_order(const V* points, V* to, C sum, int64_t reversed, T factor) const {
    M::run([&]() __attribute__((always_inline)) {
      Rows{to}(0, Lane::P::scaled(sum, factor));
      for (int64_t k = 0; k < n_ - 1; ++k) {
        int64_t place = powers_[size_t((n_ - 1 - k) % (n_ - 1))];
        Rows{to}(Lane::place(place, reversed), C{points[2 * k], points[2 * k + 1]});
      }
    });
    return to;
  }

  int64_t n_;
  Steps<T> steps_;
  std::vector<std::complex<T>> kernel_, chirp_;  // the transform of the convolution's kernel; the chirp
  std::vector<int64_t> powers_;
};

}  // namespace facula::numerics
