// Small matrices in memory of exactly their size: what they compute against plain loops and against
// what their results are to fulfil. Sanitizers see here what an operator's padded memory would hide.
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <limits>
#include <random>
#include <vector>

#include "facula/numerics/batched_products.h"
#include "facula/numerics/small.h"
#include "facula/numerics/small_eigen.h"
#include "facula/numerics/small_ldl.h"

using namespace facula;
using namespace facula::numerics;

namespace {

std::mt19937 random_bits(11);

template <class T>
struct Drawn {
  static T one() { return T(std::normal_distribution<double>()(random_bits)); }
};
template <class T>
struct Drawn<std::complex<T>> {
  static std::complex<T> one() { return {Drawn<T>::one(), Drawn<T>::one()}; }
};
template <class T>
std::vector<T> drawn(int64_t count) {
  std::vector<T> x(static_cast<size_t>(count));
  for (auto& v : x) v = Drawn<T>::one();
  return x;
}
int up_to(int most) { return 1 + int(random_bits() % unsigned(most)); }

// a [m, k] @ b [k, n], in rows.
template <class T>
std::vector<T> product(int m, int k, int n, const T* a, const T* b) {
  std::vector<T> c(size_t(m * n));
  for (int i = 0; i < m; ++i)
    for (int l = 0; l < k; ++l)
      for (int j = 0; j < n; ++j) c[size_t(i * n + j)] += a[i * k + l] * b[l * n + j];
  return c;
}
template <class T>
std::vector<T> transposed(int m, int n, const T* a) {
  std::vector<T> t(size_t(m * n));
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) t[size_t(j * m + i)] = a[i * n + j];
  return t;
}
template <class T>
std::vector<T> adjoint(int m, int n, const T* a) {
  auto t = transposed(m, n, a);
  if constexpr (!std::is_floating_point_v<T>)
    for (auto& x : t) x = std::conj(x);
  return t;
}
template <class T>
std::vector<T> identity(int n) {
  std::vector<T> x(size_t(n * n));
  for (int i = 0; i < n; ++i) x[size_t(i * (n + 1))] = T(1);
  return x;
}
template <class T, class U>
double distance(const std::vector<T>& a, const U* b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, double(std::abs(a[i] - T(b[i]))));
  return most;
}
template <class R>
constexpr double kNear = 2e4 * std::numeric_limits<R>::epsilon();  // of well-conditioned matrices

template <class T>
void expect_products(DType d) {
  for (int round = 0; round < 200; ++round) {
    int m = up_to(8), n = up_to(8), k = up_to(8), count = up_to(5);
    bool a_turned = round % 2, b_turned = round % 3 == 0;
    auto a = drawn<T>(count * m * k), b = drawn<T>(count * k * n),
         out = std::vector<T>(size_t(count * m * n));
    BatchedProducts p{
        m,     n,     k,    a_turned ? 1 : k, a_turned ? m : 1, b_turned ? 1 : n, b_turned ? k : 1, 1, 0,
        m * k, k * n, m * n};
    batched_products(d, p, reinterpret_cast<char*>(a.data()), reinterpret_cast<char*>(b.data()),
                     reinterpret_cast<char*>(out.data()), count);
    for (int at = 0; at < count; ++at) {
      auto x = std::vector(a.begin() + at * m * k, a.begin() + (at + 1) * m * k);
      auto y = std::vector(b.begin() + at * k * n, b.begin() + (at + 1) * k * n);
      if (a_turned) x = transposed(k, m, x.data());
      if (b_turned) y = transposed(n, k, y.data());
      EXPECT_LT(distance(product(m, k, n, x.data(), y.data()), out.data() + at * m * n), 1e-4);
    }
  }
}

TEST(BatchedProducts, AreThoseOfPlainLoopsForEveryShapeAndOrder) {
  expect_products<float>(DType::Float32);
  expect_products<double>(DType::Float64);
  expect_products<std::complex<float>>(DType::Complex64);
  expect_products<std::complex<double>>(DType::Complex128);
}

TEST(FewEigenvalues, GoWithTheirVectors) {
  using C = std::complex<double>;
  for (int round = 0; round < 400; ++round) {
    int n = up_to(kMostEigenRows);
    auto a = drawn<double>(n * n);
    std::vector<C> values(size_t(n), 0.0), vectors(size_t(n * n)), wide(a.begin(), a.end()),
        scaled(size_t(n * n));
    if (!small_eigenvalues(n, a.data(), values.data(), vectors.data())) continue;
    for (int i = 0; i < n * n; ++i) scaled[size_t(i)] = vectors[size_t(i)] * values[size_t(i % n)];
    EXPECT_LT(distance(product(n, n, n, wide.data(), vectors.data()), scaled.data()), 1e-11);
    std::vector<C> alone(size_t(n), 0.0);
    ASSERT_TRUE(small_eigenvalues(n, a.data(), alone.data(), static_cast<C*>(nullptr)));
    EXPECT_LT(distance(alone, values.data()), 1e-9);
  }
}

template <class T>
void expect_pivoted(bool hermitian) {
  for (int round = 0; round < 200; ++round) {
    int n = up_to(kMostLdlRows), columns = up_to(3);
    auto a = drawn<T>(n * n), b = drawn<T>(n * columns);
    for (int i = 0; i < n; ++i)
      for (int j = 0; j <= i; ++j) {
        T x = a[size_t(i * n + j)];
        if constexpr (!std::is_floating_point_v<T>) {
          if (hermitian && i == j) a[size_t(i * n + j)] = x = x.real();
          if (hermitian) x = std::conj(x);
        }
        a[size_t(j * n + i)] = i == j ? a[size_t(i * n + j)] : x;
      }
    auto factors = a, x = b;
    std::vector<int> pivots(size_t(n), 0);
    ASSERT_EQ(factor_small_ldl(n, factors.data(), hermitian, pivots.data()), 0);
    solve_small_ldl(n, columns, factors.data(), hermitian, pivots.data(), x.data());
    double size = 1;
    for (auto& v : x) size = std::max(size, double(std::abs(v)));
    EXPECT_LT(distance(product(n, n, columns, a.data(), x.data()), b.data()), 1e-12 * size * n);
  }
}

TEST(FewPivoted, SolveSymmetricAndHermitianSystems) {
  expect_pivoted<double>(false);
  expect_pivoted<std::complex<double>>(false);
  expect_pivoted<std::complex<double>>(true);
}

template <class T>
void expect_small_of(int m, int n, int count) {
  auto a = drawn<T>(count * m * n);
  int least = std::min(m, n), columns = 2;
  using R = typename SmallJob<T>::R;
  SmallJob<T> job{.m = m, .n = n, .count = count, .a = a.data()};
  std::vector<R> values(size_t(count * least)), alone(values.size());
  std::vector<T> u(size_t(count * m * least)), v(size_t(count * least * n));
  job.values = values.data(), job.y = u.data(), job.z = v.data();
  uint32_t left = run_small(Small::svd, job);
  job.values = alone.data(), job.y = job.z = nullptr;
  left |= run_small(Small::svdvals, job);
  auto b = drawn<T>(count * m * columns);
  std::vector<T> x(size_t(count * n * columns));
  SmallJob<T> fit{
      .m = m, .n = n, .columns = columns, .count = count, .a = a.data(), .b = b.data(), .x = x.data()};
  fit.rcond = std::numeric_limits<R>::epsilon();
  uint32_t unfit = run_small(Small::least_squares, fit);
  for (int k = 0; k < count; ++k) {
    const T* matrix = a.data() + k * m * n;
    if (!(left >> k & 1)) {
      std::vector<T> scaled(u.begin() + k * m * least, u.begin() + (k + 1) * m * least);
      for (size_t i = 0; i < scaled.size(); ++i) scaled[i] *= values[size_t(k * least) + i % size_t(least)];
      EXPECT_LT(distance(product(m, least, n, scaled.data(), v.data() + k * least * n), matrix), kNear<R>);
      std::vector<R> values_of(values.begin() + k * least, values.begin() + (k + 1) * least);
      EXPECT_LT(distance(values_of, alone.data() + k * least), kNear<R>);
    }
    if (unfit >> k & 1) continue;
    auto rest = product(m, n, columns, matrix, x.data() + k * n * columns);
    for (size_t i = 0; i < rest.size(); ++i) rest[i] -= b[size_t(k * m * columns) + i];
    auto turned = adjoint(m, n, matrix);
    std::vector<T> zero(size_t(n * columns));
    double size = 1;
    for (int i = 0; i < n * columns; ++i)
      size = std::max(size, double(std::abs(x[size_t(k * n * columns + i)])));
    EXPECT_LT(distance(product(n, m, columns, turned.data(), rest.data()), zero.data()), kNear<R> * size);
  }
}

TEST(SmallMatrices, DecomposeToWhatGivesThemBack) {
  for (int m = 1; m <= kSmall; ++m)
    for (int n = 1; n <= kSmall; ++n) {
      expect_small_of<float>(m, n, up_to(small_lanes<float>()));
      expect_small_of<double>(m, n, up_to(small_lanes<double>()));
      expect_small_of<std::complex<float>>(m, n, up_to(small_lanes<std::complex<float>>()));
      expect_small_of<std::complex<double>>(m, n, up_to(small_lanes<std::complex<double>>()));
    }
}

// Of matrices a [n, n] with a strong diagonal.
template <class T>
void expect_systems_of(int n, int columns, int count) {
  using R = typename SmallJob<T>::R;
  auto a = drawn<T>(count * n * n), b = drawn<T>(count * n * columns);
  for (int k = 0; k < count; ++k)
    for (int i = 0; i < n; ++i) a[size_t((k * n + i) * n + i)] += T(R(6));
  std::vector<T> lu(a.size()), inverse(a.size()), adjoint_inverse(a.size()), x(b.size()), y(b.size()),
      z(b.size()), det(size_t(count), T(0)), sign(det);
  std::vector<R> log_size(size_t(count), R(0));
  std::vector<int32_t> pivots(size_t(count * n));
  SmallJob<T> job{.m = n, .n = n, .columns = columns, .count = count, .a = a.data(), .b = b.data()};
  auto run = [&](Small routine, std::vector<T>& to) {
    job.x = to.data();
    EXPECT_EQ(run_small(routine, job), 0u);
  };
  job.pivots = pivots.data(), job.values = log_size.data();
  run(Small::lu, lu), run(Small::solve, x), run(Small::inverse, inverse);
  run(Small::inverse_adjoint, adjoint_inverse), run(Small::det, det), run(Small::slogdet, sign);
  job.a = lu.data();
  run(Small::solve_factored, y);
  job.transposed = true;
  run(Small::solve_factored, z);
  for (int k = 0; k < count; ++k) {
    const T *matrix = a.data() + k * n * n, *right = b.data() + k * n * columns,
            *of = inverse.data() + k * n * n;
    std::vector<T> rights(right, right + n * columns);
    auto turned = adjoint(n, n, matrix);
    EXPECT_LT(distance(product(n, n, columns, matrix, x.data() + k * n * columns), rights.data()), kNear<R>);
    EXPECT_LT(distance(product(n, n, columns, matrix, y.data() + k * n * columns), rights.data()), kNear<R>);
    EXPECT_LT(distance(product(n, n, columns, turned.data(), z.data() + k * n * columns), rights.data()),
              kNear<R>);
    EXPECT_LT(distance(product(n, n, n, matrix, of), identity<T>(n).data()), kNear<R>);
    EXPECT_LT(distance(adjoint(n, n, of), adjoint_inverse.data() + k * n * n), kNear<R>);
    T by_log = sign[size_t(k)] * std::exp(log_size[size_t(k)]);
    EXPECT_LT(std::abs(by_log - det[size_t(k)]), kNear<R> * std::abs(det[size_t(k)]));
  }
}

template <class T>
void expect_hermitian_of(int n, bool upper, int count) {
  using R = typename SmallJob<T>::R;
  auto a = drawn<T>(count * n * n);
  std::vector<T> products, factors(a.size()), vectors(a.size()), triangle(a.size());
  for (int k = 0; k < count; ++k) {
    auto turned = adjoint(n, n, a.data() + k * n * n);
    auto one = product(n, n, n, a.data() + k * n * n, turned.data());
    for (int i = 0; i < n; ++i) one[size_t(i * (n + 1))] = T(std::real(one[size_t(i * (n + 1))]) + R(n));
    products.insert(products.end(), one.begin(), one.end());
  }
  std::vector<R> values(size_t(count * n)), alone(values.size());
  SmallJob<T> job{
      .m = n, .n = n, .count = count, .a = products.data(), .x = factors.data(), .y = vectors.data()};
  EXPECT_EQ(run_small(Small::cholesky, job), 0u);
  job.upper = upper, job.values = values.data();
  EXPECT_EQ(run_small(Small::eigh, job), 0u);
  job.values = alone.data();
  EXPECT_EQ(run_small(Small::eigvalsh, job), 0u);
  EXPECT_LT(distance(values, alone.data()), kNear<R> * n);
  for (int k = 0; k < count; ++k) {
    const T *matrix = products.data() + k * n * n, *l = factors.data() + k * n * n;
    const T* q = vectors.data() + k * n * n;
    EXPECT_LT(distance(product(n, n, n, l, adjoint(n, n, l).data()), matrix), kNear<R> * n);
    EXPECT_LT(distance(product(n, n, n, adjoint(n, n, q).data(), q), identity<T>(n).data()), kNear<R>);
    std::vector<T> scaled(q, q + n * n);
    for (int i = 0; i < n * n; ++i) scaled[size_t(i)] *= values[size_t(k * n + i % n)];
    EXPECT_LT(distance(product(n, n, n, matrix, q), scaled.data()), kNear<R> * n * n);
  }
}

// Q R of a [m, n], and Q^H times Q b, from either side.
template <class T>
void expect_reflections_of(int m, int n, int count) {
  using R = typename SmallJob<T>::R;
  int k = std::min(m, n), columns = up_to(3);
  auto a = drawn<T>(count * m * n), b = drawn<T>(count * m * columns);
  std::vector<T> factored(a.size()), factors(size_t(count * k)), q(size_t(count * m * k)), x(b.size()),
      y(b.size());
  SmallJob<T> job{.m = m, .n = n, .count = count, .a = a.data(), .x = factored.data(), .y = factors.data()};
  EXPECT_EQ(run_small(Small::qr, job), 0u);
  std::vector<T> narrow(size_t(count * m * k));
  for (int i = 0; i < count * m; ++i)
    for (int j = 0; j < k; ++j) narrow[size_t(i * k + j)] = factored[size_t(i * n + j)];
  SmallJob<T> of{.m = m, .n = k, .columns = columns, .reflections = k, .count = count, .a = narrow.data()};
  of.factors = factors.data(), of.x = q.data();
  EXPECT_EQ(run_small(Small::reflections, of), 0u);
  of.b = b.data(), of.x = x.data(), of.right = m % 2;
  EXPECT_EQ(run_small(Small::reflect, of), 0u);
  of.b = x.data(), of.x = y.data(), of.transposed = true;
  EXPECT_EQ(run_small(Small::reflect, of), 0u);
  EXPECT_LT(distance(b, y.data()), kNear<R>);
  for (int at = 0; at < count; ++at) {
    const T *own = q.data() + at * m * k, *rows = factored.data() + at * m * n;
    std::vector<T> r(size_t(k * n));
    for (int i = 0; i < k; ++i)
      for (int j = i; j < n; ++j) r[size_t(i * n + j)] = rows[i * n + j];
    EXPECT_LT(distance(product(k, m, k, adjoint(m, k, own).data(), own), identity<T>(k).data()), kNear<R>);
    EXPECT_LT(distance(product(m, k, n, own, r.data()), a.data() + at * m * n), kNear<R>);
  }
}

template <class T>
void expect_all_of(int n) {
  int count = up_to(small_lanes<T>());
  expect_systems_of<T>(n, up_to(11), count);
  expect_hermitian_of<T>(n, false, count);
  expect_hermitian_of<T>(n, true, count);
  for (int m = 1; m <= kSmall; ++m) expect_reflections_of<T>(m, n, count);
}

TEST(SmallMatrices, SolveAndFactorRealAndComplexOnesAlike) {
  for (int n = 1; n <= kSmall; ++n) {
    expect_all_of<float>(n);
    expect_all_of<double>(n);
    expect_all_of<std::complex<float>>(n);
    expect_all_of<std::complex<double>>(n);
  }
}

}  // namespace
