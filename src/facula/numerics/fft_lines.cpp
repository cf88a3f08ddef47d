#include "facula/numerics/fft_lines.h"

#include <algorithm>

#include "facula/numerics/fft_long.h"
#include "facula/numerics/fft_single.h"
#include "facula/numerics/small.h"

namespace facula::numerics {

namespace {

// Up to this number of lines, they are computed one by one, with vectors within a line.
int64_t few_lines(int64_t n) { return n < 300 ? 1 : 3; }
// A line is long if it is faster to compute it as a matrix, or if lines side by side do not fit into a core's cache.
constexpr int64_t kLongAlone = 2048, kMostRows = 16384;

// The kinds of transforms. Points begin at `rows`, with as many numbers each as the kind has parts; run() returns the
// position of the result: in `rows` or in `buffer`.
struct Complex {
  static constexpr int kFrom = 2, kTo = 2, kParts = 2;  // numbers per point before, after, and in between
  template <class M, class T>
  using Plan = LinePlan<M, T>;
  template <class M, class T>
  using Alone = AloneSteps<M, T>;
  template <class T>
  using Scalars = ducc0::pocketfft_c<T>;
  bool forward;
  static int64_t points_from(int64_t n) { return n; }
  static int64_t points_to(int64_t n) { return n; }
  template <class Plan, class V, class T>
  V* run(const Plan& plan, V* rows, V* buffer, T factor) const {
    return plan.run(rows, buffer, forward, factor);
  }
  template <class Alone, class V, class T>
  void alone(const Alone& plan, const T* from, T* to, T factor, V* room) const {
    plan.run(from, to, forward, factor, room);
  }
  template <class T>
  T* by_numbers(const Scalars<T>& plan, T* rows, T* buffer, T factor) const {
    using C = ducc0::Cmplx<T>;
    return reinterpret_cast<T*>(
        plan.exec(reinterpret_cast<C*>(rows), reinterpret_cast<C*>(buffer), factor, forward));
  }
};
struct RealForward {
  static constexpr int kFrom = 1, kTo = 2, kParts = 1;
  template <class M, class T>
  using Plan = RealPlan<M, T>;
  template <class M, class T>
  using Alone = AloneReal<M, T>;
  template <class T>
  using Scalars = ducc0::pocketfft_r<T>;
  static int64_t points_from(int64_t n) { return n; }
  static int64_t points_to(int64_t n) { return n / 2 + 1; }
  template <class Plan, class V, class T>
  V* run(const Plan& plan, V* rows, V* buffer, T factor) const {
    return plan.forward(rows, buffer, factor);
  }
  template <class Alone, class V, class T>
  void alone(const Alone& plan, const T* from, T* to, T factor, V* room) const {
    plan.forward(from, to, factor, room);
  }
  template <class T>
  T* by_numbers(const Scalars<T>& plan, T* rows, T* buffer,
                T factor) const {  // RealPlan stores ducc0's spectra likewise
    T* spectrum = plan.exec(rows, buffer, factor, true);
    int64_t n = int64_t(plan.length());
    spectrum[-1] = spectrum[0];
    spectrum[0] = 0;
    if (n % 2 == 0) spectrum[n] = 0;
    return spectrum - 1;
  }
};
struct RealBackward {
  static constexpr int kFrom = 2, kTo = 1, kParts = 1;
  template <class M, class T>
  using Plan = RealPlan<M, T>;
  template <class M, class T>
  using Alone = AloneReal<M, T>;
  template <class T>
  using Scalars = ducc0::pocketfft_r<T>;
  static int64_t points_from(int64_t n) { return n / 2 + 1; }
  static int64_t points_to(int64_t n) { return n; }
  template <class Plan, class V, class T>
  V* run(const Plan& plan, V* rows, V* buffer, T factor) const {
    return plan.backward(rows, buffer, factor);
  }
  template <class Alone, class V, class T>
  void alone(const Alone& plan, const T* from, T* to, T factor, V* room) const {
    plan.backward(from, to, factor, room);
  }
  template <class T>
  T* by_numbers(const Scalars<T>& plan, T* rows, T* buffer, T factor) const {
    rows[1] = rows[0];
    return plan.exec(rows + 1, buffer, factor, false);
  }
};

// Memory of a thread for one block of lines in rows of type V: one row before, some behind, and a buffer. Adjacent rows
// at a multiple of a page's distance would map to the same sets of the first-level cache.
template <class V>
struct Room {
  Room(int64_t rows, int64_t buffer) : length(rows + 18), memory(size_t(length + 4 + buffer)) {}
  V* rows() { return memory.data() + 1; }
  V* buffer() { return rows() + length + 1; }
  int64_t length;
  Workspace<V> memory;
};

template <class M, class Kind, class T>
void load(const typename LineLanes<T, M::kBytes>::From& from, int64_t step, int64_t points,
          typename LineLanes<T, M::kBytes>::V* rows) {
  using L = LineLanes<T, M::kBytes>;
  constexpr int parts = Kind::kFrom;
  M::run([&]() __attribute__((always_inline)) {
    if (step == parts) L::load_along(from, points * parts, rows);
    else if (from.adjacent(parts))
      for (int64_t i = 0; i < points; ++i)
        L::template load_across<parts>(from.at[0] + i * step, rows + i * parts);
    else L::template load_apart<parts>(from, step, points, rows);
  });
}
template <class M, class Kind, class T>
void store(const typename LineLanes<T, M::kBytes>::V* rows, int64_t step, int64_t points,
           const typename LineLanes<T, M::kBytes>::To& to) {
  using L = LineLanes<T, M::kBytes>;
  constexpr int parts = Kind::kTo;
  M::run([&]() __attribute__((always_inline)) {
    if (step == parts) L::store_along(rows, points * parts, to);
    else if (to.adjacent(parts))
      for (int64_t i = 0; i < points; ++i)
        L::template store_across<parts>(rows + i * parts, to.at[0] + i * step);
    else L::template store_apart<parts>(rows, step, points, to);
  });
}

// Iterates over the lines: offsets of those from `first` on.
struct Walk {
  const FourierLines& lines;
  template <class F>
  void each(int64_t first, int64_t count, F&& f) const {
    std::vector<int64_t> at(lines.others.size());
    int64_t from = 0, to = 0, rest = first;
    for (size_t k = 0; k < at.size(); ++k) {
      at[k] = rest % lines.others[k].size;
      rest /= lines.others[k].size;
      from += at[k] * lines.others[k].from;
      to += at[k] * lines.others[k].to;
    }
    for (int64_t l = 0; l < count; ++l) {
      f(l, from, to);
      for (size_t k = 0; k < at.size(); ++k) {
        auto& d = lines.others[k];
        from += d.from, to += d.to;
        if (++at[k] < d.size) break;
        from -= d.size * d.from, to -= d.size * d.to;
        at[k] = 0;
      }
    }
  }
};

// Minimum number of points in a thread's share.
constexpr int64_t kShare = 16384;

// Complex lines that are adjacent: the first step reads points straight from memory, and the last one writes them there.
template <class M, class T>
struct Across {
  using L = LineLanes<T, M::kBytes>;
  using V = typename L::V;
  using C = typename Points<V, T>::C;
  const T* from;
  T* to;
  int64_t from_step, to_step, reversed;
  T factor;
  FACULA_MEMBER C operator()(int64_t i) const {
    V row[2];
    L::template load_across<2>(from + i * from_step, row);
    return {row[0], row[1]};
  }
  FACULA_MEMBER void operator()(int64_t k, C x) const {
    V row[2] = {x.re * factor, x.im * factor};
    L::template store_across<2>(row, to + LaneSteps<M, T>::place(k, reversed) * to_step);
  }
};
template <class M, class T>
bool across(const LinePlan<M, T>& plan, const Complex& kind,
            const typename LineLanes<T, M::kBytes>::From& from,
            const typename LineLanes<T, M::kBytes>::To& to, int64_t from_step, int64_t to_step, T factor,
            typename LineLanes<T, M::kBytes>::V* rows) {
  if (!plan.steps() || !from.adjacent(2) || !to.adjacent(2)) return false;
  Across<M, T> lines{from.at[0], to.at[0], from_step, to_step, kind.forward ? 0 : plan.length(), factor};
  LaneSteps<M, T>::run(*plan.steps(), lines, rows, lines);
  return true;
}
template <class... Any>
bool across(const Any&...) {
  return false;
}

// Computes a line by itself with ducc0, with vectors within it.
template <class Kind, class T>
class ByItself {
 public:
  ByItself(const Kind& kind, const FourierLines& lines, T factor)
      : kind_(kind),
        lines_(lines),
        factor_(factor),
        plan_(plan_of<Plan>(lines.n)),
        room_(lines.n * Kind::kParts, int64_t(plan_->bufsize()) * Kind::kParts) {}
  void operator()(const T* from, T* to) {
    int64_t n = lines_.n;
    copy(from, lines_.from * Kind::kFrom, room_.rows(), Kind::kFrom, Kind::points_from(n), Kind::kFrom);
    T* result = kind_.by_numbers(*plan_, room_.rows(), room_.buffer(), factor_);
    copy(result, Kind::kTo, to, lines_.to * Kind::kTo, Kind::points_to(n), Kind::kTo);
  }

 private:
  using Plan = typename Kind::template Scalars<T>;
  static void copy(const T* a, int64_t a_step, T* b, int64_t b_step, int64_t points, int parts) {
    for (int64_t i = 0; i < points; ++i)
      for (int p = 0; p < parts; ++p) b[i * b_step + p] = a[i * a_step + p];
  }
  const Kind& kind_;
  const FourierLines& lines_;
  T factor_;
  std::shared_ptr<const Plan> plan_;
  Room<T> room_;
};

// Steps of a real line of half the length add and subtract points that a transform of the full length keeps apart:
// infinities, and numbers near them, become NaN in more places. Such lines are transformed again, by themselves; `first`
// are the first two numbers.
template <class Kind, class V>
FACULA_MEMBER bool is_mixed(const V* first) {
  if constexpr (std::is_same_v<Kind, Complex>) return false;
  V zero = (first[0] - first[0]) + (first[1] - first[1]);
  if constexpr (std::is_floating_point_v<V>) return zero != 0;
  else {
    bool mixed = false;
    for (size_t l = 0; l < sizeof(V) / sizeof(zero[0]); ++l) mixed |= zero[l] != 0;
    return mixed;
  }
}

// Computes one line per lane. Missing lines of the last block repeat its first.
template <class M, class Kind, class T>
void side_by_side(const Kind& kind, const T* from, T* to, const FourierLines& lines, T factor) {
  using L = LineLanes<T, M::kBytes>;
  using V = typename L::V;
  auto plan = plan_of<typename Kind::template Plan<M, T>>(lines.n);
  int64_t count = lines.count(), blocks = (count + L::kCount - 1) / L::kCount;
  int64_t from_step = lines.from * Kind::kFrom, to_step = lines.to * Kind::kTo;
  parallel_for(blocks, kShare / (lines.n * L::kCount), [&](int64_t begin, int64_t end) {
    Room<V> room(lines.n * Kind::kParts, plan->room());
    for (int64_t block = begin; block < end; ++block) {
      typename L::From sources;
      typename L::To targets;
      sources.count = targets.count = int(std::min<int64_t>(L::kCount, count - block * L::kCount));
      Walk{lines}.each(block * L::kCount, sources.count, [&](int64_t l, int64_t a, int64_t b) {
        sources.at[size_t(l)] = from + a * Kind::kFrom;
        targets.at[size_t(l)] = to + b * Kind::kTo;
      });
      for (int l = sources.count; l < L::kCount; ++l) sources.at[size_t(l)] = sources.at[0];
      if (across(*plan, kind, sources, targets, from_step, to_step, factor, room.rows())) continue;
      load<M, Kind, T>(sources, from_step, Kind::points_from(lines.n), room.rows());
      V* result = kind.run(*plan, room.rows(), room.buffer(), factor);
      if (is_mixed<Kind>(result)) [[unlikely]] {
        ByItself<Kind, T> line(kind, lines, factor);
        for (int l = 0; l < sources.count; ++l) line(sources.at[size_t(l)], targets.at[size_t(l)]);
        continue;
      }
      store<M, Kind, T>(result, to_step, Kind::points_to(lines.n), targets);
    }
  });
}

// Computes lines with adjacent points one by one, if there are steps for them. They stay in the first-level cache, which
// lines side by side do not; short lines are faster side by side.
template <class M, class Kind, class T>
bool alone(const Kind& kind, const T* from, T* to, const FourierLines& lines, T factor) {
  using Alone = typename Kind::template Alone<M, T>;
  constexpr int64_t kMost = 32768, kShort = 256;
  if (lines.from != 1 || lines.to != 1 || lines.n > kMost || !Alone::serve(lines.n)) return false;
  if (lines.n < kShort && lines.count() >= LineLanes<T>::kCount) return false;
  auto plan = plan_of<Alone>(lines.n);
  parallel_for(lines.count(), kShare / lines.n, [&](int64_t begin, int64_t end) {
    Workspace<typename Alone::V> room(size_t(plan->room()));
    Walk{lines}.each(begin, end - begin, [&](int64_t, int64_t a, int64_t b) {
      T* result = to + b * Kind::kTo;
      kind.alone(*plan, from + a * Kind::kFrom, result, factor, room.data());
      if (is_mixed<Kind>(result)) [[unlikely]]
        ByItself<Kind, T>(kind, lines, factor)(from + a * Kind::kFrom, result);
    });
  });
  return true;
}

template <class Kind, class T>
void one_by_one(const Kind& kind, const T* from, T* to, const FourierLines& lines, T factor) {
  parallel_for(lines.count(), kShare / lines.n, [&](int64_t begin, int64_t end) {
    ByItself<Kind, T> line(kind, lines, factor);
    Walk{lines}.each(begin, end - begin, [&](int64_t, int64_t a, int64_t b) {
      line(from + a * Kind::kFrom, to + b * Kind::kTo);
    });
  });
}

// Loads points of a long line into lanes as complex numbers, and stores them. The inverse transform is the forward one
// with real and imaginary parts exchanged on both sides.
template <class M, class T>
struct LongPoints {
  using L = LineLanes<T, M::kBytes>;
  using V = typename L::V;
  int64_t n, step;
  T factor;
  bool exchanged;

  template <int kParts, class P>
  FACULA_MEMBER void load(const P* from, int64_t j, int64_t count, V* row) const {
    if (step == kParts && count == L::kCount) L::template load_across<kParts>(from + j * kParts, row);
    else
      for (int64_t l = 0; l < count; ++l)
        for (int p = 0; p < kParts; ++p) row[p][size_t(l)] = from[(j + l) * step + p];
    if (kParts == 1) row[1] = V();
    if (exchanged) std::swap(row[0], row[1]);
  }
  template <int kParts>
  FACULA_MEMBER void store(T* to, int64_t k, int64_t count, const V* row) const {
    V x[2] = {row[exchanged] * factor, row[!exchanged] * factor};
    if (step == kParts && count == L::kCount) return L::template store_across<kParts>(x, to + k * kParts);
    for (int64_t l = 0; l < count; ++l)
      for (int p = 0; p < kParts; ++p) to[(k + l) * step + p] = x[p][size_t(l)];
  }
};
template <class M, class T>
void long_line(const LongLine<M, T>& plan, const Complex& kind, const T* from, T* to,
               const FourierLines& lines, T factor) {
  LongPoints<M, T> source{lines.n, lines.from * 2, 1, !kind.forward},
      target{lines.n, lines.to * 2, factor, !kind.forward};
  using V = typename LongPoints<M, T>::V;
  plan.forward([&](int64_t j, int64_t count, V* row)
                   __attribute__((always_inline)) { source.template load<2>(from, j, count, row); },
               [&](int64_t k, int64_t count, V* row)
                   __attribute__((always_inline)) { target.template store<2>(to, k, count, row); });
}
template <class M, class T>
void long_line(const LongLine<M, T>& plan, const RealForward&, const T* from, T* to,
               const FourierLines& lines, T factor) {
  LongPoints<M, T> source{lines.n, lines.from, 1, false}, target{lines.n, lines.to * 2, factor, false};
  using V = typename LongPoints<M, T>::V;
  plan.forward([&](int64_t j, int64_t count, V* row)
                   __attribute__((always_inline)) { source.template load<1>(from, j, count, row); },
               [&](int64_t k, int64_t count, V* row) __attribute__((always_inline)) {
                 if (k <= lines.n / 2)
                   target.template store<2>(to, k, std::min(count, lines.n / 2 + 1 - k), row);
               });
  to[1] = 0;
  if (lines.n % 2 == 0) to[lines.n / 2 * lines.to * 2 + 1] = 0;
}
template <class M, class T>
void long_line(const LongLine<M, T>& plan, const RealBackward&, const T* from, T* to,
               const FourierLines& lines, T factor) {
  LongPoints<M, T> source{lines.n, lines.from * 2, 1, true}, target{lines.n, lines.to, factor, true};
  using V = typename LongPoints<M, T>::V;
  auto load = [&](int64_t j, int64_t count, V* row) __attribute__((always_inline)) {
    if (j > 0 && j + count <= (lines.n + 1) / 2) return source.template load<2>(from, j, count, row);
    for (int64_t l = 0; l < count; ++l) {  // the other half is the conjugate; points 0 and n / 2 are real
      int64_t at = j + l, other = (lines.n - at) % lines.n;
      const T* x = from + std::min(at, other) * source.step;
      row[1][size_t(l)] = x[0];
      row[0][size_t(l)] = at == other ? 0 : at < other ? x[1] : -x[1];
    }
  };
  plan.forward(load, [&](int64_t k, int64_t count, V* row)
                         __attribute__((always_inline)) { target.template store<1>(to, k, count, row); });
}

// Threads share the lines if there are enough, otherwise each line.
template <class M, class Kind, class T>
bool long_lines(const Kind& kind, const T* from, T* to, const FourierLines& lines, T factor) {
  int64_t count = lines.count();
  if (count <= few_lines(lines.n) ? lines.n < kLongAlone : lines.n * Kind::kParts <= kMostRows) return false;
  auto plan = LongLine<M, T>::of(lines.n);
  if (!plan) return false;
  parallel_for(count, count < num_threads() ? count : 1, [&](int64_t begin, int64_t end) {
    Walk{lines}.each(begin, end - begin, [&](int64_t, int64_t a, int64_t b) {
      long_line(*plan, kind, from + a * Kind::kFrom, to + b * Kind::kTo, lines, factor);
    });
  });
  return true;
}

template <class Kind, class T>
void transform(const Kind& kind, const T* from, T* to, const FourierLines& lines, T factor) {
  bool wide = small_lanes<T>() * int(sizeof(T)) == Avx512::kBytes;
  if (wide && alone<Avx512>(kind, from, to, lines, factor)) return;
  if (alone<Avx2>(kind, from, to, lines, factor)) return;
  if (wide && long_lines<Avx512>(kind, from, to, lines, factor)) return;
  if (long_lines<Avx2>(kind, from, to, lines, factor)) return;
  if (lines.count() <= few_lines(lines.n)) return one_by_one(kind, from, to, lines, factor);
  if (wide && lines.count() > LineLanes<T>::kCount && Kind::template Plan<Avx512, T>::serves(lines.n))
    return side_by_side<Avx512>(kind, from, to, lines, factor);
  side_by_side<Avx2>(kind, from, to, lines, factor);
}

template <class T>
const T* parts(const std::complex<T>* x) {
  return reinterpret_cast<const T*>(x);
}
template <class T>
T* parts(std::complex<T>* x) {
  return reinterpret_cast<T*>(x);
}

}  // namespace

template <class T>
void transform_lines(const std::complex<T>* from, std::complex<T>* to, const FourierLines& lines,
                     bool forward, T factor) {
  transform(Complex{forward}, parts(from), parts(to), lines, factor);
}
template <class T>
void transform_lines(const T* from, std::complex<T>* to, const FourierLines& lines, T factor) {
  transform(RealForward(), from, parts(to), lines, factor);
}
template <class T>
void transform_lines(const std::complex<T>* from, T* to, const FourierLines& lines, T factor) {
  transform(RealBackward(), parts(from), to, lines, factor);
}

#define FACULA_TRANSFORMS(T)                                                                              \
  template void transform_lines(const std::complex<T>*, std::complex<T>*, const FourierLines&, bool, T);         \
  template void transform_lines(const T*, std::complex<T>*, const FourierLines&, T);                             \
  template void transform_lines(const std::complex<T>*, T*, const FourierLines&, T);
FACULA_TRANSFORMS(float)
FACULA_TRANSFORMS(double)
#undef FACULA_TRANSFORMS

}  // namespace facula::numerics
