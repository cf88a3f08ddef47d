#include "facula/batch/vmap.h"

#include <gtest/gtest.h>

#include "facula/autograd/autograd.h"
#include "facula/ops.h"

using namespace facula;

static Tensor numbers(std::vector<int64_t> sizes) {
  int64_t n = 1;
  Dims shape;
  for (int64_t s : sizes) n *= s, shape.push_back(SymInt(s));
  return reshape(sin(arange(double(n))), shape);
}
static bool same(const Tensor& a, const Tensor& b) {
  return amax(abs(sub(a, b)), {}, false).item().to_double() < 1e-5;
}

TEST(Vmap, a_function_of_one_example_runs_for_all) {
  Tensor x = numbers({3, 4}), w = numbers({5, 4});
  auto scores = [&](const Tensor& a) { return softmax(mv(w, a), 0); };
  EXPECT_TRUE(same(vmap(scores)(x), softmax(mm(x, transpose(w, 0, 1)), 1)));
  EXPECT_TRUE(same(vmap(scores, {1}, 1)(transpose(x, 0, 1)), transpose(vmap(scores)(x), 0, 1)));
  EXPECT_TRUE(same(vmap([](const Tensor& a, const Tensor& b) { return dot(a, b); },
                        {0, std::nullopt})(x, select(w, 0, 0)),
                   mv(x, select(w, 0, 0))));
}

TEST(Vmap, gradients_go_through_it) {
  Tensor x = numbers({3, 4});
  autograd::set_requires_grad(x, true);
  Tensor y = vmap([](const Tensor& a) { return sum(mul(a, mul(a, a))); })(x);
  Tensor one = ones({int64_t(3)});
  autograd::backward({&y, 1}, {&one, 1}, false, false);
  EXPECT_TRUE(same(autograd::grad_of(x), mul(mul(x, x), 3)));
}

TEST(Vmap, what_does_not_fit_is_refused) {
  Tensor x = numbers({3, 4}), y = numbers({2, 4});
  auto f = [](const Tensor& a, const Tensor& b) { return add(a, b); };
  EXPECT_THROW(vmap(f)(x, y), Error);
  EXPECT_THROW(vmap(f, {2, 0})(x, y), Error);
  EXPECT_THROW(vmap([](const Tensor& a) { return add(a, rand({int64_t(4)})); })(x), Error);
}
