// Transposed definitions against central differences, both through the interpreter.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "facula/loop/definition.h"
#include "facula/loop/interpret.h"

using namespace facula;
using namespace facula::loop;

namespace {

constexpr DType kF64 = DType::Float64;

Expr at(int slot, std::vector<Expr> i) { return load(slot, kF64, std::move(i)); }
Expr i(int k) { return index(k); }
Expr n(int64_t v) { return constant(v, DType::Int64); }
BoundVar over(int v, int64_t extent) { return {v, n(extent)}; }

Tensor random_tensor(IntSpan sizes, uint32_t seed, DType d = kF64) {
  std::mt19937 rng(seed);
  std::uniform_real_distribution<double> u(-1, 1);
  Tensor t = Tensor::empty(sizes, d);
  int64_t count = t.numel().concrete() * (is_complex(d) ? 2 : 1);
  for (int64_t k = 0; k < count; ++k) static_cast<double*>(t.data_ptr())[k] = u(rng);
  return t;
}
Tensor integers(std::vector<int64_t> v) {
  Tensor t = Tensor::empty(Ints{int64_t(v.size())}, DType::Int64);
  std::copy(v.begin(), v.end(), t.data<int64_t>());
  return t;
}
std::span<double> reals(const Tensor& t) {
  return {static_cast<double*>(t.data_ptr()), size_t(t.numel().concrete() * (is_complex(t.dtype()) ? 2 : 1))};
}

Tensor run(const Definition& d, const std::vector<Tensor>& operands, SymSpan sizes, DType dtype) {
  Dims s[] = {Dims(sizes)};
  DType t[] = {dtype};
  Definition one = d;
  return interpret(one, operands, s, t)[0];
}

// The gradient of <cotangent, result 0> for operand `slot`: as derived, and by differences. Every real number
// is one variable, so complex gradients are checked in PyTorch's convention (d/d re + i d/d im).
void check(const Definition& d, std::vector<Tensor> operands, Dims sizes, int slot, bool wants_gather,
           DType result = kF64) {
  for (auto& v : d.values) {
    std::vector<int> axes;
    for (int k = 0; k < d.rank; ++k) axes.push_back(k);
    verify(v, axes);
  }
  Tensor cotangent = random_tensor(concrete(sizes), 99, result);
  Tensor& x = operands[size_t(slot)];
  auto definitions = transpose(d, 0, sizes, result, int(operands.size()), slot, x.sizes());
  for (auto& t : definitions)
    EXPECT_EQ(!t.scatter, wants_gather) << (t.scatter ? "scatter" : print(t.values[0]));
  auto with = operands;
  with.push_back(cotangent);
  std::vector<double> derived(reals(x).size(), 0.0);
  for (auto& t : definitions) {
    Tensor g = run(t, with, x.sizes(), x.dtype());
    for (size_t k = 0; k < derived.size(); ++k) derived[k] += reals(g)[k];
  }
  auto objective = [&] {
    Tensor y = run(d, operands, sizes, result);
    double s = 0;
    for (size_t k = 0; k < reals(y).size(); ++k) s += reals(y)[k] * reals(cotangent)[k];
    return s;
  };
  for (size_t k = 0; k < derived.size(); ++k) {
    double& v = reals(x)[k];
    double keep = v, h = 1e-6;
    v = keep + h;
    double up = objective();
    v = keep - h;
    double down = objective();
    v = keep;
    EXPECT_NEAR(derived[k], (up - down) / (2 * h), 2e-7) << "element " << k << " of operand " << slot;
  }
}

Definition gather(int rank, Expr value) {
  Definition d;
  d.rank = rank;
  d.values = {value};
  return d;
}

}  // namespace

TEST(LoopTranspose, PointwiseStaysPointwise) {
  auto d = gather(2, at(0, {i(0), i(1)}) * exp(at(1, {i(0), i(1)})));
  for (int slot : {0, 1})
    check(d, {random_tensor(Ints{3, 4}, 1), random_tensor(Ints{3, 4}, 2)}, {3, 4}, slot, true);
}

TEST(LoopTranspose, PlainAccessNeedsNoConditions) {
  auto d = gather(2, at(0, {i(1), i(0)}) * 2.0);
  Dims sizes{3, 4}, from{4, 3};
  auto t = transpose(d, 0, sizes, kF64, 1, 0, from);
  ASSERT_EQ(t.size(), 1u);
  EXPECT_EQ(print(t[0].values[0]), "mul(load[1:float64](i1, i0), 2:float64)");
}

TEST(LoopTranspose, BroadcastBecomesReduction) {
  auto d = gather(2, tanh(at(0, {i(1)})) * at(1, {i(0), i(1)}));
  check(d, {random_tensor(Ints{4}, 1), random_tensor(Ints{3, 4}, 2)}, {3, 4}, 0, true);
  check(gather(2, at(0, {n(0), i(1)}) * at(1, {i(0), i(1)})),
        {random_tensor(Ints{1, 4}, 1), random_tensor(Ints{3, 4}, 2)}, {3, 4}, 0, true);
  check(gather(2, exp(at(0, {})) * at(1, {i(0), i(1)})),
        {random_tensor(Ints{}, 1), random_tensor(Ints{3, 4}, 2)}, {3, 4}, 0, true);
}

TEST(LoopTranspose, SlicesFlipsAndSelectionsStayGathers) {
  check(gather(1, at(0, {i(0) + 2})), {random_tensor(Ints{7}, 1)}, {4}, 0, true);
  check(gather(1, at(0, {i(0) * 3 + 1})), {random_tensor(Ints{9}, 1)}, {3}, 0, true);
  check(gather(1, at(0, {n(6) - i(0)})), {random_tensor(Ints{7}, 1)}, {7}, 0, true);
  check(gather(1, at(0, {n(6) - i(0) * 2})), {random_tensor(Ints{7}, 1)}, {4}, 0, true);
  check(gather(1, at(0, {i(0), n(2)})), {random_tensor(Ints{3, 4}, 1)}, {3}, 0, true);
  check(gather(1, at(0, {i(0), i(0)})), {random_tensor(Ints{3, 4}, 1)}, {3}, 0, true);
}

TEST(LoopTranspose, PiecesBehindSelectsGetTheirOwnPart) {  // cat, constant padding
  Expr c = i(0) < 3;
  auto d = gather(1, select(c, at(0, {i(0)}), at(1, {i(0) - 3})));
  for (int slot : {0, 1}) check(d, {random_tensor(Ints{3}, 1), random_tensor(Ints{5}, 2)}, {8}, slot, true);
  Expr inside = (i(0) >= 2) & (i(0) < 6);
  check(gather(1, select(inside, at(0, {i(0) - 2}), 0.0)), {random_tensor(Ints{4}, 1)}, {9}, 0, true);
}

TEST(LoopTranspose, SumsAndProductsOfMatrices) {
  check(gather(1, reduce(monoid::sum, {over(64, 4)}, {at(0, {i(0), i(64)})})), {random_tensor(Ints{3, 4}, 1)},
        {3}, 0, true);
  auto mm = gather(2, reduce(monoid::sum, {over(64, 4)}, {at(0, {i(0), i(64)}) * at(1, {i(64), i(1)})}));
  for (int slot : {0, 1})
    check(mm, {random_tensor(Ints{3, 4}, 1), random_tensor(Ints{4, 2}, 2)}, {3, 2}, slot, true);
}

TEST(LoopTranspose, FunctionsOfReductions) {  // softmax: the reductions nest and share a variable
  auto x = [](int v) { return at(0, {i(0), i(v)}); };
  Expr m = reduce(monoid::max, {over(64, 4)}, {x(64)});
  Expr s = reduce(monoid::sum, {over(64, 4)}, {exp(x(64) - m)});
  check(gather(2, exp(at(0, {i(0), i(1)}) - m) / s), {random_tensor(Ints{3, 4}, 1)}, {3, 4}, 0, true);
}

TEST(LoopTranspose, WelfordGivesTheGradientOfMeanAndVariance) {
  Expr w = reduce(monoid::welford, {over(64, 5)}, {at(0, {i(0), i(64)})});
  check(gather(1, part(w, 0) * 3.0 + sqrt(part(w, 1) / part(w, 2))), {random_tensor(Ints{3, 5}, 1)}, {3}, 0,
        true);
}

TEST(LoopTranspose, ExtremaSpreadEvenlyOverTies) {
  Tensor x = random_tensor(Ints{3, 5}, 1);
  check(gather(1, reduce(monoid::min, {over(64, 5)}, {at(0, {i(0), i(64)})})), {x}, {3}, 0, true);
  check(gather(1, part(reduce(monoid::argmax, {over(64, 5)}, {at(0, {i(0), i(64)}), i(64)}), 0)), {x}, {3}, 0,
        true);

  Tensor tied = Tensor::empty(Ints{3}, kF64), one = Tensor::scalar(1.0, kF64);
  std::copy_n(std::array{1.0, 3.0, 3.0}.data(), 3, tied.data<double>());
  auto t = transpose(gather(0, reduce(monoid::max, {over(64, 3)}, {at(0, {i(64)})})), 0, {}, kF64, 1, 0,
                     tied.sizes());
  Tensor g = run(t[0], {tied, one}, tied.sizes(), kF64);
  EXPECT_EQ(reals(g)[0], 0.0);
  EXPECT_EQ(reals(g)[1], 0.5);
  EXPECT_EQ(reals(g)[2], 0.5);
}

TEST(LoopTranspose, ScansAndUnderivedReductions) {
  check(gather(2, scan(monoid::sum, 1, over(64, 5), {sin(at(0, {i(0), i(64)}))})),
        {random_tensor(Ints{2, 5}, 1)}, {2, 5}, 0, true);
  Dims three{3};
  EXPECT_THROW(transpose(gather(0, reduce(monoid::prod, {over(64, 3)}, {at(0, {i(64)})})), 0, {}, kF64, 1, 0,
                         three),
               Error);
}

TEST(LoopTranspose, Windows) {  // average pool with padding, strided convolution
  Expr p = i(0) * 2 + i(64) - 1;
  Expr in = (p >= 0) & (p < 7);
  check(gather(1, reduce(monoid::sum, {over(64, 3)}, {select(in, at(0, {p}), 0.0)}) * 0.25),
        {random_tensor(Ints{7}, 1)}, {4}, 0, true);
  Expr q = i(1) * 2 + i(65) * 2;
  auto conv = gather(2, reduce(monoid::sum, {over(64, 2), over(65, 3)},
                               {at(0, {i(64), q}) * at(1, {i(0), i(64), i(65)})}));
  std::vector<Tensor> operands{random_tensor(Ints{2, 9}, 1), random_tensor(Ints{3, 2, 3}, 2)};
  for (int slot : {0, 1}) check(conv, operands, {3, 3}, slot, true);
}

TEST(LoopTranspose, ComputedIndicesBecomeScatters) {
  Expr j = loop::check(load(1, DType::Int64, {i(0)}), n(4));
  check(gather(2, exp(at(0, {j, i(1)}))), {random_tensor(Ints{4, 2}, 1), integers({2, -1, 2, 0, 2})}, {5, 2},
        0, false);
  Expr inside = i(0) > 0;  // a read that a select hides
  check(gather(1, select(inside, at(0, {floordiv(i(0) - 1, 2)}), 0.0)), {random_tensor(Ints{3}, 1)}, {7}, 0,
        false);
}

TEST(LoopTranspose, PeriodsBecomeGathers) {  // repeat, with and without a rest; neighbours on a ring
  check(gather(1, at(0, {remainder(i(0), n(4))})), {random_tensor(Ints{4}, 1)}, {12}, 0, true);
  check(gather(1, at(0, {remainder(i(0), n(4))})), {random_tensor(Ints{4}, 1)}, {10}, 0, true);
  check(gather(1, at(0, {remainder(i(0) + 1, n(4))})), {random_tensor(Ints{4}, 1)}, {10}, 0, true);
  check(gather(2, at(0, {i(0), remainder(i(1) + 2, n(3))})), {random_tensor(Ints{2, 3}, 1)}, {2, 3}, 0, true);
  check(gather(1, at(0, {remainder(i(0), n(3))})), {random_tensor(Ints{5}, 1)}, {9}, 0, true);
}

TEST(LoopTranspose, ASumOverWhatCountsOnceIsNoSum) {  // values put at one place of each row
  Expr j = load(1, DType::Int64, {i(0)});
  auto d = gather(2, select(eq(j, i(1)), at(0, {i(0)}) * 3.0, 0.0));
  check(d, {random_tensor(Ints{3}, 1), integers({2, 0, 3})}, {3, 4}, 0, true);
  check(d, {random_tensor(Ints{3}, 1), integers({2, -5, 9})}, {3, 4}, 0, true);  // those that lie nowhere
  Dims sizes{3, 4}, from{3};
  auto t = transpose(d, 0, sizes, kF64, 2, 0, from);
  ASSERT_EQ(t.size(), 1u);
  EXPECT_FALSE(t[0].values[0]->has_reduce) << print(t[0].values[0]);
}

TEST(LoopTranspose, WhatHoldsEverywhereIsNotAsked) {
  sym::Shapes shapes;
  SymInt size = shapes.fresh("n", 7);
  Dims sizes{size};
  auto only = [&](Expr value, Dims from) {
    auto t = transpose(gather(1, value), 0, sizes, kF64, 1, 0, from);
    return t.size() == 1 ? print(t[0].values[0]) : "several";
  };
  EXPECT_EQ(only(at(0, {loop::size(size) - i(0) - 1}), sizes).find("select"), std::string::npos);  // flip
  SymInt inner = size - SymInt(int64_t(3));
  Expr x = i(0) - 2, inside = (x >= 0) & (x < loop::size(inner));  // pad by 2 and 1
  EXPECT_EQ(only(select(inside, at(0, {x}), 0.0), Dims{inner}).find("select"), std::string::npos);
}

TEST(LoopTranspose, PositionsAreThoseOfTheResult) {
  Expr noise = cast(random(n(7), position()), kF64) * 0x1p-32;
  check(gather(2, at(0, {i(1)}) * noise), {random_tensor(Ints{4}, 1)}, {3, 4}, 0, true);
}

TEST(LoopTranspose, ComplexGradientsAreConjugated) {
  auto z = [](int slot, Expr k) { return load(slot, DType::Complex128, {k}); };
  std::vector<Tensor> operands{random_tensor(Ints{4}, 1, DType::Complex128),
                               random_tensor(Ints{4}, 2, DType::Complex128)};
  auto d = gather(1, z(0, i(0)) * exp(z(1, i(0))) /
                         (z(0, i(0)) + constant(std::complex<double>(2, 1), DType::Complex128)));
  for (int slot : {0, 1}) check(d, operands, {4}, slot, true, DType::Complex128);
  check(gather(1, abs(z(0, i(0))) + imag(z(0, i(0))) * real(z(1, i(0)))), operands, {4}, 0, true);
}

TEST(LoopTranspose, ScattersGiveGradientsToBaseAndValues) {
  for (auto combine : {Scatter::Combine::sum, Scatter::Combine::assign}) {
    Definition d;
    d.rank = 1;
    Scatter s;
    s.combine = combine;
    s.base = 0;
    s.domain = {3};
    s.target = {loop::check(load(2, DType::Int64, {i(0)}), n(5))};
    s.value = sin(at(1, {i(0)}));
    d.scatter = s;
    std::vector<Tensor> operands{random_tensor(Ints{5}, 1), random_tensor(Ints{3}, 2), integers({4, 1, 3})};
    check(d, operands, {5}, 0, combine == Scatter::Combine::sum);
    check(d, operands, {5}, 1, true);
  }
}

TEST(LoopTranspose, EmptyOperandsHaveEmptyGradients) {
  check(gather(2, at(0, {i(0), i(1)}) * 2.0), {random_tensor(Ints{0, 4}, 1)}, {0, 4}, 0, true);
  check(gather(1, reduce(monoid::sum, {over(64, 0)}, {at(0, {i(0), i(64)})})), {random_tensor(Ints{3, 0}, 1)},
        {3}, 0, true);
}
