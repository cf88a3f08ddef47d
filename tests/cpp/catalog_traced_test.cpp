// Functions of C++ users, traced (run/traced.h), against the functions themselves.
#include <gtest/gtest.h>

#include <cstring>

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

TEST(Traced, IsCutWhereASizeBecomesKnown) {
  Tensor w = requires_grad_(randn(Dims{4}), true), state = zeros(Dims{3, 4});
  auto f = [&](std::span<const Tensor> x) {
    Tensor y = mul(tanh(x[0]), w);  // read behind the first cut alone
    Tensor picked = masked_select(y, gt(x[0], 0)), again = masked_select(picked, gt(picked, Scalar(0.1)));
    add_(state, x[0]);
    return std::vector<Tensor>{sum(again), mul(picked, 2), nonzero(state)};
  };
  Tensor example = randn(Dims{3, 4});
  auto program = run::trace(f, std::span(&example, 1));
  auto all = graph::segments(program->graph());
  ASSERT_EQ(all.size(), 3u);
  auto has = [&](size_t k, const char* op) {
    return std::ranges::any_of(all[k].graph.nodes, [&](auto& n) { return n->op->schema.name == op; });
  };
  EXPECT_TRUE(has(0, "gt") && !has(0, "tanh") && has(1, "tanh") && has(2, "sum"));
  EXPECT_EQ(all[0].calls.size(), 2u);  // of the mask, and of the state
  EXPECT_EQ(all[1].calls.size(), 1u);
  EXPECT_TRUE(all[2].calls.empty() && all[2].graph.mutated.size() == 1 && all[0].graph.mutated.empty());
  std::string text = graph::print(program->graph());
  EXPECT_EQ(graph::print(graph::parse_graph(text)), text);
  for (double shift : {0.0, 5.0, -5.0}) {
    Tensor x = add(randn(Dims{3, 4}), shift), before = clone(state), grad;
    auto step = [&](auto& call) {
      copy_(state, before);
      autograd::set_grad(w, Tensor());
      auto results = call(std::span<const Tensor>(&x, 1));
      backward(add(results[0], sum(results[1])));
      results.push_back(grad_of(w));
      results.push_back(clone(state));
      return results;
    };
    auto ours = step(*program), theirs = step(f);
    for (size_t k = 0; k < theirs.size(); ++k) {
      ASSERT_EQ(Dims(ours[k].sizes()), Dims(theirs[k].sizes())) << k;
      if (theirs[k].numel().concrete()) { EXPECT_TRUE(equal(ours[k].detached(), theirs[k].detached())) << k; }
    }
  }
}

TEST(Traced, IsRefusedWhereATextGivesASizeThatNoCallGives) {
  Tensor x = randn(Dims{4});
  auto program = run::trace(
      [](std::span<const Tensor> x) { return std::vector<Tensor>{masked_select(x[0], gt(x[0], 0))}; },
      std::span(&x, 1));
  std::string text = graph::print(program->graph());
  auto with = [&](const char* from, const char* to) {
    std::string s = text;
    for (size_t at = 0; (at = s.find(from, at)) != s.npos; at += strlen(to)) s.replace(at, strlen(from), to);
    return s;
  };
  EXPECT_NO_THROW(graph::parse_graph(text));
  EXPECT_THROW(graph::parse_graph(with("from 0 to 4", "from 0 to 5")), Error);
  EXPECT_THROW(graph::parse_graph(with("int64[u0, 1]", "int64[4, 1]")), Error);
  EXPECT_THROW(graph::parse_graph(with("float32[4]", "float32[u0]")), Error);
  EXPECT_THROW(graph::parse_graph(with("size u0 from 0 to 4", "size s0 = 4")), Error);
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
