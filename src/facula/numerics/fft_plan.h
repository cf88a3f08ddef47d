// The transform of complex lines in lanes: by our own steps for lengths that they serve (fft_steps.h), otherwise by
// ducc0's plan, which is compiled for AVX2 registers.
#pragma once
#include <ducc0/fft/fft.h>
#include <ducc0/infra/simd.h>

#include <memory>
#include <mutex>
#include <optional>

#include "facula/base/bounded.h"
#include "facula/base/fork.h"
#include "facula/numerics/fft_convolved.h"

namespace facula::numerics {

template <class M, class T>
class LinePlan {
 public:
  using V = typename LineLanes<T, M::kBytes>::V;
  using Lane = LaneSteps<M, T>;
  using C = typename Lane::C;
  using Rows = typename Lane::Rows;
  static bool serves(int64_t n) { return M::kBytes == 32 || Steps<T>::serve(n) || convolves(n); }

  // ducc0's plans have special steps for factors of 11 and 13, and for larger ones none that is faster than a
  // convolution.
  static bool convolves(int64_t n) { return Steps<T>::largest_factor(n) > (M::kBytes == 64 ? 13 : 31); }

  explicit LinePlan(int64_t n) : length_(n) {
    if (Steps<T>::serve(n)) steps_.emplace(n);
    else if (convolves(n)) convolved_.emplace(n);
    else if constexpr (M::kBytes == 32) other_ = std::make_unique<Other>(size_t(n));
  }
  int64_t length() const { return length_; }
  const std::optional<Steps<T>>& steps() const { return steps_; }
  size_t footprint() const {
    return steps_ ? steps_->footprint() : convolved_ ? convolved_->footprint() : other_->footprint();
  }
  // Number of vectors in the buffer that a transform needs besides its rows.
  int64_t room() const {
    return steps_ ? 2 * length_ : convolved_ ? convolved_->room() : 2 * int64_t(other_->bufsize());
  }

  // Transforms the points in `rows`, two vectors each. Returns the position of the result: in `rows` or in `buffer`, both
  // of which are overwritten.
  V* run(V* rows, V* buffer, bool forward, T factor = 1) const {
    if (convolved_) return convolved_->run(rows, buffer, forward, factor);
    if (steps_) {
      if (forward && factor == 1) Lane::run(*steps_, Rows{rows}, rows, Rows{buffer});
      else Lane::run(*steps_, Rows{rows}, rows, typename Lane::Scaled{buffer, forward ? 0 : length_, factor});
      return buffer;
    }
    if constexpr (M::kBytes == 32) {
      using S = ducc0::Cmplx<ducc0::native_simd<T>>;
      return reinterpret_cast<V*>(
          other_->exec(reinterpret_cast<S*>(rows), reinterpret_cast<S*>(buffer), factor, forward));
    }
    return nullptr;
  }

 private:
  using Other = ducc0::pocketfft_c<T>;
  int64_t length_;
  std::optional<Steps<T>> steps_;
  std::optional<Convolved<M, T>> convolved_;
  std::unique_ptr<Other> other_;
};

// The same for real lines, forward and backward. A spectrum has n / 2 + 1 points; there has to be one more row before
// `rows` and one behind the last.
template <class M, class T>
class RealPlan {
 public:
  using V = typename LineLanes<T, M::kBytes>::V;
  using Line = LinePlan<M, T>;
  using P = typename Line::Lane::P;
  using C = typename P::C;
  static bool by_half(int64_t n) { return n % 2 == 0 && (Steps<T>::serve(n / 2) || Line::convolves(n / 2)); }
  static bool serves(int64_t n) { return M::kBytes == 32 || by_half(n) || Line::convolves(n); }

  explicit RealPlan(int64_t n) {
    if (by_half(n)) {
      half_.emplace(n / 2);
      halves_.emplace(n / 2);
    } else if (Line::convolves(n)) {
      full_.emplace(n);
    } else if constexpr (M::kBytes == 32) {
      other_ = std::make_unique<Other>(size_t(n));
    }
  }
  size_t footprint() const {
    return half_   ? half_->footprint() + halves_->footprint()
           : full_ ? full_->footprint()
                   : other_->footprint();
  }
  int64_t room() const {
    return half_   ? half_->room() + 2
           : full_ ? 2 * full_->length() + full_->room()
                   : int64_t(other_->bufsize());
  }

  V* forward(V* rows, V* buffer, T factor) const {
    if (half_) {
      V* points = half_->run(rows, buffer, true, factor / 2);
      M::run([&]() __attribute__((always_inline)) { to_spectrum(points); });
      return points;
    }
    if (full_) {
      int64_t n = full_->length();
      M::run([&]() __attribute__((always_inline)) {
        for (int64_t i = 0; i < n; ++i) Rows{buffer}(i, C{rows[i], V()});
      });
      V* points = full_->run(buffer, buffer + 2 * n, true, factor);
      points[1] = V();
      return points;
    }
    if constexpr (M::kBytes ==
                  32) {  // ducc0's order: the real part of point 0, then both parts of the other points
      using S = ducc0::native_simd<T>;
      V* spectrum = reinterpret_cast<V*>(
          other_->exec(reinterpret_cast<S*>(rows), reinterpret_cast<S*>(buffer), factor, true));
      int64_t n = int64_t(other_->length());
      spectrum[-1] = spectrum[0];
      spectrum[0] = V();
      if (n % 2 == 0) spectrum[n] = V();
      return spectrum - 1;
    }
    return nullptr;
  }
  V* backward(V* rows, V* buffer, T factor) const {
    if (half_) {
      M::run([&]() __attribute__((always_inline)) { of_spectrum(rows); });
      return half_->run(rows, buffer, false, factor);
    }
    if (full_) {
      int64_t n = full_->length();
      M::run([&]() __attribute__((always_inline)) {
        Rows from{rows}, to{buffer};
        for (int64_t i = 1; i <= n / 2; ++i) {
          C x = from(i);
          to(i, x);
          to(n - i, 2 * i == n ? C{x.re, V()} : C{x.re, -x.im});
        }
        to(0, C{rows[0], V()});
      });
      V* points = full_->run(buffer, buffer + 2 * n, false, factor);
      M::run([&]() __attribute__((always_inline)) {
        for (int64_t i = 0; i < n; ++i) rows[i] = points[2 * i];
      });
      return rows;
    }
    if constexpr (M::kBytes == 32) {
      using S = ducc0::native_simd<T>;
      rows[1] = rows[0];
      return reinterpret_cast<V*>(
          other_->exec(reinterpret_cast<S*>(rows + 1), reinterpret_cast<S*>(buffer), factor, false));
    }
    return nullptr;
  }

 private:
  using Other = ducc0::pocketfft_r<T>;
  using Rows = typename Line::Rows;
  FACULA_MEMBER void to_spectrum(V* points) const {
    int64_t n = half_->length();
    Rows at{points};
    for (int64_t k = 1; k <= n - k; ++k) {
      C a = at(k), b = at(n - k);
      T c = halves_->roots()[k].real(), s = halves_->roots()[k].imag();
      at(n - k, Halves<T>::template of_spectrum<P>(b, a, -c, s));
      at(k, Halves<T>::template of_spectrum<P>(a, b, c, s));
    }
    V even = points[0] * T(2),
      // sums instead of a product with the root, which is 0 and would make NaN of infinities
        odd = points[1] * T(2);
    points[0] = even + odd, points[2 * n] = even - odd;
    points[1] = points[2 * n + 1] = V();
  }
  FACULA_MEMBER void of_spectrum(V* points) const {
    int64_t n = half_->length();
    Rows at{points};
    for (int64_t k = 1; k <= n - k; ++k) {
      C a = at(k), b = at(n - k);
      T c = halves_->roots()[k].real(), s = halves_->roots()[k].imag();
      at(n - k, Halves<T>::template of_transform<P>(b, a, -c, s));
      at(k, Halves<T>::template of_transform<P>(a, b, c, s));
    }
    V first = points[0], last = points[2 * n];  // imaginary parts of the first and the last point are ignored
    points[0] = first + last, points[1] = first - last;
  }
  std::optional<Line> half_, full_;
  std::optional<Halves<T>> halves_;
  std::unique_ptr<Other> other_;
};

// Returns the plan from make(), possibly null, for lines of n points. The last `count` plans are cached, except those of
// more than `bytes`.
template <class Plan, size_t count, size_t bytes, class Make>
std::shared_ptr<const Plan> cached_plan(int64_t n, const Make& make) {
  static TableMutex mutex;
  static Bounded<int64_t, std::shared_ptr<const Plan>> plans(count);
  {
    std::lock_guard lock(mutex);
    if (auto* cached = plans.find(n)) return *cached;
  }
  std::shared_ptr<const Plan> plan = make();
  if (!plan || plan->footprint() > bytes) return plan;
  std::lock_guard lock(mutex);
  return plans.put(n, std::move(plan));
}
template <class Plan>
std::shared_ptr<const Plan> plan_of(int64_t n) {
  return cached_plan<Plan, 32, size_t(1) << 22>(n, [n] {
    if constexpr (std::is_constructible_v<Plan, size_t, bool>)
      return std::make_shared<const Plan>(size_t(n), true);
    else return std::make_shared<const Plan>(n);
  });
}

}  // namespace facula::numerics
