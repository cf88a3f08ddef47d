// Eigenvalues of symmetric tridiagonal and singular values of bidiagonal matrices of up to kSmall rows: the part of
// decompositions whose number of steps depends on the numbers, one matrix after another. All functions are inlined
// (lanes.h).
//
// The signs of vectors follow from the order of rotations, directions and shifts, which are those of LAPACK's steqr and
// bdsqr, and from the choice between a rotation's two signs: for eigenvalues as lartg chose up to LAPACK 3.9, for
// singular values as it does since. So they agree with PyTorch's for all but a few matrices.
#pragma once
#include <cmath>
#include <limits>
#include <utility>

#include "facula/numerics/lanes.h"

namespace facula::numerics {

// Vectors of kRows elements, one per row.
template <class T, int kRows>
struct Iterate {
  typedef T Vector __attribute__((vector_size(kRows * sizeof(T))));
  static constexpr T kRounding = std::numeric_limits<T>::epsilon() / 2,
                     kLeast = std::numeric_limits<T>::min();

  struct Rotation {
    T c, s, r;  // (c s; -s c) (f; g) = (r; 0)
  };
  // classic: r is positive if |g| is larger or f is positive; of_f: r has the sign of f
  enum class Sign { classic, of_f };
  template <Sign kSign>
  FACULA_LANES Rotation rotation(T f, T g) {
    if (g == 0) return {1, 0, f};
    if (f == 0)
      return {0, kSign == Sign::classic ? 1 : std::copysign(T(1), g),
              kSign == Sign::classic ? g : std::abs(g)};
    constexpr T kUp = 1 / kLeast;  // so that squares of the smallest numbers do not vanish
    T scale = 1, size = f * f + g * g;
    if (size < kLeast / kRounding) [[unlikely]] {
      scale = kLeast / kRounding;
      f *= kUp * kRounding, g *= kUp * kRounding;
      size = f * f + g * g;
    }
    T r = std::sqrt(size), c = f / r, s = g / r;
    if ((kSign == Sign::of_f || std::abs(f) > std::abs(g)) && c < 0) return {-c, -s, -r * scale};
    return {c, s, r * scale};
  }
  FACULA_LANES void rotate(Vector& first, Vector& second, T c, T s) {
    Vector next = c * second - s * first;
    first = s * second + c * first;
    second = next;
  }

  struct Symmetric2 {
    T larger, smaller;  // by absolute value
    T c, s;             // the vector of the larger one
  };
  // The eigenvalues of (a b; b d).
  FACULA_LANES Symmetric2 symmetric2(T a, T b, T d) {
    T sum = a + d, difference = a - d, twice = 2 * b,
      root = std::sqrt(difference * difference + twice * twice);
    T most = std::abs(a) > std::abs(d) ? a : d, least = std::abs(a) > std::abs(d) ? d : a;
    Symmetric2 result;
    bool negative = sum < 0, falls = difference >= 0;
    result.larger = (negative ? sum - root : sum + root) / 2;
    result.smaller = sum == 0 ? -root / 2 : (most / result.larger) * least - (b / result.larger) * b;
    T cosine = falls ? difference + root : difference - root;
    if (std::abs(cosine) > std::abs(twice)) {
      T cotangent = -twice / cosine;
      result.s = 1 / std::sqrt(1 + cotangent * cotangent);
      result.c = cotangent * result.s;
    } else if (twice == 0) {
      result.c = 1, result.s = 0;
    } else {
      T tangent = -cosine / twice;
      result.c = 1 / std::sqrt(1 + tangent * tangent);
      result.s = tangent * result.c;
    }
    if (negative != falls) {
      T c = result.c;
      result.c = -result.s, result.s = c;
    }
    return result;
  }

  // Splits off the parts of block [first, last] that need no further step; `step` is the direction. Implicit QL (QR, from
  // the other end) with Wilkinson's shifts.
  FACULA_LANES void diagonalize_block(T* d, T* e, Vector* z, int first, int last, int& steps) {
    bool turned = std::abs(d[last]) < std::abs(d[first]);
    int step = turned ? -1 : 1, at = turned ? last : first, end = turned ? first : last;
    auto edge = [&](int i)
                    __attribute__((always_inline)) -> T& { return e[turned ? i - 1 : i]; };  // from i on
    while ((end - at) * step >= 0 && steps > 0) {
      int m = at;
      for (; m != end; m += step)
        if (edge(m) * edge(m) <= kRounding * kRounding * std::abs(d[m]) * std::abs(d[m + step]) + kLeast)
          break;
      if (m != end) edge(m) = 0;
      if (m == at) {
        at += step;
        continue;
      }
      if (m == at + step) {
        int i = turned ? m : at;
        Symmetric2 pair = symmetric2(d[i], e[i], d[i + 1]);
        if (z) rotate(z[i], z[i + 1], pair.c, pair.s);
        d[i] = pair.larger, d[i + 1] = pair.smaller, e[i] = 0;
        at += 2 * step;
        continue;
      }
      --steps;
      T p = d[at], g = (d[at + step] - p) / (2 * edge(at)), r = std::sqrt(g * g + 1);
      g = d[m] - p + edge(at) / (g + std::copysign(r, g));
      T s = 1, c = 1;
      p = 0;
      for (int i = m - step;; i -= step) {
        T f = s * edge(i), b = c * edge(i);
        Rotation turn = rotation<Sign::classic>(g, f);
        c = turn.c, s = turn.s;
        if (i != m - step) edge(i + step) = turn.r;
        g = d[i + step] - p;
        r = (d[i] - g) * s + 2 * c * b;
        p = s * r;
        d[i + step] = g + p;
        g = c * r - b;
        if (z) rotate(z[i], z[i + step], c, -s);
        if (i == at) break;
      }
      d[at] -= p;
      edge(at) = g;
    }
  }
  // Computes the eigenvalues, ascending in d, of the matrix with diagonal d [n] and off-diagonal e [n - 1], and
  // multiplies z, unless null, by their vectors. Returns false if they do not converge.
  FACULA_LANES bool diagonalize(T* d, T* e, Vector* z, int n) {
    int steps = 30 * n;
    for (int first = 0, next; first < n; first = next) {
      int last = first;
      for (; last < n - 1; ++last)
        if (std::abs(e[last]) <=
            std::sqrt(std::abs(d[last])) * std::sqrt(std::abs(d[last + 1])) * kRounding) {
          e[last] = 0;
          break;
        }
      next = last + 1;
      if (last > first) diagonalize_block(d, e, z, first, last, steps);
    }
    sort(d, z, z, n, [](T a, T b) { return a < b; });
    return steps > 0;
  }
  template <class Before>
  FACULA_LANES void sort(T* d, Vector* u, Vector* v, int n, Before&& before) {
    for (int i = 0; i < n - 1; ++i) {
      int k = i;
      for (int j = i + 1; j < n; ++j)
        if (before(d[j], d[k])) k = j;
      if (k == i) continue;
      std::swap(d[i], d[k]);
      if (u) std::swap(u[i], u[k]);
      if (v != u) std::swap(v[i], v[k]);
    }
  }

  struct Triangular2 {
    T larger, smaller;  // with signs
    T left_c, left_s, right_c, right_s;
  };
  // The singular values of (f g; 0 h) to full relative accuracy: Demmel, Kahan, "Accurate singular values of bidiagonal
  // matrices", 1990.
  FACULA_LANES Triangular2 triangular2(T f, T g, T h) {
    bool swapped = std::abs(h) > std::abs(f);
    T top = swapped ? h : f, low = swapped ? f : h, ft = std::abs(top), lt = std::abs(low), gt = std::abs(g);
    T large = ft, small = lt, cl = 1, sl = 0, cr = 1, sr = 0;
    bool by_g = gt > ft;
    if (gt != 0 && by_g && ft / gt < kRounding) {
      large = gt;
      small = lt > 1 ? ft / (gt / lt) : ft / gt * lt;
      cl = 1, sl = low / g, sr = 1, cr = top / g;
    } else if (gt != 0) {
      T gap = ft - lt, l = gap == ft ? 1 : gap / ft, m = g / top, t = 2 - l;
      T s = std::sqrt(t * t + m * m), r = l == 0 ? std::abs(m) : std::sqrt(l * l + m * m), a = (s + r) / 2;
      small = lt / a, large = ft * a;
      if (m * m != 0) t = (m / (s + t) + m / (r + l)) * (1 + a);
      else
        t = l == 0 ? std::copysign(T(2), top) * std::copysign(T(1), g) : g / std::copysign(gap, top) + m / t;
      l = std::sqrt(t * t + 4);
      cr = 2 / l, sr = t / l;
      cl = (cr + sr * m) / a, sl = low / top * sr / a;
    }
    Triangular2 result;
    if (swapped) result.left_c = sr, result.left_s = cr, result.right_c = sl, result.right_s = cl;
    else result.left_c = cl, result.left_s = sl, result.right_c = cr, result.right_s = sr;
    auto sign = [](T x) __attribute__((always_inline)) { return std::copysign(T(1), x); };
    T of_large = by_g      ? sign(result.right_s) * sign(result.left_c) * sign(g)
                 : swapped ? sign(result.right_s) * sign(result.left_s) * sign(h)
                           : sign(result.right_c) * sign(result.left_c) * sign(f);
    result.larger = std::copysign(large, of_large);
    result.smaller = std::copysign(small, of_large * sign(f) * sign(h));
    return result;
  }
  // The smaller singular value of (f g; 0 h).
  FACULA_LANES T smaller2(T f, T g, T h) {
    T least = std::min(std::abs(f), std::abs(h)), most = std::max(std::abs(f), std::abs(h));
    g = std::abs(g);
    if (least == 0) return 0;
    T sum = 1 + least / most, rest = (most - least) / most;
    if (g < most) {
      T square = (g / most) * (g / most);
      return least * (2 / (std::sqrt(sum * sum + square) + std::sqrt(rest * rest + square)));
    }
    T ratio = most / g;
    if (ratio == 0) return least * most / g;
    T c = 1 / (std::sqrt(1 + sum * ratio * (sum * ratio)) + std::sqrt(1 + rest * ratio * (rest * ratio)));
    return 2 * (least * c * ratio);
  }

  // A bidiagonal matrix with diagonal d [n] and off-diagonal e [n - 1], and the vectors of its left and right side (v may
  // be null).
  struct Bidiagonal {
    T *d, *e;
    Vector *u, *v;
    T tolerance, threshold;
  };
  // One step on block [at, end] in direction `step`, from the larger end of its diagonal to the smaller.
  FACULA_LANES void chase(Bidiagonal& b, int at, int end, int step, T shift) {
    T *d = b.d, *e = b.e;
    Vector *first = step > 0 ? b.v : b.u, *second = step > 0 ? b.u : b.v;
    auto edge = [&](int i)
                    __attribute__((always_inline)) -> T& { return e[step > 0 ? i : i - 1]; };  // from i on
    auto turn = [&](Vector* x, int i, Rotation r) __attribute__((always_inline)) {
      if (x) rotate(x[i], x[i + step], r.c, r.s);
    };
    if (shift == 0) {  // so that small values stay accurate
      Rotation left{1, 0, 0};
      T c = 1;
      for (int i = at; i != end; i += step) {
        Rotation right = rotation<Sign::of_f>(d[i] * c, edge(i));
        c = right.c;
        if (i != at) edge(i - step) = left.s * right.r;
        left = rotation<Sign::of_f>(left.c * right.r, d[i + step] * right.s);
        d[i] = left.r;
        turn(first, i, right);
        turn(second, i, left);
      }
      T h = d[end] * c;
      d[end] = h * left.c;
      edge(end - step) = h * left.s;
    } else {
      T f = (std::abs(d[at]) - shift) * (std::copysign(T(1), d[at]) + shift / d[at]), g = edge(at);
      for (int i = at; i != end; i += step) {
        Rotation right = rotation<Sign::of_f>(f, g);
        if (i != at) edge(i - step) = right.r;
        f = right.c * d[i] + right.s * edge(i);
        edge(i) = right.c * edge(i) - right.s * d[i];
        g = right.s * d[i + step];
        d[i + step] *= right.c;
        Rotation left = rotation<Sign::of_f>(f, g);
        d[i] = left.r;
        f = left.c * edge(i) + left.s * d[i + step];
        d[i + step] = left.c * d[i + step] - left.s * edge(i);
        if (i + step != end) {
          g = left.s * edge(i + step);
          edge(i + step) *= left.c;
        }
        turn(first, i, right);
        turn(second, i, left);
      }
      edge(end - step) = f;
    }
    if (std::abs(edge(end - step)) <= b.threshold) edge(end - step) = 0;
  }
  // Returns whether an off-diagonal element of block [at, end] was negligible and is now 0; else sets `least`, a lower
  // bound of the smallest singular value.
  FACULA_LANES bool splits(Bidiagonal& b, int at, int end, int step, T& least) {
    auto edge = [&](int i) __attribute__((always_inline)) -> T& { return b.e[step > 0 ? i : i - 1]; };
    if (std::abs(edge(end - step)) <= b.tolerance * std::abs(b.d[end])) {
      edge(end - step) = 0;
      return true;
    }
    T mu = std::abs(b.d[at]);
    least = mu;
    for (int i = at; i != end; i += step) {
      if (std::abs(edge(i)) <= b.tolerance * mu) {
        edge(i) = 0;
        return true;
      }
      mu = std::abs(b.d[i + step]) * (mu / (mu + std::abs(edge(i))));
      least = std::min(least, mu);
    }
    return false;
  }
  FACULA_LANES T shift_of(const Bidiagonal& b, int at, int end, int step, int n, T least, T largest) {
    if (n * b.tolerance * (least / largest) <= std::max(kRounding, T(0.01) * b.tolerance)) return 0;
    T first = std::abs(b.d[at]);
    int i = step > 0 ? end - 1 : end;
    T shift = smaller2(b.d[i], b.e[i], b.d[i + 1]);
    return first > 0 && shift / first * (shift / first) < kRounding ? 0 : shift;
  }
  FACULA_LANES void tolerate(Bidiagonal& b, int n) {
    b.tolerance = kRounding * std::max(T(10), std::min(T(100), std::pow(kRounding, T(-0.125))));
    T mu = std::abs(b.d[0]), least = mu;
    for (int i = 1; i < n && least != 0; ++i) {
      mu = std::abs(b.d[i]) * (mu / (mu + std::abs(b.e[i - 1])));
      least = std::min(least, mu);
    }
    b.threshold = std::max(b.tolerance * (least / std::sqrt(T(n))), T(6 * n * n) * kLeast);
  }
  // Makes a lower bidiagonal matrix, with e below d, upper bidiagonal.
  FACULA_LANES void make_upper(T* d, T* e, Vector* u, int n) {
    for (int i = 0; i < n - 1; ++i) {
      Rotation turn = rotation<Sign::of_f>(d[i], e[i]);
      d[i] = turn.r, e[i] = turn.s * d[i + 1], d[i + 1] *= turn.c;
      rotate(u[i], u[i + 1], turn.c, turn.s);
    }
  }
  // Computes the singular values of a bidiagonal matrix, descending in d, by implicit QR from the larger end, and
  // multiplies u and v by their vectors. Returns false if they do not converge.
  FACULA_LANES bool singular_values(T* d, T* e, Vector* u, Vector* v, int n) {
    Bidiagonal b{d, e, u, v, 0, 0};
    tolerate(b, n);
    int last = n - 1, step = 0, old_first = -1, old_last = -1;
    for (int steps = 6 * n * n; last > 0 && steps > 0; --steps) {
      T largest = std::abs(d[last]), least = 0;
      int first = last;
      for (; first > 0 && std::abs(e[first - 1]) > b.threshold; --first)
        largest = std::max({largest, std::abs(d[first - 1]), std::abs(e[first - 1])});
      if (first > 0) e[first - 1] = 0;
      if (first == last) {
        --last;
        continue;
      }
      if (first == last - 1) {
        Triangular2 pair = triangular2(d[first], e[first], d[last]);
        d[first] = pair.larger, d[last] = pair.smaller, e[first] = 0;
        if (v) rotate(v[first], v[last], pair.right_c, pair.right_s);
        if (u) rotate(u[first], u[last], pair.left_c, pair.left_s);
        last -= 2;
        continue;
      }
      if (first > old_last || last < old_first) step = std::abs(d[first]) >= std::abs(d[last]) ? 1 : -1;
      int at = step > 0 ? first : last, end = step > 0 ? last : first;
      if (splits(b, at, end, step, least)) continue;
      old_first = first, old_last = last;
      chase(b, at, end, step, shift_of(b, at, end, step, n, least, largest));
    }
    Vector* signs = n == 1 ? u : v;
    for (int i = 0; i < n; ++i) {
      if (d[i] < 0 && signs) signs[i] = -signs[i];
      d[i] = std::abs(d[i]);
    }
    sort(d, u, v, n, [](T a, T b) { return a > b; });
    return last <= 0;
  }
};

}  // namespace facula::numerics
