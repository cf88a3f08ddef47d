// Fused graphs against the same calls one by one: whatever is fused, every output keeps its value.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>
#include <unordered_map>

#include "facula/graph/trace.h"
#include "facula/schedule/fuse.h"
#include "facula/schedule/schedule.h"
#include "interpreted.h"

using namespace facula;
using test::call;

namespace {

void define_more() {
  using namespace op;
  using loop::Expr;
  static bool done = false;
  if (std::exchange(done, true)) return;
  test::define_small_catalog();
  define_late([] {
    define("amax(Tensor self, int[1] dim=(), bool keepdim=False) -> Tensor")
        .shape(reduced())
        .loop([](const LoopCall& c, Index i) {
          return reduce_over(c, loop::monoid::max, i, [&](Index j) { return c.load("self", j); });
        });
    define("var(Tensor self, int[1] dim=(), bool keepdim=False) -> Tensor")
        .shape(reduced())
        .loop([](const LoopCall& c, Index i) {
          Expr w = reduce_over(c, loop::monoid::welford, i, [&](Index j) { return c.load("self", j); });
          return part(w, 1) / part(w, 2);
        });
    define("cumsum(Tensor self, int dim) -> Tensor")
        .shape([](const Call& c) { return Dims(c.sizes("self")); })
        .loop([](const LoopCall& c, Index i) {
          int d = c.dim("dim");
          return scan_over(c, loop::monoid::sum, i, d, c.size("self", d),
                           [&](Index j) { return c.load("self", j); });
        });
    define("numbered(Tensor self) -> Tensor").pointwise([](Expr x) {
      return x + loop::cast(loop::position(), x.dtype());
    });
    define("rows_added(Tensor self, Tensor rows) -> Tensor")
        .shape([](const Call& c) { return Dims(c.sizes("self")); })
        .loop([](const LoopCall& c) {
          loop::Definition d;
          d.rank = 3;
          loop::Scatter s;
          s.base = 0;
          s.domain = Dims(c.sizes("rows"));
          s.target = {loop::remainder(loop::index(0) * Scalar(int64_t(3)), loop::size(c.size("self", 0))),
                      loop::index(1), loop::index(2)};
          s.value = c.load("rows", {loop::index(0), loop::index(1), loop::index(2)});
          d.scatter = s;
          return d;
        });
    define("mirrored(Tensor self) -> Tensor")
        .shape([](const Call& c) { return Dims(c.sizes("self")); })
        .loop([](const LoopCall& c, Index i) {
          return c.load("self", with(i, 2, loop::size(c.size("self", 2)) - i[2] - Scalar(int64_t(1))));
        });
  });
}

// Runs the steps of a traced graph through nests and the interpreter.
std::vector<Tensor> run_fused(const graph::Graph& g, std::span<const Tensor> inputs, int* kernels = nullptr) {
  auto steps = schedule::fuse(g);
  std::vector<int64_t> symbols(size_t(g.shapes->symbol_count()), 0);
  for (size_t k = 0; k < inputs.size(); ++k)
    for (size_t d = 0; d < inputs[k].sizes().size(); ++d)
      if (SymInt s = g.inputs[k]->tensor.sizes()[d]; s.is_symbolic())
        symbols[size_t(s.node()->value)] = inputs[k].sizes()[d].concrete();
  auto number = [&](SymInt s) { return s.is_symbolic() ? sym::evaluate(s, symbols) : s.concrete(); };
  std::unordered_map<const graph::Value*, Tensor> at;
  for (size_t k = 0; k < inputs.size(); ++k) at[g.inputs[k]] = inputs[k];
  for (auto& v : g.values())
    if (v->constant.defined()) at[v.get()] = v->constant;
  for (auto& step : steps) {
    if (step.kind != schedule::Step::Kind::kernel) {
      op::Args args = step.node->args.clone();
      args.each_tensor([&](size_t, Tensor& t) {
        if (t.defined()) t = at.at(graph::value_of(t));
      });
      args.each_size([&](SymInt& s) { s = number(s); });
      auto results = op::call(*step.node->op, args.values());
      for (size_t k = 0; k < step.node->results.size(); ++k) at[step.node->results[k]] = results[k];
      continue;
    }
    if (kernels) ++*kernels;
    schedule::Layout l;
    l.size_of = number;
    for (auto e : step.group.extents) l.extents.push_back(number(e));
    std::vector<void*> pointers;
    for (auto* v : step.inputs) {
      EXPECT_TRUE(at.count(v)) << "%" << v->id << " is read before it is made\n" << graph::print(g);
      auto& t = at.at(v);
      l.input_strides.emplace_back(t.int_strides());
      l.input_sizes.emplace_back(t.int_sizes());
      pointers.push_back(t.data_ptr());
    }
    for (auto* v : step.outputs) {
      Dims sizes;
      for (auto s : v->tensor.sizes()) sizes.push_back(number(s));
      auto& t = at[v] = Tensor::empty(sizes, v->tensor.dtype());
      l.output_strides.emplace_back(t.int_strides());
      l.output_sizes.emplace_back(t.int_sizes());
      l.output_overlaps.push_back(false);
      pointers.push_back(t.data_ptr());
    }
    schedule::Schedule made;
    try {
      made = schedule::schedule(step.group, l);
    } catch (Error& e) {
      std::string text;
      for (auto& o : step.group.outputs) text += o.value ? loop::print(o.value) + "\n" : "";
      ADD_FAILURE() << text << graph::print(g);
      throw;
    }
    std::vector<Tensor> scratch;
    for (auto& t : made.temporaries) {
      scratch.push_back(Tensor::empty(Ints{t.numel}, t.dtype));
      pointers.push_back(scratch.back().data_ptr());
    }
    for (auto& launch : made.launches) {
      loop::verify(*launch.nest);
      std::vector<void*> buffers;
      for (int b : launch.buffers) buffers.push_back(pointers[size_t(b)]);
      loop::interpret(*launch.nest, buffers, launch.params);
    }
  }
  std::vector<Tensor> results;
  for (auto* o : g.outputs) results.push_back(at.at(o));
  return results;
}

using Function = std::function<std::vector<Tensor>(std::span<const Tensor>)>;

graph::Graph traced(const Function& f, std::span<const Tensor> inputs) {
  auto shapes = std::make_shared<sym::Shapes>();
  std::vector<graph::InputSpec> specs;
  for (auto& t : inputs) specs.push_back(graph::symbolic_spec(t, *shapes));
  return graph::trace(shapes, specs, f, "test");
}

// Number of kernels; values are compared with those of the calls one by one.
int check(const Function& f, std::vector<Tensor> inputs, double tolerance = 1e-9) {
  define_more();
  auto expected = f(inputs);
  auto g = traced(f, inputs);
  int kernels = 0;
  auto got = run_fused(g, inputs, &kernels);
  for (size_t k = 0; k < expected.size(); ++k) {
    auto x = test::values_of(got[k]), y = test::values_of(expected[k]);
    EXPECT_EQ(x.size(), y.size());
    for (size_t i = 0; i < x.size() && i < y.size(); ++i)
      if (!(std::abs(x[i] - y[i]) <= tolerance * std::max(1.0, std::abs(y[i]))) &&
          !(std::isnan(x[i]) && std::isnan(y[i]))) {
        std::string text;
        for (auto& s : schedule::fuse(g))
          for (auto& o : s.group.outputs)
            if (o.value) text += s.group.name + ": " + loop::print(o.value) + "\n";
        ADD_FAILURE() << "output " << k << " element " << i << ": " << x[i] << ", expected " << y[i] << "\n"
                      << text << graph::print(g);
        return kernels;
      }
  }
  return kernels;
}

Tensor filled(std::vector<int64_t> sizes, unsigned seed, DType d = DType::Float64) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> real(-2, 2);
  std::vector<double> values;
  int64_t n = 1;
  for (auto s : sizes) n *= s;
  for (int64_t k = 0; k < n; ++k) values.push_back(real(random));
  return test::make(values, sizes, d);
}
Dims dims(std::initializer_list<int64_t> d) {
  Dims r;
  for (auto x : d) r.push_back(x);
  return r;
}
Tensor sum(const Tensor& x, int64_t d, bool keep) {
  Dims over = dims({d});
  return call("sum", {x, SymSpan(over), keep});
}
Tensor amax(const Tensor& x, int64_t d, bool keep) {
  Dims over = dims({d});
  return call("amax", {x, SymSpan(over), keep});
}

}  // namespace

TEST(Fuse, SoftmaxIsOneKernel) {
  define_more();
  EXPECT_EQ(check(
                [](std::span<const Tensor> x) {
                  Tensor e = call("exp", {call("sub", {x[0], amax(x[0], 1, true)})});
                  return std::vector<Tensor>{call("mul", {e, call("exp", {sum(e, 1, true)})})};
                },
                {filled({5, 9}, 1)}),
            1);
}

TEST(Fuse, RowResultsLeaveTheSameKernel) {
  define_more();
  EXPECT_EQ(check(
                [](std::span<const Tensor> x) {
                  Dims over = dims({1});
                  Tensor v = call("var", {x[0], SymSpan(over), true});
                  Tensor r = call("exp", {v});
                  return std::vector<Tensor>{call("mul", {call("mul", {x[0], r}), x[1]}), v, r};
                },
                {filled({6, 20}, 1), filled({20}, 2)}),
            1);
}

TEST(Fuse, ExpensiveBranchesMeet) {
  define_more();
  EXPECT_EQ(check(
                [](std::span<const Tensor> x) {
                  return std::vector<Tensor>{call("add", {call("exp", {x[0]}), call("sin", {x[1]})})};
                },
                {filled({6, 20}, 1), filled({6, 20}, 2)}),
            1);
}

TEST(Fuse, ALossAndItsMeanAreTwo) {
  define_more();
  EXPECT_EQ(check(
                [](std::span<const Tensor> x) {
                  Tensor rows = call("exp", {sum(x[0], 1, false)});
                  return std::vector<Tensor>{sum(rows, 0, false)};
                },
                {filled({6, 20}, 1)}),
            2);
}

TEST(Fuse, NormalisationByAWholeSum) {
  define_more();
  check(
      [](std::span<const Tensor> x) {
        Tensor s = sum(sum(x[0], 1, true), 0, true);
        return std::vector<Tensor>{call("mul", {x[0], s})};
      },
      {filled({30, 20}, 1)});
}

TEST(Fuse, ViewsOfInnerValues) {
  define_more();
  check(
      [](std::span<const Tensor> x) {
        Dims turned = dims({1, 0}), shape = dims({4, 5});
        Tensor e = call("exp", {x[0]});
        Tensor t = call("permute", {e, SymSpan(turned)});
        Tensor v = call("view", {call("sin", {x[1]}), SymSpan(shape)});
        return std::vector<Tensor>{call("add", {t, v}), t};
      },
      {filled({5, 4}, 1), filled({20}, 2)});
}

TEST(Fuse, SixteenBitChainsRoundAsCallsDo) {
  define_more();
  for (auto d : {DType::BFloat16, DType::Float16})
    check(
        [](std::span<const Tensor> x) {
          Tensor a = call("mul", {x[0], x[1]}), b = call("add", {a, x[0]}), c = call("mul", {b, a});
          return std::vector<Tensor>{call("sub", {c, x[1]})};
        },
        {filled({5, 40}, 1, d), filled({5, 40}, 2, d)}, 0);
}

TEST(Fuse, RandomPrograms) {
  define_more();
  for (unsigned seed = 0; seed < 600; ++seed) {
    std::mt19937 shape(seed);
    const int64_t choices[] = {1, 2, 3, 4, 7};
    int64_t a = choices[shape() % 5], b = choices[shape() % 5], c = choices[shape() % 5];
    Function f = [&](std::span<const Tensor> x) {
      std::mt19937 random(seed);
      std::vector<Tensor> pool(x.begin(), x.end()), outputs;
      auto any = [&] {
        return pool[std::min<size_t>(pool.size() - 1, random() % pool.size() + random() % 2)];
      };
      int count = 3 + int(random() % 14);
      for (int k = 0; k < count; ++k) {
        Tensor t = any();
        int64_t d = int64_t(random() % 3);
        switch (random() % 14) {
          case 0: t = call("sin", {t}); break;
          case 1: t = call("exp", {call("sin", {t})}); break;
          case 2: t = call("add", {t, any()}); break;
          case 3: t = call("mul", {t, call("sin", {any()})}); break;
          case 4: t = call("sin", {sum(t, d, true)}); break;
          case 5: t = amax(t, d, true); break;
          case 6: {
            Dims over = dims({d});
            t = call("var", {t, SymSpan(over), true});
            break;
          }
          case 7: {  // turned, used, turned back
            Dims order = dims({2, 1, 0});
            t = call("permute", {t, SymSpan(order)});
            t = call("sin", {t});
            if (random() % 2) t = call("mul", {t, sum(t, int64_t(random() % 3), true)});
            t = call("permute", {t, SymSpan(order)});
            break;
          }
          case 8: t = call("slice", {t, d, int64_t(0), int64_t(1), int64_t(1)}); break;
          case 9: {
            Dims flat;
            SymInt n = 1;
            for (auto s : t.sizes()) n *= s;
            flat.push_back(n);
            Dims sizes(t.sizes());
            Tensor u = call("contiguous", {t});
            t = call("view", {call("sin", {call("view", {u, SymSpan(flat)})}), SymSpan(sizes)});
            break;
          }
          case 10: t = call("cumsum", {t, d}); break;
          case 11: t = call("sin", {call("numbered", {t})}); break;
          case 12: t = call("mirrored", {t}); break;
          default: {
            Tensor rows = any();
            Tensor whole = call("add", {call("mul", {x[0], Scalar(0.5)}), rows});
            t = call("rows_added", {call("sin", {x[0]}), whole});
          }
        }
        pool.push_back(t);
        if (random() % 4 == 0) outputs.push_back(t);
      }
      outputs.push_back(pool.back());
      return outputs;
    };
    check(f, {filled({a, b, c}, 1), filled({1, b, c}, 2), filled({a, b, 1}, 3), filled({1, 1, c}, 4)});
    if (HasFailure()) {
      ADD_FAILURE() << "seed " << seed;
      return;
    }
  }
}
