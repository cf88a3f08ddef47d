#include "facula/numerics/column_strips.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <mutex>
#include <vector>

#include "facula/base/parallel.h"
#include "facula/numerics/lanes.h"
#include "facula/numerics/small.h"
#include "facula/numerics/worker_team.h"

namespace facula::numerics {

namespace {

#define FACULA_UNROLLED _Pragma("GCC unroll 16")  // sums stay in registers

// Kernels that compute in registers of kBytes.
template <class T, int kBytes>
struct InRegisters {
  using L = Lanes<T, kBytes>;
  using V = typename L::V;
  static constexpr int kWide = kBytes == 64 ? 4 : 2;  // adjacent vectors of a tile
  static constexpr int kTile = 4 * kWide;             // vectors of sums in a tile
  static_assert(kPanel % L::kCount == 0);

  FACULA_LANES V read(const T* from) {
    V x;
    std::memcpy(&x, from, sizeof x);
    return x;
  }
  FACULA_LANES void write(T* to, V x) { std::memcpy(to, &x, sizeof x); }

  // to[r] -= sum of from(r)[j] x[j] for j in [begin, end), in kRows rows of kVectors vectors.
  template <int kRows, int kVectors, class From>
  FACULA_LANES void subtract(V (&to)[kRows][kVectors], From&& from, int64_t begin, int64_t end,
                             RowMajor<const T> x) {
    const T* factors[kRows];
    FACULA_UNROLLED
    for (int r = 0; r < kRows; ++r) factors[r] = from(r);
    for (int64_t j = begin; j < end; ++j) {
      V row[kVectors];
      FACULA_UNROLLED
      for (int v = 0; v < kVectors; ++v) row[v] = read(x[j] + v * L::kCount);
      FACULA_UNROLLED
      for (int r = 0; r < kRows; ++r) {
        T factor = factors[r][j];
        FACULA_UNROLLED
        for (int v = 0; v < kVectors; ++v) to[r][v] -= factor * row[v];
      }
    }
  }
  template <int kRows, int kVectors>
  FACULA_LANES void subtract_rows(int64_t i, int64_t k, RowMajor<const T> a, RowMajor<const T> b,
                                  RowMajor<T> c) {
    V now[kRows][kVectors];
    FACULA_UNROLLED
    for (int r = 0; r < kRows; ++r) {
      FACULA_UNROLLED
      for (int v = 0; v < kVectors; ++v) now[r][v] = read(c[i + r] + v * L::kCount);
    }
    subtract(now, [&](int r) { return a[i + r]; }, 0, k, b);
    FACULA_UNROLLED
    for (int r = 0; r < kRows; ++r) {
      FACULA_UNROLLED
      for (int v = 0; v < kVectors; ++v) write(c[i + r] + v * L::kCount, now[r][v]);
    }
  }
  // Prefetches lines that will be read soon: if rows are far apart, processors do not predict the next one.
  FACULA_LANES void fetch(int64_t rows, int64_t columns, RowMajor<const T> a) {
    constexpr int64_t kLine = 64 / sizeof(T);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t c = 0; c < columns; c += kLine) _mm_prefetch(a[i] + c, _MM_HINT_T0);
  }
  template <int kVectors>
  FACULA_LANES void subtract_columns(int64_t m, int64_t k, RowMajor<const T> a, RowMajor<const T> b,
                                     RowMajor<T> c) {
    constexpr int kRows = kTile / kVectors;
    int64_t i = 0;
    for (; i + kRows <= m; i += kRows) {
      fetch(std::min<int64_t>(kRows, m - i - kRows), k, a.at(i + kRows, 0));
      subtract_rows<kRows, kVectors>(i, k, a, b, c);
    }
    for (; i < m; ++i) subtract_rows<1, kVectors>(i, k, a, b, c);
  }

  // Solves for kRows adjacent rows of the triangle from the rows before them.
  template <int kRows, int kVectors>
  FACULA_LANES void solve_rows(Triangle kind, int64_t n, int64_t done, RowMajor<const T> a, RowMajor<T> x) {
    auto at = [&](int64_t k) { return kind.upper ? n - 1 - done - k : done + k; };
    V now[kRows][kVectors];
    FACULA_UNROLLED
    for (int r = 0; r < kRows; ++r) {
      FACULA_UNROLLED
      for (int v = 0; v < kVectors; ++v) now[r][v] = read(x[at(r)] + v * L::kCount);
    }
    subtract(now, [&](int r) { return a[at(r)]; }, kind.upper ? n - done : 0, kind.upper ? n : done,
             {x.data, x.row});
    FACULA_UNROLLED
    for (int r = 0; r < kRows; ++r) {
      const T* row = a[at(r)];
      FACULA_UNROLLED
      for (int q = 0; q < r; ++q) {
        T factor = row[at(q)];
        FACULA_UNROLLED
        for (int v = 0; v < kVectors; ++v) now[r][v] -= factor * now[q][v];
      }
      T pivot = row[at(r)];
      FACULA_UNROLLED
      for (int v = 0; v < kVectors; ++v) {
        if (!kind.unit) now[r][v] /= pivot;
        write(x[at(r)] + v * L::kCount, now[r][v]);
      }
    }
  }
  template <int kVectors>
  FACULA_LANES void solve_columns(Triangle kind, int64_t n, RowMajor<const T> a, RowMajor<T> x) {
    constexpr int kRows = 4;
    int64_t done = 0;
    for (; done + kRows <= n; done += kRows) solve_rows<kRows, kVectors>(kind, n, done, a, x);
    for (; done < n; ++done) solve_rows<1, kVectors>(kind, n, done, a, x);
  }

  // Calls f<vectors>(first column) for groups of columns as wide as possible.
  template <class F>
  FACULA_LANES void each_group(int64_t columns, F&& f) {
    int64_t c = 0;
    for (; c + kWide * L::kCount <= columns; c += kWide * L::kCount) f.template operator()<kWide>(c);
    if constexpr (kWide > 2)
      for (; c + 2 * L::kCount <= columns; c += 2 * L::kCount) f.template operator()<2>(c);
    for (; c < columns; c += L::kCount) f.template operator()<1>(c);
  }
  FACULA_LANES void solve(Triangle kind, int64_t n, int64_t columns, RowMajor<const T> a, RowMajor<T> x) {
    each_group(columns, [&]<int kVectors>(int64_t c) __attribute__((always_inline)) {
      solve_columns<kVectors>(kind, n, a, x.at(0, c));
    });
  }
  FACULA_LANES void subtract_product(int64_t m, int64_t n, int64_t k, RowMajor<const T> a,
                                     RowMajor<const T> b, RowMajor<T> c) {
    each_group(n, [&]<int kVectors>(int64_t j) __attribute__((always_inline)) {
      subtract_columns<kVectors>(m, k, a, b.at(0, j), c.at(0, j));
    });
  }

  FACULA_LANES void turn(int64_t rows, int64_t columns, RowMajor<const T> from, RowMajor<T> to) {
    constexpr int64_t kSide = L::kCount;
    int64_t full_rows = rows - rows % kSide, full_columns = columns - columns % kSide;
    for (int64_t i = 0; i < full_rows; i += kSide)
      for (int64_t j = 0; j < full_columns; j += kSide) {
        V x[kSide];
        for (int64_t k = 0; k < kSide; ++k) x[k] = read(from[i + k] + j);
        L::turn(x);
        for (int64_t k = 0; k < kSide; ++k) write(to[j + k] + i, x[k]);
      }
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = i < full_rows ? full_columns : 0; j < columns; ++j) to[j][i] = from[i][j];
  }

  FACULA_LANES void copy(int64_t rows, int64_t columns, RowMajor<const T> from, RowMajor<T> to) {
    constexpr int64_t kAhead = 16;
    for (int64_t i = 0; i < rows; ++i) {
      if (i + kAhead < rows)
        fetch(1, columns, from.at(i + kAhead, 0)), fetch(1, columns, read_only(to.at(i + kAhead, 0)));
      for (int64_t c = 0; c < columns; c += L::kCount) write(to[i] + c, read(from[i] + c));
    }
  }
  FACULA_LANES void exchange(int64_t rows, const int* pivots, int64_t columns, RowMajor<T> x) {
    for (int64_t i = 0; i < rows; ++i) {
      if (pivots[i] == i) continue;
      T *a = x[i], *b = x[pivots[i]];
      for (int64_t c = 0; c < columns; c += L::kCount) {
        V first = read(a + c);
        write(a + c, read(b + c));
        write(b + c, first);
      }
    }
  }

  // Rows of b that stay in the first-level cache while they are added to all of c.
  static constexpr int64_t kNear = 16384 / (kStrip * sizeof(T));
  template <int kRows, int kVectors>
  FACULA_LANES void add_turned_rows(int64_t k, RowMajor<const T> a, RowMajor<const T> b, RowMajor<T> c) {
    V now[kRows][kVectors];
    FACULA_UNROLLED
    for (int r = 0; r < kRows; ++r) {
      FACULA_UNROLLED
      for (int v = 0; v < kVectors; ++v) now[r][v] = read(c[r] + v * L::kCount);
    }
    for (int64_t j = 0; j < k; ++j) {
      V row[kVectors];
      FACULA_UNROLLED
      for (int v = 0; v < kVectors; ++v) row[v] = read(b[j] + v * L::kCount);
      FACULA_UNROLLED
      for (int r = 0; r < kRows; ++r) {
        T factor = a[j][r];
        FACULA_UNROLLED
        for (int v = 0; v < kVectors; ++v) now[r][v] += factor * row[v];
      }
    }
    FACULA_UNROLLED
    for (int r = 0; r < kRows; ++r) {
      FACULA_UNROLLED
      for (int v = 0; v < kVectors; ++v) write(c[r] + v * L::kCount, now[r][v]);
    }
  }
  FACULA_LANES void add_turned_product(int64_t m, int64_t n, int64_t k, RowMajor<const T> a,
                                       RowMajor<const T> b, RowMajor<T> c) {
    for (int64_t j = 0; j < k; j += kNear)
      each_group(n, [&]<int kVectors>(int64_t column) __attribute__((always_inline)) {
        constexpr int kRows = kTile / kVectors;
        int64_t terms = std::min(kNear, k - j), i = 0;
        for (; i + kRows <= m; i += kRows)
          add_turned_rows<kRows, kVectors>(terms, a.at(j, i), b.at(j, column), c.at(i, column));
        for (; i < m; ++i) add_turned_rows<1, kVectors>(terms, a.at(j, i), b.at(j, column), c.at(i, column));
      });
  }

  template <int kRows>
  FACULA_LANES void add_some(int64_t n, RowMajor<const T> a, const T* v, T* x) {
    V factor[kRows];
    FACULA_UNROLLED
    for (int r = 0; r < kRows; ++r) factor[r] = L::all(v[r]);
    for (int64_t c = 0; c < n; c += L::kCount) {
      V sum = read(x + c);
      FACULA_UNROLLED
      for (int r = 0; r < kRows; ++r) sum += factor[r] * read(a[r] + c);
      write(x + c, sum);
    }
  }
  FACULA_LANES void add_rows(int64_t m, int64_t n, RowMajor<const T> a, const T* v, T* x) {
    constexpr int kRows = 8;
    int64_t i = 0;
    for (; i + kRows <= m; i += kRows) add_some<kRows>(n, a.at(i, 0), v + i, x);
    for (; i < m; ++i) add_some<1>(n, a.at(i, 0), v + i, x);
  }
  template <int kRows>
  FACULA_LANES void dot_some(int64_t n, RowMajor<const T> a, const T* v, T* x) {
    V sum[kRows] = {};
    const T* rows[kRows];
    FACULA_UNROLLED
    for (int r = 0; r < kRows; ++r) rows[r] = a[r];
    for (int64_t c = 0; c < n; c += L::kCount) {
      V factor = read(v + c);
      FACULA_UNROLLED
      for (int r = 0; r < kRows; ++r) sum[r] += factor * read(rows[r] + c);
    }
    if constexpr (kRows == L::kCount) {
      L::turn(sum);
      FACULA_UNROLLED
      for (int step = kRows / 2; step; step /= 2) {
        FACULA_UNROLLED
        for (int r = 0; r < step; ++r) sum[r] += sum[r + step];
      }
      write(x, sum[0]);
    } else {
      FACULA_UNROLLED
      for (int r = 0; r < kRows; ++r) x[r] = L::total(sum[r]);
    }
  }
  FACULA_LANES void dot_rows(int64_t m, int64_t n, RowMajor<const T> a, const T* v, T* x) {
    int64_t i = 0;
    for (; i + L::kCount <= m; i += L::kCount) dot_some<L::kCount>(n, a.at(i, 0), v, x + i);
    for (; i + 4 <= m; i += 4) dot_some<4>(n, a.at(i, 0), v, x + i);
    for (; i < m; ++i) dot_some<1>(n, a.at(i, 0), v, x + i);
  }

  template <int kRows>
  FACULA_LANES void dot_and_add_some(int64_t n, RowMajor<const T> a, const T* v, T* x, const T* w, T* y) {
    V sum[kRows] = {}, weight[kRows];
    const T* rows[kRows];
    FACULA_UNROLLED
    for (int r = 0; r < kRows; ++r) rows[r] = a[r], weight[r] = L::all(w[r]);
    for (int64_t c = 0; c < n; c += L::kCount) {
      V factor = read(v + c), added = read(y + c);
      FACULA_UNROLLED
      for (int r = 0; r < kRows; ++r) {
        V from = read(rows[r] + c);
        sum[r] += factor * from;
        added += weight[r] * from;
      }
      write(y + c, added);
    }
    FACULA_UNROLLED
    for (int r = 0; r < kRows; ++r) x[r] = L::total(sum[r]);
  }
  FACULA_LANES void dot_and_add_rows(int64_t m, int64_t n, RowMajor<const T> a, const T* v, T* x, const T* w,
                                     T* y) {
    constexpr int kRows = kBytes == 64 ? 8 : 4;
    int64_t i = 0;
    for (; i + kRows <= m; i += kRows) dot_and_add_some<kRows>(n, a.at(i, 0), v, x + i, w + i, y);
    for (; i < m; ++i) dot_and_add_some<1>(n, a.at(i, 0), v, x + i, w + i, y);
  }

  // Computes the reflection of a column that begins with `alpha` and whose other elements x have the sum of squares
  // `square`. Returns false if that sum is not a normal number.
  FACULA_LANES bool reflection(T& alpha, T square, T& tau, T& scale) {
    const T least =
        // squares that underflow are negligible in this sum
        std::ldexp(L::kLeast, sizeof(T) == 4 ? 40 : 200);
    T total = alpha * alpha + square;
    if (!(square >= least && total <= L::kMost)) return false;
    T beta = -std::copysign(std::sqrt(total), alpha);
    tau = (beta - alpha) / beta;
    scale = T(1) / (alpha - beta);
    alpha = beta;
    return true;
  }
  // Row by row. Each step computes the next column's sums on the way: of its squares, and of its products with others.
  FACULA_LANES bool reflect_panel(int64_t m, int columns, T* panel, T* tau) {
    constexpr int kVectors = kPanel / L::kCount, kSums = 4;
    auto row = [&](int64_t i) { return panel + i * kPanel; };
    typename L::Mask lane[kVectors] = {};
    for (int v = 0; v < kVectors; ++v)
      for (int l = 0; l < L::kCount; ++l) lane[v][l] = v * L::kCount + l;
    V sums[kSums][kVectors] = {};
    auto add = [&](int64_t i, int k, V(&sum)[kVectors], const V(&x)[kVectors])
                   __attribute__((always_inline)) {
                     T factor = row(i)[k];
                     FACULA_UNROLLED
                     for (int v = 0; v < kVectors; ++v) sum[v] += factor * x[v];
                   };
    for (int64_t i = 1; i < m; ++i) {
      V x[kVectors];
      for (int v = 0; v < kVectors; ++v) x[v] = read(row(i) + v * L::kCount);
      add(i, 0, sums[0], x);
    }
    for (int k = 0; k < columns; ++k) {
      T together[kPanel];
      for (int v = 0; v < kVectors; ++v)
        write(together + v * L::kCount, (sums[0][v] + sums[1][v]) + (sums[2][v] + sums[3][v]));
      T scale = 0;
      tau[k] = 0;
      bool zero = together[k] == 0;
      for (int64_t i = k + 1; zero && i < m; ++i) zero = row(i)[k] == 0;
      if (!zero && !reflection(row(k)[k], together[k], tau[k], scale)) return false;
      V change[kVectors];
      FACULA_UNROLLED
      for (int v = 0; v < kVectors; ++v) {
        V x = read(row(k) + v * L::kCount);
        change[v] = tau[k] * (x + scale * read(together + v * L::kCount));
        change[v] = lane[v] > k ? change[v] : V();
        write(row(k) + v * L::kCount, x - change[v]);
      }
      for (auto& sum : sums) std::fill(sum, sum + kVectors, V());
      auto step = [&](int64_t i, V(&sum)[kVectors]) __attribute__((always_inline)) {
        V factor = L::all(row(i)[k]) * scale, x[kVectors];
        FACULA_UNROLLED
        for (int v = 0; v < kVectors; ++v) {
          x[v] = read(row(i) + v * L::kCount) - factor * change[v];
          x[v] = lane[v] == k ? factor : x[v];
          write(row(i) + v * L::kCount, x[v]);
        }
        add(i, std::min<int>(k + 1, kPanel - 1), sum, x);
      };
      if (k + 1 < m) step(k + 1, sums[0]);
      std::fill(sums[0], sums[0] + kVectors, V());
      int64_t i = k + 2;
      for (; i + kSums <= m; i += kSums) {
        FACULA_UNROLLED
        for (int s = 0; s < kSums; ++s) step(i + s, sums[s]);
      }
      for (; i < m; ++i) step(i, sums[0]);
    }
    return true;
  }

  // Row by row. Each step finds the next pivot on the way: the largest number of each column so far, and its row.
  FACULA_LANES bool factor_panel(int64_t m, int columns, T* panel, int* pivots) {
    constexpr int kVectors = kPanel / L::kCount;
    using I = typename L::Mask;
    using Element = std::remove_cvref_t<decltype(I()[0])>;
    auto row = [&](int64_t i, int v) { return panel + i * kPanel + v * L::kCount; };
    I lane[kVectors] = {}, at[kVectors] = {};
    V most[kVectors] = {};
    for (int v = 0; v < kVectors; ++v)
      for (int l = 0; l < L::kCount; ++l) lane[v][l] = v * L::kCount + l;
    auto look = [&](V x, int v, int64_t i) __attribute__((always_inline)) {
      // the magnitude
      V size = reinterpret_cast<V>(reinterpret_cast<I>(x) & std::numeric_limits<Element>::max());
      I larger = size > most[v];
      most[v] = larger ? size : most[v];
      at[v] = larger ? I() + Element(i) : at[v];
    };
    for (int64_t i = 0; i < m; ++i) look(read(row(i, 0)), 0, i);
    for (int k = 0; k < columns; ++k) {
      int64_t p = at[k / L::kCount][k % L::kCount];
      T largest = most[k / L::kCount][k % L::kCount], scale = T(1) / panel[p * kPanel + k];
      if (!(largest >= L::kLeast && std::abs(scale) >= L::kLeast && std::abs(scale) <= L::kMost))
        return false;
      pivots[k] = int(p);
      V pivot[kVectors];
      FACULA_UNROLLED
      for (int v = 0; v < kVectors; ++v) {
        V x = read(row(p, v));
        write(row(p, v), read(row(k, v)));
        write(row(k, v), x);
        pivot[v] = lane[v] > k ? x : V();
        most[v] = V();
      }
      for (int64_t i = k + 1; i < m; ++i) {
        V factor = L::all(panel[i * kPanel + k]) * scale;
        FACULA_UNROLLED
        for (int v = 0; v < kVectors; ++v) {
          V x = read(row(i, v)) - factor * pivot[v];
          x = lane[v] == k ? factor : x;
          write(row(i, v), x);
          look(x, v, i);
        }
      }
    }
    return true;
  }
};

#define FACULA_KERNELS(name, bytes, features)                                                                            \
  template <class T>                                                                                                     \
  struct name {                                                                                                          \
    __attribute__((target(features))) static void solve(Triangle kind, int64_t n, int64_t columns,                       \
                                                        RowMajor<const T> a, RowMajor<T> x) {                            \
      InRegisters<T, bytes>::solve(kind, n, columns, a, x);                                                              \
    }                                                                                                                    \
    __attribute__((target(features))) static void subtract_product(int64_t m, int64_t n, int64_t k, RowMajor<const T> a, \
                                                                   RowMajor<const T> b, RowMajor<T> c) {                 \
      InRegisters<T, bytes>::subtract_product(m, n, k, a, b, c);                                                         \
    }                                                                                                                    \
    __attribute__((target(features))) static void turn(int64_t rows, int64_t columns, RowMajor<const T> from,            \
                                                       RowMajor<T> to) {                                                 \
      InRegisters<T, bytes>::turn(rows, columns, from, to);                                                              \
    }                                                                                                                    \
    __attribute__((target(features))) static void copy(int64_t rows, int64_t columns, RowMajor<const T> from,            \
                                                       RowMajor<T> to) {                                                 \
      InRegisters<T, bytes>::copy(rows, columns, from, to);                                                              \
    }                                                                                                                    \
    __attribute__((target(features))) static void exchange(int64_t rows, const int* pivots, int64_t columns,             \
                                                           RowMajor<T> x) {                                              \
      InRegisters<T, bytes>::exchange(rows, pivots, columns, x);                                                         \
    }                                                                                                                    \
    __attribute__((target(features))) static void add_turned_product(                                                    \
        int64_t m, int64_t n, int64_t k, RowMajor<const T> a, RowMajor<const T> b, RowMajor<T> c) {                      \
      InRegisters<T, bytes>::add_turned_product(m, n, k, a, b, c);                                                       \
    }                                                                                                                    \
    __attribute__((target(features))) static void add_rows(int64_t m, int64_t n, RowMajor<const T> a, const T* v,        \
                                                           T* x) {                                                       \
      InRegisters<T, bytes>::add_rows(m, n, a, v, x);                                                                    \
    }                                                                                                                    \
    __attribute__((target(features))) static void dot_rows(int64_t m, int64_t n, RowMajor<const T> a, const T* v,        \
                                                           T* x) {                                                       \
      InRegisters<T, bytes>::dot_rows(m, n, a, v, x);                                                                    \
    }                                                                                                                    \
    __attribute__((target(features))) static void dot_and_add_rows(                                                      \
        int64_t m, int64_t n, RowMajor<const T> a, const T* v, T* x, const T* w, T* y) {                                 \
      InRegisters<T, bytes>::dot_and_add_rows(m, n, a, v, x, w, y);                                                      \
    }                                                                                                                    \
    __attribute__((target(features))) static bool reflect_panel(int64_t m, int columns, T* panel, T* tau) {              \
      return InRegisters<T, bytes>::reflect_panel(m, columns, panel, tau);                                               \
    }                                                                                                                    \
    __attribute__((target(features))) static bool factor_panel(int64_t m, int columns, T* panel, int* pivots) {          \
      return InRegisters<T, bytes>::factor_panel(m, columns, panel, pivots);                                             \
    }                                                                                                                    \
    static constexpr StripKernels<T> all{solve,    subtract_product,   turn,     copy,     exchange,                     \
                                         add_turned_product, add_rows, dot_rows, dot_and_add_rows, factor_panel, reflect_panel};           \
  };
FACULA_KERNELS(Of64, 64, "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")
FACULA_KERNELS(Of32, 32, "avx2,fma")
#undef FACULA_KERNELS

}  // namespace

template <class T>
const StripKernels<T>& strip_kernels() {
  return small_lanes<T>() * sizeof(T) == 64 ? Of64<T>::all : Of32<T>::all;
}
template const StripKernels<float>& strip_kernels();
template const StripKernels<double>& strip_kernels();

int64_t workers_for(double operations) {
  constexpr double kWorth = 1'000'000;  // some ten microseconds
  return in_parallel() ? 1 : std::clamp(int64_t(operations / kWorth), int64_t(1), int64_t(num_threads()));
}

void take_turns(int64_t count, double operations, const std::function<void(int64_t)>& f) {
  std::atomic<int64_t> next{0};
  parallel_for(std::min(count, workers_for(operations)), 1, [&](int64_t, int64_t) {
    for (int64_t k; (k = next.fetch_add(1)) < count;) f(k);
  });
}

namespace {

// Records which steps are done and which may be taken next.
class Progress {
 public:
  Progress(int64_t panels, int64_t strips) : panels_(panels), strips_(size_t(strips)) {}

  // Takes and runs steps until none are left.
  void work(const StripSteps& steps) {
    for (Patience patience;;) {
      Step step = take();
      if (step.kind == Kind::none) return;
      if (step.kind == Kind::wait) {
        patience.wait();
        continue;
      }
      bool good = true;
      if (step.kind == Kind::factor) good = steps.factor(step.strip);
      else if (step.kind == Kind::apply) steps.apply(step.panel, step.strip);
      else steps.finish(step.strip);
      finished(step, good);
    }
  }
  bool good() const { return good_; }

 private:
  enum class Kind { factor, apply, finish, wait, none };
  struct Step {
    Kind kind;
    int64_t panel, strip;
  };
  struct State {
    int64_t applied = 0;
    bool taken = false;
  };

  Step take() {
    std::lock_guard lock(mutex_);
    if (!good_) return {Kind::none, 0, 0};
    auto count = int64_t(strips_.size());
    bool open = false;
    for (int64_t j = 0; j < count; ++j) {
      State& s = strips_[size_t(j)];
      if (s.applied == kFinished) continue;
      open = true;
      if (s.taken) continue;
      Kind kind = Kind::wait;
      if (s.applied < std::min({j, factored_, panels_})) kind = Kind::apply;
      else if (j == factored_ && j < panels_ && s.applied == j) kind = Kind::factor;
      else if (factored_ == panels_) kind = Kind::finish;
      if (kind == Kind::wait) continue;
      s.taken = true;
      return {kind, s.applied, j};
    }
    return {open ? Kind::wait : Kind::none, 0, 0};
  }
  void finished(const Step& step, bool good) {
    std::lock_guard lock(mutex_);
    State& s = strips_[size_t(step.strip)];
    s.taken = false;
    good_ &= good;
    if (step.kind == Kind::factor) ++factored_;
    else if (step.kind == Kind::apply) ++s.applied;
    else s.applied = kFinished;
  }

  static constexpr int64_t kFinished = -1;
  const int64_t panels_;
  std::vector<State> strips_;
  int64_t factored_ = 0;
  bool good_ = true;
  std::mutex mutex_;
};

}  // namespace

bool run_by_strips(int64_t panels, int64_t strips, double operations, const StripSteps& steps) {
  Progress progress(panels, strips);
  parallel_for(std::min(strips, workers_for(operations)), 1, [&](int64_t, int64_t) { progress.work(steps); });
  return progress.good();
}

}  // namespace facula::numerics
