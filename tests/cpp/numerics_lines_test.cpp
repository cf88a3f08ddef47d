// Orders of lines against the standard library, in a program that links base, profile and numerics alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <numbers>
#include <numeric>
#include <random>
#include <vector>

#include "facula/numerics/numerics.h"

using namespace facula;
using namespace facula::numerics;

namespace {

unsigned drawn_seed() {
  unsigned seed = std::random_device{}();
  ::testing::Test::RecordProperty("seed", int(seed));
  std::printf("seed %u\n", seed);
  return seed;
}

// Numbers with ties, NaN and both zeros.
std::vector<float> line(std::mt19937& bits, int64_t n) {
  std::vector<float> x(static_cast<size_t>(n));
  for (auto& v : x) {
    v = float(int(bits() % 200) - 100) / 8;
    if (bits() % 50 == 0) v = std::numeric_limits<float>::quiet_NaN();
    if (bits() % 50 == 0) v = -0.0F;
  }
  return x;
}
bool before(float a, float b) { return std::isnan(b) ? !std::isnan(a) : a < b; }

TEST(Sort, OrdersALineAsAStableSortDoes) {
  std::mt19937 bits(drawn_seed());
  SortBuffers buffers;
  for (int64_t n : {1, 7, 24, 25, 300, 5000, 70000}) {
    auto x = line(bits, n);
    std::vector<int64_t> order(x.size()), want(x.size());
    for (bool descending : {false, true}) {
      std::iota(want.begin(), want.end(), 0);
      std::stable_sort(want.begin(), want.end(), [&](int64_t a, int64_t b) {
        return descending ? before(x[size_t(b)], x[size_t(a)]) : before(x[size_t(a)], x[size_t(b)]);
      });
      order_line(x.data(), n, descending, order.data(), buffers);
      EXPECT_EQ(order, want) << n << " elements";
    }
  }
}

TEST(Sort, FindsTheFirstElementsAndTheKth) {
  std::mt19937 bits(drawn_seed());
  SortBuffers buffers;
  for (int64_t n : {1, 20, 64, 65, 1000, 20000}) {
    auto x = line(bits, n), sorted = x;
    std::stable_sort(sorted.begin(), sorted.end(), before);
    auto same = [](float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); };
    for (int64_t wanted : {int64_t(1), (n + 99) / 100, n / 2 + 1, n}) {
      std::vector<int64_t> order(static_cast<size_t>(wanted));
      top_line(x.data(), n, wanted, false, order.data(), buffers);
      for (int64_t k = 0; k < wanted; ++k)
        EXPECT_TRUE(same(x[size_t(order[size_t(k)])], sorted[size_t(k)])) << k << " of " << n;
      int64_t kth = kth_position(x.data(), n, wanted - 1, true, buffers);
      EXPECT_TRUE(same(x[size_t(kth)], sorted[size_t(wanted - 1)])) << wanted << " of " << n;
    }
  }
}

TEST(FourierLines, AreTheSumsOfTheirDefinition) {
  std::mt19937 bits(drawn_seed());
  std::normal_distribution<double> normal;
  using C = std::complex<double>;
  for (int64_t n : {1, 2, 3, 8, 13, 30, 64, 121, 210}) {
    constexpr int64_t kLines = 3;
    std::vector<C> x(size_t(n * kLines)), y(x.size());
    for (auto& v : x) v = {normal(bits), normal(bits)};
    // Lines are columns: their points are kLines apart.
    transform_lines<double>(x.data(), y.data(), {n, kLines, kLines, {{kLines, 1, 1}}}, true, 0.5);
    double error = 0;
    for (int64_t l = 0; l < kLines; ++l)
      for (int64_t k = 0; k < n; ++k) {
        C sum = 0;
        for (int64_t j = 0; j < n; ++j)
          sum += x[size_t(j * kLines + l)] *
                 std::polar(0.5, -2 * std::numbers::pi * double(j * k % n) / double(n));
        error = std::max(error, std::abs(sum - y[size_t(k * kLines + l)]));
      }
    EXPECT_LT(error, 1e-14 * double(n)) << n << " points";
  }
}

TEST(Workspaces, AreAlignedAndTakeMemoryOfTheInstalledSource) {
  static int taken = 0, given = 0;
  static const MemorySource& heap = memory_source();
  static constexpr MemorySource counting{[](size_t bytes, size_t& capacity) {
                                           ++taken;
                                           capacity = bytes + 1;
                                           return heap.take(bytes, capacity);
                                         },
                                         [](void* block, size_t bytes, size_t capacity) {
                                           ++given;
                                           heap.give(block, bytes, capacity);
                                         }};
  {
    Workspace<double> before(100);
    set_memory_source(counting);
    Workspace<double> x(3), y;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(x.data()) % 64, 0U);
    x.resize(2);  // in the same memory
    y = std::move(x);
    y.resize(1000);
    EXPECT_EQ(taken, 2);
    set_memory_source(heap);
  }
  EXPECT_EQ(given, 2);
}

}  // namespace
