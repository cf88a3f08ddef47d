// Tridiagonal eigenproblems: values against counts of sign changes in a wider format, vectors against the matrix itself.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "facula/base/parallel.h"
#include "facula/numerics/tridiagonal.h"

using namespace facula;
using namespace facula::numerics;

namespace {

template <class T>
struct Tridiagonal {
  std::vector<T> d, e;
  int64_t n() const { return int64_t(d.size()); }
  long double norm() const {
    long double most = 0;
    for (size_t i = 0; i < d.size(); ++i)
      most = std::max(most, std::abs((long double)d[i]) + (i ? std::abs((long double)e[i - 1]) : 0) +
                                (i + 1 < d.size() ? std::abs((long double)e[i]) : 0));
    return most;
  }
  // How many eigenvalues are less than x (Sturm).
  int64_t less_than(long double x) const {
    int64_t count = 0;
    long double q = 1;
    for (size_t i = 0; i < d.size(); ++i) {
      long double square = i ? (long double)e[i - 1] * (long double)e[i - 1] : 0;
      q = (long double)d[i] - x - square / q;
      if (q == 0) q = std::numeric_limits<long double>::min();
      count += q < 0;
    }
    return count;
  }
};

template <class T>
struct Solved {
  std::vector<T> values, vectors;
  bool operator==(const Solved&) const = default;
};

template <class T>
Solved<T> solve(const Tridiagonal<T>& a, bool vectors, int threads) {
  int before = num_threads();
  set_num_threads(threads);
  Solved<T> s{a.d, std::vector<T>(vectors ? size_t(a.n() * (a.n() + 3)) : 0)};
  auto e = a.e;
  e.push_back(0);
  EXPECT_EQ(solve_tridiagonal<T>(a.n(), s.values.data(), e.data(),
                                 {vectors ? s.vectors.data() : nullptr, a.n() + 3}),
            0);
  set_num_threads(before);
  return s;
}

// The largest of |T v - value v| and of |v w - (v is w)| over all vectors v, w.
template <class T>
std::pair<long double, long double> errors(const Tridiagonal<T>& a, const Solved<T>& s) {
  long double residual = 0, angle = 0;
  int64_t n = a.n();
  auto row = [&](int64_t k) { return s.vectors.data() + k * (n + 3); };
  for (int64_t k = 0; k < n; ++k) {
    long double square = 0;
    auto* v = row(k);
    for (int64_t i = 0; i < n; ++i) {
      long double r = ((long double)a.d[size_t(i)] - s.values[size_t(k)]) * v[i];
      if (i > 0) r += (long double)a.e[size_t(i - 1)] * v[i - 1];
      if (i + 1 < n) r += (long double)a.e[size_t(i)] * v[i + 1];
      square += r * r;
    }
    residual = std::max(residual, std::sqrt(square));
    for (int64_t l = 0; l <= k; ++l) {
      double dot = l == k ? -1 : 0;
      for (int64_t i = 0; i < n; ++i) dot += double(v[i]) * double(row(l)[i]);
      angle = std::max(angle, std::abs((long double)dot));
    }
  }
  return {residual, angle};
}

template <class T>
void expect_solved(const Tridiagonal<T>& a) {
  int64_t n = a.n();
  long double eps = std::numeric_limits<T>::epsilon();
  long double bound = (16 + 2 * std::sqrt((long double)n)) * eps,
              least = std::numeric_limits<T>::denorm_min();
  long double error = bound * a.norm() + least * (long double)n;
  auto whole = solve(a, true, 1), values = solve(a, false, 1);
  EXPECT_EQ(whole, solve(a, true, 3)) << "threads";
  EXPECT_EQ(values, solve(a, false, 3)) << "threads";
  for (auto* s : {&whole, &values})
    for (int64_t k = 0; k < n; ++k) {
      T value = s->values[size_t(k)];
      ASSERT_TRUE(std::isfinite(value));
      ASSERT_TRUE(k == 0 || s->values[size_t(k - 1)] <= value);
      ASSERT_LE(a.less_than(value - error), k)
          << value << " is too large; without vectors: " << (s == &values);
      ASSERT_GT(a.less_than(value + error), k)
          << value << " is too small; without vectors: " << (s == &values);
    }
  auto [residual, angle] = errors(a, whole);
  EXPECT_LE(residual, error);
  EXPECT_LE(angle, bound);
}

using Element = std::function<double(int64_t)>;
template <class T>
Tridiagonal<T> made(int64_t n, const Element& d, const Element& e) {
  Tridiagonal<T> a;
  for (int64_t i = 0; i < n; ++i) a.d.push_back(T(d(i)));
  for (int64_t i = 0; i + 1 < n; ++i) a.e.push_back(T(e(i)));
  return a;
}

struct Kind {
  const char* name;
  Element d, e;
};
template <class T>
std::vector<Kind> kinds(int64_t n) {
  static std::mt19937 random(5);
  double eps = std::numeric_limits<T>::epsilon();
  auto normal = [](int64_t) { return std::normal_distribution<double>()(random); };
  auto all = [](double x) { return [x](int64_t) { return x; }; };
  auto wilkinson = [](int64_t i) { return std::abs(double(i % 21) - 10); };
  auto rows = double(n);
  return {
      {"random", normal, normal},
      {"zero", all(0), all(0)},
      {"unit", all(1), all(0)},
      {"diagonal", normal, all(0)},
      {"constant", all(2), all(1)},
      {"without a diagonal", all(0), all(-1)},
      {"nearly unit", [=](int64_t i) { return 1 + eps * normal(i); },
       [=](int64_t i) { return eps * normal(i); }},
      {"of two values", [](int64_t i) { return double(i % 2); }, all(std::sqrt(eps))},
      {"Wilkinson's", [=](int64_t i) { return std::abs(double(i) - (rows - 1) / 2); }, all(1)},
      {"Wilkinson's, glued", wilkinson, [=](int64_t i) { return i % 21 == 20 ? std::sqrt(eps) : 1.0; }},
      {"Wilkinson's, hardly glued", wilkinson, [=](int64_t i) { return i % 21 == 20 ? 4 * eps : 1.0; }},
      {"split", normal, [=](int64_t i) { return i % 40 == 17 ? 0.0 : normal(i); }},
      {"split at scales", [=](int64_t i) { return normal(i) * std::pow(10, double(i / 40 % 5) * 7 - 18); },
       [=](int64_t i) { return i % 40 == 39 ? 0.0 : normal(i) * std::pow(10, double(i / 40 % 5) * 7 - 18); }},
      {"graded", [](int64_t i) { return std::pow(0.8, i); },
       [](int64_t i) { return std::pow(0.8, double(i) + 0.5); }},
      {"graded upwards", [=](int64_t i) { return std::pow(0.7, rows - double(i)); },
       [=](int64_t i) { return -std::pow(0.7, rows - double(i) - 0.5) / 2; }},
      {"Clement's", all(0), [=](int64_t i) { return std::sqrt(double(i + 1) * (rows - double(i) - 1)); }},
      {"Laguerre's", [](int64_t i) { return 2.0 * double(i) + 1; }, [](int64_t i) { return double(i) + 1; }},
      {"with one large element", [](int64_t i) { return i == 7 ? 1e6 : 1e-3; }, all(1e-3)},
      {"tiny", [=](int64_t i) { return normal(i) * std::ldexp(1, std::numeric_limits<T>::min_exponent - 3); },
       [=](int64_t i) { return normal(i) * std::ldexp(1, std::numeric_limits<T>::min_exponent - 3); }},
      {"huge",
       [=](int64_t i) {
         return std::tanh(normal(i)) * std::ldexp(1, std::numeric_limits<T>::max_exponent - 3);
       },
       [=](int64_t i) {
         return std::tanh(normal(i)) * std::ldexp(1, std::numeric_limits<T>::max_exponent - 3);
       }},
      {"of hardly joined halves", normal,
       [=](int64_t i) { return normal(i) * (i == n / 2 - 1 ? 1e-6 : 1.0); }},
      {"of equal halves", [=](int64_t i) { return double(i % (n / 2 + 1)); }, all(0.01)},
  };
}

}  // namespace

template <class T>
class TridiagonalProblems : public testing::Test {};
using Formats = testing::Types<float, double>;
TYPED_TEST_SUITE(TridiagonalProblems, Formats);

TYPED_TEST(TridiagonalProblems, AreSolvedToTheNormsAccuracyForAnyNumberOfThreads) {
  using T = TypeParam;
  for (int64_t n : {1, 2, 3, 24, 25, 26, 27, 51, 64, 100, 129, 211})
    for (auto& kind : kinds<T>(n)) {
      SCOPED_TRACE(testing::Message() << kind.name << ", " << n << " rows");
      expect_solved(made<T>(n, kind.d, kind.e));
    }
}

TYPED_TEST(TridiagonalProblems, OfAConstantMatrixHaveKnownVectors) {
  using T = TypeParam;
  constexpr int64_t n = 150;
  auto s = solve(made<T>(n, [](int64_t) { return 2; }, [](int64_t) { return -1; }), true, 2);
  const double pi = std::acos(-1.0), eps = std::numeric_limits<T>::epsilon();
  for (int64_t k = 0; k < n; ++k) {
    double angle = pi * double(k + 1) / double(n + 1), sign = 0;
    EXPECT_NEAR(s.values[size_t(k)], 2 - 2 * std::cos(angle), 16 * eps);
    for (int64_t i = 0; i < n; ++i) {
      double x = s.vectors[size_t(k * (n + 3) + i)],
             sine = std::sqrt(2.0 / double(n + 1)) * std::sin(double(i + 1) * angle);
      if (i == 0) sign = std::copysign(1.0, x);
      EXPECT_NEAR(sign * x, sine, 4000 * eps);  // neighbours are about (pi / n)^2 apart
    }
  }
}
