// The tape on a small catalog, run by the interpreter.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "facula/autograd/function.h"
#include "interpreted.h"

using namespace facula;
using namespace facula::test;
using namespace facula::autograd;

// graph/ finds what a .vjp rule reads; here, everything.
facula::autograd::Reads facula::autograd::probe(const op::Call& c, const Flags& wanted, size_t results) {
  (void)c;
  return {std::vector<bool>(wanted.size(), true), std::vector<bool>(results, true), nullptr};
}

namespace {

class Tape : public testing::Test {
 protected:
  void SetUp() override { define_small_catalog(); }
};

Tensor add(const Tensor& a, const Tensor& b) { return call("add", {a, b}); }
Tensor mul(const Tensor& a, const Tensor& b) { return call("mul", {a, b}); }
Tensor sum(const Tensor& a) { return call("sum", {a}); }
void back(const Tensor& t, bool retain = false, bool create = false) {
  backward({&t, 1}, {}, retain, create);
}
std::vector<double> grad_values(const Tensor& t) { return values_of(grad_of(t)); }
using V = std::vector<double>;

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) { return e.what(); }
  return "no error";
}
bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

TEST_F(Tape, GradientsOfAProductReachBothFactors) {
  Tensor a = leaf({1, 2, 3}, {3}), b = leaf({4, 5, 6}, {3});
  back(sum(mul(a, b)));
  EXPECT_EQ(grad_values(a), (V{4, 5, 6}));
  EXPECT_EQ(grad_values(b), (V{1, 2, 3}));
}

TEST_F(Tape, GradientsAccumulateOverUsesAndCalls) {
  Tensor a = leaf({1, 2}, {2});
  back(sum(add(mul(a, a), a)));
  EXPECT_EQ(grad_values(a), (V{3, 5}));
  Tensor first = grad_of(a);
  back(sum(a));
  EXPECT_EQ(grad_values(a), (V{4, 6}));
  EXPECT_TRUE(grad_of(a).is_same(first)) << "gradients are summed in place";
}

TEST_F(Tape, BroadcastOperandsGetGradientsOfTheirShape) {
  Tensor a = leaf({1, 2, 3, 4, 5, 6}, {2, 3}), b = leaf({1, 10, 100}, {3}), c = leaf({2}, {});
  back(sum(mul(mul(a, b), c)));
  EXPECT_EQ(grad_values(b), (V{10, 14, 18}));
  EXPECT_EQ(grad_of(b).dim(), 1);
  EXPECT_EQ(grad_values(c), (V{5 + 70 + 900}));
  EXPECT_EQ(grad_of(c).dim(), 0);
}

TEST_F(Tape, HigherDerivativesComeFromTheSameFormulas) {
  Tensor x = leaf({0.3, -0.7}, {2});
  Tensor y = sum(call("sin", {call("exp", {x})}));
  auto d = [&](const Tensor& of) { return grad({&of, 1}, {&x, 1}, {}, true, true, false)[0]; };
  Tensor first = d(y), second = d(sum(first)), third = d(sum(second));
  for (int k = 0; k < 2; ++k) {
    double e = std::exp(values_of(x)[size_t(k)]);
    EXPECT_NEAR(values_of(first)[size_t(k)], std::cos(e) * e, 1e-14);
    EXPECT_NEAR(values_of(second)[size_t(k)], std::cos(e) * e - std::sin(e) * e * e, 1e-14);
    EXPECT_NEAR(values_of(third)[size_t(k)],
                std::cos(e) * e - 3 * std::sin(e) * e * e - std::cos(e) * e * e * e, 1e-13);
  }
}

TEST_F(Tape, LoopsAreTransposed) {
  Tensor a = leaf({1, 2, 3, 4, 5, 6}, {2, 3}), b = leaf({1, 0, 2, 1, 0, 3}, {3, 2});
  back(sum(mul(call("mm", {a, b}), make({1, 2, 3, 4}, {2, 2}))));
  EXPECT_EQ(grad_values(a), (V{1, 4, 6, 3, 10, 12}));
  EXPECT_EQ(grad_values(b), (V{13, 18, 17, 24, 21, 30}));
  Tensor t = leaf({1, 2, 3, 4, 5, 6}, {3, 2}), index = make({2, 0, 2}, {3}, DType::Int64);
  back(sum(mul(call("gather_rows", {t, index}), make({1, 2, 3, 4, 5, 6}, {3, 2}))));
  EXPECT_EQ(grad_values(t), (V{3, 4, 0, 0, 6, 8}));
}

TEST_F(Tape, SecondDerivativesGoThroughTransposedLoops) {
  Tensor a = leaf({1, 2, 3, 4}, {2, 2}), b = leaf({1, 1, 2, 3}, {2, 2});
  Tensor y = sum(mul(call("mm", {a, b}), call("mm", {a, b})));
  Tensor g = grad({&y, 1}, {&a, 1}, {}, true, true, false)[0];
  back(sum(g), true);
  // y = |ab|^2: dy/da = 2 ab b^T, and the gradient of its sum is 2 ones b b^T.
  EXPECT_EQ(values_of(g), (V{24, 62, 52, 134}));
  EXPECT_EQ(grad_values(a), (V{2 * (2 + 5), 2 * (5 + 13), 2 * (2 + 5), 2 * (5 + 13)}));
}

TEST_F(Tape, RulesOfDefinitionsAreUsed) {
  Tensor x = leaf({2, -1}, {2});
  back(sum(call("cube", {x})));
  EXPECT_EQ(grad_values(x), (V{12, 3}));
}

TEST_F(Tape, StepFunctionsGiveZeros) {
  Tensor x = leaf({1.5}, {1});
  back(sum(call("floor", {x})));
  EXPECT_EQ(grad_values(x), (V{0}));
}

TEST_F(Tape, GradientsHaveTheDtypeOfTheirTensor) {
  Tensor x = leaf({1, 2}, {2}, DType::Float32), y = leaf({3, 4}, {2}, DType::Float64);
  back(sum(mul(x, y)));
  EXPECT_EQ(grad_of(x).dtype(), DType::Float32);
  EXPECT_EQ(grad_of(y).dtype(), DType::Float64);
}

TEST_F(Tape, ViewsPassGradientsToTheirPlace) {
  Tensor x = leaf({1, 2, 3, 4, 5, 6}, {2, 3});
  int64_t order[] = {1, 0}, flat[] = {6}, wide[] = {2, 3};
  Tensor t = call("permute", {x, symbolic(order)});
  back(sum(mul(call("select", {t, 0, 1}), make({10, 20}, {2}))));
  EXPECT_EQ(grad_values(x), (V{0, 10, 0, 0, 20, 0}));
  set_grad(x, {});
  Tensor s = call("slice", {call("view", {x, symbolic(flat)}), 0, 1, 3, 2});
  back(sum(mul(s, make({1, 2, 3}, {3}))));
  EXPECT_EQ(grad_values(x), (V{0, 1, 0, 2, 0, 3}));
  Tensor row = leaf({1, 2, 3}, {1, 3});
  back(sum(mul(call("expand", {row, symbolic(wide)}), x)));
  EXPECT_EQ(grad_values(row), (V{5, 7, 9}));
}

TEST_F(Tape, PiecesOfASplitAreJoinedAgain) {
  Tensor x = leaf({1, 2, 3, 4}, {2, 2});
  auto rows = calls("unbind", {x});
  back(sum(mul(rows[1], make({5, 7}, {2}))));
  EXPECT_EQ(grad_values(x), (V{0, 0, 5, 7}));
}

TEST_F(Tape, InPlaceWritesRebaseTheHistory) {
  Tensor x = leaf({1, 2}, {2});
  Tensor y = mul(x, x);
  call("mul", {y, make({3, 4}, {2})}, op::Form::in_place);
  back(sum(y));
  EXPECT_EQ(grad_values(x), (V{6, 16}));
}

TEST_F(Tape, AnInPlaceProductKeepsTheOldValueItNeeds) {
  Tensor x = leaf({1, 2}, {2}), w = leaf({5, 7}, {2});
  Tensor y = mul(x, make({2, 2}, {2}));
  call("mul", {y, w}, op::Form::in_place);
  back(sum(y));
  EXPECT_EQ(grad_values(w), (V{2, 4}));
  EXPECT_EQ(grad_values(x), (V{10, 14}));
}

TEST_F(Tape, WritesThroughViewsReachTheBaseAndOtherViews) {
  Tensor x = leaf({1, 2, 3, 4}, {2, 2}), w = leaf({10, 20}, {2});
  Tensor base = call("clone", {x});
  Tensor first = call("select", {base, 0, 0}), column = call("select", {base, 1, 1});
  call("mul", {first, w}, op::Form::in_place);
  EXPECT_EQ(node_of(base)->name(), "CopySlices");
  EXPECT_EQ(node_of(first)->name(), "AsStridedBackward0");
  back(sum(mul(column, make({1, 100}, {2}))), true);
  EXPECT_EQ(grad_values(x), (V{0, 20, 0, 100}));
  EXPECT_EQ(grad_values(w), (V{0, 2}));
}

TEST_F(Tape, AViewOfAPlainTensorGainsHistoryWhenWritten) {
  Tensor w = leaf({3, 4}, {2}), base = make({1, 1, 1, 1}, {2, 2});
  Tensor a = call("select", {base, 0, 0}), b = call("select", {base, 0, 1});
  call("mul", {a, w}, op::Form::in_place);
  EXPECT_TRUE(base.requires_grad());
  EXPECT_TRUE(b.requires_grad());
  back(sum(mul(base, base)));
  EXPECT_EQ(grad_values(w), (V{6, 8}));
}

TEST_F(Tape, WritesToSavedTensorsRaiseAndNameBothOperators) {
  Tensor x = leaf({1, 2}, {2});
  Tensor y = call("exp", {x});
  call("add", {y, make({1, 1}, {2})}, op::Form::in_place);
  auto text = message_of([&] { back(sum(y)); });
  EXPECT_TRUE(contains(text, "modified by an inplace operation")) << text;
  EXPECT_TRUE(contains(text, "ExpBackward0") && contains(text, "add_")) << text;
}

TEST_F(Tape, InPlaceWritesToLeavesAndSplitViewsAreRefused) {
  Tensor x = leaf({1, 2}, {2});
  EXPECT_TRUE(contains(message_of([&] { call("add", {x, x}, op::Form::in_place); }),
                       "a leaf Variable that requires grad"));
  int64_t flat[] = {2};
  Tensor v = call("view", {x, symbolic(flat)});
  EXPECT_TRUE(contains(message_of([&] { call("add", {v, x}, op::Form::in_place); }),
                       "a view of a leaf Variable that requires grad"));
  auto rows = calls("unbind", {mul(x, x)});
  EXPECT_TRUE(contains(message_of([&] { call("add", {rows[0], rows[1]}, op::Form::in_place); }),
                       "returns multiple views"));
  Tensor y = mul(x, x), view;
  {
    GradMode off(false);
    view = call("view", {y, symbolic(flat)});
  }
  EXPECT_TRUE(
      contains(message_of([&] { call("mul", {view, x}, op::Form::in_place); }), "created in no_grad mode"));
  GradMode off(false);
  call("add", {x, make({1, 1}, {2})}, op::Form::in_place);
  EXPECT_EQ(values_of(x), (V{2, 3}));
}

TEST_F(Tape, AFreedGraphRaises) {
  Tensor x = leaf({1, 2}, {2});
  Tensor y = sum(mul(x, x));
  back(y, true);
  back(y);
  EXPECT_EQ(grad_values(x), (V{4, 8}));
  EXPECT_TRUE(contains(message_of([&] { back(y); }), "Trying to backward through the graph a second time"));
}

TEST_F(Tape, GradAccumulatesNowhereAndReportsUnusedInputs) {
  Tensor x = leaf({1, 2}, {2}), z = leaf({1}, {1});
  Tensor y = sum(mul(x, x));
  Tensor both[] = {x, z};
  EXPECT_TRUE(
      contains(message_of([&] { grad({&y, 1}, both, {}, true, false, false); }), "allow_unused=True"));
  auto g = grad({&y, 1}, both, {}, false, false, true);
  EXPECT_EQ(values_of(g[0]), (V{2, 4}));
  EXPECT_FALSE(g[1].defined());
  EXPECT_FALSE(grad_of(x).defined());
}

TEST_F(Tape, GradWithRespectToAnIntermediateStopsThere) {
  Tensor x = leaf({1, 2}, {2});
  Tensor h = mul(x, x), y = sum(mul(h, h));
  EXPECT_EQ(values_of(grad({&y, 1}, {&h, 1}, {}, true, false, false)[0]), (V{2, 8}));
  backward({&y, 1}, {}, true, false, {&h, 1});
  EXPECT_EQ(values_of(grad_of(h)), (V{2, 8}));
  EXPECT_FALSE(grad_of(x).defined());
}

TEST_F(Tape, RootsNeedGradientsOrOneElement) {
  Tensor x = leaf({1, 2}, {2}), plain = make({1}, {});
  Tensor y = mul(x, x);
  EXPECT_TRUE(
      contains(message_of([&] { back(y); }), "grad can be implicitly created only for scalar outputs"));
  EXPECT_TRUE(
      contains(message_of([&] { back(plain); }), "does not require grad and does not have a grad_fn"));
  Tensor g = make({1, 2, 3}, {3});
  EXPECT_TRUE(contains(message_of([&] { backward({&y, 1}, {&g, 1}, false, false); }), "Mismatch in shape"));
  g = make({1, 10}, {2});
  backward({&y, 1}, {&g, 1}, false, false);
  EXPECT_EQ(grad_values(x), (V{2, 40}));
}

TEST_F(Tape, HooksRunInOrderAndMayReplaceGradients) {
  Tensor x = leaf({1, 2}, {2});
  Tensor h = mul(x, x);
  retain_grad(h);
  std::vector<int> order;
  add_hook(h, [&](const Tensor& g) {
    order.push_back(1);
    return mul(g, make({2}, {}));
  });
  int gone = add_hook(h, [&](const Tensor&) {
    order.push_back(2);
    return Tensor();
  });
  add_hook(h, [&](const Tensor&) {
    order.push_back(3);
    return Tensor();
  });
  add_hook(x, [&](const Tensor&) {
    order.push_back(4);
    return Tensor();
  });
  add_accumulated_hook(x, [&](const Tensor& t) { order.push_back(int(grad_values(t)[0])); });
  remove_hook(h, gone);
  back(sum(h));
  EXPECT_EQ(order, (std::vector<int>{1, 3, 4, 4}));
  EXPECT_EQ(grad_values(x), (V{4, 8}));
  EXPECT_EQ(grad_values(h), (V{2, 2})) << "retain_grad sees what the hooks made";
}

TEST_F(Tape, HooksMayRunBackwardThemselves) {
  Tensor x = leaf({3}, {1}), w = leaf({2}, {1});
  Tensor y = mul(x, x);
  add_hook(y, [&](const Tensor&) {
    GradMode on(true);
    back(sum(mul(w, w)));
    return Tensor();
  });
  back(sum(y));
  EXPECT_EQ(grad_values(x), (V{6}));
  EXPECT_EQ(grad_values(w), (V{4}));
}

TEST_F(Tape, LongChainsNeitherRecurseNorLeak) {
  Tensor x = leaf({1}, {1});
  {
    Tensor y = x, one = make({1}, {1});
    for (int k = 0; k < 100000; ++k) y = add(y, one);
    y = sum(y);
    back(y, true);
  }
  EXPECT_EQ(grad_values(x), (V{1}));
  EXPECT_EQ(x.impl()->use_count(), 1u);
}

TEST_F(Tape, ThreadsMayRunBackwardAtOnce) {
  Tensor x = leaf({2}, {1});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int k = 0; k < 50; ++k) back(sum(mul(x, x)));
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(grad_values(x), (V{4 * 50 * 4}));
}

struct Scaled {
  static std::vector<Tensor> forward(Context& c, const Tensor& x, double by) {
    c.save_for_backward({x, make({by}, {})});
    return {mul(x, make({by}, {})), make({7}, {1}, DType::Int64)};
  }
  static std::vector<Tensor> backward(Context& c, std::vector<Tensor> grads) {
    auto saved = c.saved();
    return {mul(grads[0], mul(saved[1], make({10}, {})))};
  }
};

TEST_F(Tape, CustomFunctionsGiveTheirOwnGradient) {
  Tensor x = leaf({1, 2}, {2});
  auto y = run<Scaled>(x, 3.0);
  EXPECT_EQ(values_of(y[0]), (V{3, 6}));
  EXPECT_FALSE(y[1].requires_grad());
  back(sum(y[0]));
  EXPECT_EQ(grad_values(x), (V{30, 30}));
}

TEST_F(Tape, NothingIsRecordedWithoutGradMode) {
  Tensor x = leaf({1, 2}, {2});
  {
    GradMode off(false);
    EXPECT_FALSE(mul(x, x).requires_grad());
  }
  EXPECT_FALSE(detach(mul(x, x)).requires_grad());
  EXPECT_TRUE(contains(message_of([&] { set_requires_grad(make({1}, {1}, DType::Int64), true); }),
                       "floating point and complex"));
  EXPECT_TRUE(contains(message_of([&] { set_requires_grad(mul(x, x), false); }), "leaf variables"));
}

TEST_F(Tape, FormulasKeepOnlyWhatTheyRead) {
  Tensor x = make({1, 2}, {2}), y = make({3, 4}, {2});
  auto reads = [](std::string_view name, std::vector<op::Value> args, facula::autograd::Flags wanted) {
    auto& o = op::get(name);
    args.resize(o.schema.parameters.size());
    return formula_of(op::Call(o, args), wanted, {DType::Float64});
  };
  EXPECT_EQ(reads("add", {x, y}, {true, true})->reads, (std::vector<bool>{false, false}));
  EXPECT_EQ(reads("mul", {x, y}, {true, false})->reads, (std::vector<bool>{false, true}));
  auto e = reads("exp", {x}, {true});
  EXPECT_EQ(e->reads, (std::vector<bool>{false}));
  EXPECT_EQ(e->reads_result, (std::vector<bool>{true}));
  EXPECT_EQ(reads("sum", {x}, {true})->reads, (std::vector<bool>{false}));
}

TEST_F(Tape, DerivedGradientsHaveNamesThatSayWhatTheyFollowFrom) {
  auto derived = [](std::string_view name, std::vector<op::Value> args, facula::autograd::Flags wanted) {
    auto& o = op::get(name);
    args.resize(o.schema.parameters.size());
    auto f = formula_of(op::Call(o, args), wanted, {DType::Float64});
    return f->derived ? f->derived : f->pieces.at(0).derived;
  };
  Tensor x = make({1, 2}, {2}), y = make({3, 4}, {2}), m = make({1, 2, 3, 4}, {2, 2}),
         n = make({1, 2}, {1, 2});
  auto* both = derived("mul", {x, y}, {true, true});
  EXPECT_EQ(both->schema.full_name(),
            "mul_backward.self=float64[_], other=float64[_] -> grad_self grad_other, float64");
  EXPECT_EQ(op::find(both->schema.full_name()), both);
  EXPECT_NE(derived("mul", {x, y}, {true, false}), both);
  EXPECT_NE(derived("mul", {m, m}, {true, true}), both);
  auto* rows = derived("sum", {m, SymSpan(), false}, {true});
  EXPECT_EQ(rows->schema.full_name(),
            "sum_backward.self=float64[a,a], dim=[], keepdim=False -> grad_self, 0: float64, piece 0");
  EXPECT_EQ(op::find(rows->schema.full_name()), rows);
  EXPECT_NE(derived("sum", {n, SymSpan(), false}, {true}), rows);
  EXPECT_FALSE(std::ranges::count(op::all(), both));
}

}  // namespace
