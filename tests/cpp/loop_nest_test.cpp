// Nests: text form, verification and serial execution; definitions on every layout and dtype; complex
// reductions.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "facula/loop/complex.h"
#include "facula/loop/definition.h"
#include "facula/loop/interpret.h"
#include "facula/loop/nest.h"

using namespace facula;
using namespace facula::loop;

namespace {

// out[r] = log-sum-exp and first maximum of row r; rows of p1 elements, scaled through a scratch array.
const char* kRows = R"(nest "rows" params 2 {
  buffer float32 read unique "x"
  buffer float16 write unique "lse"
  buffer int64 write unique "at"
  tasks i0 < p0
  cost mul(p1, 4)
  %0 = mul(i0, p1)
  array v9 float32 p1
  for i1 < p1 vector {
    store -10[i1] = mul(load[0:float32](add(%0, i1)), 2:float32)
  }
  accumulator v0 logsumexp float32
  accumulator v2 argmax float32
  for i2 < p1 {
    let v4 = load[-10:float32](i2)
    accumulate v0 logsumexp(v4:float32)
    accumulate v2 argmax(v4:float32, i2)
  }
  store 1[i0] = add(v0:float32, log(v1:float32))
  if lt(0, p1) {
    assign v5 = v3:int64
    assign v5 = mul(v5:int64, 10)
    store 2[i0] = v5:int64
  }
}
)";

Nest changed(const std::string& from, const std::string& to) {
  std::string text = kRows;
  auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return parse_nest(text.replace(at, from.size(), to));
}

}  // namespace

TEST(LoopNest, TextParsesAndPrintsBack) {
  Nest n = parse_nest(kRows);
  verify(n);
  EXPECT_EQ(print(parse_nest(print(n))), print(n));
  EXPECT_EQ(n.name, "rows");
  EXPECT_EQ(n.buffers.size(), 3u);
  EXPECT_TRUE(n.buffers[1].written && !n.buffers[0].written);
  EXPECT_THROW(parse_nest("nest \"x\" params 0 { tasks i0 < 1 cost 1 stor 0[i0] = 1 }"), Error);
}

TEST(LoopNest, RunsSerially) {
  Nest n = parse_nest(kRows);
  std::vector<float> x{1, 3, 3, -1, 0, -INFINITY, 0.5f, -2};
  std::vector<uint16_t> lse(2);
  std::vector<int64_t> at(2, -1);
  void* buffers[] = {x.data(), lse.data(), at.data()};
  int64_t params[] = {2, 4};
  interpret(n, buffers, params);
  EXPECT_EQ(at, (std::vector<int64_t>{10, 20}));
  for (int r = 0; r < 2; ++r) {
    double s = 0;
    for (int k = 0; k < 4; ++k) s += std::exp(2.0 * x[size_t(r * 4 + k)]);
    EXPECT_EQ(lse[size_t(r)], Half(float(std::log(s))).bits);
  }
}

TEST(LoopNest, VerifyFindsMistakes) {
  EXPECT_THROW(verify(changed("buffer float16 write", "buffer float16 read")), Error);
  EXPECT_THROW(verify(changed("store 1[i0] = add(v0:float32, log(v1:float32))", "store 1[i0] = v3:int64")),
               Error);
  EXPECT_THROW(verify(changed("store 1[i0]", "store 1[i2]")), Error);  // a loop's variable after the loop
  EXPECT_THROW(verify(changed("store 1[i0]", "store 7[i0]")), Error);
  EXPECT_THROW(verify(changed("load[0:float32](add(%0, i1))", "load[0:float32](add(%0, p2))")), Error);
  EXPECT_THROW(verify(changed("log(v1:float32)", "log(v4:float32)")), Error);  // a let after its block
  EXPECT_THROW(verify(changed("accumulate v0 logsumexp", "accumulate v0 sum")), Error);
  EXPECT_THROW(verify(changed("let v4", "let v0")), Error);
  EXPECT_THROW(verify(changed("for i2 < p1", "for i0 < p1")), Error);
  EXPECT_THROW(verify(changed("add(v0:float32, log(v1:float32))", "reduce[sum](i64 < 3; 1:float32)")), Error);
}

TEST(LoopNest, WritesAreSeenByLaterReads) {
  Nest n = parse_nest(R"(nest "prefix" params 1 {
    buffer int32 write unique "x"
    tasks i0 < 1
    cost p0
    for i1 < sub(p0, 1) {
      store 0[add(i1, 1)] = add(load[0:int32](add(i1, 1)), load[0:int32](i1))
    }
  })");
  verify(n);
  std::vector<int32_t> x{1, 2, 3, 4};
  void* buffers[] = {x.data()};
  int64_t params[] = {4};
  interpret(n, buffers, params);
  EXPECT_EQ(x, (std::vector<int32_t>{1, 3, 6, 10}));
}

TEST(LoopNest, ComplexComponentsAreStoredApart) {
  Nest n = parse_nest(R"(nest "conj" params 1 {
    buffer complex64 read unique "x"
    buffer complex64 write unique "y"
    tasks i0 < p0
    cost 2
    store 1.re[i0] = load[0:complex64.re](i0)
    store 1.im[i0] = neg(load[0:complex64.im](i0))
  })");
  verify(n);
  std::complex<float> x[2] = {{1, 2}, {-3, 4}}, y[2];
  void* buffers[] = {x, y};
  int64_t params[] = {2};
  interpret(n, buffers, params);
  EXPECT_EQ(y[0], std::complex<float>(1, -2));
  EXPECT_EQ(y[1], std::complex<float>(-3, -4));
}

TEST(LoopInterpret, ReadsAnyLayoutAndRoundsOnce) {
  for (DType d : {DType::Float16, DType::BFloat16, DType::Float32, DType::Float64, DType::Int8, DType::Int64,
                  DType::UInt8}) {
    Tensor base = Tensor::empty(Ints{4, 6}, d);
    for (int64_t k = 0; k < 24; ++k)
      Scalar(k).store(d, static_cast<char*>(base.data_ptr()) + k * base.itemsize());
    Dims sizes{3, 2}, strides{1, 12}, scalar;
    Tensor x = base.alias(sizes, strides, 2);  // transposed, with gaps
    Definition def;
    def.rank = 2;
    def.values = {load(0, d, {index(0), index(1)}) * 2};
    Dims result[] = {sizes};
    DType types[] = {d};
    for (Precision p : {Precision::wide, Precision::faithful}) {
      Tensor y = interpret(def, std::array{x}, result, types, p)[0];
      for (int64_t r = 0; r < 3; ++r)
        for (int64_t c = 0; c < 2; ++c) {
          Scalar got = Scalar::load(d, static_cast<char*>(y.data_ptr()) + (r * 2 + c) * y.itemsize());
          EXPECT_EQ(got.to_double(), 2.0 * double(2 + r + 12 * c)) << d;
        }
    }
  }
  // 1e8 + 1 - 1e8: float32 loses the 1 at each step, wide arithmetic does not.
  Definition def;
  Expr big = load(0, DType::Float32, {});
  def.values = {(big + 1.0) - big};
  Dims result[] = {{}};
  DType types[] = {DType::Float32};
  Tensor x = Tensor::scalar(1e8, DType::Float32);
  EXPECT_EQ(interpret(def, std::array{x}, result, types, Precision::wide)[0].item().to_double(), 1.0);
  EXPECT_EQ(interpret(def, std::array{x}, result, types, Precision::faithful)[0].item().to_double(), 0.0);
}

TEST(LoopInterpret, ChecksIndicesAndSkipsUntakenSides) {
  Definition def;
  Expr at = loop::check(load(1, DType::Int64, {}), constant(int64_t(3), DType::Int64));
  def.values = {load(0, DType::Float64, {at})};
  Tensor x = Tensor::empty(Ints{3}, DType::Float64);
  for (int k = 0; k < 3; ++k) x.data<double>()[k] = k;
  Dims result[] = {{}};
  DType types[] = {DType::Float64};
  auto run = [&](const Definition& d, int64_t k) {
    return interpret(d, std::array{x, Tensor::scalar(k, DType::Int64)}, result, types)[0].item().to_double();
  };
  EXPECT_EQ(run(def, -1), 2.0);
  try {
    run(def, 3);
    FAIL();
  } catch (const Error& e) { EXPECT_EQ(e.type(), ErrorType::IndexError); }
  Definition guarded;
  guarded.values = {select(load(1, DType::Int64, {}) < 3, def.values[0], -1.0)};
  EXPECT_EQ(run(guarded, 3), -1.0);
}

TEST(LoopInterpret, ScattersInRowMajorOrder) {
  Definition def;
  def.rank = 1;
  Scatter s;
  s.domain = {4};
  s.target = {load(0, DType::Int64, {index(0)})};
  s.value = cast(index(0) + 1, DType::Float64);
  Tensor where = Tensor::empty(Ints{4}, DType::Int64);
  std::copy_n(std::array<int64_t, 4>{1, 0, 1, 1}.data(), 4, where.data<int64_t>());
  Dims result[] = {{3}};
  DType types[] = {DType::Float64};
  auto run = [&](Scatter::Combine c) {
    s.combine = c;
    def.scatter = s;
    Tensor t = interpret(def, std::array{where}, result, types)[0];
    return std::vector<double>(t.data<double>(), t.data<double>() + 3);
  };
  EXPECT_EQ(run(Scatter::Combine::sum), (std::vector<double>{2, 8, 0}));
  EXPECT_EQ(run(Scatter::Combine::assign), (std::vector<double>{2, 4, 0}));
  EXPECT_EQ(run(Scatter::Combine::max), (std::vector<double>{2, 4, 0}));
}

TEST(LoopComplex, FloatPartsNeitherOverflowNorVanish) {
  auto run = [](Expr e, std::complex<double> z) {
    Definition d;
    auto [re, im] = split_complex(e);
    d.values = {re, im};
    Dims sizes[] = {{}, {}};
    DType types[] = {re.dtype(), im.dtype()};
    auto r = interpret(d, std::array{Tensor::scalar(z, DType::Complex64)}, sizes, types, Precision::faithful);
    return std::complex<double>(r[0].item().to_double(), r[1].item().to_double());
  };
  Expr z = load(0, DType::Complex64, {});
  for (double scale : {1e37, 1e-37, 3e38, 1e20}) {
    std::complex<double> v = std::complex<float>(float(0.6 * scale), float(-0.8 * scale));
    EXPECT_NEAR(run(abs(z), v).real() / std::abs(v), 1, 3e-7) << scale;
    EXPECT_NEAR(std::abs(run(sqrt(z), v) / std::sqrt(v) - 1.0), 0, 5e-7) << scale;
    if (scale < 1e38) {  // Smith's quotient, PyTorch's too, overflows within a factor of two of the largest
      EXPECT_NEAR(std::abs(run(z / z, v) - 1.0), 0, 5e-7) << scale;
    }
    EXPECT_NEAR(std::abs(run(log(z), v) - std::log(v)), 0, 3e-7 * std::abs(std::log(v))) << scale;
  }
  EXPECT_EQ(run(abs(z), {INFINITY, NAN}).real(), INFINITY);
  EXPECT_EQ(run(sqrt(z), {-4.0, -0.0}), std::complex<double>(0, -2));
  EXPECT_EQ(run(exp(z), {-INFINITY, INFINITY}), std::complex<double>(0, 0));
  EXPECT_NEAR(run(tanh(z), {100, 1}).real(), 1, 0);
}

TEST(LoopComplex, ReductionsAndComparisonsSplit) {
  Tensor x = Tensor::empty(Ints{3}, DType::Complex128);
  std::complex<double> v[] = {{1, 2}, {-0.5, 1}, {2, -3}};
  std::copy_n(v, 3, x.data<std::complex<double>>());
  Expr z = load(0, DType::Complex128, {index(64)});
  std::vector<BoundVar> all{{64, constant(int64_t(3), DType::Int64)}};
  auto run = [&](Expr e) {
    Definition d;
    d.values = {e};
    Dims sizes[] = {{}};
    DType types[] = {e.dtype()};
    return interpret(d, std::array{x}, sizes, types)[0].item().to_complex();
  };
  for (Monoid m : {Monoid::sum, Monoid::prod}) {
    Expr whole = reduce(m, all, {z});
    auto [re, im] = split_complex(whole);
    EXPECT_NEAR(std::abs(run(whole) - std::complex<double>(run(re).real(), run(im).real())), 0, 1e-13)
        << name(m);
  }
  Expr count = reduce(monoid::sum, all, {cast(ne(z, z * z) & bit_not(isnan(z)), DType::Int64)});
  Expr real_count = without_complex(count);
  visit(real_count, [](Expr e) { EXPECT_FALSE(is_complex(e.dtype())) << print(e); });
  EXPECT_EQ(run(real_count), run(count));
}
