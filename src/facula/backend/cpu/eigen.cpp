#include "facula/backend/cpu/eigen.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace facula::backend::cpu {

namespace {

// Golub, Van Loan, "Matrix Computations", 7.4 to 7.6. The order of steps, shifts and signs is that of LAPACK, so that
// eigenvalues come in its order and vectors with its signs.
template <class T>
class Eigen {
 public:
  Eigen(int n, bool vectors) : n_(n), vectors_(vectors) {}

  bool run(const T* a, std::complex<T>* values, std::complex<T>* vectors) {
    if (!take(a)) return false;
    balance();
    reduce();
    if (!triangularize()) return false;
    for (int i = 0; i < n_; ++i) values[i] = {re_[i], im_[i]};
    return !vectors_ || find_vectors(vectors);
  }

 private:
  static constexpr int kMost = kFewEigen;
  static constexpr T kUlp = std::numeric_limits<T>::epsilon(), kLeast = std::numeric_limits<T>::min();

  // By columns.
  T& h(int i, int j) { return h_[j * kMost + i]; }
  T& z(int i, int j) { return z_[j * kMost + i]; }

  bool take(const T* a) {
    T largest = 0;
    unsigned rows = 0, columns = 0;  // those with more than zeros beside the diagonal
    for (int i = 0; i < n_; ++i)
      for (int j = 0; j < n_; ++j) {
        T x = h(i, j) = a[i * n_ + j];
        largest = std::max(largest, std::abs(x));
        if (x != 0 && i != j) rows |= 1u << i, columns |= 1u << j;
      }
    unsigned all = (1u << n_) - 1;
    const T least = std::sqrt(kLeast) / kUlp;
    return rows == all && columns == all && largest > least && largest < 1 / least;
  }

  // Scales rows and columns by powers of 2 until they are about as long (Parlett, Reinsch, "Balancing a matrix for
  // calculation of eigenvalues and eigenvectors", 1969).
  void balance() {
    std::fill(scale_, scale_ + n_, T(1));
    for (bool again = true; again;) {
      again = false;
      for (int i = 0; i < n_; ++i) {
        T column = 0, row = 0, f = 1;
        for (int k = 0; k < n_; ++k) column += h(k, i) * h(k, i), row += h(i, k) * h(i, k);
        column = std::sqrt(column), row = std::sqrt(row);
        if (!(column > kLeast / kUlp) || !(row > kLeast / kUlp)) continue;
        T sum = column + row;
        for (; column < row / 2; column *= 2, row /= 2) f *= 2;
        for (; column / 2 >= row; column /= 2, row *= 2) f /= 2;
        if (f == 1 || column + row >= T(0.95) * sum) continue;
        again = true;
        scale_[i] *= f;
        for (int k = 0; k < n_; ++k) h(i, k) /= f;
        for (int k = 0; k < n_; ++k) h(k, i) *= f;
      }
    }
  }

  // Makes (alpha, x[1], ...) of m numbers (beta, 0, ...): x becomes the reflection's vector beside 1.
  static T reflection(int m, T& alpha, T* x) {
    T squares = 0, up = 1;
    for (int i = 1; i < m; ++i) squares += x[i] * x[i];
    if (alpha * alpha + squares < kLeast / kUlp / kUlp) {  // too small to be squared
      up = kUlp / kLeast, squares = 0;
      for (int i = 1; i < m; ++i) squares += x[i] * up * (x[i] * up);
    }
    if (squares == 0) return 0;
    T scaled = alpha * up, beta = -std::copysign(std::sqrt(scaled * scaled + squares), scaled) / up,
      tau = (beta - alpha) / beta, scale = 1 / (alpha - beta);
    for (int i = 1; i < m; ++i) x[i] *= scale;
    alpha = beta;
    return tau;
  }

  // H = Q^T A Q has one diagonal below its own; Z is Q.
  void reduce() {
    T taus[kMost];
    for (int k = 0; k + 2 < n_; ++k) {
      T* x = &h(k + 1, k);
      int m = n_ - k - 1;
      T alpha = x[0], tau = taus[k] = reflection(m, alpha, x);
      x[0] = 1;
      for (int i = 0; i < n_; ++i) {  // from the right
        T sum = 0;
        for (int j = 0; j < m; ++j) sum += h(i, k + 1 + j) * x[j];
        sum *= tau;
        for (int j = 0; j < m; ++j) h(i, k + 1 + j) -= sum * x[j];
      }
      reflect(x, tau, m, &h(k + 1, k + 1), n_ - k - 1);
      x[0] = alpha;
    }
    if (!vectors_) return;
    for (int j = 0; j < n_; ++j)
      for (int i = 0; i < n_; ++i) z(i, j) = i == j;
    for (int k = n_ - 3; k >= 0; --k) {
      T* x = &h(k + 1, k);
      T alpha = std::exchange(x[0], T(1));
      reflect(x, taus[k], n_ - k - 1, &z(k + 1, k + 1), n_ - k - 1);
      x[0] = alpha;
    }
  }
  static void reflect(const T* x, T tau, int m, T* a, int columns) {
    for (; columns-- > 0; a += kMost) {
      T sum = 0;
      for (int i = 0; i < m; ++i) sum += x[i] * a[i];
      sum *= tau;
      for (int i = 0; i < m; ++i) a[i] -= sum * x[i];
    }
  }

  // Is the element left of h(k, k) as good as 0? (Ahues, Tisseur, "A new deflation criterion for the QR algorithm", 1997)
  bool splits(int k) {
    T low = std::abs(h(k, k - 1)), least = kLeast * (T(n_) / kUlp);
    if (low <= least) return true;
    T size = std::abs(h(k - 1, k - 1)) + std::abs(h(k, k));
    if (size == 0) {
      if (k >= 2) size += std::abs(h(k - 1, k - 2));
      if (k + 1 < n_) size += std::abs(h(k + 1, k));
    }
    if (low > kUlp * size) return false;
    T high = std::abs(h(k - 1, k)), gap = std::abs(h(k - 1, k - 1) - h(k, k)), own = std::abs(h(k, k));
    T ab = std::max(low, high), ba = std::min(low, high), aa = std::max(own, gap), bb = std::min(own, gap);
    T s = aa + ab;
    return ba * (ab / s) <= std::max(least, kUlp * (bb * (aa / s)));
  }

  // H becomes a triangle but for 2x2 blocks of conjugate pairs: QR steps with two shifts.
  bool triangularize() {
    for (int j = 0; j < n_; ++j)
      for (int i = j + 2; i < n_; ++i) h(i, j) = 0;
    int most = 30 * std::max(10, n_), steps = 0;
    for (int last = n_ - 1; last >= 0;) {
      int first = last;
      for (; first > 0 && !splits(first); --first) {}
      if (first > 0) h(first, first - 1) = 0;
      if (first >= last - 1) {
        if (first == last) re_[last] = h(last, last), im_[last] = 0;
        else separate(first);
        last = first - 1;
        steps = 0;
        continue;
      }
      if (++steps > most) return false;
      step(first, last, steps);
    }
    return true;
  }

  struct Shifts {
    T re1, im1, re2, im2;
  };
  Shifts shifts(int first, int last, int steps) {
    T h11, h12, h21, h22;
    constexpr int kExceptional = 10;
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
    for (;; --begin) {  // two small elements in a row let a step begin there
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
  // The eigenvalues of rows and columns k and k + 1, which become a triangle or have equal elements on the diagonal.
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
  // Of complex, or real and almost equal, eigenvalues.
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
    } else if (signed_one(b) == signed_one(c)) {  // real ones
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

  // Solves (H - value) x = 0 upwards from the block of the eigenvalue whose last row is `at`: x = (re, im).
  void substitute(T value_re, T value_im, int first_known, T* re, T* im) {
    T least = std::max(kUlp * (std::abs(value_re) + std::abs(value_im)), kLeast * (T(n_) / kUlp));
    for (int j = first_known - 1; j >= 0; --j) {
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

  int n_;
  bool vectors_;
  T h_[kMost * kMost], z_[kMost * kMost], scale_[kMost], re_[kMost], im_[kMost];
};

}  // namespace

template <class T>
bool few_eigenvalues(int n, const T* a, std::complex<T>* values, std::complex<T>* vectors) {
  return Eigen<T>(n, vectors != nullptr).run(a, values, vectors);
}
template bool few_eigenvalues(int, const float*, std::complex<float>*, std::complex<float>*);
template bool few_eigenvalues(int, const double*, std::complex<double>*, std::complex<double>*);

}  // namespace facula::backend::cpu
