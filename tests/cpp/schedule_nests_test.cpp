// Groups against the interpreter of definitions: the nests that the scheduler makes compute what the group
// says.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "facula/loop/interpret.h"
#include "facula/schedule/build.h"
#include "facula/schedule/schedule.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::schedule;

namespace {

Expr i(int v) { return loop::index(v); }
Expr n(SymInt s) { return loop::size(s); }
Expr number(int64_t v) { return loop::constant(Scalar(v), DType::Int64); }

Tensor filled(const Ints& sizes, DType d, unsigned seed) {
  Tensor t = Tensor::empty(sizes, d);
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> real(-2, 2);
  int64_t count = product(t.sizes()).concrete();
  for (int64_t k = 0; k < count; ++k) {
    auto* at = static_cast<char*>(t.data_ptr()) + k * itemsize(d);
    if (is_complex(d)) Scalar(std::complex<double>(real(random), real(random))).store(d, at);
    else if (is_floating(d)) Scalar(real(random)).store(d, at);
    else Scalar(int64_t(random() % 7)).store(d, at);
  }
  return t;
}

// The dimensions exchanged, with the same elements otherwise laid out.
Tensor transposed(const Tensor& t) {
  Dims sizes(t.sizes()), strides(t.strides());
  std::reverse(sizes.begin(), sizes.end());
  std::reverse(strides.begin(), strides.end());
  return t.alias(sizes, strides, t.offset());
}

// Launches whose kernels are known are those that would have been made, and their nests too where somebody looks.
void check_known(const Group& g, const Analysis& a, const Layout& l) {
  Numbers n = numbers(a, l);
  Decisions d = decide(a, n);
  Built made = build(g.name, a, d);
  std::vector<IndexedNest> known;
  for (auto& launch : made.launches) known.push_back({Sha256{}, launch.buffers, launch.numbers});
  Built again = build(g.name, a, d, known);
  ASSERT_EQ(again.launches.size(), made.launches.size());
  ASSERT_EQ(again.temporaries.size(), made.temporaries.size());
  for (size_t k = 0; k < made.launches.size(); ++k) {
    auto &x = made.launches[k], &y = again.launches[k];
    auto* kernel = y.nest->kernel();
    ASSERT_TRUE(kernel && !x.nest->kernel());
    EXPECT_EQ(loop::print(kernel->tasks), loop::print(x.nest->nest().tasks));
    EXPECT_EQ(loop::print(kernel->cost), loop::print(x.nest->nest().cost));
    EXPECT_EQ(loop::print(*y.nest), loop::print(*x.nest));
    EXPECT_EQ(x.buffers, y.buffers);
    ASSERT_EQ(x.params.size(), y.params.size());
    for (size_t p = 0; p < x.params.size(); ++p) EXPECT_EQ(x.params[p].value(n), y.params[p].value(n));
  }
}

Schedule run(const Group& g, std::span<const Tensor> inputs, std::span<const Tensor> outputs) {
  Layout l;
  for (auto e : g.extents) l.extents.push_back(e.concrete());
  for (auto& t : inputs) {
    l.input_strides.emplace_back(t.int_strides());
    l.input_sizes.emplace_back(t.int_sizes());
  }
  for (auto& t : outputs) {
    l.output_strides.emplace_back(t.int_strides());
    l.output_sizes.emplace_back(t.int_sizes());
    l.output_overlaps.push_back(false);
  }
  l.size_of = [](SymInt s) { return s.concrete(); };
  Schedule s = schedule::schedule(g, l);
  if (g.scatter) check_known(g, analyse_scatter(g), l);
  else
    for (auto& p : parts(g)) check_known(g, analyse(g, p), l);
  std::vector<void*> pointers;
  for (auto& t : inputs) pointers.push_back(t.data_ptr());
  for (auto& t : outputs) pointers.push_back(t.data_ptr());
  std::vector<Tensor> scratch;
  for (auto& t : s.temporaries) {
    scratch.push_back(Tensor::empty(Ints{t.numel}, t.dtype));
    pointers.push_back(scratch.back().data_ptr());
  }
  for (auto& launch : s.launches) {
    loop::verify(*launch.nest);
    std::vector<void*> buffers;
    for (int b : launch.buffers) buffers.push_back(pointers[size_t(b)]);
    loop::interpret(*launch.nest, buffers, launch.params);
  }
  return s;
}

// Runs the group, one definition an output, and compares.
Schedule check(Group g, const std::vector<Tensor>& inputs, bool transpose_outputs = false) {
  g.name = "test";
  for (auto& t : inputs) g.inputs.push_back({t.dtype(), t.dim()});
  std::vector<Tensor> outputs, expected;
  for (auto& o : g.outputs) {
    Ints sizes;
    for (auto a : o.axes) sizes.push_back(a < 0 ? 1 : g.extents[size_t(a)].concrete());
    Ints reversed = sizes;
    std::reverse(reversed.begin(), reversed.end());
    outputs.push_back(transpose_outputs ? transposed(Tensor::empty(reversed, o.dtype))
                                        : Tensor::empty(sizes, o.dtype));
    // The definition of this output alone, over its own dimensions.
    Definition d;
    d.rank = int(sizes.size());
    std::vector<std::pair<int, Expr>> map;
    for (size_t k = 0; k < o.axes.size(); ++k)
      if (o.axes[k] >= 0) map.push_back({int(o.axes[k]), i(int(k))});
    d.values = {substitute(o.value, map)};
    Dims dims(IntSpan{sizes});
    std::vector<Dims> all{dims};
    DType type[] = {o.dtype};
    expected.push_back(loop::interpret(d, inputs, all, type, Precision::wide)[0]);
  }
  Schedule s = run(g, inputs, outputs);
  for (size_t k = 0; k < outputs.size(); ++k) {
    DType d = outputs[k].dtype();
    double tolerance = d == DType::Float64                            ? 1e-11
                       : d == DType::Float32 || d == DType::Complex64 ? 2e-5
                       : d == DType::Float16                          ? 2e-3
                       : is_floating(d)                               ? 1e-2
                                                                      : 0;
    std::vector<int64_t> at(outputs[k].sizes().size(), 0);
    auto element = [&](const Tensor& t) {
      int64_t offset = 0;
      for (size_t j = 0; j < at.size(); ++j) offset += at[j] * t.int_strides()[j];
      return Scalar::load(d, static_cast<char*>(t.data_ptr()) + offset * itemsize(d));
    };
    int64_t count = product(outputs[k].sizes()).concrete();
    for (int64_t c = 0; c < count; ++c) {
      int64_t rest = c;
      for (size_t j = at.size(); j-- > 0;) {
        at[j] = rest % outputs[k].int_sizes()[j];
        rest /= outputs[k].int_sizes()[j];
      }
      auto x = element(outputs[k]).to_complex(), y = element(expected[k]).to_complex();
      if (std::isnan(x.real()) && std::isnan(y.real())) continue;
      if (std::abs(x - y) > tolerance * std::max(1.0, std::abs(y))) {
        std::string nests;
        for (auto& launch : s.launches) nests += loop::print(*launch.nest) + "\n";
        ADD_FAILURE() << "output " << k << " element " << c << ": " << x << ", expected " << y << "\n"
                      << nests;
        return s;
      }
    }
  }
  return s;
}

GroupOutput out(Expr value, Ints axes, DType d = DType::Float32) { return {d, value, axes}; }
Expr ld(int slot, std::vector<Expr> at, DType d = DType::Float32) {
  return loop::load(slot, d, std::move(at));
}
Expr fold(Monoid m, std::vector<BoundVar> v, std::vector<Expr> x) {
  return loop::reduce(m, std::move(v), std::move(x));
}
std::string text(const Schedule& s) {
  std::string t;
  for (auto& l : s.launches) t += loop::print(*l.nest) + "\n";
  return t;
}

Group softmax(int64_t rows, int64_t d) {
  Group g;
  g.extents = {rows, d};
  Expr m = fold(Monoid::max, {{64, n(d)}}, {ld(0, {i(0), i(64)})});
  Expr s = fold(Monoid::sum, {{64, n(d)}}, {exp(ld(0, {i(0), i(64)}) - m)});
  g.outputs = {out(exp(ld(0, {i(0), i(1)}) - m) / s, {0, 1})};
  return g;
}

}  // namespace

TEST(Nests, MapsOfEveryLayout) {
  for (auto& sizes : {Ints{6, 5}, Ints{1, 7}, Ints{70, 3}, Ints{3, 90}, Ints{0, 4}}) {
    Group g;
    g.extents = Dims(IntSpan{sizes});
    g.outputs = {out(ld(0, {i(0), i(1)}) * ld(1, {i(0), i(1)}) + ld(2, {i(1)}), {0, 1})};
    Tensor a = filled(sizes, DType::Float32, 1), b = filled(sizes, DType::Float32, 2),
           c = filled({sizes[1]}, DType::Float32, 3);
    Tensor bt = transposed(filled({sizes[1], sizes[0]}, DType::Float32, 4));
    check(g, {a, b, c});
    check(g, {a, bt, c});
    check(g, {a, bt, c}, true);
  }
}

TEST(Nests, ContiguousMapsCollapseToOneLoop) {
  auto make = [](int64_t a, int64_t b, int64_t c) {
    Group g;
    g.extents = {a, b, c};
    g.outputs = {out(ld(0, {i(0), i(1), i(2)}) * Scalar(3.0), {0, 1, 2})};
    return text(check(g, {filled({a, b, c}, DType::Float32, 1)}));
  };
  EXPECT_EQ(make(3, 4, 5), make(7, 11, 130));
}

TEST(Nests, ValuesForEachRowDoNotTurnTheLanes) {
  Group g;  // three contiguous values a row weigh less than one an element
  g.extents = {200, 100};
  Expr rows = cast(ld(1, {i(0)}, DType::Int64), DType::Float32) * ld(2, {i(0)}) * ld(3, {i(0)});
  g.outputs = {out(ld(0, {i(0), i(1)}) * rows, {0, 1})};
  Schedule s = check(g, {filled({200, 100}, DType::Float32, 1), filled({200}, DType::Int64, 2),
                         filled({200}, DType::Float32, 3), filled({200}, DType::Float32, 4)});
  EXPECT_EQ(text(s).find("array"), std::string::npos);
}

TEST(Nests, TurnedOperandsGoThroughTiles) {
  for (auto d : {DType::Float32, DType::Float64, DType::BFloat16, DType::Complex64}) {
    for (auto [r, c] : {std::pair{70, 130}, {64, 64}, {5, 200}, {129, 3}}) {
      Group g;
      g.extents = {3, r, c};
      Expr x = ld(0, {i(0), i(1), i(2)}, d), y = ld(1, {i(0), i(1), i(2)}, d);
      g.outputs = {out(x * y + y, {0, 1, 2}, d)};
      Tensor turned = filled({3, c, r}, d, 2).alias(Dims{3, r, c}, Dims{r * c, 1, r}, 0);
      Schedule s = check(g, {filled({3, r, c}, d, 1), turned});
      EXPECT_NE(text(s).find("array"), std::string::npos);
      check(g, {turned, turned});
    }
  }
  Group guarded;  // what only some elements may read is not staged
  guarded.extents = {70, 80};
  Expr inside = i(1) < number(40);
  guarded.outputs = {out(ld(0, {i(0), i(1)}) + select(inside, ld(1, {i(0), i(1)}), Scalar(0.0)), {0, 1})};
  check(guarded, {filled({70, 80}, DType::Float32, 1), transposed(filled({80, 70}, DType::Float32, 2))});
}

TEST(Nests, ZeroDimensionalAndSingleElements) {
  Group g;
  g.outputs = {out(ld(0, {}) * ld(1, {}), {})};
  check(g, {filled({}, DType::Float32, 1), filled({}, DType::Float32, 2)});
  Group h;
  h.extents = {1, 1};
  h.outputs = {out(fold(Monoid::sum, {{64, n(1)}}, {ld(0, {i(0), i(64)})}), {0, -1})};
  check(h, {filled({1, 1}, DType::Float32, 1)});
}

TEST(Nests, SoftmaxSweepsRows) {
  for (auto [r, d] : {std::pair{5, 7}, {40, 33}, {2, 300}, {64, 4}, {1, 1}, {3, 1}, {1, 9}}) {
    check(softmax(r, d), {filled({r, d}, DType::Float32, 1)});
    check(softmax(r, d), {transposed(filled({d, r}, DType::Float32, 1))});
  }
  EXPECT_EQ(text(check(softmax(20, 33), {filled({20, 33}, DType::Float32, 1)})),
            text(check(softmax(50, 60), {filled({50, 60}, DType::Float32, 1)})));
}

TEST(Nests, ReductionsOverEveryAxis) {
  for (auto m : {Monoid::sum, Monoid::prod, Monoid::max, Monoid::min}) {
    for (auto& sizes : {Ints{4, 5, 6}, Ints{9, 2, 40}, Ints{3, 50, 2}, Ints{2, 3, 0}}) {
      Tensor x = filled(sizes, DType::Float64, 1);
      Expr e[3] = {n(sizes[0]), n(sizes[1]), n(sizes[2])};
      Group a, b, c, d;
      DType f = DType::Float64;
      a.extents = {sizes[1], sizes[2]};
      a.outputs = {out(fold(m, {{64, e[0]}}, {ld(0, {i(64), i(0), i(1)}, f)}), {0, 1}, f)};
      b.extents = {sizes[0], sizes[2]};
      b.outputs = {out(fold(m, {{64, e[1]}}, {ld(0, {i(0), i(64), i(1)}, f)}), {0, 1}, f)};
      c.extents = {sizes[1]};
      c.outputs = {out(fold(m, {{64, e[0]}, {65, e[2]}}, {ld(0, {i(64), i(0), i(65)}, f)}), {0}, f)};
      d.outputs = {
          out(fold(m, {{64, e[0]}, {65, e[1]}, {66, e[2]}}, {ld(0, {i(64), i(65), i(66)}, f)}), {}, f)};
      for (auto& g : {a, b, c, d}) check(g, {x});
    }
  }
}

TEST(Nests, LongReductionsAreSplitAlikeForAllThreads) {
  for (auto [r, d] : {std::pair{1, 70000}, {3, 30000}, {30000, 3}, {1200, 60}}) {
    Tensor x = filled({r, d}, DType::Float64, 1);
    DType f = DType::Float64;
    Group rows, columns, all, normal;
    rows.extents = {r};
    rows.outputs = {out(fold(Monoid::sum, {{64, n(d)}}, {ld(0, {i(0), i(64)}, f)}), {0}, f)};
    columns.extents = {d};
    columns.outputs = {out(fold(Monoid::sum, {{64, n(r)}}, {ld(0, {i(64), i(0)}, f)}), {0}, f)};
    all.outputs = {out(fold(Monoid::sum, {{64, n(r)}, {65, n(d)}}, {ld(0, {i(64), i(65)}, f)}), {}, f)};
    normal.extents = {r, d};
    normal.outputs = {
        out(ld(0, {i(0), i(1)}, f) / fold(Monoid::sum, {{64, n(r)}, {65, n(d)}}, {ld(0, {i(64), i(65)}, f)}),
            {0, 1}, f)};
    for (auto& g : {rows, columns, all, normal}) check(g, {x});
  }
}

TEST(Nests, PairsOfComponents) {
  DType f = DType::Float64;
  for (auto [r, d] : {std::pair{5, 20}, {20, 5}, {1, 70000}, {40000, 2}, {3, 1}}) {
    Tensor x = filled({r, d}, f, 1);
    Group g;
    g.extents = {r};
    Expr w = fold(Monoid::welford, {{64, n(d)}}, {ld(0, {i(0), i(64)}, f)});
    Expr l = fold(Monoid::logsumexp, {{64, n(d)}}, {ld(0, {i(0), i(64)}, f)});
    Expr a = fold(Monoid::argmax, {{64, n(d)}}, {ld(0, {i(0), i(64)}, f), i(64)});
    g.outputs = {out(part(w, 0), {0}, f), out(part(w, 1) / part(w, 2), {0}, f),
                 out(part(l, 0) + log(part(l, 1)), {0}, f), out(part(a, 0), {0}, f),
                 out(part(a, 1), {0}, DType::Int64)};
    check(g, {x});
    check(g, {transposed(filled({d, r}, f, 2))});
    Group h;
    Expr whole = fold(Monoid::welford, {{64, n(r)}, {65, n(d)}}, {ld(0, {i(64), i(65)}, f)});
    Expr best =
        fold(Monoid::argmax, {{64, n(r)}, {65, n(d)}}, {ld(0, {i(64), i(65)}, f), i(64) * n(d) + i(65)});
    h.outputs = {out(part(whole, 1), {}, f), out(part(best, 1), {}, DType::Int64)};
    check(h, {x});
  }
}

TEST(Nests, ArgmaxTakesTheFirstOfEquals) {
  Tensor x = Tensor::empty(Ints{40000}, DType::Float32);
  for (int k = 0; k < 40000; ++k) x.data<float>()[k] = k % 777 == 5 ? 3.f : 1.f;
  Group g;
  g.outputs = {
      out(part(fold(Monoid::argmax, {{64, n(40000)}}, {ld(0, {i(64)}), i(64)}), 1), {}, DType::Int64)};
  check(g, {x});
}

TEST(Nests, BatchNormOverChannels) {
  for (bool last : {false, true}) {
    int64_t b = 3, c = 5, h = 4, w = 6;
    Tensor x = filled({b, c, h, w}, DType::Float32, 1);
    if (last)
      x = filled({b, h, w, c}, DType::Float32, 1).alias(Dims{b, c, h, w}, Dims{h * w * c, 1, w * c, c}, 0);
    Group g;
    g.extents = {b, c, h, w};
    Expr y = ld(0, {i(64), i(1), i(65), i(66)});
    Expr wf = fold(Monoid::welford, {{64, n(b)}, {65, n(h)}, {66, n(w)}}, {y});
    Expr mean = part(wf, 0), var = part(wf, 1) / part(wf, 2);
    g.outputs = {out((ld(0, {i(0), i(1), i(2), i(3)}) - mean) * rsqrt(var + Scalar(1e-5)) * ld(1, {i(1)}),
                     {0, 1, 2, 3}),
                 out(mean, {1}), out(var, {1})};
    check(g, {x, filled({c}, DType::Float32, 2)});
  }
}

TEST(Nests, MatrixProductByDefinition) {
  Group g;
  g.extents = {7, 20};
  g.outputs = {out(fold(Monoid::sum, {{64, n(9)}}, {ld(0, {i(0), i(64)}) * ld(1, {i(64), i(1)})}), {0, 1})};
  check(g, {filled({7, 9}, DType::Float32, 1), filled({9, 20}, DType::Float32, 2)});
}

TEST(Nests, ReductionsInsideReductions) {
  Group g;  // max over j of sum over k: the sum depends on j
  g.extents = {5};
  Expr inner = fold(Monoid::sum, {{65, n(4)}}, {ld(0, {i(0), i(64), i(65)})});
  g.outputs = {out(fold(Monoid::max, {{64, n(3)}}, {inner}), {0})};
  check(g, {filled({5, 3, 4}, DType::Float32, 1)});
}

TEST(Nests, WindowsWithGuards) {
  int64_t h = 6, w = 9;
  Group g;
  g.extents = {h, w};
  Expr y = i(0) + i(64) - Scalar(int64_t(1)), x = i(1) + i(65) - Scalar(int64_t(1));
  Expr inside = (y >= number(0)) & (y < number(h)) & (x >= number(0)) & (x < number(w));
  g.outputs = {
      out(fold(Monoid::max, {{64, n(3)}, {65, n(3)}}, {select(inside, ld(0, {y, x}), Scalar(-INFINITY))}),
          {0, 1})};
  check(g, {filled({h, w}, DType::Float32, 1)});
}

TEST(Nests, ScansAlongEveryAxis) {
  for (int axis : {0, 1}) {
    for (auto m : {Monoid::sum, Monoid::max}) {
      Group g;
      g.extents = {5, 30};
      Expr at[2] = {i(0), i(1)};
      at[axis] = i(64);
      Expr s = scan(m, axis, {64, n(axis ? 30 : 5)}, {ld(0, {at[0], at[1]})});
      g.outputs = {out(s * Scalar(2.0), {0, 1})};
      check(g, {filled({5, 30}, DType::Float32, 1)});
      check(g, {filled({5, 30}, DType::Float32, 1)}, true);
    }
  }
}

TEST(Nests, GatherChecksIndices) {
  Group g;
  g.extents = {8, 5};
  g.outputs = {
      out(ld(0, {loop::check(cast(ld(1, {i(0)}, DType::Int64), DType::Int64), n(7)), i(1)}), {0, 1})};
  check(g, {filled({7, 5}, DType::Float32, 1), filled({8}, DType::Int64, 2)});
}

TEST(Nests, SixteenBitAndComplexValues) {
  for (auto d : {DType::BFloat16, DType::Float16}) {
    Group g;
    g.extents = {5, 40};
    Expr x = ld(0, {i(0), i(1)}, d);
    g.outputs = {out(round_to(exp(x), d) * x, {0, 1}, d),
                 out(fold(Monoid::sum, {{64, n(40)}}, {ld(0, {i(0), i(64)}, d)}), {0}, d)};
    check(g, {filled({5, 40}, d, 1)});
  }
  Group g;
  DType z = DType::Complex64;
  g.extents = {5, 40};
  Expr x = ld(0, {i(0), i(1)}, z), y = ld(1, {i(0), i(1)}, z);
  g.outputs = {out(exp(x) * y + x, {0, 1}, z), out(abs(x / y), {0, 1}),
               out(fold(Monoid::sum, {{64, n(40)}}, {ld(0, {i(0), i(64)}, z)}), {0}, z)};
  check(g, {filled({5, 40}, z, 1), filled({5, 40}, z, 2)});
}

TEST(Nests, PositionSurvivesCollapsing) {
  Group g;
  g.extents = {4, 5, 6};
  g.outputs = {out(cast(position(), DType::Float32) + ld(0, {i(0), i(1), i(2)}), {0, 1, 2})};
  Schedule s = check(g, {filled({4, 5, 6}, DType::Float32, 1)});
  EXPECT_EQ(text(s).find("remainder"), std::string::npos);
  check(g, {filled({4, 5, 6}, DType::Float32, 1)}, true);
}

namespace {
// A scatter onto `sizes` of inputs that begin with its base, compared with its definition.
Schedule check_scatter(Group g, const loop::Scatter& s, const std::vector<Tensor>& inputs,
                       const Ints& sizes) {
  DType d = inputs.back().dtype();
  g.name = "scatter";
  g.extents = s.domain;
  for (auto& t : inputs) g.inputs.push_back({t.dtype(), t.dim()});
  g.scatter = s;
  g.outputs.resize(1);
  g.outputs[0].dtype = d;
  Definition def;
  def.rank = int(s.domain.size());
  def.scatter = s;
  std::vector<Dims> all{Dims(IntSpan{sizes})};
  DType types[] = {d};
  Tensor expected = loop::interpret(def, inputs, all, types, Precision::faithful)[0];
  std::vector<Tensor> outputs{Tensor::empty(sizes, d)};
  Schedule made = run(g, inputs, outputs);
  for (int64_t k = 0; k < expected.numel().concrete(); ++k) {
    auto x = Scalar::load(d, static_cast<char*>(outputs[0].data_ptr()) + k * itemsize(d)).to_complex();
    auto y = Scalar::load(d, static_cast<char*>(expected.data_ptr()) + k * itemsize(d)).to_complex();
    EXPECT_LE(std::abs(x - y), 1e-4 * std::max(1.0, std::abs(y))) << k << "\n" << text(made);
    if (testing::Test::HasFailure()) break;
  }
  return made;
}
void check_scatter(loop::Scatter::Combine combine, bool columns, DType d) {
  // Rows of `value` [40, 6] go to rows of the result [9, 6] named by index; or elements to elements named in
  // a column.
  Tensor base = filled({9, 6}, d, 1), index = filled({40}, DType::Int64, 2), value = filled({40, 6}, d, 3);
  loop::Scatter s;
  s.combine = combine;
  s.base = 0;
  s.domain = {40, 6};
  Expr where = loop::check(ld(1, {i(0)}, DType::Int64), n(9));
  s.target = {where, columns ? remainder(i(1) * Scalar(int64_t(5)) + i(0), n(6)) : i(1)};
  s.value = ld(2, {i(0), i(1)}, d);
  check_scatter({}, s, {base, index, value}, {9, 6});
}
void check_scatter_along(const Ints& sizes, int dim, loop::Scatter::Combine combine, DType d, bool zeros) {
  Tensor base = filled(sizes, d, 1), index = filled(sizes, DType::Int64, 2), value = filled(sizes, d, 3);
  loop::Scatter s;
  s.combine = combine;
  s.base = zeros ? -1 : 0;
  s.domain = Dims(IntSpan{sizes});
  s.target = {i(0), i(1)};
  Expr picked = remainder(ld(1, {i(0), i(1)}, DType::Int64), n(sizes[size_t(dim)]));
  s.target[size_t(dim)] = loop::check(picked, n(sizes[size_t(dim)]));
  s.value = ld(2, {i(0), i(1)}, d);
  Schedule made = check_scatter({}, s, {base, index, value}, sizes);
  bool lists = combine != loop::Scatter::Combine::assign && sizes[1] >= 64;
  EXPECT_EQ(text(made).find("array") != std::string::npos, lists) << text(made);
  bool first = sizes[1] >= 64 && d != DType::Complex64;
  EXPECT_EQ(made.launches.size(), first ? 1u : 2u) << text(made);
}
}  // namespace

TEST(Nests, ScattersInOrder) {
  using C = loop::Scatter::Combine;
  for (auto c : {C::assign, C::sum, C::prod, C::max, C::min})
    for (bool columns : {false, true})
      for (auto d : {DType::Float32, DType::Int64}) check_scatter(c, columns, d);
  check_scatter(C::sum, false, DType::Complex64);
  check_scatter(C::assign, true, DType::Complex64);
}

// Elements that an index of each one's own moves along `dim`; rows that are whole slices write their base first, longer lines go
// by lists of places, several blocks of them.
TEST(Nests, ScattersAlongADimension) {
  using C = loop::Scatter::Combine;
  for (auto sizes : {Ints{12, 300}, Ints{300, 12}, Ints{9, 70}, Ints{600, 2}})
    for (int dim : {0, 1})
      for (auto combine : {C::assign, C::sum, C::max})
        for (auto d : {DType::Float32, DType::Int64, DType::Complex64})
          for (bool zeros : {false, true})
            if (d != DType::Complex64 || combine != C::max)
              check_scatter_along(sizes, dim, combine, d, zeros);
}

// Long scatters into large results: each task lists what goes to its share of the places.
TEST(Nests, SharesOfAScattersPlacesAreTasks) {
  constexpr int64_t kCount = 65543, kPlaces = 5003;
  for (auto d : {DType::Float32, DType::Int64, DType::Complex64}) {
    Tensor base = filled({kPlaces}, d, 1), value = filled({kCount}, d, 3);
    Tensor index = Tensor::empty(Ints{kCount}, DType::Int64);
    for (int64_t k = 0; k < kCount; ++k) static_cast<int64_t*>(index.data_ptr())[k] = k * 7919 % kPlaces;
    loop::Scatter s;
    s.combine = loop::Scatter::Combine::sum;
    s.base = 0;
    s.domain = {kCount};
    s.target = {loop::check(ld(1, {i(0)}, DType::Int64), n(kPlaces))};
    s.value = ld(2, {i(0)}, d);
    Schedule made = check_scatter({}, s, {base, index, value}, {kPlaces});
    EXPECT_NE(text(made).find(" to i"), std::string::npos) << text(made);
    EXPECT_EQ(made.launches.size(), d == DType::Complex64 ? 2u : 1u);
  }
}

// Rows of a large result that an index names: each task goes through all and changes the slices of its own, listed where
// they are added to.
TEST(Nests, SharesOfSlicesAreTasks) {
  using C = loop::Scatter::Combine;
  constexpr int64_t kCount = 517;
  for (int64_t width : {int64_t(130), int64_t(256), int64_t(1030)})
    for (auto combine : {C::assign, C::sum, C::max})
      for (auto d : {DType::Float32, DType::Int64, DType::Complex64}) {
        if (d == DType::Complex64 && combine == C::max) continue;
        Ints sizes{width < 256 ? 600 : 151, width};
        Tensor base = filled(sizes, d, 1), value = filled({kCount, width}, d, 3);
        Tensor index = Tensor::empty(Ints{kCount}, DType::Int64);
        for (int64_t k = 0; k < kCount; ++k) static_cast<int64_t*>(index.data_ptr())[k] = k * 7919 % sizes[0];
        loop::Scatter s;
        s.combine = combine;
        s.base = 0;
        s.domain = {kCount, width};
        s.target = {loop::check(ld(1, {i(0)}, DType::Int64), n(sizes[0])), i(1)};
        s.value = ld(2, {i(0), i(1)}, d);
        Schedule made = check_scatter({}, s, {base, index, value}, sizes);
        EXPECT_EQ(text(made).find("array") != std::string::npos, combine != C::assign) << text(made);
        EXPECT_NE(text(made).find("bit_and(le("), std::string::npos) << text(made);
        EXPECT_EQ(made.launches.size(), d == DType::Complex64 ? 2u : 1u);
      }
}

TEST(Nests, RandomGroups) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    int rank = 1 + int(random() % 4);
    Group g;
    Ints sizes;
    const int64_t choices[] = {1, 2, 3, 5, 17};
    for (int k = 0; k < rank; ++k) sizes.push_back(choices[random() % 5]);
    g.extents = Dims(IntSpan{sizes});
    std::vector<bool> reduced;
    for (int k = 0; k < rank; ++k) reduced.push_back(random() % 2);
    std::vector<Expr> own, folded;
    std::vector<BoundVar> bound;
    Ints rows, all;
    for (int k = 0; k < rank; ++k) {
      own.push_back(i(k));
      all.push_back(k);
      if (reduced[size_t(k)]) {
        folded.push_back(i(64 + int(bound.size())));
        bound.push_back({64 + int(bound.size()), n(sizes[size_t(k)])});
      } else {
        folded.push_back(i(k));
        rows.push_back(k);
      }
    }
    DType f = DType::Float64;
    Monoid monoids[] = {Monoid::sum, Monoid::max, Monoid::welford, Monoid::logsumexp};
    Expr x = ld(0, own, f), y = ld(1, own, f), row = x;
    if (!bound.empty()) {
      Monoid m = monoids[random() % 4];
      Expr r = fold(m, bound, {ld(0, folded, f)});
      row = components(m) > 1 ? part(r, 1) : r;
      if (random() % 2) row = fold(Monoid::sum, bound, {(ld(1, folded, f) - row) * ld(0, folded, f)});
      g.outputs.push_back(out(row, rows, f));
    }
    g.outputs.push_back(out(x * row + y, all, f));
    auto any_layout = [&](unsigned seed) {
      Ints order, shuffled;
      for (int k = 0; k < rank; ++k) order.push_back(k);
      std::shuffle(order.begin(), order.end(), random);
      for (auto k : order) shuffled.push_back(sizes[size_t(k)]);
      Tensor t = filled(shuffled, f, seed);
      Dims strides(static_cast<size_t>(rank), SymInt());
      for (int k = 0; k < rank; ++k) strides[size_t(order[size_t(k)])] = t.strides()[size_t(k)];
      return t.alias(g.extents, strides, 0);
    };
    Tensor a = any_layout(1), b = any_layout(2);
    check(g, {a, b}, random() % 2);
    if (HasFailure()) {
      ADD_FAILURE() << "round " << round;
      return;
    }
  }
}
