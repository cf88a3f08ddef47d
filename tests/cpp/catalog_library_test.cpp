// Library operators against their references by the loop interpreter, over dtypes and layouts; and against
// their own definitions where they have none (linear algebra, Fourier transforms).
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <random>

#include "facula/autograd/autograd.h"
#include "facula/autograd/formula.h"
#include "facula/base/parallel.h"
#include "facula/device/device.h"
#include "facula/loop/interpret.h"
#include "facula/op/registry.h"
#include "facula/ops.h"

using namespace facula;

namespace {

std::mt19937 engine(5);

Tensor filled(std::vector<int64_t> sizes, DType d) {
  Tensor t = Tensor::empty(IntSpan(sizes), d);
  std::uniform_real_distribution<double> uniform(-2, 2);
  for (int64_t i = 0; i < t.numel().concrete(); ++i) {
    Scalar x = is_complex(d)    ? Scalar(std::complex<double>(uniform(engine), uniform(engine)))
               : is_floating(d) ? Scalar(uniform(engine))
                                : Scalar(int64_t(engine() % 7) - (d == DType::UInt8 ? 0 : 3));
    x.store(d, t.data<char>() + i * itemsize(d));
  }
  return t;
}

enum class Layout { plain, transposed, strided, channels_last };
const Layout kLayouts[] = {Layout::plain, Layout::transposed, Layout::strided, Layout::channels_last};

// A tensor of these sizes whose memory is laid out as said.
Tensor laid_out(std::vector<int64_t> sizes, DType d, Layout l) {
  auto n = int(sizes.size());
  if (l == Layout::transposed && n >= 2) {
    std::swap(sizes[size_t(n) - 1], sizes[size_t(n) - 2]);
    return transpose(filled(sizes, d), -1, -2);
  }
  if (l == Layout::strided && n >= 1) {
    auto wide = sizes;
    wide.back() = wide.back() * 2 + 1;
    return slice(filled(wide, d), -1, SymInt(int64_t(1)), nullopt, int64_t(2));
  }
  if (l == Layout::channels_last && n == 4)
    return permute(filled({sizes[0], sizes[2], sizes[3], sizes[1]}, d), {0, 3, 1, 2});
  return filled(sizes, d);
}

std::vector<op::Value> arguments(const op::Operator& o, std::initializer_list<op::Value> given) {
  std::vector<op::Value> args(given);
  args.resize(o.schema.parameters.size());
  return args;
}

std::vector<Tensor> reference(const op::Operator& o, std::span<const op::Value> args,
                              const std::vector<Tensor>& like) {
  op::LoopCall c(o, args);
  std::vector<Tensor> operands;
  for (auto& x : autograd::operands_of(c)) {
    bool number = x.value.tag == op::Tag::scalar || x.value.tag == op::Tag::integer;
    operands.push_back(x.value.is_none() ? Tensor::empty(IntSpan(), DType::Float64)
                       : number          ? Tensor::scalar(x.value.number(), op::operand_dtype(x.value))
                                         : Tensor(Ref<TensorImpl>::share(x.value.tensor)));
  }
  std::vector<Dims> sizes = o.shaped()->shape(c);
  std::vector<DType> types;
  for (auto& t : like) types.push_back(t.dtype());
  return loop::interpret(o.backed()->reference(c), operands, sizes, types);
}

double tolerance(DType d) {
  switch (real_of(d)) {
    case DType::BFloat16: return 1.6e-2;
    case DType::Float16: return 2e-3;
    case DType::Float32: return 2e-5;
    case DType::Float64: return 1e-13;
    default: return 0;
  }
}

void expect_close(const Tensor& given, const Tensor& expected, double tolerance, const std::string& what) {
  ASSERT_EQ(to_string(given.sizes()), to_string(expected.sizes())) << what;
  ASSERT_EQ(given.dtype(), expected.dtype()) << what;
  Tensor a = contiguous(given), b = contiguous(expected);
  double scale = 1;
  for (int64_t i = 0; i < a.numel().concrete(); ++i) {
    double x = std::abs(Scalar::load(b.dtype(), b.data<char>() + i * b.itemsize()).to_complex());
    if (std::isfinite(x)) scale = std::max(scale, x);
  }
  for (int64_t i = 0; i < a.numel().concrete(); ++i) {
    auto x = Scalar::load(a.dtype(), a.data<char>() + i * a.itemsize()).to_complex(),
         y = Scalar::load(b.dtype(), b.data<char>() + i * b.itemsize()).to_complex();
    if (x == y || (std::isnan(x.real()) && std::isnan(y.real()))) continue;
    ASSERT_LE(std::abs(x - y), tolerance * scale) << what << ", element " << i << ": " << x << " and " << y;
  }
}

void check(const char* name, std::initializer_list<op::Value> given, const std::string& what) {
  auto& o = op::get(name);
  auto args = arguments(o, given);
  SCOPED_TRACE(std::string(name) + " " + what);
  auto results = op::call(o, args).to_vector();
  auto expected = reference(o, args, results);
  ASSERT_EQ(results.size(), expected.size());
  if (o.schema.name == "topk") {  // which of equal elements is PyTorch's choice, which tests in Python hold
    op::Call c(o, args);
    for (auto* r : {&results, &expected})
      if (c.rank("self")) (*r)[1] = gather(c.tensor("self"), c.dim("dim"), (*r)[1]);
  }
  for (size_t k = 0; k < results.size(); ++k)
    expect_close(results[k], expected[k], tolerance(results[k].dtype()), std::string(name) + " " + what);
}

const DType kNumeric[] = {DType::Float32,   DType::Float64,    DType::Float16, DType::BFloat16,
                          DType::Complex64, DType::Complex128, DType::Int8,    DType::UInt8,
                          DType::Int16,     DType::Int32,      DType::Int64};

std::string described(DType d, Layout a, Layout b) {
  return std::string(name(d)) + " layouts " + std::to_string(int(a)) + ", " + std::to_string(int(b));
}

}  // namespace

TEST(Products, AgreeWithTheReferenceForEveryDTypeAndLayout) {
  for (DType d : kNumeric)
    for (Layout l : kLayouts)
      for (Layout r : kLayouts) {
        if (l == Layout::channels_last || r == Layout::channels_last) continue;
        auto what = described(d, l, r);
        check("mm", {laid_out({5, 7}, d, l), laid_out({7, 3}, d, r)}, what);
        check("mm", {laid_out({33, 40}, d, l), laid_out({40, 17}, d, r)}, what);
        check("mm", {laid_out({1, 40}, d, l), laid_out({40, 1}, d, r)}, what);
        check("mm", {laid_out({40, 1}, d, l), laid_out({1, 33}, d, r)}, what);
        check("bmm", {laid_out({3, 4, 6}, d, l), laid_out({3, 6, 5}, d, r)}, what);
        check("bmm", {laid_out({6, 17, 20}, d, l), laid_out({6, 20, 18}, d, r)}, what);
        check("linear", {laid_out({2, 3, 5}, d, l), laid_out({4, 5}, d, r), filled({4}, d)}, what);
        check("linear", {laid_out({40, 33}, d, l), laid_out({24, 33}, d, r), op::Value()}, what);
        check("linear", {laid_out({5}, d, l), laid_out({4, 5}, d, r), filled({4}, d)}, what);
      }
}

TEST(Products, BroadcastBatches) {
  for (DType d : kNumeric) {
    check("_matmul", {filled({2, 3, 4, 5}, d), filled({3, 5, 2}, d)}, name(d));
    check("_matmul", {filled({2, 1, 9, 17}, d), filled({3, 17, 12}, d)}, name(d));
    check("_matmul", {filled({14, 25}, d), filled({3, 25, 16}, d)}, name(d));
    check("_matmul", {filled({2, 4, 14, 25}, d), filled({1, 1, 25, 16}, d)}, name(d));
    check("bmm", {expand(filled({1, 14, 25}, d), {4, 14, 25}), filled({4, 25, 16}, d)}, name(d));
    check("mm", {expand(filled({1, 25}, d), {14, 25}), expand(filled({25, 1}, d), {25, 16})}, name(d));
    // Heads of attention: batch dimensions that do not merge.
    Tensor q = permute(filled({2, 9, 3, 16}, d), {0, 2, 1, 3}),
           k = permute(filled({2, 9, 3, 16}, d), {0, 2, 3, 1});
    check("_matmul", {q, k}, name(d));
  }
}

TEST(Products, AddAndScale) {
  for (DType d : kNumeric)
    for (auto [beta, alpha] : {std::pair(1.0, 1.0), std::pair(2.0, 3.0), std::pair(0.0, 1.0)}) {
      Scalar b = is_differentiable(d) ? Scalar(beta) : Scalar(int64_t(beta)),
             a = is_differentiable(d) ? Scalar(alpha) : Scalar(int64_t(alpha));
      for (auto self : {filled({3}, d), filled({5, 3}, d), filled({5, 1}, d), filled({}, d)})
        check("addmm", {self, filled({5, 7}, d), filled({7, 3}, d), b, a}, name(d));
      check("addmm", {filled({40}, d), filled({33, 24}, d), filled({24, 40}, d), b, a}, name(d));
      check("addmm", {filled({33, 1}, d), filled({33, 24}, d), filled({24, 40}, d), b, a}, name(d));
      check("baddbmm", {filled({2, 1, 3}, d), filled({2, 5, 7}, d), filled({2, 7, 3}, d), b, a}, name(d));
    }
  Tensor nan = full({2, 2}, std::numeric_limits<double>::quiet_NaN(), DType::Float32),
         one = ones({2, 2}, DType::Float32);
  EXPECT_EQ(sum(addmm(nan, one, one, 0)).item().to_double(), 8);
}

TEST(Products, OfNothingAreZeroOrEmpty) {
  for (DType d : kNumeric) {
    check("mm", {filled({4, 0}, d), filled({0, 3}, d)}, name(d));
    check("mm", {filled({0, 4}, d), filled({4, 3}, d)}, name(d));
    check("bmm", {filled({0, 4, 5}, d), filled({0, 5, 2}, d)}, name(d));
    check("linear", {filled({4, 0}, d), filled({3, 0}, d), filled({3}, d)}, name(d));
    check("addmm", {filled({3}, d), filled({4, 0}, d), filled({0, 3}, d), Scalar(2), Scalar(1)}, name(d));
  }
}

TEST(Products, MatmulFollowsTheRanks) {
  auto f = [](std::vector<int64_t> a, std::vector<int64_t> b) {
    return to_string(matmul(filled(a, DType::Float32), filled(b, DType::Float32)).sizes());
  };
  EXPECT_EQ(f({3}, {3}), "[]");
  EXPECT_EQ(f({2, 3}, {3}), "[2]");
  EXPECT_EQ(f({3}, {3, 4}), "[4]");
  EXPECT_EQ(f({5, 2, 3}, {3}), "[5, 2]");
  EXPECT_EQ(f({3}, {5, 3, 4}), "[5, 4]");
  EXPECT_EQ(f({5, 2, 3}, {3, 4}), "[5, 2, 4]");
  EXPECT_EQ(f({2, 3}, {5, 3, 4}), "[5, 2, 4]");
  EXPECT_EQ(f({7, 1, 2, 3}, {5, 3, 4}), "[7, 5, 2, 4]");
}

TEST(Products, ErrorsNameShapesAndTheFix) {
  auto text = [](auto&& f) {
    try {
      f();
    } catch (const Error& e) { return std::string(e.what()); }
    return std::string();
  };
  auto f = [](std::vector<int64_t> s, DType d = DType::Float32) { return filled(s, d); };
  EXPECT_EQ(
      text([&] { matmul(f({8, 3}), f({4, 5})); }),
      "matmul: the last dimension of `self` must equal the second to last of `other`: [8, 3] @ [4, 5] (3 vs 4).\n"
      "  hint: other.mT has shape [5, 4]; self @ other.mT would need self to end in 5");
  EXPECT_NE(text([&] { mm(f({8, 3}), f({4, 3})); }).find("mat2.mT fits: [3, 4]"), std::string::npos);
  EXPECT_NE(text([&] {
              mm(f({2, 2}), f({2, 2}, DType::Float64));
            }).find("same dtype, but got: float32 != float64"),
            std::string::npos);
  EXPECT_NE(text([&] { linear(f({2, 3}), f({4, 5})); }).find("input [2, 3], weight [4, 5]"),
            std::string::npos);
  EXPECT_NE(text([&] {
              conv2d(f({1, 3, 8, 8}), f({4, 2, 3, 3}));
            }).find("to have 2 channels, but got 3 channels instead"),
            std::string::npos);
  EXPECT_NE(text([&] {
              conv2d(f({1, 2, 2, 8}), f({4, 2, 3, 3}));
            }).find("kernel size can't be greater than actual input size"),
            std::string::npos);
  EXPECT_NE(text([&] {
              linalg_solve(zeros({2, 2}), ones({2, 1}));
            }).find("the solver failed because the input matrix is singular."),
            std::string::npos);
  EXPECT_NE(text([&] {
              linalg_cholesky(neg(eye(int64_t(3))));
            }).find("the leading minor of order 1 is not positive-definite"),
            std::string::npos);
  EXPECT_NE(text([&] { topk(f({3}), int64_t(4)); }).find("selected index k out of range"), std::string::npos);
}

TEST(Products, EinsumContracts) {
  Tensor a = filled({3, 4}, DType::Float64), b = filled({4, 5}, DType::Float64),
         batch = filled({2, 3, 4}, DType::Float64);
  expect_close(einsum("ij,jk->ik", {a, b}), mm(a, b), 1e-13, "matrix product");
  expect_close(einsum("ij,jk", {a, b}), mm(a, b), 1e-13, "implicit output");
  expect_close(einsum("ij->ji", {a}), transpose(a, 0, 1), 0, "transpose");
  expect_close(einsum("bij,jk->bik", {batch, b}), matmul(batch, b), 1e-13, "batch");
  expect_close(einsum("...j,jk->...k", {batch, b}), matmul(batch, b), 1e-13, "dots");
  expect_close(einsum("ij,ij->", {a, a}), sum(mul(a, a)), 1e-13, "inner product");
  expect_close(einsum("i,j->ij", {select(a, 1, int64_t(0)), select(b, 0, int64_t(0))}),
               outer(select(a, 1, int64_t(0)), select(b, 0, int64_t(0))), 1e-13, "outer");
  Tensor square = filled({4, 4}, DType::Float64);
  expect_close(einsum("ii->", {square}), sum(diagonal(square)), 1e-13, "trace");
  expect_close(einsum("ij,jk,kl->il", {a, b, filled({5, 2}, DType::Float64)}).sizes().size() == 2 ? square
                                                                                                  : a,
               square, 0, "three operands");
}

TEST(Convolution, AgreesWithTheReferenceForEveryDTypeAndLayout) {
  struct Case {
    std::vector<int64_t> input, weight;
    int64_t stride, padding, dilation, groups;
    bool bias;
  };
  const Case cases[] = {{{2, 3, 7, 6}, {4, 3, 3, 3}, 1, 1, 1, 1, true},
                        {{2, 1, 8, 8}, {5, 1, 3, 3}, 1, 1, 1, 1, false},
                        {{2, 4, 9, 9}, {6, 2, 3, 3}, 2, 2, 2, 2, true},
                        {{1, 16, 5, 5}, {16, 16, 1, 1}, 1, 0, 1, 1, true},
                        {{2, 6, 6, 6}, {6, 1, 3, 3}, 1, 1, 1, 6, false},
                        {{3, 2, 5, 4}, {3, 2, 5, 4}, 1, 0, 1, 1, true},
                        {{2, 3, 8, 7}, {4, 3, 2, 2}, 3, 0, 1, 1, false}};
  for (DType d : kNumeric)
    for (Layout l : {Layout::plain, Layout::strided, Layout::channels_last})
      for (auto& k : cases) {
        std::string what = std::string(name(d)) + " layout " + std::to_string(int(l)) + " input " +
                           to_string(symbolic(IntSpan(k.input)));
        Tensor x = laid_out(k.input, d, l), w = laid_out(k.weight, d, l), b = filled({k.weight[0]}, d);
        SymInt stride[] = {k.stride, k.stride}, padding[] = {k.padding, k.padding},
               dilation[] = {k.dilation, k.dilation};
        check("conv2d",
              {x, w, k.bias ? op::Value(b) : op::Value(), SymSpan(stride), SymSpan(padding),
               SymSpan(dilation), k.groups},
              what);
        auto& o = op::get("conv2d");
        auto args =
            arguments(o, {x, w, op::Value(), SymSpan(stride), SymSpan(padding), SymSpan(dilation), k.groups});
        Dims out = o.shaped()->shape(op::Call(o, args))[0];
        auto sizes = concrete(out);
        Tensor g = laid_out({sizes.begin(), sizes.end()}, d, l);
        check("convolution_backward_input",
              {g, w, x.sizes(), SymSpan(stride), SymSpan(padding), SymSpan(dilation), k.groups}, what);
        check("convolution_backward_weight",
              {g, x, w.sizes(), SymSpan(stride), SymSpan(padding), SymSpan(dilation), k.groups}, what);
        auto [gw, gb] = convolution_backward_weight_bias(g, x, w.sizes(), SymSpan(stride), SymSpan(padding),
                                                         SymSpan(dilation), k.groups);
        expect_close(gw,
                     convolution_backward_weight(g, x, w.sizes(), SymSpan(stride), SymSpan(padding),
                                                 SymSpan(dilation), k.groups),
                     tolerance(d), what);
        if (is_differentiable(d)) expect_close(gb, to_dtype(sum(g, {0, 2, 3}), d), tolerance(d), what);
      }
}

TEST(Convolution, OfNothing) {
  Tensor x = zeros({0, 3, 5, 5}), w = ones({4, 3, 3, 3});
  EXPECT_EQ(to_string(conv2d(x, w).sizes()), "[0, 4, 3, 3]");
  EXPECT_EQ(
      sum(convolution_backward_weight(zeros({0, 4, 3, 3}), x, w.sizes(), 1, 0, 1, 1)).item().to_double(), 0);
}

TEST(Convolution, UnbatchedOneDimensionalAndSame) {
  Tensor x = filled({3, 8, 8}, DType::Float32), w = filled({4, 3, 3, 3}, DType::Float32);
  expect_close(conv2d(x, w), select(conv2d(unsqueeze(x, 0), w), 0, int64_t(0)), 1e-6, "unbatched");
  expect_close(conv2d(x, w, nullopt, 1, "same"), conv2d(x, w, nullopt, 1, 1), 1e-6, "same");
  Tensor even = filled({4, 3, 2, 2}, DType::Float32);
  EXPECT_EQ(to_string(conv2d(x, even, nullopt, 1, "same").sizes()), "[4, 8, 8]");
  Tensor line = filled({2, 3, 9}, DType::Float32), k = filled({5, 3, 3}, DType::Float32);
  expect_close(conv1d(line, k, nullopt, 2, 1),
               select(conv2d(unsqueeze(line, 2), unsqueeze(k, 2), nullopt, Sizes{1, 2}, Sizes{0, 1}), 2,
                      int64_t(0)),
               1e-6, "conv1d");
}

TEST(Sort, AgreesWithTheReference) {
  for (DType d : {DType::Float32, DType::Float64, DType::Float16, DType::BFloat16, DType::Int8, DType::UInt8,
                  DType::Int16, DType::Int32, DType::Int64})
    for (bool descending : {false, true}) {
      check("sort", {filled({37}, d), int64_t(-1), descending}, name(d));
      check("sort", {laid_out({2, 70}, d, Layout::transposed), int64_t(1), descending}, name(d));
      check("sort", {laid_out({3, 9, 4}, d, Layout::strided), int64_t(1), descending}, name(d));
      check("sort", {filled({}, d), int64_t(-1), descending}, name(d));
      check("sort", {filled({0, 3}, d), int64_t(0), descending}, name(d));
      check("topk", {filled({4, 20}, d), int64_t(5), int64_t(1), descending}, name(d));
      check("topk", {filled({20, 2}, d), int64_t(20), int64_t(0), descending}, name(d));
      check("topk", {filled({20, 2}, d), int64_t(0), int64_t(0), descending}, name(d));
    }
  check("sort", {to_dtype(filled({50}, DType::Int8), DType::Bool), int64_t(-1), false}, "bool");
}

TEST(Sort, PutsNaNLastAndKeepsTheOrderOfEquals) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (DType d : {DType::Float32, DType::Float64, DType::Float16, DType::BFloat16}) {
    Tensor x = Tensor::empty(IntSpan(Ints{70}), d);
    const double values[] = {0.0, -0.0, nan, inf, -inf, 1.5, -1.5, -nan};
    for (int64_t i = 0; i < 70; ++i) Scalar(values[engine() % 8]).store(d, x.data<char>() + i * itemsize(d));
    for (bool descending : {false, true}) check("sort", {x, int64_t(-1), descending}, name(d));
  }
}

TEST(Sort, LargeLinesAreStable) {
  for (DType d : {DType::Int64, DType::Int32, DType::Float32}) {
    Tensor x = filled({100000}, d);
    if (d == DType::Float32) x = floor(x);
    auto [values, indices] = sort(x);
    auto* at = indices.data<int64_t>();
    Tensor taken = index_select(x, 0, indices);
    EXPECT_TRUE(all(eq(taken, values)).item().to_bool());
    for (int64_t i = 1; i < 100000; ++i) {
      auto v = [&](int64_t k) { return Scalar::load(d, values.data<char>() + k * itemsize(d)).to_double(); };
      ASSERT_TRUE(v(i - 1) < v(i) || (v(i - 1) == v(i) && at[i - 1] < at[i])) << i;
    }
  }
}

TEST(Sort, MedianAndRank) {
  Tensor x = filled({5, 8}, DType::Float64);
  Tensor sorted = std::get<0>(sort(x, 1));
  expect_close(std::get<0>(median(x, 1)), select(sorted, 1, int64_t(3)), 0, "median");
  expect_close(std::get<0>(kthvalue(x, int64_t(8), 1)), select(sorted, 1, int64_t(7)), 0, "kthvalue");
  expect_close(std::get<0>(kthvalue(x, int64_t(2), 1, true)), narrow(sorted, 1, int64_t(1), int64_t(1)), 0,
               "kthvalue keepdim");
}

TEST(Nonzero, FindsPositionsInOrder) {
  for (auto sizes : {std::vector<int64_t>{}, {0}, {7}, {5, 9}, {3, 0}, {40, 50, 60}, {100000}}) {
    for (DType d : {DType::Bool, DType::Float32, DType::Float16, DType::Complex64, DType::Int64}) {
      Tensor x = filled(sizes, d);
      if (d != DType::Int64 && d != DType::Bool)
        x = mul(x, to_dtype(filled(sizes, DType::Int8), DType::Bool));
      Tensor at = nonzero(x);
      Tensor plain = contiguous(x);
      std::vector<int64_t> expected;
      int64_t count = 0;
      for (int64_t i = 0; i < plain.numel().concrete(); ++i) {
        if (Scalar::load(d, plain.data<char>() + i * itemsize(d)).to_complex() == 0.0) continue;
        ++count;
        std::vector<int64_t> where;
        int64_t rest = i;
        for (size_t k = sizes.size(); k-- > 0;) {
          where.insert(where.begin(), rest % sizes[k]);
          rest /= sizes[k];
        }
        expected.insert(expected.end(), where.begin(), where.end());
      }
      ASSERT_EQ(to_string(at.sizes()),
                to_string(SymSpan(Dims{SymInt(count), SymInt(int64_t(sizes.size()))})));
      for (size_t i = 0; i < expected.size(); ++i) ASSERT_EQ(at.data<int64_t>()[i], expected[i]);
    }
  }
}

TEST(Cat, JoinsEveryLayout) {
  for (DType d : {DType::Float32, DType::Int8, DType::Complex128})
    for (int dim = 0; dim < 3; ++dim) {
      std::vector<int64_t> a{3, 4, 5}, b{3, 4, 5}, none{3, 4, 5};
      b[size_t(dim)] = 2;
      none[size_t(dim)] = 0;
      Tensor x = laid_out(a, d, Layout::transposed), y = laid_out(b, d, Layout::strided), z = filled(b, d);
      Tensor joined = cat({x, y, filled(none, d), filled({0}, d), z}, dim);
      int64_t n = a[size_t(dim)];
      expect_close(narrow(joined, dim, int64_t(0), n), x, 0, "first");
      expect_close(narrow(joined, dim, n, int64_t(2)), y, 0, "second");
      expect_close(narrow(joined, dim, n + 2, int64_t(2)), z, 0, "third");
    }
  EXPECT_EQ(cat({ones({2}, DType::Int32), ones({2}, DType::Float32)}, 0).dtype(), DType::Float32);
}

TEST(LinearAlgebra, SolvesInvertsAndFactors) {
  for (DType d : {DType::Float32, DType::Float64, DType::Complex64, DType::Complex128})
    for (auto batch : {std::vector<int64_t>{}, {3}, {2, 2}, {0}})
      for (int64_t n : {int64_t(1), int64_t(4), int64_t(50)}) {
        auto sizes = batch, wide = batch;
        sizes.insert(sizes.end(), {n, n});
        wide.insert(wide.end(), {n, 3});
        std::string what = std::string(name(d)) + " " + to_string(symbolic(IntSpan(sizes)));
        Tensor a = add(transpose(filled(sizes, d), -1, -2), mul(eye(n, nullopt, d), double(n))),
               b = filled(wide, d),
               one = expand(eye(n, nullopt, d), IntSpan(sizes).empty() ? Sizes() : Sizes(sizes));
        double eps = tolerance(d) * double(n);
        expect_close(matmul(a, linalg_solve(a, b)), b, eps, "solve " + what);
        expect_close(matmul(a, linalg_inv(a)), one, eps, "inv " + what);
        expect_close(matmul(linalg_solve(a, transpose(b, -1, -2), false), a), transpose(b, -1, -2), eps,
                     "solve from the right " + what);
        Tensor h = is_complex(d) ? conj_physical(transpose(a, -1, -2)) : transpose(a, -1, -2),
               definite = matmul(a, h);
        Tensor l = linalg_cholesky(definite);
        expect_close(matmul(l, is_complex(d) ? conj_physical(transpose(l, -1, -2)) : transpose(l, -1, -2)),
                     definite, eps, "cholesky " + what);
        expect_close(matmul(l, linalg_solve_triangular(l, b, false)), b, eps * 10, "triangular " + what);
        Tensor u = linalg_cholesky(definite, true);
        expect_close(matmul(u, linalg_solve_triangular(u, b, true)), b, eps * 10, "upper triangular " + what);
        if (n <= 4) {
          auto [sign, log_size] = linalg_slogdet(a);
          expect_close(mul(sign, exp(log_size)), linalg_det(a), eps, "slogdet " + what);
          expect_close(linalg_det(matmul(a, a)), mul(linalg_det(a), linalg_det(a)), eps, "det " + what);
        }
      }
}

TEST(LinearAlgebra, DeterminantOfASingularMatrixHasItsGradient) {
  Tensor a = Tensor::empty(IntSpan(Ints{2, 2}), DType::Float64);
  const double values[] = {1, 2, 2, 4};
  std::copy(values, values + 4, a.data<double>());
  autograd::set_requires_grad(a, true);
  Tensor y = linalg_det(a);
  Tensor g = autograd::grad(std::span(&y, 1), std::span(&a, 1), {}, false, false, false)[0];
  const double cofactors[] = {4, -2, -2, 1};
  for (int k = 0; k < 4; ++k) EXPECT_NEAR(g.data<double>()[k], cofactors[k], 1e-7);
}

TEST(Fourier, IsItsDefinition) {
  using C = std::complex<double>;
  for (int64_t n : {1, 2, 3, 8, 13, 30}) {
    Tensor x = filled({n}, DType::Complex128), y = fft_fft(x);
    for (int64_t k = 0; k < n; ++k) {
      C sum = 0;
      for (int64_t j = 0; j < n; ++j)
        sum += x.data<C>()[j] * std::polar(1.0, -2 * std::numbers::pi * double(j * k % n) / double(n));
      EXPECT_NEAR(std::abs(y.data<C>()[k] - sum), 0, 1e-12);
    }
    expect_close(fft_ifft(y), x, 1e-13, "inverse");
    Tensor r = filled({n}, DType::Float64), half = fft_rfft(r);
    expect_close(half, narrow(fft_fft(r), 0, int64_t(0), n / 2 + 1), 1e-13, "rfft");
    expect_close(fft_irfft(half, SymInt(n)), r, 1e-13, "irfft");
  }
}

TEST(Fourier, OverDimensionsNormsAndLayouts) {
  for (DType d : {DType::Complex64, DType::Complex128}) {
    double eps = tolerance(d);
    Tensor x = laid_out({3, 8, 5, 6}, d, Layout::strided);
    expect_close(fft_fftn(x, nullopt, {1, 3}), fft_fft(fft_fft(x, nullopt, 1), nullopt, 3), eps,
                 "two dimensions");
    expect_close(fft_ifftn(fft_fftn(x, nullopt, nullopt, "ortho"), nullopt, nullopt, "ortho"), x, eps,
                 "ortho");
    expect_close(fft_ifft2(fft_fft2(x, nullopt, nullopt, "forward"), nullopt, nullopt, "forward"), x, eps,
                 "forward");
    Tensor r = laid_out({4, 7, 6}, real_of(d), Layout::transposed);
    expect_close(fft_irfftn(fft_rfftn(r, nullopt, {0, 1}), {4, 7}, {0, 1}), r, eps, "real");
    expect_close(fft_fft(r, SymInt(int64_t(9)), 1), fft_fft(constant_pad_nd(r, {0, 0, 0, 2}, 0), nullopt, 1),
                 eps, "padded");
    expect_close(fft_ifftshift(fft_fftshift(r)), r, 0, "shift");
  }
}

// Gradients for real and complex operands: d Re<w, f(x)> by central differences in each component.
namespace {
using Function = std::function<Tensor(const std::vector<Tensor>&)>;
void check_gradients(const std::string& what, const Function& f, const std::vector<Tensor>& inputs) {
  Tensor y, w;
  {
    autograd::GradMode off(false);
    y = f(inputs);
    auto sizes = y.int_sizes();
    w = filled({sizes.begin(), sizes.end()}, y.dtype());
  }
  auto value = [&] {
    autograd::GradMode off(false);
    Tensor p = mul(is_complex(w.dtype()) ? conj_physical(w) : w, f(inputs));
    return sum(p).item().to_complex().real();
  };
  for (auto& x : inputs) autograd::set_requires_grad(x, true);
  y = f(inputs);
  auto gradients = autograd::grad(std::span(&y, 1), inputs, std::span(&w, 1), false, false, false);
  for (auto& x : inputs) autograd::set_requires_grad(x, false);
  for (size_t k = 0; k < inputs.size(); ++k) {
    auto& x = inputs[k];
    Tensor g = contiguous(gradients[k]);
    ASSERT_EQ(g.dtype(), x.dtype()) << what;
    int parts = is_complex(x.dtype()) ? 2 : 1;
    for (int64_t i = 0; i < x.numel().concrete() * parts; ++i) {
      double &at = x.data<double>()[i], kept = at, h = 1e-6;
      at = kept + h;
      double above = value();
      at = kept - h;
      double below = value();
      at = kept;
      double numeric = (above - below) / (2 * h);
      ASSERT_NEAR(g.data<double>()[i], numeric, 1e-6 * (1 + std::abs(numeric)))
          << what << ": input " << k << ", component " << i;
    }
  }
}
}  // namespace

TEST(Gradients, OfRealAndComplexOperands) {
  for (DType d : {DType::Float64, DType::Complex128}) {
    auto t = [&](std::vector<int64_t> s) { return filled(s, d); };
    auto adjoint = [](const Tensor& x) {
      Tensor y = transpose(x, -1, -2);
      return is_complex(x.dtype()) ? conj_physical(y) : y;
    };
    auto safe = [&](const Tensor& x) { return add(x, mul(eye(x.size(-1), nullopt, x.dtype()), 5.0)); };
    auto on = [&](const char* what, std::vector<Tensor> inputs, Function f) {
      check_gradients(std::string(what) + " " + name(d), f, inputs);
    };
    on("mm", {t({3, 4}), t({4, 2})}, [](auto& x) { return mm(x[0], x[1]); });
    on("matmul", {t({2, 1, 3, 4}), t({3, 4, 2})}, [](auto& x) { return matmul(x[0], x[1]); });
    on("addmm", {t({3}), t({2, 4}), t({4, 3})}, [](auto& x) { return addmm(x[0], x[1], x[2], 2.0, 3.0); });
    on("linear", {t({2, 2, 4}), t({3, 4}), t({3})}, [](auto& x) { return linear(x[0], x[1], x[2]); });
    on("einsum", {t({2, 3}), t({3, 2, 2})}, [](auto& x) { return einsum("ij,jkl->kl", {x[0], x[1]}); });
    on("conv2d", {t({1, 2, 4, 4}), t({4, 1, 2, 2}), t({4})},
       [](auto& x) { return conv2d(x[0], x[1], x[2], 2, 1, 1, 2); });
    on("solve", {t({3, 3}), t({2, 3, 2})}, [&](auto& x) { return linalg_solve(safe(x[0]), x[1]); });
    on("inv", {t({2, 3, 3})}, [&](auto& x) { return linalg_inv(safe(x[0])); });
    on("det", {t({2, 3, 3})}, [&](auto& x) { return linalg_det(x[0]); });
    on("cofactor", {t({3, 3})}, [&](auto& x) { return _linalg_cofactor(safe(x[0])); });
    on("slogdet", {t({3, 3})}, [&](auto& x) {
      auto [s, l] = linalg_slogdet(safe(x[0]));
      return mul(s, l);
    });
    on("cholesky", {t({3, 3})}, [&](auto& x) { return linalg_cholesky(safe(matmul(x[0], adjoint(x[0])))); });
    on("upper cholesky", {t({3, 3})},
       [&](auto& x) { return linalg_cholesky(safe(matmul(x[0], adjoint(x[0]))), true); });
    on("triangular", {t({3, 3}), t({3, 2})},
       [&](auto& x) { return linalg_solve_triangular(safe(x[0]), x[1], true); });
    on("fft", {t({2, 5})}, [](auto& x) { return fft_fft(x[0], SymInt(int64_t(7)), 1, "ortho"); });
    on("ifftn", {t({3, 4})}, [](auto& x) { return fft_ifftn(x[0]); });
    for (int64_t n : {5, 6}) on("irfft", {t({2, 4})}, [n](auto& x) { return fft_irfft(x[0], SymInt(n)); });
    if (d == DType::Float64)
      for (int64_t n : {5, 6}) on("rfft", {t({2, n})}, [](auto& x) { return fft_rfft(x[0]); });
  }
}

TEST(Backend, DescribesItself) {
  std::string text = device::backend_of(DeviceType::cpu).describe();
  for (auto* part : {"oneDNN 3.", "OpenBLAS", "threads"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(Backend, GivesTheSameBitsOnEveryRun) {
  Tensor a = filled({130, 257}, DType::Float32), b = filled({257, 90}, DType::Float32),
         x = filled({8, 16, 14, 14}, DType::Float32), w = filled({32, 16, 3, 3}, DType::Float32);
  Tensor first = mm(a, b), image = conv2d(x, w);
  for (int k = 0; k < 5; ++k) {
    EXPECT_TRUE(all(eq(mm(a, b), first)).item().to_bool());
    EXPECT_TRUE(all(eq(conv2d(x, w), image)).item().to_bool());
  }
}

TEST(Factories, TakeRequiresGradAndRefuseADeviceThatNothingServes) {
  EXPECT_TRUE(facula::zeros({2}, DType::Float32, std::nullopt, true).requires_grad());
  EXPECT_FALSE(facula::zeros({2}).requires_grad());
  EXPECT_THROW(facula::zeros({2}, std::nullopt, parse_device("cuda")), facula::Error);
}
