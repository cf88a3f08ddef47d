#include "facula/numerics/tridiagonal.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "facula/numerics/column_strips.h"
#include "facula/numerics/lanes.h"
#include "facula/numerics/small.h"
#include "facula/numerics/worker_team.h"

namespace facula::numerics {

namespace {

constexpr int64_t kLeaf = 25;       // rows of a part that is solved by QL, as in LAPACK
constexpr int64_t kRootBlock = 64;  // roots, or rows of vectors, that a thread computes at a time
constexpr int64_t kLeafRow = 32;    // distance between rows of a leaf's vectors

template <class T>
constexpr T kEps = std::numeric_limits<T>::epsilon() / 2;
template <class T>
constexpr T kTiny = std::numeric_limits<T>::min();

// The two parts of a secular function at a point, from poles below and above the root's interval, and their derivatives.
template <class T>
struct Sums {
  T lower, upper, lower_slope, upper_slope;
};

// Loops over full panels of poles.
template <class T, int kBytes>
struct SecularLanes {
  using L = Lanes<T, kBytes>;
  using V = typename L::V;

  FACULA_LANES V read(const T* from) {
    V x;
    std::memcpy(&x, from, sizeof x);
    return x;
  }
  FACULA_LANES void write(T* to, V x) { std::memcpy(to, &x, sizeof x); }

  FACULA_LANES Sums<T> sums(int64_t n, const T* poles, const T* weights, T origin, T split, T tau) {
    V lower{}, upper{}, lower_slope{}, upper_slope{};
    for (int64_t i = 0; i < n; i += L::kCount) {
      V base = read(poles + i) - origin, weight = read(weights + i), ratio = weight / (base - tau);
      V term = weight * ratio, slope = ratio * ratio;
      auto left = base <= split;
      lower += left ? term : V();
      lower_slope += left ? slope : V();
      upper += left ? V() : term;
      upper_slope += left ? V() : slope;
    }
    return {L::total(lower), L::total(upper), L::total(lower_slope), L::total(upper_slope)};
  }
  FACULA_LANES void differences(int64_t n, const T* poles, T origin, T tau, T* to) {
    for (int64_t i = 0; i < n; i += L::kCount) write(to + i, read(poles + i) - origin - tau);
  }
  FACULA_LANES void multiply_ratios(int64_t n, const T* differences, const T* poles, T pole, T* products) {
    for (int64_t i = 0; i < n; i += L::kCount) {
      V distance = read(poles + i) - pole;
      distance = distance == 0 ? L::all(1) : distance;
      write(products + i, read(products + i) * (read(differences + i) / distance));
    }
  }
  FACULA_LANES void form_vector(int64_t n, const T* weights, T* row) {
    V squares{};
    for (int64_t i = 0; i < n; i += L::kCount) {
      V x = read(weights + i) / read(row + i);
      squares += x * x;
      write(row + i, x);
    }
    T scale = -1 / std::sqrt(L::total(squares));
    for (int64_t i = 0; i < n; i += L::kCount) write(row + i, read(row + i) * scale);
  }
  FACULA_LANES void rotate_rows(int64_t count, const T* cosines, const T* sines, int64_t columns, T* rows,
                                int64_t row) {
    for (int64_t i = 0; i < columns; i += L::kCount) {
      V last = read(rows + count * row + i);
      for (int64_t k = count; k-- > 0;) {
        V x = read(rows + k * row + i);
        write(rows + (k + 1) * row + i, cosines[k] * last + sines[k] * x);
        last = cosines[k] * x - sines[k] * last;
      }
      write(rows + i, last);
    }
  }
};

template <class T>
struct SecularKernels {
  // Sums of weight^2 / (pole - origin - tau) over poles up to origin + split and over those above.
  Sums<T> (*sums)(int64_t n, const T* poles, const T* weights, T origin, T split, T tau);
  // to = poles - origin - tau
  void (*differences)(int64_t n, const T* poles, T origin, T tau, T* to);
  // products *= differences / (poles - pole); for the pole itself, only its difference
  void (*multiply_ratios)(int64_t n, const T* differences, const T* poles, T pole, T* products);
  // row = - weights / row, of length 1
  void (*form_vector)(int64_t n, const T* weights, T* row);
  // Rows k and k + 1, `row` apart, become (c x - s y, s x + c y), beginning with the last k.
  void (*rotate_rows)(int64_t count, const T* cosines, const T* sines, int64_t columns, T* rows, int64_t row);
};

#define FACULA_SECULAR(name, bytes, features)                                                                      \
  template <class T>                                                                                               \
  struct name {                                                                                                    \
    using In = SecularLanes<T, bytes>;                                                                             \
    __attribute__((target(features))) static Sums<T> sums(int64_t n, const T* poles, const T* weights, T origin,   \
                                                          T split, T tau) {                                        \
      return In::sums(n, poles, weights, origin, split, tau);                                                      \
    }                                                                                                              \
    __attribute__((target(features))) static void differences(int64_t n, const T* poles, T origin, T tau, T* to) { \
      In::differences(n, poles, origin, tau, to);                                                                  \
    }                                                                                                              \
    __attribute__((target(features))) static void multiply_ratios(int64_t n, const T* differences, const T* poles, \
                                                                  T pole, T* products) {                           \
      In::multiply_ratios(n, differences, poles, pole, products);                                                  \
    }                                                                                                              \
    __attribute__((target(features))) static void form_vector(int64_t n, const T* weights, T* row) {               \
      In::form_vector(n, weights, row);                                                                            \
    }                                                                                                              \
    __attribute__((target(features))) static void rotate_rows(int64_t count, const T* cosines, const T* sines,     \
                                                              int64_t columns, T* rows, int64_t row) {             \
      In::rotate_rows(count, cosines, sines, columns, rows, row);                                                  \
    }                                                                                                              \
    static constexpr SecularKernels<T> all{sums, differences, multiply_ratios, form_vector, rotate_rows};          \
  };
FACULA_SECULAR(Secular64, 64, "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")
FACULA_SECULAR(Secular32, 32, "avx2,fma")
#undef FACULA_SECULAR

template <class T>
const SecularKernels<T>& secular_kernels() {
  return small_lanes<T>() * sizeof(T) == 64 ? Secular64<T>::all : Secular32<T>::all;
}

// ---- Small parts

// Eigenvalues of (a b; b c) with b not 0: `first` has the larger magnitude and the vector (c, s), `second` the vector
// (-s, c).
template <class T>
struct Pair {
  T first, second, c, s;
  Pair(T a, T b, T c_) {
    T sum = a + c_, difference = a - c_, twice = b + b;
    T root = std::hypot(difference, twice);
    T large = std::abs(a) > std::abs(c_) ? a : c_, small = std::abs(a) > std::abs(c_) ? c_ : a;
    first = (sum + (sum < 0 ? -root : root)) / 2;
    second = sum == 0 ? -root / 2 : (large / first) * small - (b / first) * b;
    T across = difference + (difference < 0 ? -root : root), length = std::hypot(across, twice);
    length = std::copysign(length, std::abs(across) > std::abs(twice) ? across : -twice);
    bool same = (sum < 0) == (difference < 0);
    c = -(same ? across : twice) / length;
    s = (same ? -twice : across) / length;
  }
};

// Implicit QL from the end with the larger elements, as steqr does. Vectors are rows, with all elements or only the first
// and the last.
template <class T>
class SmallPart {
 public:
  SmallPart(int64_t n, T* d, T* e, bool full, T* rows)
      : n_(n), columns_(full ? padded(n) : kPanel), full_(full), d_(d), e_(e), rows_(rows) {}

  int solve() {
    for (int64_t i = 0; i < n_; ++i) {
      T* row = rows_ + i * kLeafRow;
      std::fill_n(row, columns_, T(0));
      if (full_) row[i] = 1;
      else row[0] = i == 0, row[1] = i == n_ - 1;
    }
    for (int64_t first = 0, last; first < n_; first = last + 1) {
      for (last = first; last + 1 < n_; ++last) {
        T limit = std::sqrt(std::abs(d_[last])) * std::sqrt(std::abs(d_[last + 1])) * kEps<T>;
        if (std::abs(e_[last]) > limit) continue;
        e_[last] = 0;
        break;
      }
      bool turned = std::abs(d_[last]) < std::abs(d_[first]);
      iterate(turned ? Line{d_ + last, e_ + last - 1, last, -1} : Line{d_ + first, e_ + first, first, 1},
              last - first);
      if (left_ < 0) break;
    }
    int rest = 0;
    for (int64_t i = 0; i + 1 < n_; ++i) rest += e_[i] != 0;
    return rest;
  }

 private:
  struct Line {  // elements of a part in the order of the steps
    T *d, *e;
    int64_t row, step;
    T& diagonal(int64_t i) const { return d[i * step]; }
    T& off_diagonal(int64_t i) const { return e[i * step]; }
  };

  void iterate(Line x, int64_t end) {
    for (int64_t l = 0, m; l <= end;) {
      for (m = l; m < end; ++m) {
        T square = x.off_diagonal(m) * x.off_diagonal(m);
        if (square <= kEps<T> * kEps<T> * std::abs(x.diagonal(m)) * std::abs(x.diagonal(m + 1)) + kTiny<T>)
          break;
      }
      if (m < end) x.off_diagonal(m) = 0;
      if (m == l) {
        ++l;
      } else if (m == l + 1) {
        take_pair(x, l);
        l += 2;
      } else {
        if (--left_ < 0) return;
        sweep(x, l, m);
      }
    }
  }
  void take_pair(Line x, int64_t l) {
    int64_t low = x.step > 0 ? l : l + 1, row = x.row + low * x.step;
    Pair<T> p(x.d[low * x.step], x.off_diagonal(l), x.d[low * x.step + 1]);
    x.d[low * x.step] = p.first;
    x.d[low * x.step + 1] = p.second;
    x.off_diagonal(l) = 0;
    T c = p.c, s = -p.s;
    secular_kernels<T>().rotate_rows(1, &c, &s, columns_, rows_ + row * kLeafRow, kLeafRow);
  }
  void sweep(Line x, int64_t l, int64_t m) {
    T cosines[kLeaf], sines[kLeaf], p = x.diagonal(l);
    T g = (x.diagonal(l + 1) - p) / (2 * x.off_diagonal(l));
    g = x.diagonal(m) - p + x.off_diagonal(l) / (g + std::copysign(std::hypot(g, T(1)), g));
    T s = 1, c = 1;
    p = 0;
    for (int64_t i = m; i-- > l;) {
      T f = s * x.off_diagonal(i), b = c * x.off_diagonal(i), square = f * f + g * g;
      T length = std::copysign(square > kTiny<T> ? std::sqrt(square) : std::hypot(f, g), g);
      if (f == 0) c = 1, s = 0, length = g;
      else if (g == 0) c = 0, s = std::copysign(T(1), f), length = std::abs(f);
      else c = std::abs(g / length), s = f / length;
      if (i != m - 1) x.off_diagonal(i + 1) = length;
      g = x.diagonal(i + 1) - p;
      T r = (x.diagonal(i) - g) * s + 2 * c * b;
      p = s * r;
      x.diagonal(i + 1) = g + p;
      g = c * r - b;
      cosines[i - l] = c;
      sines[i - l] = s;
    }
    secular_kernels<T>().rotate_rows(m - l, cosines, sines, columns_, rows_ + (x.row + l * x.step) * kLeafRow,
                                     x.step * kLeafRow);
    x.diagonal(l) -= p;
    x.off_diagonal(l) = g;
  }

  int64_t n_, columns_;
  bool full_;
  T *d_, *e_, *rows_;
  int64_t left_ = 30 * n_;  // sweeps
};

// ---- Roots of 1 / rho + sum of weight^2 / (pole - x)

template <class T>
class Secular {
 public:
  // `poles` are full panels, of which `count` are valid; `ranked` lists these in ascending order. Other poles have weight
  // 0.
  Secular(int64_t count, const T* poles, const T* weights, const int64_t* ranked, T rho, T square)
      : count_(count),
        padded_(padded(count)),
        poles_(poles),
        weights_(weights),
        ranked_(ranked),
        rho_(rho),
        square_(square) {}

  // Returns root `rank` and writes poles minus the root to `differences`, each to its full accuracy.
  T root(int64_t rank, T* differences) const {
    if (count_ == 1) {
      differences[0] = -rho_ * square_;
      std::fill_n(differences + 1, padded_ - 1, T(1));
      return poles_[0] - differences[0];
    }
    Search x;
    x.last = rank == count_ - 1;
    int64_t left = ranked_[x.last ? rank - 1 : rank], right = ranked_[x.last ? rank : rank + 1];
    x.left = poles_[left], x.right = poles_[right];
    x.left_square = weights_[left] * weights_[left], x.right_square = weights_[right] * weights_[right];
    begin(x);
    refine(x);
    secular_kernels<T>().differences(padded_, poles_, x.origin, x.tau, differences);
    return x.origin + x.tau;
  }

 private:
  struct Search {
    bool last;
    // the poles around the root, or the two below it for the last root
    T left, right, left_square, right_square;
    T origin, tau, low, high;  // the root is origin + tau, tau in (low, high)
  };
  struct Value {
    T f, lower_slope, upper_slope, error;
  };

  Value at(const Search& x) const {
    auto s = secular_kernels<T>().sums(padded_, poles_, weights_, x.origin, x.left - x.origin, x.tau);
    T slope = s.lower_slope + s.upper_slope;
    return {1 / rho_ + s.lower + s.upper, s.lower_slope, s.upper_slope,
            kEps<T> * (8 * (std::abs(s.lower) + std::abs(s.upper)) + 2 / rho_ + std::abs(x.tau) * slope)};
  }

  // The sign in the middle of the interval tells the nearer pole; an equation with the two poles alone then gives a first
  // approximation.
  void begin(Search& x) const {
    T gap = x.right - x.left;
    x.origin = x.last ? x.right : x.left;
    x.low = 0;
    x.high = x.last ? rho_ * square_ : gap;
    x.tau = x.high / 2;
    T middle = x.tau;
    Value v = at(x);
    T to_left = x.last ? -gap - middle : -middle, to_right = x.last ? -middle : gap / 2;
    T c = v.f - x.left_square / to_left - x.right_square / to_right;
    T both = x.left_square + x.right_square, a, b;
    bool nearer_right = !x.last && v.f < 0;
    if (x.last) {
      (v.f <= 0 ? x.low : x.high) = middle;
      a = -c * gap + both, b = x.right_square * gap;
      T root = std::sqrt(std::abs(a * a + 4 * b * c));
      x.tau = a < 0 ? 2 * b / (root - a) : (a + root) / (2 * c);
    } else if (nearer_right) {
      x.origin = x.right, x.low = -middle, x.high = 0;
      a = -c * gap + both, b = x.right_square * gap;
      T root = std::sqrt(std::abs(a * a + 4 * b * c));
      x.tau = a < 0 ? 2 * b / (a - root) : -(a + root) / (2 * c);
    } else {
      x.high = middle;
      a = c * gap + both, b = x.left_square * gap;
      T root = std::sqrt(std::abs(a * a - 4 * b * c));
      x.tau = a > 0 ? 2 * b / (a + root) : (a - root) / (2 * c);
    }
    if (!(x.tau > x.low && x.tau < x.high)) x.tau = x.low + (x.high - x.low) / 2;
  }

  // Each part of the function is approximated by a rational one with one pole: either both with their values and slopes,
  // or one with the exact weight of its pole. These alternate when convergence is slow, and bisection replaces a step out
  // of the interval.
  void refine(Search& x) const {
    constexpr int kMost = 250, kInterpolated = 50;
    bool fixed = !x.last;
    T before = std::numeric_limits<T>::infinity();
    for (int k = 0; k < kMost; ++k) {
      Value v = at(x);
      if (std::abs(v.f) <= v.error) return;
      (v.f < 0 ? x.low : x.high) = x.tau;
      if (std::abs(v.f) > before / 10 && !x.last) fixed = !fixed;
      before = std::abs(v.f);
      T next = x.tau + step(x, v, fixed);
      if (k > kInterpolated || !(next > x.low && next < x.high)) next = x.low + (x.high - x.low) / 2;
      if (next == x.tau || next <= x.low || next >= x.high) return;  // no floating-point number in between
      x.tau = next;
    }
  }
  T step(const Search& x, const Value& v, bool fixed) const {
    T left = x.left - x.origin - x.tau, right = x.right - x.origin - x.tau;
    T slope = v.lower_slope + v.upper_slope, c;
    if (!fixed) c = v.f - left * v.lower_slope - right * v.upper_slope;
    else if (x.origin == x.left) c = v.f - right * slope - (x.left - x.right) * (x.left_square / left / left);
    else c = v.f - left * slope - (x.right - x.left) * (x.right_square / right / right);
    T a = (left + right) * v.f - left * right * slope, b = left * right * v.f;
    T root = std::sqrt(std::abs(a * a - 4 * b * c)), eta;
    if (x.last) {
      c = std::abs(c);
      eta = a >= 0 ? (a + root) / (2 * c) : 2 * b / (a - root);
    } else {
      eta = a <= 0 ? (a - root) / (2 * c) : 2 * b / (a + root);
    }
    return v.f * eta < 0 ? eta : -v.f / slope;
  }

  int64_t count_, padded_;
  const T *poles_, *weights_;
  const int64_t* ranked_;
  T rho_, square_;
};

// ---- Divide and conquer

template <class T>
class DivideAndConquer {
 public:
  DivideAndConquer(int64_t n, T* d, T* e, RowMajor<T> vectors)
      : n_(n),
        d_(d),
        e_(e),
        full_(vectors.data != nullptr),
        strip_row_(full_ ? n / 2 + 1 + kStrip : kStrip),
        secular_row_(padded(n) + kPanel) {
    for (auto* x : {&z_, &roots_, &sorted_}) x->resize(size_t(n));
    for (auto* x : {&order_, &deflated_, &ranked_, &row_at_, &root_to_, &deflated_to_}) x->resize(size_t(n));
    kind_.resize(size_t(n));
    rotations_.resize(size_t(n));
    find_blocks();
    for (auto& b : blocks_) depth_ = std::max(depth_, b.depth);
    // The vectors of each level are in one of two buffers; those of a single block end in the result.
    int last = blocks_.size() > 1 ? 0 : 1;
    int64_t row = full_ ? padded(n) + kPanel : 2;
    bool there = last == 1 && full_;
    memory_[0].resize(size_t(n * row));
    memory_[1].resize(there ? 0 : size_t(n * row));
    q_[0] = {memory_[0].data(), row};
    q_[1] = there ? vectors : RowMajor<T>{memory_[1].data(), row};
    for (auto& b : blocks_) b.leaves_in = int((b.depth + last) & 1);
    strips_.resize(depth_ > 0 ? size_t(n * strip_row_) : 0);
    secular_.resize(depth_ > 0 ? size_t(n * secular_row_) : 0);
    vectors_ = vectors;
  }

  int run() {
    double rows = double(n_);
    Crew::with(workers_for(full_ ? 4.0 / 3 * rows * rows * rows : 60 * rows * rows), kParts, [&](Crew& crew) {
      crew_ = &crew;
      solve_leaves();
      for (int64_t level = 1; level <= depth_ && !failed_; ++level) merge_level(level);
      if (!failed_) finish();
    });
    return failed_;
  }

 private:
  static constexpr int64_t kParts = 16;

  struct Block {  // rows between negligible off-diagonal elements; solved at its own scale
    int64_t begin, end, depth;
    int power;  // its elements were divided by 2^power
    int leaves_in = 0;
    // Bounds of the 2^level parts.
    int64_t bound(int64_t level, int64_t part) const {
      int64_t from = begin, rows = end - begin;
      for (int64_t bit = level; bit-- > 0;) {
        int64_t first = rows / 2;
        if (part >> bit & 1) from += first, rows -= first;
        else rows = first;
      }
      return from;
    }
  };
  struct Merge {
    int64_t begin, mid, end, place;
    int in;
    bool last;
    T beta, rho = 0, square = 0;
    int64_t poles = 0, deflated = 0, rotations = 0;
    // number of poles whose vectors are nonzero in the first half, the second, or both
    int64_t of_kind[4] = {};
    int64_t rows() const { return end - begin; }
    int64_t half_begin(int h) const { return h == 0 ? 0 : of_kind[1]; }
    int64_t half_count(int h) const { return of_kind[3] + of_kind[h == 0 ? 1 : 2]; }
  };
  struct Rotation {
    int64_t from, to;
    T c, s;
  };
  struct Item {
    int64_t merge, begin, end;
    int half;
  };

  void find_blocks() {
    for (int64_t begin = 0, end; begin < n_; begin = end) {
      for (end = begin + 1; end < n_; ++end) {
        T limit = kEps<T> * std::sqrt(std::abs(d_[end - 1])) * std::sqrt(std::abs(d_[end]));
        if (std::abs(e_[end - 1]) <= limit) break;
      }
      T largest = 0;
      for (int64_t i = begin; i < end; ++i) largest = std::max(largest, std::abs(d_[i]));
      for (int64_t i = begin; i + 1 < end; ++i) largest = std::max(largest, std::abs(e_[i]));
      int power = 0;
      if (largest > 0) std::frexp(largest, &power);
      Block b{begin, end, 0, power};
      for (int64_t rows = end - begin; rows > kLeaf; rows = (rows + 1) / 2) ++b.depth;
      for (int64_t i = begin; i < end; ++i) d_[i] = std::ldexp(d_[i], -power);
      for (int64_t i = begin; i + 1 < end; ++i) e_[i] = std::ldexp(e_[i], -power);
      blocks_.push_back(b);
    }
  }

  template <class F>
  void share(int64_t count, const F& f) {
    std::atomic<int64_t> next{0};
    crew_->each([&](int64_t) {
      for (int64_t k; (k = next.fetch_add(1, std::memory_order_relaxed)) < count;) f(k);
    });
  }
  template <class F>
  void share_items(const F& f) {
    share(int64_t(items_.size()), [&](int64_t k) { f(items_[size_t(k)]); });
  }

  void solve_leaves() {
    struct Leaf {
      int64_t begin, end;
      int in;
    };
    std::vector<Leaf> leaves;
    for (auto& b : blocks_) {
      int64_t parts = int64_t(1) << b.depth;
      for (int64_t k = 0; k < parts; ++k) {
        int64_t begin = b.bound(b.depth, k), end = k + 1 < parts ? b.bound(b.depth, k + 1) : b.end;
        leaves.push_back({begin, end, b.leaves_in});
        if (k == 0) continue;
        d_[begin - 1] -= std::abs(e_[begin - 1]);
        d_[begin] -= std::abs(e_[begin - 1]);
      }
    }
    std::atomic<int> failed{0};
    share(int64_t(leaves.size()), [&](int64_t k) {
      auto& leaf = leaves[size_t(k)];
      failed += solve_leaf(leaf.begin, leaf.end - leaf.begin, q_[leaf.in]);
    });
    failed_ = failed;
  }
  int solve_leaf(int64_t begin, int64_t n, RowMajor<T> q) {
    alignas(64) T rows[kLeaf * kLeafRow];
    T values[kLeaf];
    int rest = SmallPart<T>(n, d_ + begin, e_ + begin, full_, rows).solve();
    int64_t order[kLeaf];
    std::iota(order, order + n, int64_t(0));
    std::sort(order, order + n, [&](int64_t a, int64_t b) {
      return d_[begin + a] < d_[begin + b] || (d_[begin + a] == d_[begin + b] && a < b);
    });
    for (int64_t k = 0; k < n; ++k) {
      const T* from = rows + order[k] * kLeafRow;
      values[k] = d_[begin + order[k]];
      if (full_) std::copy_n(from, n, q[begin + k] + begin);
      else std::copy_n(from, 2, q[begin + k]);
    }
    std::copy_n(values, n, d_ + begin);
    return rest;
  }

  // The columns of a half: all of its rows, or only the one end of the merged part that is in it.
  int64_t first_column(const Merge& m, int half) const { return full_ ? (half ? m.mid : m.begin) : half; }
  int64_t columns(const Merge& m, int half) const {
    return full_ ? (half ? m.end - m.mid : m.mid - m.begin) : 1;
  }

  void merge_level(int64_t level) {
    merges_.clear();
    for (auto& b : blocks_) {
      if (level > b.depth) continue;
      int64_t deep = b.depth - level, parts = int64_t(1) << deep;
      for (int64_t k = 0; k < parts; ++k) {
        Merge m{.begin = b.bound(deep, k),
                .mid = b.bound(deep + 1, 2 * k + 1),
                .end = k + 1 < parts ? b.bound(deep, k + 1) : b.end,
                .place = 0,
                .in = int((b.leaves_in + level - 1) & 1),
                .last = deep == 0,
                .beta = 0};
        m.beta = e_[m.mid - 1];
        m.place = m.begin + kPanel * int64_t(merges_.size());
        merges_.push_back(m);
      }
    }
    poles_.resize(size_t(n_) + size_t(kPanel) * merges_.size());
    weights_.resize(poles_.size());
    refined_.resize(poles_.size());
    auto count = int64_t(merges_.size());
    share(count, [&](int64_t k) { deflate(merges_[size_t(k)]); });
    bool products = full_ || std::any_of(merges_.begin(), merges_.end(), [](auto& m) { return !m.last; });
    items_.clear();
    each_piece([](auto& m) { return m.poles; }, 2);
    if (products) each_piece_of_halves();
    share_items([&](const Item& i) {
      auto& m = merges_[size_t(i.merge)];
      if (i.half == 2) find_roots(m, i.begin, i.end);
      else gather(m, i.half, i.begin);
    });
    items_.clear();
    for (int64_t k = 0; k < count; ++k) items_.push_back({k, 0, 0, 1});
    if (products) each_piece([](auto& m) { return padded(m.poles); }, 0);
    share_items([&](const Item& i) {
      auto& m = merges_[size_t(i.merge)];
      if (i.half == 1) arrange(m);
      else refine_weights(m, i.begin, i.end);
    });
    for (auto& m : merges_) std::copy_n(sorted_.data() + m.begin, m.rows(), d_ + m.begin);
    if (!products) return;
    items_.clear();
    each_piece([](auto& m) { return m.poles; }, 0);
    each_piece([](auto& m) { return m.deflated; }, 1);
    share_items([&](const Item& i) {
      auto& m = merges_[size_t(i.merge)];
      if (i.half == 1) keep_deflated(m, i.begin, i.end);
      else multiply(m, i.begin, i.end);
    });
  }
  template <class F>
  void each_piece(const F& length, int half) {
    for (size_t k = 0; k < merges_.size(); ++k)
      for (int64_t i = 0, all = length(merges_[k]); i < all; i += kRootBlock)
        items_.push_back({int64_t(k), i, std::min(all, i + kRootBlock), half});
  }
  void each_piece_of_halves() {
    for (size_t k = 0; k < merges_.size(); ++k)
      for (int half : {0, 1})
        for (int64_t j = 0; j < strips_of(columns(merges_[k], half)); ++j)
          items_.push_back({int64_t(k), j, 0, half});
  }

  // Sets up the rank-one change that joins two halves and splits off the vectors that it does not change, or hardly.
  void deflate(Merge& m) {
    auto q = q_[m.in];
    T *d = d_, *z = z_.data(), most = 0, largest = 0;
    int64_t* order = order_.data() + m.begin;
    uint8_t* kind = kind_.data();
    const T norm = T(std::sqrt(0.5));
    for (int64_t i = m.begin; i < m.end; ++i) {
      bool second = i >= m.mid;
      z[i] = norm * q[i][second ? (full_ ? m.mid : 0) : (full_ ? m.mid - 1 : 1)];
      if (second && m.beta < 0) z[i] = -z[i];
      kind[i] = second ? 2 : 1;
      most = std::max(most, std::abs(z[i]));
      largest = std::max(largest, std::abs(d[i]));
    }
    m.rho = std::abs(2 * m.beta);
    T limit = 8 * kEps<T> * std::max(most, largest);
    std::iota(order, order + m.rows(), m.begin);
    std::inplace_merge(order, order + (m.mid - m.begin), order + m.rows(),
                       [&](int64_t a, int64_t b) { return d[a] < d[b]; });
    int64_t *deflated = deflated_.data() + m.begin, *poles = ranked_.data() + m.begin, last = -1;
    for (int64_t k = 0; k < m.rows(); ++k) {
      int64_t i = order[k];
      if (m.rho * std::abs(z[i]) <= limit) {
        deflated[m.deflated++] = i;
      } else if (last < 0) {
        last = i;
      } else {
        T length = std::hypot(z[i], z[last]), gap = d[i] - d[last], c = z[i] / length, s = -z[last] / length;
        if (std::abs(gap * c * s) <= limit) {
          z[i] = length;
          kind[i] = kind[last] = kind[i] | kind[last];
          rotations_[size_t(m.begin + m.rotations++)] = {last, i, c, s};
          T rotated = d[last] * c * c + d[i] * s * s;
          d[i] = d[last] * s * s + d[i] * c * c;
          d[last] = rotated;
          deflated[m.deflated++] = last;
        } else {
          poles[m.poles++] = last;
        }
        last = i;
      }
    }
    if (last >= 0) poles[m.poles++] = last;
    std::stable_sort(deflated, deflated + m.deflated, [&](int64_t a, int64_t b) { return d[a] < d[b]; });
    place_poles(m);
  }
  // Orders poles so that those of each half are adjacent.
  void place_poles(Merge& m) {
    int64_t *ranked = ranked_.data() + m.begin, *row_at = row_at_.data() + m.begin;
    T *poles = poles_.data() + m.place, *weights = weights_.data() + m.place;
    for (int64_t k = 0; k < m.poles; ++k) ++m.of_kind[kind_[size_t(ranked[k])]];
    int64_t next[4] = {0, 0, m.of_kind[1] + m.of_kind[3], m.of_kind[1]};
    for (int64_t k = 0; k < m.poles; ++k) {
      int64_t row = ranked[k], at = next[kind_[size_t(row)]]++;
      row_at[at] = row;
      poles[at] = d_[row];
      weights[at] = z_[size_t(row)];
      m.square += weights[at] * weights[at];
      ranked[k] = at;
    }
    std::fill(poles + m.poles, poles + padded(m.poles), T(64));  // beyond all poles
    std::fill(weights + m.poles, weights + padded(m.poles), T(0));
  }

  void find_roots(Merge& m, int64_t begin, int64_t end) {
    Secular<T> secular(m.poles, poles_.data() + m.place, weights_.data() + m.place, ranked_.data() + m.begin,
                       m.rho, m.square);
    for (int64_t k = begin; k < end; ++k) roots_[size_t(m.begin + k)] = secular.root(k, differences(m, k));
  }
  T* differences(const Merge& m, int64_t rank) const {
    return secular_.data() + m.begin * secular_row_ + rank * (padded(m.poles) + kPanel);
  }

  RowMajor<T> strip(const Merge& m, int half, int64_t j) const {
    int64_t before = half ? strips_of(columns(m, 0)) * m.half_count(0) : 0;
    return {strips_.data() + m.begin * strip_row_ + (before + j * m.half_count(half)) * kStrip, kStrip};
  }
  // Applies deflation's rotations to the columns of a strip, and gathers those of poles.
  void gather(const Merge& m, int half, int64_t j) {
    if (m.last && !full_) return;
    auto q = q_[m.in].at(0, first_column(m, half) + j * kStrip);
    int64_t wide = std::min(kStrip, columns(m, half) - j * kStrip);
    int bit = half + 1;
    for (int64_t i = half ? m.begin : m.mid; m.rotations && i < (half ? m.mid : m.end); ++i)
      if (kind_[size_t(i)] & bit) std::fill_n(q[i], wide, T(0));
    for (int64_t k = 0; k < m.rotations; ++k) {
      auto& r = rotations_[size_t(m.begin + k)];
      if (!(kind_[size_t(r.from)] & bit)) continue;
      T *x = q[r.from], *y = q[r.to];
      for (int64_t c = 0; c < wide; ++c) {
        T before = x[c];
        x[c] = r.c * before + r.s * y[c];
        y[c] = r.c * y[c] - r.s * before;
      }
    }
    auto to = strip(m, half, j);
    const int64_t* row_at = row_at_.data() + m.begin + m.half_begin(half);
    for (int64_t k = 0; k < m.half_count(half); ++k)
      std::fill(std::copy_n(q[row_at[k]], wide, to[k]), to[k] + padded(wide), T(0));
  }

  // Computes the positions of roots and deflated eigenvalues in ascending order.
  void arrange(const Merge& m) {
    const int64_t* deflated = deflated_.data() + m.begin;
    for (int64_t to = 0, r = 0, k = 0; to < m.rows(); ++to) {
      bool root = r < m.poles && (k == m.deflated || roots_[size_t(m.begin + r)] <= d_[deflated[k]]);
      sorted_[size_t(m.begin + to)] = root ? roots_[size_t(m.begin + r)] : d_[deflated[k]];
      int64_t& place = root ? root_to_[size_t(m.begin + r++)] : deflated_to_[size_t(m.begin + k++)];
      place = m.begin + to;
    }
  }

  // Computes the weights for which the computed roots are exact.
  void refine_weights(const Merge& m, int64_t begin, int64_t end) {
    if (m.last && !full_) return;
    const T *poles = poles_.data() + m.place, *weights = weights_.data() + m.place;
    T* refined = refined_.data() + m.place;
    std::fill(refined + begin, refined + end, T(1));
    for (int64_t k = 0; k < m.poles; ++k)
      secular_kernels<T>().multiply_ratios(end - begin, differences(m, k) + begin, poles + begin,
                                           poles[ranked_[size_t(m.begin + k)]], refined + begin);
    for (int64_t i = begin; i < end; ++i)
      refined[i] = i < m.poles ? std::copysign(std::sqrt(std::abs(refined[i])), weights[i]) : T(0);
  }

  // Forms vectors of the rank-one change and multiplies them by those of both halves.
  void multiply(const Merge& m, int64_t begin, int64_t end) {
    if (m.last && !full_) return;
    auto& in = strip_kernels<T>();
    constexpr int64_t kNear = 32768 / (kStrip * sizeof(T));  // rows of a strip that stay in the first cache
    alignas(64) T room[kRootBlock * kStrip];
    RowMajor<T> sums{room, kStrip};
    for (int64_t k = begin; k < end; ++k)
      secular_kernels<T>().form_vector(padded(m.poles), refined_.data() + m.place, differences(m, k));
    RowMajor<const T> left{differences(m, begin), padded(m.poles) + kPanel};
    for (int half : {0, 1}) {
      int64_t count = m.half_count(half), first = m.half_begin(half);
      for (int64_t j = 0; j < strips_of(columns(m, half)); ++j) {
        int64_t wide = std::min(kStrip, columns(m, half) - j * kStrip);
        auto from = read_only(strip(m, half, j));
        std::fill_n(room, (end - begin) * kStrip, T(0));
        for (int64_t k = 0; k < count; k += kNear)
          in.subtract_product(end - begin, padded(wide), std::min(kNear, count - k), left.at(0, first + k),
                              from.at(k, 0), sums);
        for (int64_t k = begin; k < end; ++k)
          std::copy_n(sums[k - begin], wide,
                      q_[1 - m.in][root_to_[size_t(m.begin + k)]] + first_column(m, half) + j * kStrip);
      }
    }
  }
  void keep_deflated(const Merge& m, int64_t begin, int64_t end) {
    if (m.last && !full_) return;
    for (int64_t k = begin; k < end; ++k) {
      int64_t row = deflated_[size_t(m.begin + k)], to = deflated_to_[size_t(m.begin + k)];
      for (int half : {0, 1}) {
        int64_t first = first_column(m, half);
        T* x = q_[1 - m.in][to] + first;
        if (kind_[size_t(row)] & (half + 1)) std::copy_n(q_[m.in][row] + first, columns(m, half), x);
        else std::fill_n(x, columns(m, half), T(0));
      }
    }
  }

  // Scales blocks back and merges them in ascending order.
  void finish() {
    for (auto& b : blocks_)
      for (int64_t i = b.begin; i < b.end; ++i) d_[i] = std::ldexp(d_[i], b.power);
    if (blocks_.size() == 1) return;
    std::vector<int64_t> block(static_cast<size_t>(n_));
    for (size_t k = 0; k < blocks_.size(); ++k)
      std::fill(block.begin() + blocks_[k].begin, block.begin() + blocks_[k].end, int64_t(k));
    int64_t* order = order_.data();
    std::iota(order, order + n_, int64_t(0));
    std::stable_sort(order, order + n_, [&](int64_t a, int64_t b) { return d_[a] < d_[b]; });
    for (int64_t i = 0; i < n_; ++i) sorted_[size_t(i)] = d_[order[i]];
    std::copy_n(sorted_.data(), n_, d_);
    if (!full_) return;
    share(n_, [&](int64_t i) {
      auto& b = blocks_[size_t(block[size_t(order[i])])];
      T* to = vectors_[i];
      std::fill_n(to, n_, T(0));
      std::copy(q_[0][order[i]] + b.begin, q_[0][order[i]] + b.end, to + b.begin);
    });
  }

  int64_t n_;
  T *d_, *e_;
  bool full_;  // vectors are complete, or only their first and last elements
  int64_t strip_row_, secular_row_, depth_ = 0;
  std::vector<Block> blocks_;
  std::vector<Merge> merges_;
  std::vector<Item> items_;
  Workspace<T> memory_[2], strips_, secular_;
  RowMajor<T> q_[2]{}, vectors_{};
  std::vector<T> z_, roots_, sorted_, poles_, weights_, refined_;
  std::vector<int64_t> order_, deflated_, ranked_, row_at_, root_to_, deflated_to_;
  std::vector<uint8_t> kind_;
  std::vector<Rotation> rotations_;
  Crew* crew_ = nullptr;
  int failed_ = 0;
};

}  // namespace

template <class T>
int solve_tridiagonal(int64_t n, T* diagonal, T* off_diagonal, RowMajor<T> vectors) {
  return DivideAndConquer<T>(n, diagonal, off_diagonal, vectors).run();
}
template int solve_tridiagonal(int64_t, float*, float*, RowMajor<float>);
template int solve_tridiagonal(int64_t, double*, double*, RowMajor<double>);

}  // namespace facula::numerics
