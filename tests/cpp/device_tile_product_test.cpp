// Matrix products by tiles of bfloat16: the product of one tile against what Intel's manual says, nests by the interpreter to the bit,
// and products of all layouts against sums in float64.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "facula/base/parallel.h"
#include "facula/device/cpu/tile_nest.h"
#include "facula/schedule/lanes.h"
#include "facula/schedule/product_tiles.h"
#include "product_example.h"
#include "task_runs.h"

using namespace facula;
using namespace facula::device::cpu;
using test::Data, test::Example, test::any_order, test::coin, test::drawn, test::up_to;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// ---- one tile

struct Tile {
  std::vector<BFloat16> left = std::vector<BFloat16>(512), right = std::vector<BFloat16>(512);
  std::vector<float> out = std::vector<float>(256);
  BFloat16& a(int row, int term) { return left[size_t(row * 32 + term)]; }
  BFloat16& b(int term, int column) { return right[size_t((term / 2 * 16 + column) * 2 + term % 2)]; }
  static std::vector<int32_t> words(const std::vector<BFloat16>& halves) {
    std::vector<int32_t> w(halves.size() / 2);
    std::memcpy(w.data(), halves.data(), halves.size() * sizeof(BFloat16));
    return w;
  }
  float multiply(int row = 0, int column = 0) {
    loop::facula_multiply_tile(out.data(), 16, words(left).data(), words(right).data());
    return out[size_t(row * 16 + column)];
  }
};

TEST(Tile, AddsProductsOfPairsInTwoChains) {
  Tile t;
  for (int k = 0; k < 32; ++k)
    for (int i = 0; i < 16; ++i)
      t.a(i, k) = BFloat16(float(up_to(9) - 5)), t.b(k, i) = BFloat16(float(up_to(9) - 5));
  for (auto& x : t.out) x = float(up_to(100));
  auto before = t.out;
  t.multiply();
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j) {
      float sum = before[size_t(i * 16 + j)];
      for (int k = 0; k < 32; ++k) sum += float(t.a(i, k)) * float(t.b(k, j));
      ASSERT_EQ(t.out[size_t(i * 16 + j)], sum);
    }
  // Terms of even and of odd places are added up apart: 2^24 + 1 is rounded away in one chain, and 1 + 1 in the other is not.
  Tile u;
  for (int k : {0, 2, 4}) u.a(0, k) = BFloat16(1), u.b(k, 0) = BFloat16(k ? 1.0f : 16777216.0f);
  for (int k : {1, 3}) u.a(0, k) = BFloat16(1), u.b(k, 0) = BFloat16(1);
  EXPECT_EQ(u.multiply(), 16777218.0f);
}

TEST(Tile, TakesSubnormalsForZero) {
  const float least = std::numeric_limits<float>::min();
  Tile operand;
  operand.a(0, 0) = BFloat16(least / 2), operand.b(0, 0) = BFloat16(kInfinity);
  EXPECT_TRUE(std::isnan(operand.multiply()));  // 0 * infinity
  Tile product;
  product.a(0, 0) = BFloat16(least), product.b(0, 0) = BFloat16(0.5);
  EXPECT_EQ(product.multiply(), 0);
  Tile sum;
  sum.a(0, 0) = BFloat16(-least), sum.b(0, 0) = BFloat16(1), sum.out[0] = least * 1.5f;
  EXPECT_EQ(sum.multiply(), 0);
}

// ---- products

constexpr double kErrors[] = {0, 8e-3, 3e-5,
                              2.5e-7};  // of |a| |b|, by parts; bfloat16 rounds by 2^-9, two parts by 2^-17

struct Want {
  double value, size;
};
Want wanted(Example& e, const std::vector<float>& before, int64_t q, int64_t i, int64_t j) {
  auto& p = e.product;
  double sum = 0, size = 0;
  for (int64_t l = 0; l < p.k; ++l) {
    double x = double(e.a.at(q, i, l)) * double(e.b.at(q, l, j));
    sum += x, size += std::abs(x);
  }
  double was = p.beta == 0 ? 0 : double(p.beta) * before[size_t((q * p.m + i) * p.n + j)];
  double bias = p.epilogue.value ? e.bias[size_t(j)] : 0;
  return {p.alpha * sum + was + bias, std::abs(p.alpha) * size + std::abs(was) + std::abs(bias)};
}
void check(Example& e, int parts) {
  auto before = e.out.x;
  run_by_tiles(e.product, parts);
  auto& p = e.product;
  for (int64_t q = 0; q < p.count; ++q)
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j) {
        auto want = wanted(e, before, q, i, j);
        ASSERT_LE(std::abs(e.out.at(q, i, j) - want.value), kErrors[parts] * want.size)
            << "element " << i << ", " << j << " of " << q << " of " << p.m << "x" << p.k << "x" << p.n;
      }
}

TEST(TileProduct, IsTheSumOfProductsInAllLayouts) {
  for (int round = 0; round < 12; ++round) {
    bool large = round % 6 == 0;
    Example e(up_to(large ? 150 : 70), up_to(large ? 150 : 70), up_to(large ? 700 : 90), large ? 1 : up_to(3),
              any_order(), any_order(), coin());
    if (coin()) e.product.alpha = drawn();
    if (coin()) e.product.beta = drawn();
    ASSERT_NO_FATAL_FAILURE(check(e, int(up_to(kMostParts))));
  }
}

// The error beside that of a chain of float32 additions, in blocks as the other kernels add: the largest and the root of the mean square.
TEST(TileProduct, OfThreePartsIsAsExactAsFloat32) {
  using Draw = float (*)(int64_t);
  const std::pair<const char*, Draw> kinds[] = {
      {"normal", [](int64_t) { return drawn(); }},
      {"scaled", [](int64_t) { return drawn() * std::pow(10.0f, float(up_to(1200)) / 100 - 6); }},
      {"positive", [](int64_t) { return std::abs(drawn()); }},
      {"cancelling", [](int64_t k) { return k % 2 ? -1.0f : 1.0f; }}};
  for (auto& [name, draw] : kinds) {
    Example e(32, 32, 2048, 1, Adjacent::row, Adjacent::column, false);
    for (int64_t i = 0; i < 32; ++i)
      for (int64_t l = 0; l < 2048; ++l)
        e.a.at(0, i, l) = draw(l), e.b.at(0, l, i) = draw(0) * (1 + 1e-3f * drawn());
    double most[2] = {}, squares[2] = {};
    for (int by_tiles : {0, 1}) {
      if (by_tiles) run_by_tiles(e.product, 3);
      else run(e.product);
      for (int64_t i = 0; i < 32; ++i)
        for (int64_t j = 0; j < 32; ++j) {
          auto want = wanted(e, e.out.x, 0, i, j);
          double error = std::abs(e.out.at(0, i, j) - want.value) / want.size;
          most[by_tiles] = std::max(most[by_tiles], error), squares[by_tiles] += error * error;
        }
    }
    std::printf("%s: largest %.2g by tiles, %.2g by vectors; mean %.2g, %.2g\n", name, most[1], most[0],
                std::sqrt(squares[1] / 1024), std::sqrt(squares[0] / 1024));
    EXPECT_LE(squares[1], squares[0]) << name;
  }
}

TEST(TileProduct, MultipliesBfloat16Exactly) {
  for (int round = 0; round < 4; ++round) {
    Example e(up_to(70), up_to(70), up_to(300), 1, any_order(), any_order(), false);
    auto narrowed = [](std::vector<float>& x) {
      std::vector<BFloat16> y;
      for (float& v : x) y.push_back(BFloat16(v)), v = float(y.back());
      return y;
    };
    auto a = narrowed(e.a.x), b = narrowed(e.b.x);
    std::vector<BFloat16> result(e.out.x.size());
    auto& p = e.product;
    p.a.data = a.data(), p.b.data = b.data(), p.result = result.data();
    p.operand_dtype = p.result_dtype = DType::BFloat16;
    run_by_tiles(p, 1);
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j) {
        auto want = wanted(e, e.out.x, 0, i, j);
        ASSERT_LE(std::abs(e.out.at(0, i, j) - want.value), 1e-6 * want.size);
        ASSERT_EQ(float(result[size_t(i * p.n + j)]), float(BFloat16(e.out.at(0, i, j))));
      }
  }
}

// What parts of bfloat16 do not hold: infinities, NaN, numbers above bfloat16's largest, and small ones.
TEST(TileProduct, IsFloat32sWherePartsDoNotHoldANumber) {
  for (int parts : {1, 2, 3})
    for (Adjacent left : {Adjacent::row, Adjacent::column}) {
      Example e(37, 41, 100, 1, left, any_order(), false);
      e.a.at(0, 36, 99) = kInfinity;
      e.b.at(0, 0, 40) = -kInfinity;
      e.a.at(0, 3, 17) = std::nanf("");
      e.a.at(0, 5, 5) = 3.4e38f;
      for (int64_t l = 0; l < 41; ++l) e.b.at(0, 99, l) = l % 2 ? 1.0f : 0.0f, e.b.at(0, 5, l) = 0.5;
      run_by_tiles(e.product, parts);
      for (int64_t i = 0; i < 37; ++i)
        for (int64_t j = 0; j < 41; ++j) {
          double sum = wanted(e, e.out.x, 0, i, j).value;
          float x = e.out.at(0, i, j);
          if (std::isnan(sum)) ASSERT_TRUE(std::isnan(x)) << i << ", " << j;
          else if (std::isinf(sum)) ASSERT_EQ(x, float(sum)) << i << ", " << j;
          else ASSERT_LE(std::abs(x - sum), 2e-2 * std::abs(sum) + 1) << i << ", " << j;
        }
    }
  for (auto [left, right] : {std::pair{1e-38f, 1.0f}, {1e-34f, 1e-3f}, {1e-20f, 1e-17f}, {1e-41f, 100.0f}}) {
    Example e(33, 35, 40, 1, any_order(), any_order(), false);
    for (auto& x : e.a.x) x *= left;
    for (auto& x : e.b.x) x *= right;
    run_by_tiles(e.product, 3);
    for (int64_t i = 0; i < 33; ++i)
      for (int64_t j = 0; j < 35; ++j) {
        auto want = wanted(e, e.out.x, 0, i, j);
        ASSERT_LE(std::abs(e.out.at(0, i, j) - want.value), 3e-6 * want.size + 40 * 1.5e-45)
            << left << " * " << right << ": " << e.out.at(0, i, j) << ", not " << want.value;
      }
  }
}

// Numbers of all magnitudes in one operand: what the unit takes for zero does not show beside the other terms. Errors are those of
// parts, and of float32's subnormal numbers.
TEST(TileProduct, IsExactForAnyMixOfMagnitudes) {
  for (int round = 0; round < 6; ++round) {
    Example e(40, 50, 70, 1, any_order(), any_order(), false);
    for (auto* x : {&e.a.x, &e.b.x})
      for (auto& v : *x) v *= coin() ? 0 : std::pow(10.0f, float(up_to(600)) / 10 - 42);
    for (int64_t l = 0; l < 70; ++l) e.a.at(0, 7, l) = 0;
    const int parts = int(up_to(kMostParts));
    run_by_tiles(e.product, parts);
    for (int64_t i = 0; i < 40; ++i)
      for (int64_t j = 0; j < 50; ++j) {
        auto want = wanted(e, e.out.x, 0, i, j);
        ASSERT_LE(std::abs(e.out.at(0, i, j) - want.value), kErrors[parts] * want.size + 70 * 1.5e-45)
            << e.out.at(0, i, j) << ", not " << want.value << ", by " << parts << " parts";
      }
  }
}

// Rounding must not carry into the exponent or the sign of a NaN.
TEST(TileProduct, KeepsEveryNaN) {
  for (uint32_t bits : {0x7fffffffu, 0xffffffffu, 0x7f800001u, 0xff80ffffu, 0x7fff8000u})
    for (int parts : {1, 2, 3})
      for (bool in_left : {true, false}) {
        Example e(33, 34, 35, 1, any_order(), any_order(), false);
        (in_left ? e.a.at(0, 32, 3) : e.b.at(0, 3, 33)) = std::bit_cast<float>(bits);
        run_by_tiles(e.product, parts);
        for (int64_t i = 0; i < 33; ++i)
          for (int64_t j = 0; j < 34; ++j)
            ASSERT_EQ(std::isnan(e.out.at(0, i, j)), in_left ? i == 32 : j == 33) << i << ", " << j;
      }
}

TEST(TileProduct, HasTheSameBitsForAnyNumberOfThreads) {
  int threads = num_threads();
  Example e(100, 130, 600, 1, Adjacent::row, Adjacent::column, true);
  run_by_tiles(e.product, 3);
  auto first = e.out.x;
  for (int n : {1, 2, 3, 5}) {
    set_num_threads(n);
    run_by_tiles(e.product, 3);
    EXPECT_EQ(std::memcmp(first.data(), e.out.x.data(), first.size() * sizeof(float)), 0) << n << " threads";
  }
  set_num_threads(threads);
}

// The bound by which most products are not considered for tiles must not exclude one that the model would choose.
TEST(TileCost, IsNotBelowItsBound) {
  for (int round = 0; round < 500; ++round) {
    schedule::ProductShape s{int64_t(up_to(3000)), int64_t(up_to(5000)), int64_t(up_to(9000)),
                             int64_t(up_to(3))};
    for (int parts = 1; parts <= kMostParts; ++parts)
      ASSERT_LE(schedule::least_tile_cost(s, parts),
                schedule::tile_cost(s, parts, cache_sizes()) * (1 + 1e-12))
          << s.count << " of " << s.m << "x" << s.k << "x" << s.n;
  }
}

// ---- the nests by the interpreter

Data bytes_of(const void* x, size_t elements, DType d) {
  Data data(d, int64_t(elements));
  std::memcpy(data.bytes.data(), x, data.bytes.size());
  return data;
}

// `terms`: of a K block.
std::vector<float> interpreted(Example& e, const TileVariant& v, int64_t rows, int64_t columns, int64_t terms,
                               bool lowered) {
  auto& p = e.product;
  loop::LaneLimits limits{.lanes = v.lanes};
  auto prepared = [&](loop::Nest n) {
    EXPECT_EQ(print(loop::parse_nest(print(n))), print(n));
    loop::verify(n);
    if (lowered) loop::verify(n = schedule::in_lanes(n, limits), limits);
    return n;
  };
  using Q = TilePackParam;
  std::vector<int64_t> params(Q::count);
  params[Q::n] = p.n, params[Q::k] = p.k, params[Q::stride] = p.b.stride;
  params[Q::panels] = params[Q::tasks] = (p.n + 31) / 32, params[Q::steps] = (p.k + 31) / 32;
  params[Q::terms] = terms;
  size_t panels = size_t(params[Q::panels]),
         packed_size = panels * size_t(params[Q::steps] * v.parts * loop::kPanelStep);
  std::vector<int32_t> packed(packed_size, -1);
  std::vector<float> ranges(2 * panels * size_t((p.k + terms - 1) / terms));
  loop::Nest pack = prepared(tile_pack_nest({p.b.adjacent, v.parts, DType::Float32, v.lanes}));
  int32_t none = 0;  // no places of windows
  void* pointers[] = {e.b.x.data(), packed.data(), ranges.data(), &none};
  loop::interpret(pack, pointers, params);

  using P = ProductParam;
  using T = TileParam;
  bool by_rows = p.b.adjacent == Adjacent::row;
  params.assign(T::count, 0);
  params[P::m] = p.m, params[P::n] = p.n, params[P::k] = p.k, params[P::a_stride] = p.a.stride;
  params[P::out_stride] = p.n, params[P::rows] = rows, params[P::columns] = columns, params[P::terms] = terms;
  params[P::row_blocks] = (p.m + rows - 1) / rows, params[P::column_blocks] = (p.n + columns - 1) / columns;
  params[P::adds] = p.beta != 0, params[P::tasks] = params[P::row_blocks] * params[P::column_blocks];
  params[P::batch_rows] = p.m, params[T::steps] = (p.k + 31) / 32, params[T::panels] = int64_t(panels);
  params[T::right_row] = by_rows ? p.b.stride : 1, params[T::right_column] = by_rows ? 1 : p.b.stride;
  TaskNest t = tile_nest(v);
  t.nest = prepared(std::move(t.nest));
  float numbers[] = {p.alpha, p.beta};
  auto floats = [](const std::vector<float>& x) { return bytes_of(x.data(), x.size(), DType::Float32); };
  std::vector<Data> data{floats(e.a.x)};
  if (!v.packs_right) data.push_back(bytes_of(packed.data(), packed.size(), DType::Int32));
  const size_t out = data.size();
  for (auto& d : {floats(e.out.x), bytes_of(numbers, 2, DType::Float32), floats(e.out.x), floats(e.b.x)})
    data.push_back(d);
  if (!v.packs_right) data.push_back(floats(ranges));
  data.push_back(bytes_of(&none, 1, DType::Int32));
  if (v.form.epilogue.value) data.push_back(floats(e.bias));
  test::run_tasks(std::move(t), data, params);
  std::vector<float> result(e.out.x.size());
  std::memcpy(result.data(), data[out].bytes.data(), data[out].bytes.size());
  return result;
}

TEST(TileNest, IsTheKernelToTheBit) {
  for (int round = 0; round < 4; ++round) {
    Example e(up_to(70), up_to(70), up_to(60) + (round % 4 ? 0 : 512), 1, any_order(), any_order(), coin());
    if (coin()) e.product.alpha = drawn(), e.product.beta = coin() ? drawn() : 0;
    auto& p = e.product;
    if (coin()) e.a.at(0, up_to(p.m) - 1, 0) = kInfinity, e.b.at(0, 0, up_to(p.n) - 1) = 1e-39f;
    TileVariant v{
        p.a.adjacent, p.b.adjacent,           coin(), int(up_to(kMostParts)), p.alpha != 1 || p.beta != 0,
        {p.epilogue}, codegen::vector_lanes()};
    int64_t terms = schedule::tile_blocks({p.m, p.n, p.k}, v.parts, 1, cache_sizes()).terms;
    auto want = interpreted(e, v, 32 * up_to(2), 32 * up_to(2), terms, coin());
    run_by_tiles(p, v.parts);
    for (size_t k = 0; k < want.size(); ++k)
      ASSERT_TRUE(want[k] == e.out.x[k] || (std::isnan(want[k]) && std::isnan(e.out.x[k])))
          << k << " of " << p.m << "x" << p.k << "x" << p.n << " by " << v.parts << " parts: " << want[k]
          << ", " << e.out.x[k];
  }
}

}  // namespace
