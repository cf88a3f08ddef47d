// Scheduled groups as machine code: the same results as the interpreter of the nests, and the same bits for
// any number of threads.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <random>

#include "facula/base/parallel.h"
#include "facula/codegen/kernel.h"
#include "facula/loop/elementary.h"
#include "facula/loop/interpret.h"
#include "facula/schedule/grid.h"
#include "facula/schedule/lanes.h"
#include "facula/schedule/schedule.h"
#include "grid_runs.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::schedule;

namespace {

Expr i(int v) { return loop::index(v); }
Expr n(SymInt s) { return loop::size(s); }
Expr ld(int slot, std::vector<Expr> at, DType d = DType::Float32) {
  return loop::load(slot, d, std::move(at));
}
Expr sum(std::vector<BoundVar> v, Expr x) { return loop::reduce(Monoid::sum, std::move(v), {x}); }

Tensor filled(const Ints& sizes, DType d, unsigned seed) {
  Tensor t = Tensor::empty(sizes, d);
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> real(-2, 2);
  for (int64_t k = 0, count = t.numel().concrete(); k < count; ++k) {
    auto* at = static_cast<char*>(t.data_ptr()) + k * itemsize(d);
    if (is_floating(d)) Scalar(real(random)).store(d, at);
    else Scalar(int64_t(random() % 7)).store(d, at);
  }
  return t;
}

struct Case {
  std::string name;
  Group group;
  std::vector<Tensor> inputs;
};
Case make(std::string name, Dims extents, std::vector<Tensor> inputs, std::vector<GroupOutput> outputs) {
  Case c{std::move(name), {}, std::move(inputs)};
  c.group.name = c.name;
  c.group.extents = std::move(extents);
  for (auto& t : c.inputs) c.group.inputs.push_back({t.dtype(), t.dim()});
  c.group.outputs = std::move(outputs);
  return c;
}
GroupOutput out(Expr value, Ints axes, DType d = DType::Float32) { return {d, value, axes}; }

// Who runs the nest of a launch.
using Buffers = std::span<const test::Memory>;
using Runner = std::function<void(const Nest&, Buffers buffers, const std::vector<int64_t>& params)>;
void by_interpreter(const Nest& n, Buffers buffers, const std::vector<int64_t>& params) {
  loop::interpret(n, test::pointers(buffers), params);
}
void by_llvm(const Nest& n, Buffers buffers, const std::vector<int64_t>& params) {
  codegen::launch(*codegen::kernel(n), test::pointers(buffers).data(), params.data(), "test");
}
// From the tensor's first element on.
test::Memory memory_of(const Tensor& t) {
  auto* begin = static_cast<char*>(t.data_ptr());
  return {begin, t.impl()->storage->bytes() - size_t(t.offset().concrete() * itemsize(t.dtype()))};
}

std::vector<Tensor> run(const Case& c, const Runner& runner) {
  auto& g = c.group;
  Layout l;
  std::vector<test::Memory> memory;
  std::vector<Tensor> results, scratch;
  for (auto e : g.extents) l.extents.push_back(e.concrete());
  for (auto& t : c.inputs) {
    l.input_strides.emplace_back(t.int_strides());
    l.input_sizes.emplace_back(t.int_sizes());
    memory.push_back(memory_of(t));
  }
  for (auto& o : g.outputs) {
    Ints sizes;
    if (g.scatter) sizes = Ints(c.inputs[0].int_sizes());
    else
      for (auto a : o.axes) sizes.push_back(l.extents[size_t(a)]);
    results.push_back(Tensor::empty(sizes, o.dtype));
    l.output_strides.emplace_back(results.back().int_strides());
    l.output_sizes.push_back(sizes);
    l.output_overlaps.push_back(false);
    memory.push_back(memory_of(results.back()));
  }
  l.size_of = [](SymInt s) { return s.concrete(); };
  Schedule s = schedule::schedule(g, l);
  for (auto& t : s.temporaries) {
    scratch.push_back(Tensor::empty(Ints{t.numel}, t.dtype));
    memory.push_back(memory_of(scratch.back()));
  }
  for (auto& launch : s.launches) {
    std::vector<test::Memory> buffers;
    for (int b : launch.buffers) buffers.push_back(memory[size_t(b)]);
    runner(launch.nest->nest(), buffers, launch.params);
  }
  return results;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  Tensor x = filled({70, 130}, DType::Float32, 1), y = filled({70, 130}, DType::Float32, 2);
  Expr at = ld(0, {i(0), i(1)}), inner = ld(0, {i(0), i(64)});
  Expr top = loop::reduce(Monoid::max, {{64, n(130)}}, {inner});
  all.push_back(
      make("softmax", {70, 130}, {x}, {out(exp(at - top) / sum({{64, n(130)}}, exp(inner - top)), {0, 1})}));
  all.push_back(make("columns", {130}, {x}, {out(sum({{64, n(70)}}, ld(0, {i(64), i(0)})), {0})}));
  Expr mean = loop::reduce(Monoid::welford, {{64, n(130)}}, {inner});
  all.push_back(make("normal", {70, 130}, {x},
                     {out((at - part(mean, 0)) * rsqrt(part(mean, 1) / part(mean, 2)), {0, 1}),
                      out(part(mean, 0), {0})}));
  Tensor across = filled({130, 70}, DType::Float32, 3).alias(Dims{70, 130}, Dims{1, 70}, 0);
  all.push_back(make("turned", {70, 130}, {x, across}, {out(at + ld(1, {i(0), i(1)}), {0, 1})}));
  all.push_back(
      make("scan", {70, 130}, {x}, {out(loop::scan(Monoid::sum, 1, {64, n(130)}, {inner}), {0, 1})}));
  Tensor big = filled({300000}, DType::Float32, 4);
  Expr all_of = sum({{64, n(300000)}}, ld(0, {i(64)}));
  all.push_back(make("whole", {300000}, {big}, {out(ld(0, {i(0)}) / all_of, {0}), out(all_of, {})}));
  Expr pair = loop::reduce(Monoid::welford, {{64, n(300000)}}, {ld(0, {i(64)})});
  Expr best = loop::reduce(Monoid::argmax, {{64, n(300000)}}, {ld(0, {i(64)}), i(64)});
  all.push_back(make("pairs", {}, {big}, {out(part(pair, 1), {}), out(part(best, 1), {}, DType::Int64)}));
  Tensor tall = filled({40000, 6}, DType::Float32, 5);
  all.push_back(make("tall", {6}, {tall}, {out(sum({{64, n(40000)}}, ld(0, {i(64), i(0)})), {0})}));
  Tensor half = filled({70, 130}, DType::BFloat16, 6);
  Expr h = ld(0, {i(0), i(1)}, DType::BFloat16);
  Expr h_inner = ld(0, {i(0), i(64)}, DType::BFloat16),
       h_top = loop::reduce(Monoid::max, {{64, n(130)}}, {h_inner});
  all.push_back(
      make("kept", {70, 130}, {half},
           {out(exp(h - h_top) / sum({{64, n(130)}}, exp(h_inner - h_top)), {0, 1}, DType::BFloat16)}));
  Expr products = loop::reduce(Monoid::prod, {{64, n(300000)}}, {ld(0, {i(64)}) * 0.01 + 1.0});
  all.push_back(make("product", {}, {big}, {out(products, {})}));
  all.push_back(make("rounded", {70, 130}, {half},
                     {out(round_to(h * h, DType::BFloat16) + h, {0, 1}, DType::BFloat16)}));
  Case scatter = make("scatter", {500, 40},
                      {filled({9, 40}, DType::Float32, 7), filled({500}, DType::Int64, 8),
                       filled({500, 40}, DType::Float32, 9)},
                      {out(Expr(), {})});
  loop::Scatter s;
  s.base = 0;
  s.domain = {500, 40};
  s.target = {loop::check(ld(1, {i(0)}, DType::Int64), n(9)), i(1)};
  s.value = ld(2, {i(0), i(1)});
  scatter.group.scatter = s;
  all.push_back(scatter);
  Case counts = make("counts", {5000}, {filled({9}, DType::Int32, 10), filled({5000}, DType::Int64, 8)},
                     {out(Expr(), {}, DType::Int32)});
  loop::Scatter c;
  c.base = 0;
  c.domain = {5000};
  c.target = {loop::check(ld(1, {i(0)}, DType::Int64), n(9))};
  c.value = loop::constant(int64_t(1), DType::Int32);
  counts.group.scatter = c;
  all.push_back(counts);
  Tensor line = filled({3000}, DType::Float32, 11);
  all.push_back(make("one scan", {3000}, {line},
                     {out(loop::scan(Monoid::sum, 0, {64, n(3000)}, {ld(0, {i(64)})}), {0})}));
  auto scanned = [&](const char* name, Tensor x, Monoid m, DType t, DType result) {
    bool rows = x.dim() == 2;
    int64_t length = x.int_sizes().back();
    Expr element =
        loop::cast(ld(0, rows ? std::vector<Expr>{i(0), i(64)} : std::vector<Expr>{i(64)}, x.dtype()), t);
    Expr running = loop::scan(m, rows ? 1 : 0, {64, n(length)}, {element});
    Dims extents(x.sizes());
    all.push_back(
        make(name, extents, {x},
             {out(loop::cast(running, compute_type(result)), rows ? Ints{0, 1} : Ints{0}, result)}));
  };
  DType single = DType::Float32, wide = DType::Float64, whole = DType::Int64;
  scanned("long scan", filled({150001}, single, 12), Monoid::sum, wide, single);
  scanned("two long scans", filled({2, 70003}, DType::BFloat16, 13), Monoid::sum, single, single);
  scanned("long scan of integers", filled({100000}, DType::Int32, 14), Monoid::sum, whole, whole);
  scanned("scan of 64 bits", filled({3, 1003}, wide, 15), Monoid::sum, wide, wide);
  scanned("running maxima", filled({3, 1003}, single, 16), Monoid::max, single, single);
  scanned("running products", filled({3, 303}, single, 17), Monoid::prod, wide, single);
  scanned("running products of 64 bits", filled({3, 303}, wide, 18), Monoid::prod, wide, wide);
  return all;
}

double at(const Tensor& t, int64_t k) {
  return Scalar::load(t.dtype(), static_cast<char*>(t.data_ptr()) + k * itemsize(t.dtype())).to_double();
}

}  // namespace

TEST(Schedules, ComputeWhatTheInterpreterSays) {
  for (auto& c : cases()) {
    auto got = run(c, by_llvm), expected = run(c, by_interpreter);
    for (size_t k = 0; k < got.size(); ++k)
      for (int64_t e = 0, count = got[k].numel().concrete(); e < count; ++e) {
        double x = at(got[k], e), y = at(expected[k], e);
        ASSERT_LE(std::abs(x - y), 2e-4 * std::max(1.0, std::abs(y)))
            << c.name << " output " << k << " element " << e;
      }
  }
}

// The interpreter adds up in the lanes' order and takes the expansions of functions, so it gives the kernel's bits; of some
// monoids it rounds a step once.
TEST(Schedules, ComputeToTheBitWhatTheInterpreterDoesInLanes) {
  for (auto& c : cases()) {
    bool wider = false;
    auto got = run(c, by_llvm),
         expected = run(c, [&](const Nest& n, Buffers buffers, const auto& params) {
           Nest lanes = schedule::in_lanes(n, codegen::lane_limits());
           verify(lanes, codegen::lane_limits());
           test::expand(lanes.body);
           std::string text = print(lanes);
           wider |= text.find("welford") != text.npos || text.find("logsumexp") != text.npos;
           by_interpreter(lanes, buffers, params);
         });
    for (size_t k = 0; k < got.size() && !wider; ++k)
      for (int64_t e = 0, count = got[k].numel().concrete(); e < count; ++e) {
        double x = at(got[k], e), y = at(expected[k], e);
        ASSERT_TRUE(x == y || (std::isnan(x) && std::isnan(y)))
            << c.name << " output " << k << " element " << e << ": " << x << ", " << y;
      }
  }
}

TEST(Schedules, GiveTheSameBitsForAnyNumberOfThreads) {
  int before = num_threads();
  for (auto& c : cases()) {
    set_num_threads(1);
    auto expected = run(c, by_llvm);
    for (int threads : {2, 3, 7}) {
      set_num_threads(threads);
      auto got = run(c, by_llvm);
      for (size_t k = 0; k < got.size(); ++k)
        EXPECT_EQ(std::memcmp(got[k].data_ptr(), expected[k].data_ptr(),
                              size_t(got[k].numel().concrete()) * size_t(got[k].itemsize())),
                  0)
            << c.name << " output " << k << " with " << threads << " threads";
    }
  }
  set_num_threads(before);
}

// Blocks of 64 threads. Sums in a tree are as far from the interpreter's as sums in lanes are; the bits are the same for
// any number of blocks.
TEST(Schedules, ComputeTheSameOnAGrid) {
  std::map<std::string, size_t> numbers;
  std::deque<Nest> grids;
  auto all = cases();
  for (auto& c : all)
    run(c, [&](const Nest& n, Buffers buffers, const std::vector<int64_t>& params) {
      if (numbers.try_emplace(loop::identity(n), grids.size()).second)
        grids.push_back(on_grid(n, {.threads = 64}));
      by_interpreter(n, buffers, params);
    });
  auto number = [&](const Nest& n) { return numbers.at(loop::identity(n)); };
  std::vector<const Nest*> nests;
  for (auto& g : grids) nests.push_back(&g);
  auto runners = test::grid_runners(nests);
  ASSERT_EQ(runners[0]->error(), "");
  for (auto& c : all) {
    auto expected = run(c, by_interpreter);
    auto on_blocks = [&](const test::GridRunner& runner, unsigned blocks) {
      return run(c, [&](const Nest& n, Buffers buffers, const std::vector<int64_t>& params) {
        EXPECT_EQ(runner.run(number(n), buffers, params, blocks).failed, 0)
            << c.name << " by " << runner.name();
      });
    };
    auto near = [&](const std::vector<Tensor>& got, const char* by) {
      for (size_t k = 0; k < got.size(); ++k)
        for (int64_t e = 0, count = got[k].numel().concrete(); e < count; ++e) {
          double x = at(got[k], e), y = at(expected[k], e);
          double bound = is_floating(got[k].dtype()) ? 2e-4 * std::max(1.0, std::abs(y)) : 0;
          ASSERT_LE(std::abs(x - y), bound) << c.name << " by " << by << ", output " << k << " element " << e;
        }
    };
    near(run(c,
             [&](const Nest& n, Buffers buffers, const std::vector<int64_t>& params) {
               by_interpreter(grids[number(n)], buffers, params);
             }),
         "the interpreter on a grid");
    for (auto& runner : runners) {
      auto got = on_blocks(*runner, 1), again = on_blocks(*runner, 7);
      for (size_t k = 0; k < got.size(); ++k)
        EXPECT_EQ(std::memcmp(got[k].data_ptr(), again[k].data_ptr(),
                              size_t(got[k].numel().concrete() * itemsize(got[k].dtype()))),
                  0)
            << c.name << " by " << runner->name() << ", output " << k;
      near(got, runner->name());
    }
  }
}
