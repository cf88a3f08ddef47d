// Matrix products by generated kernels: the nest by the interpreter to the bit, and products of all layouts in memory of
// exactly their size against sums in float64.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "facula/base/parallel.h"
#include "facula/device/cpu/generated_product.h"
#include "facula/device/cpu/skinny_nest.h"
#include "facula/schedule/lanes.h"
#include "facula/schedule/product_tiles.h"
#include "product_example.h"
#include "task_runs.h"

using namespace facula;
using namespace facula::device::cpu;
using test::Data, test::Example, test::Matrix, test::any_order, test::coin, test::drawn, test::up_to;

namespace {

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

// Operands and results of 16 bits: the product of the widened operands, rounded once.
TEST(Product, RoundsBfloat16Once) {
  for (int64_t rows : {3, 40}) {
    Example e(rows, up_to(50), up_to(300), 1, Adjacent::row, any_order(), false);
    auto narrowed = [](std::vector<float>& x) {
      std::vector<BFloat16> y;
      for (float& v : x) y.push_back(BFloat16(v)), v = float(y.back());
      return y;
    };
    auto a = narrowed(e.a.x), b = narrowed(e.b.x);
    run(e.product);
    auto wide = e.out.x;
    std::vector<BFloat16> result(wide.size());
    auto p = e.product;
    p.a.data = a.data(), p.b.data = b.data(), p.result = result.data();
    p.operand_dtype = p.result_dtype = DType::BFloat16;
    run(p);
    EXPECT_EQ(wide, e.out.x);
    for (size_t k = 0; k < wide.size(); ++k) ASSERT_EQ(float(result[k]), float(BFloat16(wide[k]))) << k;
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
std::vector<float> interpreted(Example& e, const ProductVariant& v, const Blocks& blocks, bool lowered,
                               std::vector<float>* sums = nullptr) {
  auto& p = e.product;
  loop::LaneLimits limits{.lanes = v.lanes};
  int64_t lanes = v.lanes, width = lanes * v.vectors, strips = (p.n + width - 1) / width * v.vectors;
  using Q = PackParam;
  std::vector<int64_t> params(Q::count);
  params[Q::n] = p.n, params[Q::k] = p.k, params[Q::stride] = p.b.stride, params[Q::strips] = strips;
  params[Q::groups] = params[Q::tasks] = (strips + kPackedStrips - 1) / kPackedStrips;
  std::vector<float> packed(size_t(strips * p.k * lanes), std::nanf(""));
  loop::Nest pack = pack_nest({p.b.adjacent, DType::Float32, v.lanes});
  loop::verify(pack);
  if (lowered) loop::verify(pack = schedule::in_lanes(pack, limits), limits);
  void* pointers[] = {e.b.x.data(), packed.data()};
  loop::interpret(pack, pointers, params);

  using P = ProductParam;
  params.assign(P::count, 0);
  params[P::batch_rows] = p.m;
  params[P::m] = p.m, params[P::n] = p.n, params[P::k] = p.k, params[P::a_stride] = p.a.stride;
  params[P::out_stride] = p.n, params[P::rows] = blocks.rows, params[P::columns] = blocks.columns;
  params[P::terms] = blocks.terms, params[P::row_blocks] = (p.m + blocks.rows - 1) / blocks.rows;
  params[P::column_blocks] = (p.n + blocks.columns - 1) / blocks.columns;
  params.insert(params.end(), p.params.begin(), p.params.end());
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
                         bytes(e.out.x.data(), e.out.x.size())};
  for (size_t k = 0; k < v.form.epilogue.operands.size(); ++k) {
    auto& x = e.operand_data(k);
    data.push_back(bytes(x.data(), x.size()));
  }
  test::run_tasks(std::move(t), data, params);
  if (sums) std::memcpy(sums->data(), data[2].bytes.data(), data[2].bytes.size());
  std::vector<float> result(e.out.x.size());
  auto& from = data[v.form.beside ? 4 : 2].bytes;
  std::memcpy(result.data(), from.data(), from.size());
  return result;
}

TEST(ProductNest, IsTheKernelToTheBit) {
  for (int round = 0; round < 12; ++round) {
    Example e(16 + up_to(30), up_to(40), up_to(20) + (round % 3 ? 0 : 380), 1, any_order(), any_order(),
              coin());
    if (coin()) e.product.alpha = drawn(), e.product.beta = coin() ? drawn() : 0;
    auto& p = e.product;
    ProductVariant v{p.a.adjacent, 6, 2, p.alpha != 1 || p.beta != 0, {p.epilogue}, codegen::vector_lanes()};
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

// ---- epilogues

loop::Expr element() { return loop::local(schedule::kResultElement, DType::Float32); }
loop::Expr bias_at() { return loop::load(0, DType::Float32, {loop::index(1)}); }
loop::Expr residual_at() {
  return loop::load(1, DType::Float32, {loop::index(0) * loop::param(0) + loop::index(1)});
}
std::vector<std::pair<const char*, Epilogue>> epilogues() {
  loop::Expr x = element() + bias_at();
  const std::vector<DType> one{DType::Float32}, two{DType::Float32, DType::Float32};
  return {{"relu", {relu(x), one, 0}},
          {"gelu", {x * ndtr(x), one, 0}},
          {"silu", {x * sigmoid(x), one, 0}},
          {"scale", {element() * Scalar(0.125), {}, 0}},
          {"residual", {x + residual_at(), two, 1}},
          {"gated", {select(x > Scalar(0.0), x * tanh(residual_at()), x), two, 1}}};
}

// The epilogue on the sums by the interpreter, and whole nests by the interpreter; NaN and infinities among the operands.
TEST(ProductNest, AppliesEpiloguesToTheBit) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (auto& [name, epilogue] : epilogues())
    for (bool beside : {false, true}) {
      SCOPED_TRACE(std::string(name) + (beside ? ", beside the sums" : ""));
      Example e(17 + up_to(30), up_to(70), up_to(20) + (coin() ? 380 : 0), 1, any_order(), any_order(),
                false);
      e.follow_by(epilogue, beside);
      e.bias[0] = infinity, e.a.at(0, 0, 0) = std::nanf(""), e.residual.back() = -infinity;
      auto& p = e.product;
      ProductVariant v{p.a.adjacent, 4, 2, false, {epilogue, beside}, codegen::vector_lanes()};
      std::vector<float> sums(e.out.x.size());
      auto want = interpreted(e, v, {8, 2 * v.lanes, schedule::product_terms(p.k)}, coin(), &sums);
      run(p);
      const auto& got = beside ? e.result : e.out.x;
      for (size_t k = 0; k < want.size(); ++k) {
        if (std::isnan(want[k])) ASSERT_TRUE(std::isnan(got[k])) << k;
        else ASSERT_EQ(want[k], got[k]) << k << " of " << p.m << "x" << p.k << "x" << p.n;
      }
      if (beside) {
        for (size_t k = 0; k < sums.size(); ++k)
          ASSERT_TRUE(sums[k] == e.out.x[k] || (std::isnan(sums[k]) && std::isnan(e.out.x[k]))) << k;
      }
    }
}

// Operands of epilogues are read at the columns of the whole result, whose right operand is packed in several pieces, and at
// the rows of the whole batch.
TEST(Product, CountsRowsAndColumnsOfEpiloguesOverTheWholeResult) {
  int64_t k = 700, n = 3001 + up_to(100);
  Example wide(3, n, k, 1, Adjacent::row, Adjacent::column, true);
  ASSERT_NO_FATAL_FAILURE(check(wide));
  Example batch(5, 9, 20, 3, Adjacent::row, Adjacent::row, false);
  run(batch.product);
  auto plain = batch.out.x;
  batch.follow_by(epilogues()[4].second, false);
  run(batch.product);
  for (size_t i = 0; i < plain.size(); ++i)
    ASSERT_EQ(batch.out.x[i], plain[i] + batch.bias[i % 9] + batch.residual[i]) << i;
}

// ---- few rows

TEST(Skinny, IsTheKernelToTheBit) {
  using P = SkinnyParam;
  for (int64_t rows : {1, 2, 3, 6, 16})
    for (bool beside : {false, true}) {
      Example e(rows, up_to(60), up_to(90), 1, Adjacent::row, Adjacent::column, false);
      e.follow_by(epilogues()[size_t(up_to(6) - 1)].second, beside);
      auto& p = e.product;
      if (beside) p.saved = {element() * Scalar(0.5), {}, 0};
      SkinnyVariant v = skinny_variant(rows, codegen::vector_lanes());
      v.form = {p.epilogue, beside, p.saved};
      std::vector<int64_t> params(P::count);
      params[P::m] = p.m, params[P::n] = p.n, params[P::k] = p.k, params[P::a_stride] = p.a.stride;
      params[P::b_stride] = p.b.stride, params[P::out_stride] = p.n, params[P::columns] = 17;
      params[P::tasks] = (p.n + 16) / 17;
      params.insert(params.end(), p.params.begin(), p.params.end());
      TaskNest t = skinny_nest(v);
      t.nest = schedule::in_lanes(t.nest, codegen::lane_limits());
      loop::verify(t.nest, codegen::lane_limits());
      std::vector<const std::vector<float>*> from{&e.a.x, &e.b.x, &e.out.x, &e.result};
      for (size_t k = 0; k < p.epilogue.operands.size(); ++k) from.push_back(&e.operand_data(k));
      std::vector<Data> data;
      for (auto* x : from) {
        data.emplace_back(DType::Float32, int64_t(x->size()));
        std::memcpy(data.back().bytes.data(), x->data(), data.back().bytes.size());
      }
      test::run_tasks(std::move(t), data, params);
      run(p);
      EXPECT_EQ(std::memcmp(data[2].bytes.data(), e.out.x.data(), data[2].bytes.size()), 0) << rows;
      // Not beside, both are zero.
      EXPECT_EQ(std::memcmp(data[3].bytes.data(), e.result.data(), data[3].bytes.size()), 0) << rows;
    }
}

// ---- AVX-512

TEST(ProductNest, PacksSixteenColumnsByWholeVectors) {
  loop::LaneLimits limits{.lanes = 16};
  std::string text = print(schedule::in_lanes(pack_nest({Adjacent::column, DType::Float32, 16}), limits));
  EXPECT_NE(text.find("neighbours 16"), text.npos) << text;
}

TEST(ProductNest, IsTheKernelToTheBitWithTilesOfAvx512) {
  if (codegen::vector_lanes() < 16)
    GTEST_SKIP() << "this processor, or FACULA_CPU_CAPABILITY, has no AVX-512";
  for (int round = 0; round < 4; ++round) {
    Example e(14 * up_to(3) + 2 + up_to(13), up_to(100), up_to(40) + 250, 1, any_order(), any_order(),
              coin());
    auto& p = e.product;
    ProductVariant v{p.a.adjacent, 14, 2, false, {p.epilogue}, 16};
    auto want = interpreted(e, v, {28, 64, schedule::product_terms(p.k)}, true);
    run(p, {14, 2, schedule::product_terms(p.k), 28, 64});
    EXPECT_EQ(std::memcmp(want.data(), e.out.x.data(), want.size() * sizeof(float)), 0)
        << p.m << "x" << p.k << "x" << p.n;
  }
}

TEST(ProductNest, HasTheSameBitsForEveryWidthOfVectors) {
  Example e(31, 70, 45, 1, Adjacent::row, Adjacent::column, true);
  std::vector<float> first;
  for (int lanes : {4, 8, 16}) {
    ProductVariant v{e.product.a.adjacent, lanes == 16 ? 14 : 6, 2, false, {e.product.epilogue}, lanes};
    auto x = interpreted(e, v, {28 * 6, 64, 48}, true);
    if (first.empty()) first = x;
    EXPECT_EQ(std::memcmp(first.data(), x.data(), x.size() * sizeof(float)), 0) << lanes << " lanes";
  }
}

}  // namespace
