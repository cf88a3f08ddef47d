// The gradient of every differentiable operator on its samples against central differences in float64, and
// the gradient of the gradient likewise.
#include <gtest/gtest.h>

#include <cmath>

#include "facula/autograd/autograd.h"
#include "facula/autograd/calls.h"
#include "facula/catalog/catalog.h"
#include "facula/op/registry.h"
#include "facula/ops.h"
#include "instances.h"

using namespace facula;
using namespace facula::test;
using op::SampleArg;

namespace {

using Function = std::function<std::vector<Tensor>()>;

// <outputs, directions> as a number.
double projected(const std::vector<Tensor>& outputs, const std::vector<Tensor>& directions) {
  double sum = 0;
  for (size_t k = 0; k < outputs.size(); ++k) {
    Tensor p = autograd::invoke("sum", {autograd::invoke("mul", {outputs[k], directions[k]})});
    sum += p.item().to_double();
  }
  return sum;
}

std::vector<Tensor> directions_like(const std::vector<Tensor>& outputs) {
  std::vector<Tensor> out;
  for (auto& t : outputs) {
    auto s = t.int_sizes();
    out.push_back(filled({.kind = SampleArg::Kind::tensor, .sizes = {}, .low = 0.5, .high = 1.5},
                         {s.begin(), s.end()}));
  }
  return out;
}

// Differentiable results of f, whose gradients along random directions are compared with central differences.
void compare(const std::string& what, const Function& f, const std::vector<Tensor>& inputs,
             const std::vector<Tensor>& directions, const std::vector<Tensor>& gradients) {
  autograd::GradMode off(false);
  const double h = 1e-5;
  for (size_t i = 0; i < inputs.size(); ++i) {
    auto* x = inputs[i].data<double>();
    Tensor g = gradients[i].defined()
                   ? autograd::invoke("contiguous", {gradients[i], MemoryFormat::contiguous})
                   : Tensor();
    if (g.defined()) {
      ASSERT_EQ(to_string(g.sizes()), to_string(inputs[i].sizes())) << what;
      ASSERT_EQ(g.dtype(), inputs[i].dtype()) << what;
    }
    for (int64_t k = 0; k < inputs[i].numel().concrete(); ++k) {
      double at = x[k];
      x[k] = at + h;
      double above = projected(f(), directions);
      x[k] = at - h;
      double below = projected(f(), directions);
      x[k] = at;
      double numeric = (above - below) / (2 * h), analytic = g.defined() ? g.data<double>()[k] : 0;
      if (std::isnan(numeric) && std::isnan(analytic)) continue;
      if (std::abs(analytic - numeric) >
          1e-5 * (1 + std::abs(numeric))) {  // where a kink is near, one side has the slope
        double middle = projected(f(), directions), left = (middle - below) / h, right = (above - middle) / h;
        bool kink = std::abs(right - left) > 0.01 * (std::abs(right) + std::abs(left));
        double side = std::abs(analytic - left) < std::abs(analytic - right) ? left : right;
        if (kink && std::abs(analytic - side) < 1e-4 * (1 + std::abs(side))) continue;
      }
      ASSERT_NEAR(analytic, numeric, 1e-5 * (1 + std::abs(numeric)))
          << what << ": input " << i << ", element " << k;
    }
  }
}

// First and second derivatives of f with respect to `inputs`.
void check(const Function& f, const std::vector<Tensor>& inputs, const std::string& what) {
  for (auto& t : inputs) autograd::set_requires_grad(t, true);
  std::vector<size_t> recorded;
  auto first_outputs = f();
  for (size_t k = 0; k < first_outputs.size(); ++k)
    if (first_outputs[k].requires_grad()) recorded.push_back(k);
  if (recorded.empty()) return;
  auto f_recorded = [&] {
    auto all = f();
    std::vector<Tensor> some;
    for (size_t k : recorded) some.push_back(all[k]);
    return some;
  };
  auto directions = directions_like(f_recorded());
  auto gradients = [&](bool create) {
    return autograd::grad(f_recorded(), inputs, directions, true, create, true);
  };
  compare(what, f_recorded, inputs, directions, gradients(false));
  if (testing::Test::HasFatalFailure()) return;

  // The gradient as a function, along directions of its own.
  std::vector<size_t> smooth;
  auto first = gradients(true);
  for (size_t i = 0; i < first.size(); ++i)
    if (first[i].defined() && first[i].requires_grad()) smooth.push_back(i);
  if (smooth.empty()) return;
  auto chosen = [&](bool create) {
    auto all = gradients(create);
    std::vector<Tensor> out;
    for (size_t i : smooth) out.push_back(all[i]);
    return out;
  };
  auto again = chosen(true);
  auto along = directions_like(again);
  auto second = autograd::grad(again, inputs, along, false, false, true);
  compare(
      what + ", second order",
      [&] {
        autograd::GradMode on(true);
        return chosen(false);
      },
      inputs, along, second);
}

void check(const op::Operator& o, Instance& x, const std::string& what) {
  check(
      [&] {
        std::vector<Tensor> out;
        auto all = op::call(o, x.args).to_vector();
        for (size_t k = 0; k < all.size(); ++k)
          if (all[k].dtype() == DType::Float64 &&
              std::find(o.non_differentiable.begin(), o.non_differentiable.end(), int(k)) ==
                  o.non_differentiable.end())
            out.push_back(all[k]);
        return out;
      },
      x.inputs, what);
}

class Gradients : public testing::TestWithParam<std::string> {};

TEST_P(Gradients, AgreeWithFiniteDifferences) {
  auto& o = op::get(GetParam());
  int number = 0;
  for (auto& sample : o.samples()) {
    Instance x;
    ++number;
    if (!instantiate(o, sample, x) || x.inputs.empty()) continue;
    try {
      check(o, x, o.schema.full_name() + ", sample " + std::to_string(number));
    } catch (const std::exception& e) {
      // An operator whose derivative is missing raises, as in PyTorch (tests/python/test_missing_derivatives.py).
      if (std::string_view(e.what()).find("derivative for ") != std::string_view::npos) return;
      FAIL() << o.schema.full_name() << ", sample " << number << ": " << e.what();
    }
    if (HasFatalFailure()) return;
  }
}

std::vector<std::string> names() {
  catalog::load();
  std::vector<std::string> out;
  for (auto* o : op::all())
    if (o->differentiable && o->undifferenced.empty() && !o->effects.draws && !o->samples().empty() &&
        !o->schema.mutates() && o->dtypes.has(DType::Float64))
      out.push_back(o->schema.full_name());
  return out;
}
INSTANTIATE_TEST_SUITE_P(Catalog, Gradients, testing::ValuesIn(names()), [](auto& info) {
  std::string name = info.param;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name + "_" + std::to_string(info.index);
});

// ---- calls that no sample covers: views, indexing, losses, layers

Tensor random(std::vector<int64_t> sizes, double low = -2, double high = 2) {
  return filled({.kind = SampleArg::Kind::tensor, .sizes = {}, .low = low, .high = high}, sizes);
}
Tensor indices(std::vector<int64_t> values) {
  Tensor t = Tensor::empty(IntSpan(std::vector<int64_t>{int64_t(values.size())}), DType::Int64);
  std::copy(values.begin(), values.end(), t.data<int64_t>());
  return t;
}

struct Case {
  const char* name;
  std::vector<std::vector<int64_t>> shapes;
  std::function<std::vector<Tensor>(const std::vector<Tensor>&)> f;
};
using Inputs = const std::vector<Tensor>&;

const std::vector<Case>& cases() {
  using T = std::vector<Tensor>;
  static const std::vector<Case> all{
      {"view", {{2, 6}}, [](Inputs x) { return T{view(x[0], {3, 4})}; }},
      {"reshape_copy", {{2, 6}}, [](Inputs x) { return T{reshape(transpose(x[0], 0, 1), {3, 4})}; }},
      {"permute", {{2, 3, 4}}, [](Inputs x) { return T{permute(x[0], {2, 0, 1})}; }},
      {"expand", {{3, 1}}, [](Inputs x) { return T{expand(x[0], {2, 3, 4})}; }},
      {"slice", {{5, 3}}, [](Inputs x) { return T{slice(x[0], 0, 1, 5, 2)}; }},
      {"narrow", {{5, 3}}, [](Inputs x) { return T{narrow(x[0], 1, 1, 2)}; }},
      {"select", {{5, 3}}, [](Inputs x) { return T{select(x[0], 1, -1)}; }},
      {"unsqueeze_squeeze", {{5, 1, 3}}, [](Inputs x) { return T{mul(unsqueeze(x[0], 1), squeeze(x[0]))}; }},
      {"split",
       {{5, 3}},
       [](Inputs x) {
         auto p = split(x[0], SymInt(2));
         return T{mul(p[0], p[1]), p[2]};
       }},
      {"split_unused", {{5, 3}}, [](Inputs x) { return T{split(x[0], SymInt(2))[1]}; }},
      {"chunk",
       {{3, 4}},
       [](Inputs x) {
         auto p = chunk(x[0], 2, 1);
         return T{mul(p[0], p[1])};
       }},
      {"unbind",
       {{3, 4}},
       [](Inputs x) {
         auto p = unbind(x[0], 1);
         return T{mul(p[0], p[3])};
       }},
      {"diagonal", {{3, 4}}, [](Inputs x) { return T{diagonal(x[0], 1), diagonal(x[0], -1)}; }},
      {"unfold", {{7}}, [](Inputs x) { return T{unfold(x[0], 0, 3, 2)}; }},
      {"as_strided", {{8}}, [](Inputs x) { return T{as_strided(x[0], {2, 3}, {2, 1}, 1)}; }},
      {"cat",
       {{2, 3}, {4, 3}},
       [](Inputs x) { return T{mul(cat(std::vector<Tensor>{x[0], x[1], x[0]}, 0), 2.0)}; }},
      {"stack", {{2, 3}, {2, 3}}, [](Inputs x) { return T{stack(std::vector<Tensor>{x[0], x[1]}, 1)}; }},
      {"where", {{2, 3}, {3}}, [](Inputs x) { return T{where(gt(x[0], 0), x[0], x[1])}; }},
      {"gather",
       {{3, 4}},
       [](Inputs x) { return T{gather(x[0], 1, view(indices({0, 3, 1, 1, 2, 2}), {3, 2}))}; }},
      {"index_select", {{3, 4}}, [](Inputs x) { return T{index_select(x[0], 1, indices({0, 3, 3}))}; }},
      {"scatter_add",
       {{3, 4}, {3, 2}},
       [](Inputs x) { return T{scatter_add(x[0], 1, view(indices({0, 3, 1, 1, 2, 2}), {3, 2}), x[1])}; }},
      {"embedding", {{5, 3}}, [](Inputs x) { return T{embedding(x[0], indices({1, 4, 1}))}; }},
      {"mm", {{3, 4}, {4, 2}}, [](Inputs x) { return T{mm(x[0], x[1])}; }},
      {"matmul_batched", {{2, 3, 4}, {4, 2}}, [](Inputs x) { return T{matmul(x[0], x[1])}; }},
      {"matmul_vectors", {{4}, {4}}, [](Inputs x) { return T{matmul(x[0], x[1])}; }},
      {"linear", {{3, 4}, {2, 4}, {2}}, [](Inputs x) { return T{linear(x[0], x[1], x[2])}; }},
      {"softmax", {{3, 4}}, [](Inputs x) { return T{softmax(x[0], 1)}; }},
      {"log_softmax", {{3, 4}}, [](Inputs x) { return T{log_softmax(x[0], 0)}; }},
      {"layer_norm", {{3, 4}, {4}, {4}}, [](Inputs x) { return T{layer_norm(x[0], {4}, x[1], x[2])}; }},
      {"cross_entropy", {{3, 4}}, [](Inputs x) { return T{cross_entropy(x[0], indices({1, 0, 3}))}; }},
      {"mse_loss", {{3, 4}, {3, 4}}, [](Inputs x) { return T{mse_loss(x[0], x[1])}; }},
      {"amax", {{3, 4}}, [](Inputs x) { return T{amax(x[0], {1})}; }},
      {"max_all", {{3, 4}}, [](Inputs x) { return T{max(x[0])}; }},
      {"mean_var",
       {{3, 4}},
       [](Inputs x) { return T{mean(x[0], {1}), var(x[0], Sizes{0}, std::optional<double>(0.0))}; }},
      {"cumsum", {{3, 4}}, [](Inputs x) { return T{cumsum(x[0], 1)}; }},
      {"conv2d",
       {{2, 2, 4, 4}, {3, 2, 3, 3}, {3}},
       [](Inputs x) { return T{conv2d(x[0], x[1], x[2], 1, 1)}; }},
      {"max_pool2d", {{1, 2, 4, 4}}, [](Inputs x) { return T{max_pool2d(x[0], 2)}; }},
      {"avg_pool2d", {{1, 2, 4, 4}}, [](Inputs x) { return T{avg_pool2d(x[0], 2)}; }},
      {"in_place_through_a_view",
       {{3, 4}, {4}},
       [](Inputs x) {
         Tensor y = mul(x[0], 2.0), row = select(y, 0, 1);
         mul_(row, x[1]);
         return T{mul(y, y)};
       }},
      {"in_place_chain",
       {{3}, {3}},
       [](Inputs x) {
         Tensor y = mul(x[0], 1.5);
         sin_(y);
         mul_(y, x[1]);
         add_(y, x[0]);
         return T{y};
       }},
  };
  return all;
}

class CallGradients : public testing::TestWithParam<size_t> {};

TEST_P(CallGradients, AgreeWithFiniteDifferences) {
  catalog::load();
  auto& c = cases()[GetParam()];
  std::vector<Tensor> inputs;
  for (auto& s : c.shapes) inputs.push_back(random(s));
  try {
    check([&] { return c.f(inputs); }, inputs, c.name);
  } catch (const std::exception& e) { FAIL() << c.name << ": " << e.what(); }
}
INSTANTIATE_TEST_SUITE_P(Catalog, CallGradients, testing::Range(size_t(0), cases().size()),
                         [](auto& info) { return std::string(cases()[info.param].name); });

}  // namespace
