// Matrix products by generated kernels: the nest by the interpreter to the bit, and products of all layouts in memory of
// exactly their size against sums in float64.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "facula/base/parallel.h"
#include "facula/device/cpu/generated_product.h"
#include "facula/schedule/lanes.h"
#include "facula/schedule/product_tiles.h"
#include "task_runs.h"

using namespace facula;
using namespace facula::device::cpu;
using test::Data;

namespace {

std::mt19937& random_bits() {
  static std::mt19937 bits = [] {
    unsigned seed = std::random_device()();
    std::printf("seed %u\n", seed);
    return std::mt19937(seed);
  }();
  return bits;
}
int64_t up_to(int64_t most) { return 1 + int64_t(random_bits()() % uint64_t(most)); }
bool coin() { return random_bits()() % 2; }
float drawn() { return float(std::normal_distribution<double>()(random_bits())); }

// A matrix whose rows or columns are adjacent, with gaps between them, and no element behind the last one.
struct Matrix {
  int64_t rows, columns, count;
  Adjacent adjacent;
  int64_t stride, batch;
  std::vector<float> x;

  Matrix(int64_t rows, int64_t columns, int64_t count, Adjacent adjacent, int64_t gap)
      : rows(rows), columns(columns), count(count), adjacent(adjacent) {
    bool by_rows = adjacent == Adjacent::row;
    int64_t lines = by_rows ? rows : columns, line = by_rows ? columns : rows;
    stride = line + gap, batch = lines * stride;
    x.resize(size_t((count - 1) * batch + (lines - 1) * stride + line));
    for (auto& v : x) v = drawn();
  }
  float& at(int64_t b, int64_t r, int64_t c) {
    return x[size_t(b * batch + (adjacent == Adjacent::row ? r * stride + c : c * stride + r))];
  }
  MatrixOperand operand() const { return {x.data(), adjacent, stride, count > 1 ? batch : 0}; }
};
Adjacent any_order() { return coin() ? Adjacent::row : Adjacent::column; }

struct Example {
  Matrix a, b, out;
  std::vector<float> bias;
  float alpha = 1, beta = 0;
  GeneratedProduct product;
  void* operands[1];

  Example(int64_t m, int64_t n, int64_t k, int64_t count, Adjacent left, Adjacent right, bool with_bias)
      : a(m, k, count, left, up_to(5) - 1),
        b(k, n, count, right, up_to(5) - 1),
        out(m, n, count, Adjacent::row, 0),
        bias(size_t(n)) {
    for (auto& v : bias) v = drawn();
    product = {m, n, k, count, a.operand(), b.operand(), out.x.data(), n, m * n};
    operands[0] = bias.data();
    if (with_bias) product.epilogue = bias_epilogue(), product.operands = operands;
  }
};

// Runs the product and compares each element with a sum in float64: a bound of the sums over pieces of K.
void check(Example& e) {
  auto before = e.out.x;
  run(e.product);
  auto& p = e.product;
  double terms = double(std::min<int64_t>(p.k, schedule::product_terms(p.k)) + p.k / 128 + 4);
  for (int64_t q = 0; q < p.count; ++q)
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j) {
        double sum = 0, size = 0;
        for (int64_t l = 0; l < p.k; ++l) {
          double x = double(e.a.at(q, i, l)) * double(e.b.at(q, l, j));
          sum += x, size += std::abs(x);
        }
        double was = p.beta == 0 ? 0 : double(p.beta) * before[size_t((q * p.m + i) * p.n + j)];
        double bias = p.epilogue.value ? e.bias[size_t(j)] : 0, want = p.alpha * sum + was + bias;
        size = std::abs(p.alpha) * size + std::abs(was) + std::abs(bias);
        ASSERT_LE(std::abs(e.out.at(q, i, j) - want), terms * 6e-8 * size)
            << "element " << i << ", " << j << " of " << q << " of " << p.m << "x" << p.k << "x" << p.n;
      }
}

TEST(Product, IsTheSumOfProductsInAllLayouts) {
  for (int round = 0; round < 60; ++round) {
    bool large = round % 10 == 0;
    int64_t size = large ? 300 : 40;
    Example e(up_to(size), up_to(size), up_to(large ? 700 : 60), large ? 1 : up_to(3), any_order(),
              any_order(), coin());
    if (coin()) e.product.alpha = drawn();
    if (coin()) e.product.beta = drawn();
    ASSERT_NO_FATAL_FAILURE(check(e));
  }
}

TEST(Product, HasTheSameBitsForAnyNumberOfThreads) {
  int threads = num_threads();
  Example e(200, 330, 600, 1, Adjacent::row, Adjacent::column, true);
  run(e.product);
  auto first = e.out.x;
  for (int n : {1, 2, 3, 5}) {
    set_num_threads(n);
    std::fill(e.out.x.begin(), e.out.x.end(), 0.0f);
    run(e.product);
    EXPECT_EQ(std::memcmp(first.data(), e.out.x.data(), first.size() * sizeof(float)), 0) << n << " threads";
  }
  set_num_threads(threads);
}

TEST(Product, KeepsNumbersThatAreNotFiniteToTheirRowsAndColumns) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (Adjacent left : {Adjacent::row, Adjacent::column})
    for (Adjacent right : {Adjacent::row, Adjacent::column}) {
      Example e(37, 41, 270, 1, left, right, false);
      e.a.at(0, 36, 269) = infinity;
      e.b.at(0, 0, 40) = -infinity;
      e.a.at(0, 3, 17) = std::nanf("");
      for (int64_t l = 0; l < 41; ++l) e.b.at(0, 269, l) = l % 2 ? 1.0f : 0.0f;
      run(e.product);
      for (int64_t i = 0; i < 37; ++i)
        for (int64_t j = 0; j < 41; ++j) {
          double sum = 0;
          for (int64_t l = 0; l < 270; ++l) sum += double(e.a.at(0, i, l)) * double(e.b.at(0, l, j));
          float x = e.out.at(0, i, j);
          if (std::isnan(sum)) ASSERT_TRUE(std::isnan(x)) << i << ", " << j;
          else if (std::isinf(sum)) ASSERT_EQ(x, float(sum)) << i << ", " << j;
          else ASSERT_TRUE(std::isfinite(x)) << i << ", " << j;
        }
    }
}

// ---- the nests by the interpreter

struct Blocks {
  int64_t rows, columns, terms;
};
// Packs b and multiplies, each nest by the interpreter; `lowered` for a machine with so many lanes.
std::vector<float> interpreted(Example& e, const ProductVariant& v, const Blocks& blocks, bool lowered) {
  auto& p = e.product;
  loop::LaneLimits limits{.lanes = v.lanes};
  int64_t lanes = v.lanes, width = lanes * v.vectors, strips = (p.n + width - 1) / width * v.vectors;
  using Q = PackParam;
  std::vector<int64_t> params(Q::count);
  params[Q::n] = p.n, params[Q::k] = p.k, params[Q::stride] = p.b.stride, params[Q::strips] = strips;
  params[Q::groups] = params[Q::tasks] = (strips + kPackedStrips - 1) / kPackedStrips;
  std::vector<float> packed(size_t(strips * p.k * lanes), std::nanf(""));
  loop::Nest pack = pack_nest({p.b.adjacent, v.lanes});
  loop::verify(pack);
  if (lowered) loop::verify(pack = schedule::in_lanes(pack, limits), limits);
  void* pointers[] = {e.b.x.data(), packed.data()};
  loop::interpret(pack, pointers, params);

  using P = ProductParam;
  params.assign(P::count, 0);
  params[P::m] = p.m, params[P::n] = p.n, params[P::k] = p.k, params[P::a_stride] = p.a.stride;
  params[P::out_stride] = p.n, params[P::rows] = blocks.rows, params[P::columns] = blocks.columns;
  params[P::terms] = blocks.terms, params[P::row_blocks] = (p.m + blocks.rows - 1) / blocks.rows;
  params[P::column_blocks] = (p.n + blocks.columns - 1) / blocks.columns;
  params[P::adds] = p.beta != 0, params[P::tasks] = params[P::row_blocks] * params[P::column_blocks];
  TaskNest t = product_nest(v);
  loop::verify(t.nest);
  if (lowered) loop::verify(t.nest = schedule::in_lanes(t.nest, limits), limits);
  float numbers[] = {p.alpha, p.beta};
  auto bytes = [](const void* x, size_t n) {
    Data d(DType::Float32, int64_t(n));
    std::memcpy(d.bytes.data(), x, n * sizeof(float));
    return d;
  };
  std::vector<Data> data{bytes(e.a.x.data(), e.a.x.size()), bytes(packed.data(), packed.size()),
                         bytes(e.out.x.data(), e.out.x.size()), bytes(numbers, 2),
                         bytes(e.bias.data(), e.bias.size())};
  test::run_tasks(std::move(t), data, params);
  std::vector<float> result(e.out.x.size());
  std::memcpy(result.data(), data[2].bytes.data(), data[2].bytes.size());
  return result;
}

TEST(ProductNest, IsTheKernelToTheBit) {
  for (int round = 0; round < 12; ++round) {
    Example e(up_to(30), up_to(40), up_to(20) + (round % 3 ? 0 : 380), 1, any_order(), any_order(), coin());
    if (coin()) e.product.alpha = drawn(), e.product.beta = coin() ? drawn() : 0;
    auto& p = e.product;
    ProductVariant v{p.a.adjacent, 6, 2, p.alpha != 1 || p.beta != 0, p.epilogue, codegen::vector_lanes()};
    // Other tiles and blocks than those of the kernel, and the same pieces of K.
    v.rows = int(2 + up_to(4)), v.vectors = int(up_to(3));
    int64_t width = v.vectors * v.lanes;
    auto want =
        interpreted(e, v, {v.rows * up_to(3), width * up_to(2), schedule::product_terms(p.k)}, coin());
    run(p);
    EXPECT_EQ(std::memcmp(want.data(), e.out.x.data(), want.size() * sizeof(float)), 0)
        << p.m << "x" << p.k << "x" << p.n << ", tiles of " << v.rows << "x" << v.vectors;
  }
}

TEST(ProductNest, HasTheSameBitsForEveryWidthOfVectors) {
  Example e(31, 70, 45, 1, Adjacent::row, Adjacent::column, true);
  std::vector<float> first;
  for (int lanes : {4, 8, 16}) {
    ProductVariant v{e.product.a.adjacent, lanes == 16 ? 14 : 6, 2, false, e.product.epilogue, lanes};
    auto x = interpreted(e, v, {28 * 6, 64, 48}, true);
    if (first.empty()) first = x;
    EXPECT_EQ(std::memcmp(first.data(), x.data(), x.size() * sizeof(float)), 0) << lanes << " lanes";
  }
}

}  // namespace
