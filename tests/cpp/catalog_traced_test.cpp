// Functions of C++ users, traced (run/traced.h), against the functions themselves.
#include <gtest/gtest.h>

#include "facula/facula.h"
#include "facula/run/traced.h"

using namespace facula;

namespace {

bool equal(const Tensor& a, const Tensor& b) { return max(abs(sub(a, b))).item().to_double() < 1e-6; }

TEST(Traced, GivesResultsAndGradientsOfTheFunction) {
  Tensor w = requires_grad_(randn(Dims{4, 3}), true);
  auto f = [&](std::span<const Tensor> x) { return std::vector<Tensor>{sum(tanh(mm(x[0], w)))}; };
  Tensor x = randn(Dims{5, 4});
  auto program = run::trace(f, std::span(&x, 1));
  Tensor ours = (*program)(std::span(&x, 1))[0];
  backward(ours);
  Tensor g = clone(grad_of(w));
  zero_(grad_of(w));
  Tensor theirs = f(std::span(&x, 1))[0];
  backward(theirs);
  EXPECT_TRUE(equal(ours, theirs));
  EXPECT_TRUE(equal(g, grad_of(w)));
  EXPECT_EQ(program->captured().size(), 1u);
}

TEST(Traced, WritesWhatTheFunctionWritesAtEachCallAndNotBefore) {
  Tensor state = zeros(Dims{3});
  auto f = [&](std::span<const Tensor> x) {
    add_(narrow(state, 0, 1, 2), x[0]);
    mul_(x[0], 2);
    return std::vector<Tensor>{mul(state, state)};
  };
  Tensor example = ones(Dims{2});
  auto program = run::trace(f, std::span(&example, 1));
  EXPECT_TRUE(equal(state, zeros(Dims{3})));
  EXPECT_TRUE(equal(example, ones(Dims{2})));
  Tensor x = ones(Dims{2});
  Tensor first = (*program)(std::span(&x, 1))[0];
  EXPECT_TRUE(equal(x, mul(ones(Dims{2}), 2)));
  EXPECT_EQ(sum(first).item().to_double(), 2);
  Tensor second = (*program)(std::span(&x, 1))[0];
  EXPECT_EQ(sum(second).item().to_double(), 18);
}

TEST(Traced, EndsBeforeTheTapeThatItLeft) {
  Tensor x = requires_grad_(ones(Dims{3}), true), y;
  {
    auto program = run::trace([](std::span<const Tensor> x) { return std::vector<Tensor>{exp(x[0])}; },
                              std::span(&x, 1), "of_a_scope");
    y = sum((*program)(std::span(&x, 1))[0]);
  }
  backward(y);
  EXPECT_TRUE(equal(grad_of(x), exp(x.detached())));
}

TEST(Traced, FillsGradientsOfArguments) {
  Tensor x = requires_grad_(randn(Dims{3}), true);
  auto f = [](std::span<const Tensor> x) {
    backward(sum(exp(x[0])));
    return std::vector<Tensor>{};
  };
  auto program = run::trace(f, std::span(&x, 1));
  (*program)(std::span(&x, 1));
  EXPECT_TRUE(equal(grad_of(x), exp(x.detached())));
  EXPECT_THROW((*program)(std::span(&x, 1)), Error);  // .grad was empty when it was traced
}

// A product whose gradients are three and five times what they should be, and a result of it that is written.
struct Product {
  static std::vector<Tensor> forward(autograd::Context& c, const Tensor& x, const Tensor& y) {
    Tensor z = mul(x, y);
    c.save_for_backward({x, y, z});
    return {z, sign(z)};
  }
  static std::vector<Tensor> backward(autograd::Context& c, std::vector<Tensor> grads) {
    auto saved = c.saved();
    Tensor g = add(grads[0], mul(grads[1], saved[2]));
    return {c.needs_input_grad(0) ? mul(mul(g, saved[1]), 3) : Tensor(),
            c.needs_input_grad(1) ? mul(mul(g, saved[0]), 5) : Tensor()};
  }
};
struct Doubled {
  static std::vector<Tensor> forward(autograd::Context& c, const Tensor& x) {
    mul_(x, 2);
    c.mark_dirty({x});
    return {x};
  }
  static std::vector<Tensor> backward(autograd::Context&, std::vector<Tensor> grads) {
    return {mul(grads[0], 7)};
  }
};

TEST(Traced, FunctionsKeepTheirGradient) {
  Tensor w = requires_grad_(randn(Dims{3}), true), x = randn(Dims{3});
  auto f = [&](std::span<const Tensor> in) {
    auto z = autograd::run<Product>(in[0], w);
    Tensor y = mul(z[0], 1);
    autograd::run<Doubled>(y);
    return std::vector<Tensor>{sum(add(mul(y, z[1]), z[0]))};
  };
  auto program = run::trace(f, std::span(&x, 1));
  std::vector<Tensor> found;
  for (bool traced : {false, true}) {
    Tensor in = requires_grad_(clone(x), true), inputs[] = {in, w};
    Tensor y = traced ? (*program)(std::span(&in, 1))[0] : f(std::span(&in, 1))[0];
    Tensor ys[] = {y};
    auto first = autograd::grad(ys, inputs, {}, true, true, false);
    Tensor both[] = {sum(mul(first[0], first[1]))};
    auto second = autograd::grad(both, inputs, {}, true, false, false);
    found.push_back(cat(std::vector<Tensor>{reshape(y, Dims{1}), first[0], first[1], second[0], second[1]}));
  }
  EXPECT_TRUE(equal(found[0], found[1]));

  auto step = [&](std::span<const Tensor> in) {
    backward(f(in)[0]);
    return std::vector<Tensor>{};
  };
  step(std::span(&x, 1));
  Tensor expected = grad_of(w);
  autograd::set_grad(w, Tensor());
  auto traced = run::trace(step, std::span(&x, 1));
  (*traced)(std::span(&x, 1));
  EXPECT_TRUE(equal(grad_of(w), expected));
}

}  // namespace
