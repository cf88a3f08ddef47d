#include "facula/backend/cpu/blocked.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "facula/backend/cpu/cpu.h"
#include "facula/backend/cpu/lanes.h"
#include "facula/backend/cpu/small.h"
#include "facula/base/parallel.h"

namespace facula::backend::cpu {

namespace {

constexpr int64_t kTriangle = 16;  // rows of a triangle on the diagonal that is not cut any more
constexpr int kPanel = 16;         // columns that are factored together
constexpr int64_t kDeep = 32;      // from so many terms on products are BLAS's
constexpr int64_t kStrip = 128;    // columns of a task

// What is computed in registers of kBytes. X: a vector or, in what is left of a row, a number.
template <class T, int kBytes>
struct InRegisters {
  using L = Lanes<T, kBytes>;
  using V = typename L::V;
  static constexpr int kWide = kBytes == 64 ? 4 : 2;  // vectors beside each other
  static constexpr int kRows = 4;                     // which share what is read

  template <class X>
  FACULA_LANES X read(const T* from) {
    X x;
    std::memcpy(&x, from, sizeof x);
    return x;
  }
  template <class X>
  FACULA_LANES void write(T* to, X x) {
    std::memcpy(to, &x, sizeof x);
  }

  // to[r] -= sum of from[r][j] x[j] for j in [begin, end), in kCount rows of kVectors vectors.
  template <class X, int kCount, int kVectors, class From>
  FACULA_LANES void subtract(X (&to)[kCount][kVectors], From&& from, int64_t begin, int64_t end,
                             RowMajor<const T> x) {
    constexpr int64_t kStep = sizeof(X) / sizeof(T);
    for (int64_t j = begin; j < end; ++j) {
      X row[kVectors];
      for (int v = 0; v < kVectors; ++v) row[v] = read<X>(x[j] + v * kStep);
      for (int r = 0; r < kCount; ++r) {
        T factor = from(r)[j];
        for (int v = 0; v < kVectors; ++v) to[r][v] -= factor * row[v];
      }
    }
  }

  // kCount rows of X, which stand in the triangle beside each other, from what those before them are.
  template <class X, int kCount, int kVectors>
  FACULA_LANES void solve_rows(Triangle kind, int64_t n, int64_t done, RowMajor<const T> a, RowMajor<T> x) {
    constexpr int64_t kStep = sizeof(X) / sizeof(T);
    auto at = [&](int64_t k) { return kind.upper ? n - 1 - done - k : done + k; };
    X now[kCount][kVectors];
    for (int r = 0; r < kCount; ++r)
      for (int v = 0; v < kVectors; ++v) now[r][v] = read<X>(x[at(r)] + v * kStep);
    subtract<X>(now, [&](int r) { return a[at(r)]; }, kind.upper ? n - done : 0, kind.upper ? n : done,
                {x.data, x.row});
    for (int r = 0; r < kCount; ++r) {
      const T* row = a[at(r)];
      for (int q = 0; q < r; ++q)
        for (int v = 0; v < kVectors; ++v) now[r][v] -= row[at(q)] * now[q][v];
      for (int v = 0; v < kVectors; ++v) {
        if (!kind.unit) now[r][v] /= row[at(r)];
        write(x[at(r)] + v * kStep, now[r][v]);
      }
    }
  }
  template <class X, int kVectors>
  FACULA_LANES void solve_strip(Triangle kind, int64_t n, RowMajor<const T> a, RowMajor<T> x) {
    int64_t done = 0;
    for (; done + kRows <= n; done += kRows) solve_rows<X, kRows, kVectors>(kind, n, done, a, x);
    for (; done < n; ++done) solve_rows<X, 1, kVectors>(kind, n, done, a, x);
  }
  template <class X, int kVectors>
  FACULA_LANES void subtract_strip(int64_t m, int64_t k, RowMajor<const T> a, RowMajor<const T> b,
                                   RowMajor<T> c) {
    constexpr int64_t kStep = sizeof(X) / sizeof(T);
    auto rows = [&]<int kCount>(int64_t i) __attribute__((always_inline)) {
      X now[kCount][kVectors];
      for (int r = 0; r < kCount; ++r)
        for (int v = 0; v < kVectors; ++v) now[r][v] = read<X>(c[i + r] + v * kStep);
      subtract<X>(now, [&](int r) { return a[i + r]; }, 0, k, b);
      for (int r = 0; r < kCount; ++r)
        for (int v = 0; v < kVectors; ++v) write(c[i + r] + v * kStep, now[r][v]);
    };
    int64_t i = 0;
    for (; i + kRows <= m; i += kRows) rows.template operator()<kRows>(i);
    for (; i < m; ++i) rows.template operator()<1>(i);
  }

  FACULA_LANES void solve(Triangle kind, int64_t n, int64_t columns, RowMajor<const T> a, RowMajor<T> x) {
    int64_t c = 0;
    for (; c + kWide * L::kCount <= columns; c += kWide * L::kCount)
      solve_strip<V, kWide>(kind, n, a, x.at(0, c));
    for (; c + L::kCount <= columns; c += L::kCount) solve_strip<V, 1>(kind, n, a, x.at(0, c));
    for (; c < columns; ++c) solve_strip<T, 1>(kind, n, a, x.at(0, c));
  }
  // c [m, n] -= a [m, k] b [k, n]
  FACULA_LANES void subtract_product(int64_t m, int64_t n, int64_t k, RowMajor<const T> a,
                                     RowMajor<const T> b, RowMajor<T> c) {
    int64_t j = 0;
    for (; j + kWide * L::kCount <= n; j += kWide * L::kCount)
      subtract_strip<V, kWide>(m, k, a, b.at(0, j), c.at(0, j));
    for (; j + L::kCount <= n; j += L::kCount) subtract_strip<V, 1>(m, k, a, b.at(0, j), c.at(0, j));
    for (; j < n; ++j) subtract_strip<T, 1>(m, k, a, b.at(0, j), c.at(0, j));
  }

  FACULA_LANES void turn(int64_t rows, int64_t columns, RowMajor<const T> from, RowMajor<T> to) {
    constexpr int64_t kSide = L::kCount;
    int64_t whole_rows = rows - rows % kSide, whole_columns = columns - columns % kSide;
    for (int64_t i = 0; i < whole_rows; i += kSide)
      for (int64_t j = 0; j < whole_columns; j += kSide) {
        V x[kSide];
        for (int64_t k = 0; k < kSide; ++k) x[k] = read<V>(from[i + k] + j);
        L::turn(x);
        for (int64_t k = 0; k < kSide; ++k) write(to[j + k] + i, x[k]);
      }
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = i < whole_rows ? whole_columns : 0; j < columns; ++j) to[j][i] = from[i][j];
  }

  // Factors a panel of `columns` of kPanel, m rows of it one after the other. Each step finds the next pivot as it goes: the
  // largest number of each column so far, and its row.
  FACULA_LANES bool factor_panel(int64_t m, int columns, T* panel, int* pivots) {
    constexpr int kVectors = kPanel / L::kCount;
    using I = typename L::Mask;
    auto row = [&](int64_t i, int v) { return panel + i * kPanel + v * L::kCount; };
    I lane[kVectors] = {}, at[kVectors] = {};
    V most[kVectors] = {};
    for (int v = 0; v < kVectors; ++v)
      for (int l = 0; l < L::kCount; ++l) lane[v][l] = v * L::kCount + l;
    auto look = [&](V x, int v, int64_t i) __attribute__((always_inline)) {
      I larger = L::abs(x) > most[v];
      most[v] = larger ? L::abs(x) : most[v];
      at[v] = larger ? I() + decltype(I()[0] + 0)(i) : at[v];
    };
    for (int64_t i = 0; i < m; ++i) look(read<V>(row(i, 0)), 0, i);
    for (int k = 0; k < columns; ++k) {
      int64_t p = at[k / L::kCount][k % L::kCount];
      T largest = most[k / L::kCount][k % L::kCount], scale = T(1) / panel[p * kPanel + k];
      if (!(largest >= L::kLeast && std::abs(scale) >= L::kLeast && std::abs(scale) <= L::kMost))
        return false;
      pivots[k] = int(p);
      V pivot[kVectors];
      for (int v = 0; v < kVectors; ++v) {
        V x = read<V>(row(p, v));
        write(row(p, v), read<V>(row(k, v)));
        write(row(k, v), x);
        pivot[v] = lane[v] > k ? x : V();
        most[v] = V();
      }
      for (int64_t i = k + 1; i < m; ++i) {
        V factor = L::all(panel[i * kPanel + k]) * scale;
        for (int v = 0; v < kVectors; ++v) {
          V x = read<V>(row(i, v)) - factor * pivot[v];
          x = lane[v] == k ? factor : x;
          write(row(i, v), x);
          look(x, v, i);
        }
      }
    }
    return true;
  }
};

template <class T>
struct Kernels {
  void (*solve)(Triangle, int64_t, int64_t, RowMajor<const T>, RowMajor<T>);
  void (*subtract_product)(int64_t, int64_t, int64_t, RowMajor<const T>, RowMajor<const T>, RowMajor<T>);
  void (*turn)(int64_t, int64_t, RowMajor<const T>, RowMajor<T>);
  bool (*factor_panel)(int64_t, int, T*, int*);
};
#define FACULA_KERNELS(name, bytes, features)                                                                        \
  template <class T>                                                                                                 \
  struct name {                                                                                                      \
    __attribute__((target(features))) static void solve(Triangle kind, int64_t n, int64_t columns,                   \
                                                        RowMajor<const T> a, RowMajor<T> x) {                            \
      InRegisters<T, bytes>::solve(kind, n, columns, a, x);                                                          \
    }                                                                                                                \
    __attribute__((target(features))) static void subtract_product(int64_t m, int64_t n, int64_t k, RowMajor<const T> a, \
                                                                   RowMajor<const T> b, RowMajor<T> c) {                 \
      InRegisters<T, bytes>::subtract_product(m, n, k, a, b, c);                                                     \
    }                                                                                                                \
    __attribute__((target(features))) static void turn(int64_t rows, int64_t columns, RowMajor<const T> from,      \
                                                       RowMajor<T> to) {                                           \
      InRegisters<T, bytes>::turn(rows, columns, from, to);                                                        \
    }                                                                                                              \
    __attribute__((target(features))) static bool factor_panel(int64_t m, int columns, T* panel, int* pivots) {      \
      return InRegisters<T, bytes>::factor_panel(m, columns, panel, pivots);                                         \
    }                                                                                                                \
    static constexpr Kernels<T> all{solve, subtract_product, turn, factor_panel};                                          \
  };
FACULA_KERNELS(Of64, 64, "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")
FACULA_KERNELS(Of32, 32, "avx2,fma")
#undef FACULA_KERNELS

template <class T>
const Kernels<T>& kernels() {
  return small_lanes<T>() * sizeof(T) == 64 ? Of64<T>::all : Of32<T>::all;
}

// c [m, n] -= a [m, k] b [k, n]
template <class T>
void subtract_product(int64_t m, int64_t n, int64_t k, RowMajor<const T> a, RowMajor<const T> b,
                      RowMajor<T> c) {
  if (k < kDeep && n > 1) return kernels<T>().subtract_product(m, n, k, a, b, c);
  blas_gemm(sizeof(T) == 4 ? DType::Float32 : DType::Float64, m, n, k, Scalar(-1.0), a.data, a.row, 1, b.data,
            b.row, 1, Scalar(1.0), c.data, c.row);
}

// About the middle, a multiple of `part`.
int64_t half(int64_t n, int64_t part) { return (n / 2 + part - 1) / part * part; }

template <class T>
void solve_columns(Triangle kind, int64_t n, int64_t columns, RowMajor<const T> a, RowMajor<T> x) {
  if (n <= kTriangle) return kernels<T>().solve(kind, n, columns, a, x);
  int64_t h = half(n, kTriangle);
  auto first = [&] { solve_columns(kind, h, columns, a, x); };
  auto second = [&] { solve_columns(kind, n - h, columns, a.at(h, h), x.at(h, 0)); };
  auto rows = [](RowMajor<T> r) { return RowMajor<const T>{r.data, r.row}; };
  if (kind.upper) {
    second();
    subtract_product(h, columns, n - h, a.at(0, h), rows(x.at(h, 0)), x);
    first();
  } else {
    first();
    subtract_product(n - h, columns, h, a.at(h, 0), rows(x), x.at(h, 0));
    second();
  }
}

// f(first, count) for strips of columns, which cost `operations` each.
template <class F>
void each_strip(int64_t columns, int64_t operations, F&& f) {
  constexpr int64_t kLeastOperations = 500'000;  // some ten microseconds
  int64_t grain = std::max<int64_t>(1, kLeastOperations / std::max<int64_t>(1, operations * kStrip));
  parallel_for((columns + kStrip - 1) / kStrip, grain, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) f(s * kStrip, std::min(kStrip, columns - s * kStrip));
  });
}

// Rows exchanged one after the other, as `pivots` (from 0) say.
template <class T>
void exchange_rows(int64_t n, const int* pivots, int64_t columns, RowMajor<T> x) {
  for (int64_t i = 0; i < n; ++i) {
    if (pivots[i] == i) continue;
    T *a = x[i], *b = x[pivots[i]];
    int64_t c = 0;
    for (; c + kPanel <= columns; c += kPanel) {  // so many are moved by few instructions
      T left[kPanel], right[kPanel];
      std::memcpy(left, a + c, sizeof left);
      std::memcpy(right, b + c, sizeof right);
      std::memcpy(a + c, right, sizeof right);
      std::memcpy(b + c, left, sizeof left);
    }
    std::swap_ranges(a + c, a + columns, b + c);
  }
}

template <class T>
class Factoring {
 public:
  explicit Factoring(int64_t rows) : panel_(size_t(rows * kPanel)) {}

  // The first `w` columns of m rows; Toledo, "Locality of reference in LU decomposition with partial pivoting", 1997.
  bool run(int64_t m, int64_t w, RowMajor<T> a, int* pivots) {
    if (w <= kPanel) return panel(m, int(w), a, pivots);
    int64_t h = half(w, kPanel), rest = w - h;
    if (!run(m, h, a, pivots)) return false;
    RowMajor<const T> left{a.data, a.row};
    each_strip(rest, m * h, [&](int64_t first, int64_t count) {
      RowMajor<T> right = a.at(0, h + first);
      exchange_rows(h, pivots, count, right);
      solve_columns({.upper = false, .unit = true}, h, count, left, right);
      subtract_product(m - h, count, h, left.at(h, 0), RowMajor<const T>{right.data, right.row},
                       right.at(h, 0));
    });
    if (!run(m - h, rest, a.at(h, h), pivots + h)) return false;
    exchange_rows(rest, pivots + h, h, a.at(h, 0));
    for (int64_t k = h; k < w; ++k) pivots[k] += int(h);
    return true;
  }

 private:
  bool panel(int64_t m, int w, RowMajor<T> a, int* pivots) {
    bool whole = w == kPanel;
    for (int64_t i = 0; i < m; ++i) {
      T* row = panel_.data() + i * kPanel;
      if (whole) std::memcpy(row, a[i], sizeof(T) * kPanel);
      else std::fill(std::copy_n(a[i], w, row), row + kPanel, T(0));
    }
    if (!kernels<T>().factor_panel(m, w, panel_.data(), pivots)) return false;
    for (int64_t i = 0; i < m; ++i) {
      const T* row = panel_.data() + i * kPanel;
      if (whole) std::memcpy(a[i], row, sizeof(T) * kPanel);
      else std::copy_n(row, w, a[i]);
    }
    return true;
  }
  std::vector<T> panel_;
};

}  // namespace

template <class T>
void turn_in_rows(int64_t rows, int64_t columns, RowMajor<const T> from, RowMajor<T> to) {
  kernels<T>().turn(rows, columns, from, to);
}

template <class T>
void solve_in_rows(Triangle kind, int64_t n, int64_t columns, RowMajor<const T> a, RowMajor<T> x) {
  each_strip(columns, n * n,
             [&](int64_t first, int64_t count) { solve_columns(kind, n, count, a, x.at(0, first)); });
}

template <class T>
void invert_in_rows(bool unit, int64_t n, RowMajor<const T> a, RowMajor<T> x) {
  if (n <= kTriangle) {
    for (int64_t i = 0; i < n; ++i) std::fill_n(x[i], n, T(0)), x[i][i] = 1;
    return kernels<T>().solve({.upper = false, .unit = unit}, n, n, a, x);
  }
  int64_t h = half(n, kTriangle), rest = n - h;
  for (int64_t i = 0; i < h; ++i) std::fill_n(x[i] + h, rest, T(0));
  for (int64_t i = h; i < n; ++i) std::fill_n(x[i], h, T(0));
  invert_in_rows(unit, h, a, x);
  each_strip(h, rest * (h + rest), [&](int64_t first, int64_t count) {
    RowMajor<T> upper = x.at(0, first), lower = x.at(h, first);
    subtract_product(rest, count, h, a.at(h, 0), RowMajor<const T>{upper.data, upper.row}, lower);
    solve_columns({.upper = false, .unit = unit}, rest, count, a.at(h, h), lower);
  });
  invert_in_rows(unit, rest, a.at(h, h), x.at(h, h));
}

template <class T>
bool factor_in_rows(int64_t n, RowMajor<T> a, int* pivots) {
  bool done = Factoring<T>(n).run(n, n, a, pivots);
  for (int64_t k = 0; done && k < n; ++k) ++pivots[k];
  return done;
}

template <class T>
void solve_factored_in_rows(int64_t n, int64_t columns, const T* lu, const int* pivots, T* b) {
  std::vector<int> from_0(pivots, pivots + n);
  for (auto& p : from_0) --p;
  each_strip(columns, 2 * n * n, [&](int64_t first, int64_t count) {
    RowMajor<T> x{b + first, columns};
    exchange_rows(n, from_0.data(), count, x);
    solve_columns<T>({.upper = false, .unit = true}, n, count, {lu, n}, x);
    solve_columns<T>({.upper = true, .unit = false}, n, count, {lu, n}, x);
  });
}

template <class T>
void invert_factored_in_rows(int64_t n, const T* lu, const int* pivots, T* x) {
  invert_in_rows<T>(true, n, {lu, n}, {x, n});
  solve_in_rows<T>({.upper = true, .unit = false}, n, n, {lu, n}, {x, n});
  // Columns change places as rows did, in the other order.
  std::vector<int> column(static_cast<size_t>(n));
  for (int64_t k = 0; k < n; ++k) column[size_t(k)] = int(k);
  for (int64_t k = n; k-- > 0;) std::swap(column[size_t(k)], column[size_t(pivots[k] - 1)]);
  std::vector<T> row(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    std::copy_n(x + i * n, n, row.data());
    for (int64_t j = 0; j < n; ++j) x[i * n + j] = row[size_t(column[size_t(j)])];
  }
}

template <class T>
void invert_product_in_rows(int64_t n, const T* l, T* room, T* x) {
  invert_in_rows<T>(false, n, {l, n}, {room, n});
  // The lower triangle of room^T room by blocks of rows, of which those of `room` that begin there are all.
  parallel_for((n + kStrip - 1) / kStrip, 1, [&](int64_t begin, int64_t end) {
    for (int64_t first = begin * kStrip; first < std::min(n, end * kStrip); first += kStrip) {
      int64_t count = std::min(kStrip, n - first);
      const T* from = room + first * n;
      blas_gemm(sizeof(T) == 4 ? DType::Float32 : DType::Float64, count, first + count, n - first,
                Scalar(1.0), from + first, 1, n, from, n, 1, Scalar(0.0), x + first * n, n);
    }
  });
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < i; ++j) x[j * n + i] = x[i * n + j];
}

#define FACULA_BLOCKED(T)                                                                   \
  template void turn_in_rows(int64_t, int64_t, RowMajor<const T>, RowMajor<T>); \
  template void solve_in_rows(Triangle, int64_t, int64_t, RowMajor<const T>, RowMajor<T>);      \
  template void invert_in_rows(bool, int64_t, RowMajor<const T>, RowMajor<T>);                  \
  template bool factor_in_rows(int64_t, RowMajor<T>, int*);                                   \
  template void solve_factored_in_rows(int64_t, int64_t, const T*, const int*, T*);         \
  template void invert_factored_in_rows(int64_t, const T*, const int*, T*);                 \
  template void invert_product_in_rows(int64_t, const T*, T*, T*);
FACULA_BLOCKED(float)
FACULA_BLOCKED(double)
#undef FACULA_BLOCKED

}  // namespace facula::backend::cpu
