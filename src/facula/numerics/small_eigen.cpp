#include "facula/numerics/small_eigen.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "facula/numerics/numbers.h"

namespace facula::numerics {

namespace {

template <class T>
using Complex = ComplexVector<T>;

// Functions with the same names for real and complex numbers.
template <class T>
T real(T x) {
  return x;
}
template <class T>
T conjugate(T x) {
  return x;
}
template <class T>
T norm(T x) {  // |x|^2
  return x * x;
}
template <class T>
T size(T x) {
  return std::abs(x);
}
template <class T>
T inverse(T x) {
  return 1 / x;
}
template <class T>
T of_memory(T x) {
  return x;
}
template <class T>
T real(Complex<T> x) {
  return x.re;
}
template <class T>
Complex<T> conjugate(Complex<T> x) {
  return {x.re, -x.im};
}
template <class T>
T norm(Complex<T> x) {
  return x.re * x.re + x.im * x.im;
}
template <class T>
T size(Complex<T> x) {  // the magnitude that LAPACK compares
  return std::abs(x.re) + std::abs(x.im);
}
template <class T>
Complex<T> inverse(Complex<T> x) {  // 1 / x, for parts whose squares may overflow or vanish
  T s = size(x);
  Complex<T> unit = x / s;
  return conjugate(unit) / norm(unit) / s;
}
template <class T>
Complex<T> of_memory(std::complex<T> x) {
  return {x.real(), x.imag()};
}

// A matrix of real or complex numbers N that is being reduced to a triangle. Golub, Van Loan, "Matrix Computations", 7.4
// to 7.6. The order of steps, shifts and signs is that of LAPACK, so that eigenvalues come in its order and vectors with
// its signs.
template <class T, class N>
class Reduced {
 protected:
  static constexpr int kMost = kMostEigenRows;
  static constexpr T kUlp = std::numeric_limits<T>::epsilon(), kLeast = std::numeric_limits<T>::min();
  static constexpr bool kComplex = !std::is_same_v<T, N>;

  Reduced(int n, bool vectors) : n_(n), vectors_(vectors) {}

  static N of_real(T x) {
    if constexpr (kComplex) return {x, T(0)};
    else return x;
  }
  // Column-major element access.
  N& h(int i, int j) { return h_[j * kMost + i]; }
  N& z(int i, int j) { return z_[j * kMost + i]; }

  template <class A>
  bool take(const A* a) {
    T largest = 0;
    unsigned rows = 0, columns = 0;  // rows and columns with nonzero off-diagonal elements
    for (int i = 0; i < n_; ++i)
      for (int j = 0; j < n_; ++j) {
        T x = size(h(i, j) = of_memory(a[i * n_ + j]));
        largest = std::max(largest, x);
        if (x != 0 && i != j) rows |= 1u << i, columns |= 1u << j;
      }
    unsigned all = (1u << n_) - 1;
    const T least = std::sqrt(kLeast) / kUlp;
    return rows == all && columns == all && largest > least && largest < 1 / least;
  }

  // Scales rows and columns by powers of 2 until their norms are about equal (Parlett, Reinsch, "Balancing a matrix for
  // calculation of eigenvalues and eigenvectors", 1969).
  void balance() {
    std::fill(scale_, scale_ + n_, T(1));
    for (bool again = true; again;) {
      again = false;
      for (int i = 0; i < n_; ++i) {
        T column = 0, row = 0, f = 1;
        for (int k = 0; k < n_; ++k) column += norm(h(k, i)), row += norm(h(i, k));
        column = std::sqrt(column), row = std::sqrt(row);
        if (!(column > kLeast / kUlp) || !(row > kLeast / kUlp)) continue;
        T sum = column + row;
        for (; column < row / 2; column *= 2, row /= 2) f *= 2;
        for (; column / 2 >= row; column /= 2, row *= 2) f /= 2;
        if (f == 1 || column + row >= T(0.95) * sum) continue;
        again = true;
        scale_[i] *= f;
        for (int k = 0; k < n_; ++k) h(i, k) = h(i, k) / f;
        for (int k = 0; k < n_; ++k) h(k, i) *= f;
      }
    }
  }

  // Turns (alpha, x[1], ...) of m numbers into (beta, 0, ...), with real beta: x becomes the reflection's vector behind
  // its leading 1.
  static N reflection(int m, N& alpha, N* x) {
    T squares = 0, up = 1;
    for (int i = 1; i < m; ++i) squares += norm(x[i]);
    if (norm(alpha) + squares < kLeast / kUlp / kUlp) {  // too small to be squared
      up = kUlp / kLeast, squares = 0;
      for (int i = 1; i < m; ++i) squares += norm(x[i] * up);
    }
    if (squares == 0 && size(alpha) == std::abs(real(alpha))) return N();
    N scaled = alpha * up;
    T length = -std::copysign(std::sqrt(norm(scaled) + squares), real(scaled)) / up;
    N beta = of_real(length), tau = (beta - alpha) / length, scale = inverse(alpha - beta);
    for (int i = 1; i < m; ++i) x[i] *= scale;
    alpha = beta;
    return tau;
  }

  // H = Q^H A Q has one diagonal below its own; Z is Q.
  void reduce() {
    N taus[kMost], one = of_real(1);
    int count = n_ - (kComplex ? 1 : 2);  // the last reflection only makes a complex number real
    for (int k = 0; k < count; ++k) {
      N* x = &h(k + 1, k);
      int m = n_ - k - 1;
      N alpha = x[0], tau = taus[k] = reflection(m, alpha, x);
      x[0] = one;
      for (int i = 0; i < n_; ++i) {  // from the right
        N sum{};
        for (int j = 0; j < m; ++j) sum += h(i, k + 1 + j) * x[j];
        sum *= tau;
        for (int j = 0; j < m; ++j) h(i, k + 1 + j) -= sum * conjugate(x[j]);
      }
      reflect(x, conjugate(tau), m, &h(k + 1, k + 1), n_ - k - 1);
      x[0] = alpha;
    }
    if (!vectors_) return;
    for (int j = 0; j < n_; ++j)
      for (int i = 0; i < n_; ++i) z(i, j) = i == j ? one : N();
    for (int k = count - 1; k >= 0; --k) {
      N* x = &h(k + 1, k);
      N alpha = std::exchange(x[0], one);
      reflect(x, taus[k], n_ - k - 1, &z(k + 1, k + 1), n_ - k - 1);
      x[0] = alpha;
    }
  }
  static void reflect(const N* x, N tau, int m, N* a, int columns) {
    for (; columns-- > 0; a += kMost) {
      N sum{};
      for (int i = 0; i < m; ++i) sum += conjugate(x[i]) * a[i];
      sum *= tau;
      for (int i = 0; i < m; ++i) a[i] -= sum * x[i];
    }
  }
  void clear_subdiagonals() {
    for (int j = 0; j < n_; ++j)
      for (int i = j + 2; i < n_; ++i) h(i, j) = N();
  }

  // Returns whether the element left of h(k, k) is negligible. (Ahues, Tisseur, "A new deflation criterion for the QR
  // algorithm", 1997)
  bool splits(int k) {
    T low = size(h(k, k - 1)), least = kLeast * (T(n_) / kUlp);
    if (low <= least) return true;
    T around = size(h(k - 1, k - 1)) + size(h(k, k));
    if (around == 0) {
      if (k >= 2) around += size(h(k - 1, k - 2));
      if (k + 1 < n_) around += size(h(k + 1, k));
    }
    if (low > kUlp * around) return false;
    T high = size(h(k - 1, k)), gap = size(h(k - 1, k - 1) - h(k, k)), own = size(h(k, k));
    T ab = std::max(low, high), ba = std::min(low, high), aa = std::max(own, gap), bb = std::min(own, gap);
    T s = aa + ab;
    return ba * (ab / s) <= std::max(least, kUlp * (bb * (aa / s)));
  }

  int most_steps() const { return 30 * std::max(10, n_); }
  static constexpr int kExceptional = 10;  // steps until an arbitrary shift, which breaks cycles

  int n_;
  bool vectors_;
  N h_[kMost * kMost], z_[kMost * kMost];
  T scale_[kMost];
};

#define FACULA_USE_REDUCED(N)                                                               \
  using Base = Reduced<T, N>;                                                               \
  using Base::h, Base::z, Base::n_, Base::vectors_, Base::scale_, Base::kMost, Base::kUlp, \
      Base::kLeast, Base::kExceptional, Base::of_real, Base::reflection;

template <class T>
class Eigen : Reduced<T, T> {
 public:
  Eigen(int n, bool vectors) : Reduced<T, T>(n, vectors) {}

  bool run(const T* a, std::complex<T>* values, std::complex<T>* vectors) {
    if (!this->take(a)) return false;
    this->balance();
    this->reduce();
    if (!triangularize()) return false;
    for (int i = 0; i < n_; ++i) values[i] = {re_[i], im_[i]};
    return !vectors_ || find_vectors(vectors);
  }

 private:
  FACULA_USE_REDUCED(T)

  // Reduces H to a triangle with 2x2 blocks for conjugate pairs, by QR steps with two shifts.
  bool triangularize() {
    this->clear_subdiagonals();
    int steps = 0;
    for (int last = n_ - 1; last >= 0;) {
      int first = last;
      for (; first > 0 && !this->splits(first); --first) {}
      if (first > 0) h(first, first - 1) = 0;
      if (first >= last - 1) {
        if (first == last) re_[last] = h(last, last), im_[last] = 0;
        else separate(first);
        last = first - 1;
        steps = 0;
        continue;
      }
      if (++steps > this->most_steps()) return false;
      step(first, last, steps);
    }
    return true;
  }

  struct Shifts {
    T re1, im1, re2, im2;
  };
  Shifts shifts(int first, int last, int steps) {
    T h11, h12, h21, h22;
    if (steps % kExceptional == 0) {
      bool low = steps % (2 * kExceptional) == 0;
      T s = low ? std::abs(h(last, last - 1)) + std::abs(h(last - 1, last - 2))
                : std::abs(h(first + 1, first)) + std::abs(h(first + 2, first + 1));
      h11 = h22 = T(0.75) * s + (low ? h(last, last) : h(first, first));
      h12 = T(-0.4375) * s, h21 = s;
    } else {
      h11 = h(last - 1, last - 1), h12 = h(last - 1, last), h21 = h(last, last - 1), h22 = h(last, last);
    }
    T s = std::abs(h11) + std::abs(h12) + std::abs(h21) + std::abs(h22);
    if (s == 0) return {0, 0, 0, 0};
    T down = 1 / s;
    h11 *= down, h12 *= down, h21 *= down, h22 *= down;
    T middle = (h11 + h22) / 2, det = (h11 - middle) * (h22 - middle) - h12 * h21,
      root = std::sqrt(std::abs(det));
    if (det >= 0) return {middle * s, root * s, middle * s, -root * s};
    T one = middle + root, other = middle - root;
    T nearer = (std::abs(one - h22) <= std::abs(other - h22) ? one : other) * s;
    return {nearer, 0, nearer, 0};
  }

  // One step on rows and columns [first, last].
  void step(int first, int last, int steps) {
    Shifts t = shifts(first, last, steps);
    int begin = last - 2;
    T v[3];
    for (;; --begin) {  // a step may begin between two small adjacent elements
      int m = begin;
      T low = std::abs(h(m + 1, m)), s = std::abs(h(m, m) - t.re2) + std::abs(t.im2) + low;
      T down = 1 / s, scaled = h(m + 1, m) * down;
      v[0] = scaled * h(m, m + 1) + (h(m, m) - t.re1) * ((h(m, m) - t.re2) * down) - t.im1 * (t.im2 * down);
      v[1] = scaled * (h(m, m) + h(m + 1, m + 1) - t.re1 - t.re2);
      v[2] = scaled * h(m + 2, m + 1);
      down = 1 / (std::abs(v[0]) + std::abs(v[1]) + std::abs(v[2]));
      for (T& x : v) x *= down;
      if (m == first) break;
      T around = std::abs(h(m - 1, m - 1)) + std::abs(h(m, m)) + std::abs(h(m + 1, m + 1));
      if (std::abs(h(m, m - 1)) * (std::abs(v[1]) + std::abs(v[2])) <= kUlp * std::abs(v[0]) * around) break;
    }
    for (int k = begin; k < last; ++k) {
      int rows = std::min(3, last - k + 1);
      if (k > begin)
        for (int i = 0; i < rows; ++i) v[i] = h(k + i, k - 1);
      T alpha = v[0], tau = reflection(rows, alpha, v);
      if (k > begin) {
        h(k, k - 1) = alpha;
        for (int i = 1; i < rows; ++i) h(k + i, k - 1) = 0;
      } else if (begin > first) {
        h(k, k - 1) *= 1 - tau;
      }
      int left = vectors_ ? n_ - 1 : last, top = vectors_ ? 0 : first;
      if (rows == 3) chase<3>(v, tau, k, left, top, std::min(k + 3, last));
      else chase<2>(v, tau, k, left, top, last);
    }
  }
  template <int kRows>
  void chase(const T* v, T tau, int k, int left, int top, int bottom) {
    T w[kRows], by[kRows];
    w[0] = 1, by[0] = tau;
    for (int i = 1; i < kRows; ++i) w[i] = v[i], by[i] = tau * v[i];
    for (int j = k; j <= left; ++j) {
      T *x = &h(k, j), sum = x[0];
      for (int i = 1; i < kRows; ++i) sum += w[i] * x[i];
      for (int i = 0; i < kRows; ++i) x[i] -= sum * by[i];
    }
    auto columns = [&](T* x, int from, int to) {
      for (int j = from; j <= to; ++j) {
        T sum = x[j];
        for (int i = 1; i < kRows; ++i) sum += w[i] * x[i * kMost + j];
        for (int i = 0; i < kRows; ++i) x[i * kMost + j] -= sum * by[i];
      }
    };
    columns(&h(0, k), top, bottom);
    if (vectors_) columns(&z(0, k), 0, n_ - 1);
  }

  static T length(T x, T y) {
    T most = std::max(std::abs(x), std::abs(y)), least = std::min(std::abs(x), std::abs(y)),
      ratio = least / most;
    return most == 0 ? T(0) : most * std::sqrt(1 + ratio * ratio);
  }
  static T signed_one(T x) { return std::copysign(T(1), x); }
  // Computes the eigenvalues of rows and columns k and k + 1, which become a triangle or get equal elements on the
  // diagonal.
  void separate(int k) {
    T &a = h(k, k), &b = h(k, k + 1), &c = h(k + 1, k), &d = h(k + 1, k + 1), cs = 1, sn = 0;
    if (c == 0) {
    } else if (b == 0) {
      cs = 0, sn = 1;
      std::swap(a, d);
      b = -c, c = 0;
    } else if (a - d != 0 || signed_one(b) == signed_one(c)) {
      T gap = a - d, p = gap / 2, most = std::max(std::abs(b), std::abs(c)),
        least = std::min(std::abs(b), std::abs(c)) * signed_one(b) * signed_one(c);
      T scale = std::max(std::abs(p), most), real = (p / scale) * p + (most / scale) * least;
      if (real >= 4 * kUlp) {
        real = p + std::copysign(std::sqrt(scale) * std::sqrt(real), p);
        a = d + real, d -= most / real * least;
        T size = length(c, real);
        cs = real / size, sn = c / size;
        b -= c, c = 0;
      } else {
        equalize(a, b, c, d, gap, cs, sn);
      }
    }
    re_[k] = a, re_[k + 1] = d;
    im_[k] = im_[k + 1] = 0;
    if (c != 0) im_[k] = std::sqrt(std::abs(b)) * std::sqrt(std::abs(c)), im_[k + 1] = -im_[k];
    if (!vectors_) return;
    for (int j = k + 2; j < n_; ++j) rotate(h(k, j), h(k + 1, j), cs, sn);
    for (int i = 0; i < k; ++i) rotate(h(i, k), h(i, k + 1), cs, sn);
    for (int i = 0; i < n_; ++i) rotate(z(i, k), z(i, k + 1), cs, sn);
  }
  // The case of complex, or real and almost equal, eigenvalues.
  static void equalize(T& a, T& b, T& c, T& d, T gap, T& cs, T& sn) {
    T sigma = b + c, p = gap / 2, tau = length(sigma, gap);
    cs = std::sqrt((1 + std::abs(sigma) / tau) / 2);
    sn = -(p / (tau * cs)) * signed_one(sigma);
    T aa = a * cs + b * sn, bb = -a * sn + b * cs, cc = c * cs + d * sn, dd = -c * sn + d * cs;
    a = aa * cs + cc * sn, b = bb * cs + dd * sn, c = -aa * sn + cc * cs, d = -bb * sn + dd * cs;
    T middle = (a + d) / 2;
    a = d = middle;
    if (c == 0) return;
    if (b == 0) {
      b = -c, c = 0;
      std::swap(cs, sn);
      cs = -cs;
    } else if (signed_one(b) == signed_one(c)) {  // both are real
      T root_b = std::sqrt(std::abs(b)), root_c = std::sqrt(std::abs(c)),
        unit = 1 / std::sqrt(std::abs(b + c));
      p = std::copysign(root_b * root_c, c);
      a = middle + p, d = middle - p;
      b -= c, c = 0;
      T cs1 = root_b * unit, sn1 = root_c * unit, turned = cs * cs1 - sn * sn1;
      sn = cs * sn1 + sn * cs1, cs = turned;
    }
  }
  static void rotate(T& x, T& y, T cs, T sn) {
    T next = cs * x + sn * y;
    y = cs * y - sn * x;
    x = next;
  }

  // Solves (H - value) x = 0 upwards from row `first_solved`, where the block of the eigenvalue begins: x = (re, im).
  void substitute(T value_re, T value_im, int first_solved, T* re, T* im) {
    T least = std::max(kUlp * (std::abs(value_re) + std::abs(value_im)), kLeast * (T(n_) / kUlp));
    for (int j = first_solved - 1; j >= 0; --j) {
      using C = std::complex<T>;
      if (j > 0 && h(j, j - 1) != 0) {
        C a(h(j - 1, j - 1) - value_re, -value_im), d(h(j, j) - value_re, -value_im);
        T b = h(j - 1, j), c = h(j, j - 1);
        C det = a * d - b * c, f(re[j - 1], im[j - 1]), g(re[j], im[j]);
        if (std::abs(det.real()) + std::abs(det.imag()) < least * least) det = least * least;
        C x = (d * f - b * g) / det, y = (a * g - c * f) / det;
        set(j - 1, x, re, im), set(j, y, re, im);
        --j;
      } else {
        C d(h(j, j) - value_re, -value_im);
        if (std::abs(d.real()) + std::abs(d.imag()) < least) d = least;
        set(j, C(re[j], im[j]) / d, re, im);
      }
    }
  }
  void set(int j, std::complex<T> x, T* re, T* im) {
    re[j] = x.real(), im[j] = x.imag();
    int top = j > 0 && h(j, j - 1) != 0 ? j - 1 : j;
    for (int i = 0; i < top; ++i) re[i] -= re[j] * h(i, j), im[i] -= im[j] * h(i, j);
  }

  bool find_vectors(std::complex<T>* to) {
    for (int k = n_ - 1; k >= 0; --k) {
      T re[kMost] = {}, im[kMost] = {}, x[kMost], y[kMost];
      bool pair = im_[k] != 0;
      int first = pair ? k - 1 : k;
      if (pair) {
        if (std::abs(h(first, k)) >= std::abs(h(k, first))) re[first] = 1, im[k] = im_[first] / h(first, k);
        else re[first] = -im_[first] / h(k, first), im[k] = 1;
        for (int i = 0; i < first; ++i) re[i] = -re[first] * h(i, first), im[i] = -im[k] * h(i, k);
      } else {
        re[k] = 1;
        for (int i = 0; i < k; ++i) re[i] = -h(i, k);
      }
      substitute(re_[first], im_[first], first, re, im);
      T squares = 0, size = 0;
      for (int j = 0; j <= k; ++j) size = std::max(size, std::abs(re[j]) + std::abs(im[j]));
      if (!(size <= std::numeric_limits<T>::max() / 16)) return false;
      for (int i = 0; i < n_; ++i) {
        x[i] = y[i] = 0;
        for (int j = 0; j <= k; ++j) x[i] += z(i, j) * (re[j] / size), y[i] += z(i, j) * (im[j] / size);
        x[i] *= scale_[i], y[i] *= scale_[i];
        squares += x[i] * x[i] + y[i] * y[i];
      }
      if (!(squares > kLeast / kUlp) || !(squares < std::numeric_limits<T>::max())) return false;
      T unit = 1 / std::sqrt(squares);
      for (int i = 0; i < n_; ++i) x[i] *= unit, y[i] *= unit;
      if (pair) turn(x, y);
      for (int i = 0; i < n_; ++i) {
        if (pair) to[i * n_ + first] = {x[i], y[i]}, to[i * n_ + k] = {x[i], -y[i]};
        else to[i * n_ + k] = x[i];
      }
      k = first;
    }
    return true;
  }
  // Makes the largest element of x + iy real.
  void turn(T* x, T* y) {
    int at = 0;
    auto size = [&](int i) { return x[i] * x[i] + y[i] * y[i]; };
    for (int i = 1; i < n_; ++i)
      if (size(i) > size(at)) at = i;
    T f = x[at], g = y[at], r = std::copysign(std::sqrt(f * f + g * g), f == 0 ? g : f), cs = f / r,
      sn = g / r;
    if (g == 0) return;
    for (int i = 0; i < n_; ++i) rotate(x[i], y[i], cs, sn);
    y[at] = 0;
  }

  T re_[kMost], im_[kMost];
};

// The same for a complex matrix: QR steps with one shift. Elements below the diagonal are kept real.
template <class T>
class ComplexEigen : Reduced<T, Complex<T>> {
  using C = Complex<T>;

 public:
  ComplexEigen(int n, bool vectors) : Reduced<T, C>(n, vectors) {}

  bool run(const std::complex<T>* a, std::complex<T>* values, std::complex<T>* vectors) {
    if (!this->take(a)) return false;
    this->balance();
    this->reduce();
    if (!triangularize()) return false;
    for (int i = 0; i < n_; ++i) values[i] = {values_[i].re, values_[i].im};
    return !vectors_ || find_vectors(vectors);
  }

 private:
  FACULA_USE_REDUCED(C)

  static T modulus(C x) { return std::sqrt(norm(x)); }
  static C root(C x) {
    T length = modulus(x), half = std::sqrt((length + std::abs(x.re)) / 2);
    if (length == 0) return C();
    if (x.re >= 0) return {half, x.im / (2 * half)};
    return {std::abs(x.im) / (2 * half), std::copysign(half, x.im)};
  }
  // Makes h(i, i - 1) real; only rows from `top` on and columns up to `left` of H are read.
  void make_real(int i, int top, int left) {
    C low = h(i, i - 1);
    if (low.im == 0) return;
    T length = modulus(low);
    C phase = low / length;
    h(i, i - 1) = of_real(length);
    if (i + 1 < n_) h(i + 1, i) *= phase;
    turn(i, top, left, phase);
  }
  // Multiplies row i right of the diagonal by the conjugate of f, and column i above it by f.
  void turn(int i, int top, int left, C f) {
    for (int j = i + 1; j <= left; ++j) h(i, j) *= conjugate(f);
    for (int j = top; j < i; ++j) h(j, i) *= f;
    for (int j = 0; vectors_ && j < n_; ++j) z(j, i) *= f;
  }

  bool triangularize() {
    this->clear_subdiagonals();
    for (int i = 1; i < n_; ++i) make_real(i, 0, n_ - 1);
    for (int last = n_ - 1, steps = 0; last >= 0;) {
      int first = last;
      for (; first > 0 && !this->splits(first); --first) {}
      if (first > 0) h(first, first - 1) = C();
      if (first == last) {
        values_[last] = h(last, last);
        --last;
        steps = 0;
        continue;
      }
      if (++steps > this->most_steps()) return false;
      step(first, last, steps);
    }
    return true;
  }

  // The eigenvalue of the last two rows and columns that is nearer to the last element.
  C shift(int first, int last, int steps) {
    if (steps % kExceptional == 0) {
      bool low = steps % (2 * kExceptional) == 0;
      T s = T(0.75) * std::abs(low ? h(last, last - 1).re : h(first + 1, first).re);
      return (low ? h(last, last) : h(first, first)) + of_real(s);
    }
    C t = h(last, last), u = root(h(last - 1, last)) * root(h(last, last - 1));
    T s = size(u);
    if (s == 0) return t;
    C x = (h(last - 1, last - 1) - t) * T(0.5);
    T of_x = size(x);
    s = std::max(s, of_x);
    C y = root((x / s) * (x / s) + (u / s) * (u / s)) * s;
    if (of_x > 0 && (x.re / of_x) * y.re + (x.im / of_x) * y.im < 0) y = -y;
    return t - u * (u * inverse(x + y));
  }

  // One step on rows and columns [first, last].
  void step(int first, int last, int steps) {
    C t = shift(first, last, steps), v[2];
    int begin = last - 1, left = vectors_ ? n_ - 1 : last, top = vectors_ ? 0 : first;
    for (;; --begin) {  // a step may begin between two small adjacent elements
      C own = h(begin, begin) - t;
      T low = h(begin + 1, begin).re, s = size(own) + std::abs(low);
      v[0] = own / s, v[1] = of_real(low / s);
      if (begin == first) break;
      T around = size(h(begin, begin)) + size(h(begin + 1, begin + 1));
      if (std::abs(h(begin, begin - 1).re) * std::abs(v[1].re) <= kUlp * (size(v[0]) * around)) break;
    }
    for (int k = begin; k < last; ++k) {
      if (k > begin) v[0] = h(k, k - 1), v[1] = h(k + 1, k - 1);
      C alpha = v[0], tau = reflection(2, alpha, v);
      if (k > begin) h(k, k - 1) = alpha, h(k + 1, k - 1) = C();
      chase(v[1], tau, k, left, top, std::min(k + 2, last));
      if (k == begin && begin > first) begin_again(tau, begin, last, left, top);
    }
    // The last step leaves a complex number below the diagonal.
    make_real(last, top, left);
  }
  void chase(C w, C tau, int k, int left, int top, int bottom) {
    T other = (tau * w).re;
    for (int j = k; j <= left; ++j) {
      C sum = conjugate(tau) * h(k, j) + h(k + 1, j) * other;
      h(k, j) -= sum;
      h(k + 1, j) -= sum * w;
    }
    auto columns = [&](C* x, C* y, int from, int to) {
      for (int i = from; i <= to; ++i) {
        C sum = tau * x[i] + y[i] * other;
        x[i] -= sum;
        y[i] -= sum * conjugate(w);
      }
    };
    columns(&h(0, k), &h(0, k + 1), top, bottom);
    if (vectors_) columns(&z(0, k), &z(0, k + 1), 0, n_ - 1);
  }
  // A step that begins behind the first row changes the element before it, which is made real again.
  void begin_again(C tau, int begin, int last, int left, int top) {
    C f = of_real(1) - tau;
    f = f / modulus(f);
    h(begin + 1, begin) *= conjugate(f);
    if (begin + 2 <= last) h(begin + 2, begin + 1) *= f;
    for (int j = begin; j <= last; ++j)
      if (j != begin + 1) turn(j, top, left, conjugate(f));
  }

  bool find_vectors(std::complex<T>* to) {
    for (int k = n_ - 1; k >= 0; --k) {
      C x[kMost], y[kMost], value = values_[k];
      T least = std::max(kUlp * size(value), kLeast * (T(n_) / kUlp)), largest = 1, squares = 0;
      x[k] = of_real(1);
      for (int i = 0; i < k; ++i) x[i] = -h(i, k);
      for (int j = k - 1; j >= 0; --j) {
        C gap = h(j, j) - value;
        if (size(gap) < least) gap = of_real(least);
        x[j] *= inverse(gap);
        largest = std::max(largest, size(x[j]));
        for (int i = 0; i < j; ++i) x[i] -= x[j] * h(i, j);
      }
      if (!(largest <= std::numeric_limits<T>::max() / 16)) return false;
      for (int i = 0; i < n_; ++i) {
        y[i] = C();
        for (int j = 0; j <= k; ++j) y[i] += z(i, j) * (x[j] / largest);
        y[i] *= scale_[i];
        squares += norm(y[i]);
      }
      if (!(squares > kLeast / kUlp) || !(squares < std::numeric_limits<T>::max())) return false;
      deliver(y, 1 / std::sqrt(squares), k, to);
    }
    return true;
  }
  // Writes column k: y times `unit`, with its largest element real.
  void deliver(C* y, T unit, int k, std::complex<T>* to) {
    int at = 0;
    for (int i = 0; i < n_; ++i) {
      y[i] *= unit;
      if (norm(y[i]) > norm(y[at])) at = i;
    }
    C phase = conjugate(y[at]) / modulus(y[at]);
    for (int i = 0; i < n_; ++i) {
      C x = y[i] * phase;
      to[i * n_ + k] = {x.re, i == at ? T(0) : x.im};
    }
  }

  C values_[kMost];
};
#undef FACULA_USE_REDUCED

}  // namespace

template <class A, class T>
bool small_eigenvalues(int n, const A* a, std::complex<T>* values, std::complex<T>* vectors) {
  using Algorithm = std::conditional_t<std::is_same_v<A, T>, Eigen<T>, ComplexEigen<T>>;
  return Algorithm(n, vectors != nullptr).run(a, values, vectors);
}
#define FACULA_INSTANTIATE(A, T) \
  template bool small_eigenvalues(int, const A*, std::complex<T>*, std::complex<T>*);
FACULA_INSTANTIATE(float, float)
FACULA_INSTANTIATE(double, double)
FACULA_INSTANTIATE(std::complex<float>, float)
FACULA_INSTANTIATE(std::complex<double>, double)
#undef FACULA_INSTANTIATE

}  // namespace facula::numerics
