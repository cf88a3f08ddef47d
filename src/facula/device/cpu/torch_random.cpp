// Numbers of PyTorch's CPU generator: the words of MT19937 (Matsumoto and Nishimura, 1998), and PyTorch's way to make numbers of
// them (catalog/torch_random.h).
#include <algorithm>
#include <array>
#include <cmath>
#include <list>
#include <mutex>
#include <numbers>
#include <numeric>
#include <optional>

#include "facula/base/fork.h"
#include "facula/base/random.h"
#include "facula/device/cpu/cpu.h"

namespace facula::device::cpu {

namespace {

// MT19937, with its parameters and its way to fill the state from a seed.
class Mersenne {
 public:
  explicit Mersenne(uint64_t seed) : seed_(seed) {
    state_[0] = uint32_t(seed);
    for (uint32_t k = 1; k < kSize; ++k) state_[k] = 1812433253u * (state_[k - 1] ^ state_[k - 1] >> 30) + k;
  }
  uint64_t seed() const { return seed_; }
  uint64_t position() const { return position_; }
  uint32_t next() {
    if (at_ == kSize) renew();
    ++position_;
    uint32_t x = state_[at_++];
    x ^= x >> 11;
    x ^= x << 7 & 0x9d2c5680u;
    x ^= x << 15 & 0xefc60000u;
    return x ^ x >> 18;
  }
  uint64_t next_two() {
    uint64_t high = next();
    return high << 32 | next();
  }
  void skip_to(uint64_t position) {
    second_normal.reset();
    while (position_ < position) {
      if (at_ == kSize) renew();
      uint64_t step = std::min<uint64_t>(kSize - at_, position - position_);
      at_ += uint32_t(step);
      position_ += step;
    }
  }
  std::optional<double> second_normal;  // normal numbers are made in pairs

 private:
  static constexpr uint32_t kSize = 624, kMiddle = 397;
  void renew() {
    for (uint32_t k = 0; k < kSize; ++k) {
      uint32_t x = (state_[k] & 0x80000000u) | (state_[(k + 1) % kSize] & 0x7fffffffu);
      state_[k] = state_[(k + kMiddle) % kSize] ^ x >> 1 ^ (x & 1 ? 0x9908b0dfu : 0);
    }
    at_ = 0;
  }
  uint64_t seed_, position_ = 0;
  uint32_t at_ = kSize;
  std::array<uint32_t, kSize> state_;
};

// The words of a generator from its offset on. The generator moves on when the object ends.
class Words {
 public:
  explicit Words(Generator* g) : generator_(g ? *g : default_generator()), lock_(mutex()) {
    auto& all = sequences();
    uint64_t seed = generator_.seed(), offset = generator_.offset();
    auto best = all.end();
    for (auto it = all.begin(); it != all.end(); ++it)
      if (it->seed() == seed && it->position() <= offset &&
          (best == all.end() || it->position() > best->position()))
        best = it;
    if (best == all.end()) all.emplace_front(seed);
    else all.splice(all.begin(), all, best);
    if (all.size() > kSequences) all.pop_back();
    if (all.front().position() != offset) all.front().skip_to(offset);
  }
  ~Words() { generator_.set_state(generator_.seed(), sequences().front().position()); }
  Words(const Words&) = delete;
  Mersenne& operator*() { return sequences().front(); }
  Mersenne* operator->() { return &sequences().front(); }

 private:
  static constexpr size_t kSequences = 16;  // generators that programs use alternately
  static std::list<Mersenne>& sequences() {
    static auto* all = new std::list<Mersenne>;
    return *all;
  }
  static TableMutex& mutex() {
    static TableMutex lock;
    return lock;
  }
  Generator& generator_;
  std::lock_guard<TableMutex> lock_;
};

// Uniform in [0, 1).
template <class T>
T unit(Mersenne& words) {
  if constexpr (sizeof(T) == 8) return T(words.next_two() & ((uint64_t(1) << 53) - 1)) * 0x1p-53;
  else return T(words.next() & ((1u << 24) - 1)) * 0x1p-24f;
}

// A pair of numbers by the transform of Box and Muller, from single numbers of float64.
double single_normal(Mersenne& words) {
  if (words.second_normal) {
    double z = *words.second_normal;
    words.second_normal.reset();
    return z;
  }
  double u = unit<double>(words), v = unit<double>(words);
  double radius = std::sqrt(-2 * std::log1p(-v)), angle = 2 * std::numbers::pi * u;
  words.second_normal = radius * std::sin(angle);
  return radius * std::cos(angle);
}

// The same transform for 16 uniform numbers, in place: the first eight are radii, the others angles.
template <class T>
void transform_block(T* x, T mean, T std) {
  for (int k = 0; k < 8; ++k) {
    T radius = std::sqrt(T(-2) * std::log(1 - x[k])), angle = T(2 * std::numbers::pi) * x[k + 8];
    x[k] = radius * std::cos(angle) * std + mean;
    x[k + 8] = radius * std::sin(angle) * std + mean;
  }
}

template <class T>
void fill_normal(Mersenne& words, T* to, int64_t n, double mean, double std) {
  if (n < 16) {
    for (int64_t k = 0; k < n; ++k) to[k] = T(single_normal(words) * std + mean);
    return;
  }
  for (int64_t k = 0; k < n; ++k) to[k] = unit<T>(words);
  for (int64_t k = 0; k + 16 <= n; k += 16) transform_block(to + k, T(mean), T(std));
  if (n % 16 == 0) return;
  T* last = to + n - 16;
  for (int64_t k = 0; k < 16; ++k) last[k] = unit<T>(words);
  transform_block(last, T(mean), T(std));
}

template <class T>
void fill_uniform(Mersenne& words, T* to, int64_t n, double from, double end) {
  T low = T(from), range = T(end) - T(from);
  for (int64_t k = 0; k < n; ++k) to[k] = std::fma(unit<T>(words), range, low);
}

// The logarithm of a number of the gamma distribution, by the method of Marsaglia and Tsang, 2000.
double single_log_gamma(Mersenne& words, double concentration) {
  if (!(concentration > 0)) return concentration == 0 ? -INFINITY : NAN;
  double log_scale = 0;
  if (concentration < 1) {
    log_scale = std::log(1 - unit<double>(words)) / concentration;
    concentration += 1;
  }
  double d = concentration - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    double x, y;
    do {
      x = single_normal(words);
      y = 1 + c * x;
    } while (y <= 0);
    double v = y * y * y, u = 1 - unit<double>(words), square = x * x;
    if (u < 1 - 0.0331 * square * square || std::log(u) < 0.5 * square + d * (1 - v + std::log(v)))
      return log_scale + std::log(d * v);
  }
}

// Fills `y`, of float32 or float64, by `fill(elements, count)`.
template <class F>
void fill_floats(const Tensor& y, F&& fill) {
  int64_t n = y.numel().concrete();
  if (y.dtype() == DType::Float64) fill(y.data<double>(), n);
  else fill(y.data<float>(), n);
}

void fill_integers(Mersenne& words, int64_t* y, int64_t n, uint64_t low, uint64_t range, bool wide) {
  for (int64_t k = 0; k < n; ++k) {
    uint64_t word = wide ? words.next_two() : words.next();
    y[k] = int64_t(low + (range ? word % range : word));
  }
}

void fill_permutation(Mersenne& words, int64_t* y, int64_t n) {
  std::iota(y, y + n, int64_t(0));
  for (int64_t k = 0; k + 1 < n; ++k) std::swap(y[k], y[k + int64_t(words.next() % uint64_t(n - k))]);
}

}  // namespace

Results torch_random(const Call& c, Out out) {
  auto distribution = c.str("distribution");
  Scalar first = c.number("first"), second = c.number("second");
  bool is_integral = distribution != "uniform" && distribution != "normal" && distribution != "log_gamma";
  Destination to(out[0], is_integral ? DType::Int64 : out[0].dtype());
  auto& y = to.tensor();
  int64_t n = y.numel().concrete();
  auto& generator = c["generator"];
  Words words(generator.is_none() ? nullptr : generator.generator);
  if (distribution == "uniform") {
    double from = first.to_double(), end = second.to_double();
    fill_floats(y, [&](auto* p, int64_t n) { fill_uniform(*words, p, n, from, end); });
  } else if (distribution == "normal") {
    double mean = first.to_double(), std = second.to_double();
    fill_floats(y, [&](auto* p, int64_t n) { fill_normal(*words, p, n, mean, std); });
  } else if (distribution == "log_gamma") {
    Tensor concentration = dense(c.tensor("parameter"), DType::Float64);
    auto* from = concentration.data<double>();
    auto* p = y.data<double>();
    for (int64_t k = 0; k < n; ++k) p[k] = single_log_gamma(*words, from[k]);
  } else if (distribution == "permutation") {
    fill_permutation(*words, y.data<int64_t>(), n);
  } else {
    auto low = uint64_t(first.to_int()), range = uint64_t(second.to_int());
    bool wide = distribution == "long_words" ||
                (distribution == "integers" && (range == 0 || range >= uint64_t(1) << 28));
    fill_integers(*words, y.data<int64_t>(), n, low, range, wide);
  }
  to.finish();
  return Results(out[0]);
}

}  // namespace facula::device::cpu
