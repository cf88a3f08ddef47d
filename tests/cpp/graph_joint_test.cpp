// Joint graphs and their partition, on a small catalog run by the interpreter; the tape is the oracle.
#include <gtest/gtest.h>

#include "facula/graph/passes.h"
#include "facula/graph/trace.h"
#include "interpreted.h"

using namespace facula;
using namespace facula::test;
using namespace facula::graph;

namespace {

using Function = std::function<std::vector<Tensor>(std::span<const Tensor>)>;
using V = std::vector<double>;

Tensor mul(const Tensor& a, const Tensor& b) { return call("mul", {a, b}); }

Graph traced(const Function& f, std::span<const Tensor> inputs) {
  auto shapes = std::make_shared<sym::Shapes>();
  std::vector<InputSpec> specs;
  for (auto& t : inputs) specs.push_back(symbolic_spec(t, *shapes));
  return trace(shapes, specs, f, "function");
}

int count(const Graph& g, std::string_view op) {
  int n = 0;
  for (auto& node : g.nodes) n += node->op->schema.name == op;
  return n;
}

// The text of a graph is read back to the same text.
void expect_read_back(Graph g) {
  g.renumber();
  std::string text = print(g);
  Graph again = parse_graph(text);
  verify(again);
  EXPECT_EQ(print(again), text);
}

// Gradients by tape, by the joint graph and by its two halves agree, also at sizes other than the traced
// ones.
void check(const Function& f, std::vector<Tensor> example, std::vector<Tensor> inputs) {
  Graph forward = traced(f, example);
  std::vector<int> wrt;
  for (size_t i = 0; i < inputs.size(); ++i) wrt.push_back(int(i));
  Joint joint = differentiate(forward, wrt);
  verify(joint.graph);
  Partition p = partition(joint);
  verify(p.forward);
  verify(p.backward);
  expect_read_back(traced(f, example));
  expect_read_back(differentiate(forward, wrt).graph);

  for (auto& t : inputs) autograd::set_requires_grad(t, true);
  auto outputs = f(inputs);
  std::vector<Tensor> tangents, differentiable;
  for (int k : joint.tangent_of) {
    auto& y = outputs[size_t(k)];
    V values;
    for (int64_t i = 0; i < y.numel().concrete(); ++i) values.push_back(1 + 0.5 * double(i));
    auto sizes = y.int_sizes();
    tangents.push_back(make(values, {sizes.begin(), sizes.end()}));
    differentiable.push_back(y);
  }
  auto expected = autograd::grad(differentiable, inputs, tangents, false, false, true);

  autograd::GradMode off(false);
  std::vector<Tensor> given = inputs;
  given.insert(given.end(), tangents.begin(), tangents.end());
  auto all = interpret(joint.graph, given);
  auto halves = interpret(p.forward, inputs);
  std::vector<Tensor> between(halves.begin() + p.outputs, halves.end());
  between.insert(between.end(), tangents.begin(), tangents.end());
  auto gradients = interpret(p.backward, between);
  for (size_t k = 0; k < outputs.size(); ++k) EXPECT_EQ(values_of(halves[k]), values_of(outputs[k]));
  for (size_t i = 0; i < inputs.size(); ++i) {
    Tensor g = all[size_t(joint.forward_outputs) + i];
    ASSERT_EQ(g.defined(), expected[i].defined());
    if (!g.defined()) continue;
    auto want = values_of(expected[i]), one = values_of(g), two = values_of(gradients[i]);
    for (size_t k = 0; k < want.size(); ++k) {
      EXPECT_NEAR(one[k], want[k], 1e-12) << print(joint.graph);
      EXPECT_NEAR(two[k], want[k], 1e-12) << print(p.forward) << print(p.backward);
    }
  }
}

class JointGraph : public testing::Test {
 protected:
  void SetUp() override { define_small_catalog(); }
};

TEST_F(JointGraph, AgreesWithTheTape) {
  Tensor a = make({0.1, 0.2, 0.3, 0.4, 0.5, 0.6}, {2, 3}), b = make({1, 2, 3}, {3});
  Tensor larger = make({0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2}, {3, 4}),
         row = make({1, 2, 3, 4}, {4});
  Function f = [](std::span<const Tensor> x) {
    Tensor e = call("exp", {mul(x[0], x[1])});
    return std::vector<Tensor>{call("sum", {mul(e, call("sin", {x[0]}))}), e};
  };
  check(f, {a, b}, {a, b});
  check(f, {a, b}, {larger, row});
}

TEST_F(JointGraph, GoesThroughViewsAndReductions) {
  Tensor a = make({1, 2, 3, 4, 5, 6}, {2, 3}), b = make({3, 1, 4, 1, 5, 9}, {2, 3});
  Function f = [](std::span<const Tensor> x) {
    int64_t order[] = {1, 0}, last[] = {1};
    Tensor p = call("mm", {x[0], call("permute", {x[1], symbolic(order)})});
    Tensor s = call("sum", {mul(p, p), symbolic(last), true});
    return std::vector<Tensor>{mul(call("select", {x[0], 0, 1}), call("select", {s, 0, 1}))};
  };
  check(f, {a, b}, {a, b});
}

TEST_F(JointGraph, UnusedInputsAndStepsHaveNoGradient) {
  Tensor a = make({1, 2}, {2}), b = make({3, 4}, {2});
  check([](std::span<const Tensor> x) { return std::vector<Tensor>{mul(x[0], x[0])}; }, {a, b}, {a, b});
}

TEST_F(JointGraph, ChainsOfCheapValuesAreComputedAgain) {
  Tensor a = make({1, 2, 3, 4}, {4});
  Joint j = differentiate(traced(
                              [](std::span<const Tensor> x) {
                                Tensor y = x[0];
                                for (int k = 0; k < 4; ++k) y = mul(call("sin", {y}), y);
                                return std::vector<Tensor>{y};
                              },
                              {&a, 1}),
                          {0});
  Partition p = partition(j);
  EXPECT_EQ(p.saved_inputs, std::vector<int>{0}) << print(p.forward);
  EXPECT_EQ(int(p.forward.outputs.size()), 2);
}

TEST_F(JointGraph, OutputsAreSavedByReference) {
  Tensor a = make({1, 2, 3, 4}, {4});
  Partition p = partition(
      differentiate(traced([](std::span<const Tensor> x) { return std::vector<Tensor>{call("exp", {x[0]})}; },
                           {&a, 1}),
                    {0}));
  ASSERT_EQ(p.saved_outputs.size(), 1u);
  EXPECT_TRUE(p.saved_outputs[0] == 0 || p.saved_inputs[0] == 0);
}

TEST_F(JointGraph, ReductionsAreNotComputedAgain) {
  Tensor a = make({1, 2, 3, 4, 5, 6}, {2, 3});
  Partition p = partition(differentiate(traced(
                                            [](std::span<const Tensor> x) {
                                              int64_t last[] = {1};
                                              Tensor s = call("sum", {x[0], symbolic(last), true});
                                              return std::vector<Tensor>{mul(mul(x[0], s), s)};
                                            },
                                            {&a, 1}),
                                        {0}));
  EXPECT_EQ(count(p.forward, "sum"), 1);
  EXPECT_EQ(p.saved_inputs.size(), 2u) << print(p.forward) << print(p.backward);
}

TEST_F(JointGraph, SizesThatTheBackwardCannotReadOffTravelAlong) {
  Tensor a = make({1, 2, 3, 4, 5, 6}, {3, 2});
  Function f = [](std::span<const Tensor> x) { return std::vector<Tensor>{call("select", {x[0], 0, 1})}; };
  Partition p = partition(differentiate(traced(f, {&a, 1}), {0}));
  EXPECT_EQ(p.saved_inputs, std::vector<int>{-1});
  check(f, {a}, {make({1, 2, 3, 4, 5, 6, 7, 8}, {4, 2})});
}

TEST_F(JointGraph, RulesAreProbedForWhatTheyRead) {
  Tensor x = make({1, 2}, {2});
  auto& o = op::get("cube");
  op::Value args[] = {x};
  auto reads = autograd::probe(op::Call(o, args), {true}, 1);
  EXPECT_EQ(reads.operands, std::vector<bool>{true});
  EXPECT_EQ(reads.results, std::vector<bool>{false});
}

}  // namespace
