// Steps of training as programs (run/traced.h), with the optimizers of C++, against the same steps in eager.
#include <gtest/gtest.h>

#include "facula/facula.h"

using namespace facula;

namespace {

bool equal(const Tensor& a, const Tensor& b) { return max(abs(sub(a, b))).item().to_double() < 1e-6; }

// Steps of training in eager and as programs, from equal states.
template <class Optimizer>
void expect_equal_training(Optimizer&& optimizer_of) {
  auto make = [] {
    manual_seed(5);
    std::vector<Tensor> p{randn(Dims{4, 2, 3, 3}), zeros(Dims{4}), randn(Dims{3, 36})};
    for (auto& t : p) requires_grad_(t, true);
    return p;
  };
  std::vector<Tensor> ours = make(), theirs = make();
  auto mine = optimizer_of(ours), other = optimizer_of(theirs);
  auto step_of = [](std::vector<Tensor>& p, optim::Optimizer& o) {
    return [&](std::span<const Tensor> x) {
      o.zero_grad();
      Tensor y = tanh(conv2d(x[0], p[0], p[1]));
      Tensor loss = mean(pow(linear(flatten(y, 1), p[2]), 2));
      backward(loss);
      o.step();
      return std::vector<Tensor>{loss};
    };
  };
  Tensor x = randn(Dims{3, 2, 5, 5});
  auto program = trace(step_of(ours, *mine), std::span(&x, 1), "step");
  EXPECT_FALSE(grad_of(ours[0]).defined());
  auto eager = step_of(theirs, *other);
  for (int k = 0; k < 4; ++k) {
    x = randn(Dims{3, 2, 5, 5});
    EXPECT_TRUE(equal(program(std::span(&x, 1))[0], eager(std::span(&x, 1))[0].detached()));
  }
  step_of(ours, *mine)(std::span(&x, 1));  // goes on where the program stopped
  eager(std::span(&x, 1));
  program(std::span(&x, 1));
  eager(std::span(&x, 1));
  for (size_t k = 0; k < ours.size(); ++k) {
    EXPECT_TRUE(equal(ours[k].detached(), theirs[k].detached())) << k;
    EXPECT_TRUE(equal(grad_of(ours[k]), grad_of(theirs[k]))) << k;
  }
}

TEST(Traced, TrainsAsEagerDoes) {
  expect_equal_training([](auto& p) {
    return std::make_unique<optim::SGD>(p, optim::SGD::Options{.lr = 0.1, .momentum = 0.9});
  });
  expect_equal_training([](auto& p) {
    return std::make_unique<optim::AdamW>(p, optim::AdamW::Options{.lr = 0.01, .eps = 1e-3});
  });
}

}  // namespace
