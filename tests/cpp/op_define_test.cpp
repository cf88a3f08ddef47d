// Definitions: what the adapters make of lambdas, what is derived, what calls read, and how faults are
// reported.
#include <gtest/gtest.h>

#include "facula/op/helpers.h"
#include "facula/op/operands.h"
#include "facula/op/registry.h"

namespace facula::op {
namespace {

using loop::Expr;

Tensor zeros(std::initializer_list<int64_t> sizes, DType d = DType::Float32) {
  Tensor t = Tensor::empty(IntSpan(sizes.begin(), sizes.size()), d);
  std::memset(t.data_ptr(), 0, size_t(t.numel().concrete()) * size_t(t.itemsize()));
  return t;
}

const Operator& late(const char* full_name, const std::function<void()>& family) {
  define_late(family);
  return get(full_name);
}

std::string fault(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) { return e.message(); }
  return "";
}

TEST(Args, OwnWhatTheValuesBorrow) {
  Args kept;
  Tensor a = zeros({2}), b = zeros({3});
  {
    std::vector<Tensor> list{a, Tensor(), b};
    std::vector<SymInt> ints{1, 2};
    std::vector<Scalar> numbers{0.5, true};
    std::string text(100, 'x');
    Value v[] = {a,
                 std::span<const Tensor>(list),
                 SymSpan(ints),
                 std::span<const Scalar>(numbers),
                 std::string_view(text),
                 Value()};
    kept = Args(v);
  }
  EXPECT_EQ(kept[0].tensor, a.impl());
  EXPECT_EQ(kept[1].tensors()[2], b.impl());
  EXPECT_EQ(kept[1].tensors()[1], nullptr);
  EXPECT_EQ(to_string(kept[2].ints()), "[1, 2]");
  EXPECT_TRUE(kept[3].scalars()[1].to_bool());
  EXPECT_EQ(kept[4].string(), std::string(100, 'x'));
  EXPECT_TRUE(kept[5].is_none());
  EXPECT_EQ(kept.tensors().size(), 4u);

  Args copy = kept.clone();
  kept.each_tensor([&](size_t slot, Tensor& t) {
    if (slot == 3) t = a;
    else t = Tensor();
  });
  EXPECT_TRUE(kept[0].is_none());
  EXPECT_EQ(kept[1].tensors()[2], a.impl());
  EXPECT_EQ(copy[0].tensor, a.impl());
  EXPECT_EQ(copy[1].tensors()[2], b.impl());
}

TEST(Args, WithASchemaEveryTensorParameterHasASlot) {
  Schema s = parse_schema("f(Tensor x, Tensor? w, Tensor[] l, int n, Tensor y) -> Tensor");
  Tensor a = zeros({2});
  std::vector<Tensor> list{a, a};
  Value v[] = {2.5, Value(), std::span<const Tensor>(list), 3, a};
  Args kept(v, s);
  ASSERT_EQ(kept.tensors().size(), 5u);
  EXPECT_FALSE(kept.tensors()[0].defined());
  EXPECT_TRUE(kept.tensors()[4].is_same(a));
  EXPECT_EQ(kept[0].number().to_double(), 2.5);
  Args copy = kept.clone();
  copy.each_tensor([&](size_t slot, Tensor& t) {
    if (slot == 1) t = a;
    if (slot == 4) t = Tensor();
  });
  EXPECT_EQ(copy[1].tensor, a.impl());
  EXPECT_TRUE(copy[4].is_none());
  EXPECT_EQ(copy[0].number().to_double(), 2.5);
}

TEST(Define, PointwiseBodyTakesOperandsInOrder) {
  auto& op = late("probe_axpy", [] {
    define("probe_axpy(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor")
        .doc("x")
        .in_place()
        .pointwise([](Expr x, Expr y, Expr a) { return x + a * y; });
  });
  EXPECT_EQ(op.kind(), OpKind::pointwise);
  EXPECT_TRUE(op.forms.in_place && op.forms.out && op.has_number_operands());
  Tensor t = zeros({2});
  Value v[] = {t, t};
  LoopCall c(op, v);
  Expr x = loop::load(0, DType::Float32, {loop::index(0)}),
       y = loop::load(1, DType::Float32, {loop::index(0)}), a = loop::load(2, DType::Float32, {});
  std::vector<Expr> operands{x, y, a};
  EXPECT_TRUE(same(op.as<Pointwise>()->body(c, operands).at(0), x + a * y));
  EXPECT_EQ(operands_of(c).size(), 3u);
  EXPECT_EQ(c.slot("alpha"), 2);
  EXPECT_EQ(c.tensor_slot("other"), 1);
  EXPECT_EQ(c.integer("alpha").concrete(), 1);
}

TEST(Define, LoopsReduceOverTheDimensionsOfTheCall) {
  auto& op = late("probe_total", [] {
    define("probe_total(Tensor self, int[1] dim=(), bool keepdim=False) -> Tensor")
        .shape(reduced())
        .loop([](const LoopCall& c, Index i) {
          return reduce_over(c, loop::monoid::sum, i, [&](Index j) { return c.load("self", j); });
        });
  });
  EXPECT_FALSE(op.forms.in_place);
  EXPECT_TRUE(op.forms.out);
  Tensor t = zeros({2, 3, 4});
  SymInt dims[] = {SymInt(-1), SymInt(0)};
  Value v[] = {t, SymSpan(dims), true};
  LoopCall c(op, v);
  EXPECT_EQ(to_string(SymSpan(op.shaped()->shape(c).at(0))), "[1, 3, 1]");
  loop::Definition d = op.as<Loop>()->body(c);
  EXPECT_EQ(d.rank, 3);
  ASSERT_EQ(d.values.size(), 1u);
  EXPECT_EQ(d.values[0]->kind, loop::Kind::reduce);
  EXPECT_EQ(d.values[0]->bound.size(), 2u);
  int free[] = {0, 1, 2};
  loop::verify(d.values[0], free);

  Value all[] = {t};
  EXPECT_EQ(op.shaped()->shape(LoopCall(op, all)).at(0).size(), 0u);
  EXPECT_EQ(op.as<Loop>()->body(LoopCall(op, all)).values[0]->bound.size(), 3u);
}

TEST(Define, LoopsWithoutShapeRuleKeepTheirFirstTensorsShape) {
  auto& op = late("probe_flip_first", [] {
    define("probe_flip_first(Tensor self) -> Tensor").loop([](const LoopCall& c, Index i) {
      return c.load("self", with(i, 0, loop::size(c.size("self", 0)) - integer(1) - i[0]));
    });
  });
  EXPECT_FALSE(op.forms.in_place);
  Tensor t = zeros({4, 2});
  Value v[] = {t};
  EXPECT_EQ(to_string(SymSpan(op.shaped()->shape(Call(op, v)).at(0))), "[4, 2]");
}

TEST(Define, CompositesTakeCppTypes) {
  struct Seen {
    bool has_weight;
    int64_t n;
    double eps;
    std::string mode;
    size_t shape;
    size_t list;
    Ints pads;
  } seen;
  auto& op = late("probe_many", [&seen] {
    define(
        "probe_many(Tensor x, Tensor? w, Tensor[] l, int n, float eps=1e-05, *, str mode='sum', SymInt[] shape=(1, 2), int[2] pad=3, "
        "dtype? dtype=None, Scalar lr=0.5, Scalar beta=2) -> (Tensor, Tensor)")
        .composite([&seen](const Tensor& x, std::optional<Tensor> w, std::vector<Tensor> l, int64_t n,
                           double eps, std::string_view mode, SymSpan shape, Ints pad, std::optional<DType>,
                           const Tensor& lr, Scalar beta) {
          seen = {w.has_value(), n, eps, std::string(mode), shape.size(), l.size(), pad};
          EXPECT_TRUE(lr.impl()->wrapped_number);
          EXPECT_EQ(beta.to_int(), 2);
          return std::tuple(x, lr);
        });
  });
  EXPECT_EQ(op.as<Composite>()->baked_numbers, uint64_t(1) << 10);
  EXPECT_TRUE(!op.forms.in_place && op.forms.out);
  Tensor t = zeros({2});
  std::vector<Tensor> list{t, t, t};
  Value v[] = {t, Value(), std::span<const Tensor>(list), 7};
  Results r = (*op.calls())(Call(op, v));
  ASSERT_EQ(r.size(), 2u);
  EXPECT_TRUE(r[0].is_same(t));
  EXPECT_EQ(r[1].item().to_double(), 0.5);
  EXPECT_FALSE(seen.has_weight);
  EXPECT_EQ(seen.n, 7);
  EXPECT_EQ(seen.eps, 1e-5);
  EXPECT_EQ(seen.mode, "sum");
  EXPECT_EQ(seen.shape, 2u);
  EXPECT_EQ(seen.list, 3u);
  EXPECT_EQ(seen.pads, (Ints{3, 3}));
}

TEST(Define, CompositesMayTakeTheCallAndGiveNumbers) {
  auto& op = late("probe_equal", [] {
    define("probe_equal(Tensor self, Tensor other, Scalar tol=0) -> bool")
        .procedure(
            [](const Call& c, Tensor a, Tensor b) { return a.is_same(b) && c.number("tol").to_int() == 0; });
  });
  EXPECT_TRUE(op.is<Procedure>());
  Tensor t = zeros({2});
  Value v[] = {t, t};
  EXPECT_TRUE((*op.calls())(Call(op, v))[0].item().to_bool());
}

TEST(Define, EffectsAreDeclaredOrFollowFromTheSchema) {
  auto& plain = late("probe_pure",
                     [] { define("probe_pure(Tensor self) -> Tensor").pointwise([](Expr x) { return x; }); });
  EXPECT_TRUE(plain.effects.repeatable());
  auto& writes = late("probe_writes",
                      [] { define("probe_writes(Tensor(a!) self) -> ()").procedure([](const Tensor&) {}); });
  EXPECT_TRUE(writes.effects.writes && !writes.effects.repeatable());
  auto& draws = late("probe_draws", [] {
    define("probe_draws(Tensor self) -> Tensor").draws().procedure([](const Tensor& x) { return x; });
  });
  EXPECT_TRUE(draws.effects.draws && !draws.effects.repeatable());
  auto& reads = late("probe_reads", [] {
    define("probe_reads(Tensor self) -> Tensor")
        .shape([](const Call& c) { return Dims(c.sizes("self")); })
        .data_dependent("nothing")
        .non_differentiable("it is a probe")
        .reference([](const Tensor& x) { return x; });
  });
  EXPECT_TRUE(reads.effects.reads_data && reads.effects.repeatable());
}

TEST(Define, OperandsAreWalkedInTheOrderOfTheSchema) {
  auto& op = late("probe_operands", [] {
    define(
        "probe_operands(Tensor x, int n, Tensor?[] list, Scalar[] weights, Tensor? w=None, Scalar alpha=2) -> Tensor")
        .procedure([](const Call& c) { return c.tensor("x"); });
  });
  Tensor t = zeros({2});
  TensorImpl* items[] = {t.impl(), nullptr};
  Value v[] = {t, 3, std::span<TensorImpl* const>(items), Value(), Value(), Value()};
  Call c(op, v);
  auto all = operands_of(c);
  ASSERT_EQ(all.size(), 5u);
  std::vector<std::string> seen;
  for (auto& o : all)
    seen.push_back(std::string(o.name) + " " + std::to_string(o.item) + " " + std::to_string(o.slot) + " " +
                   std::to_string(o.tensor));
  EXPECT_EQ(seen,
            (std::vector<std::string>{"x -1 0 0", "list 0 1 1", "list 1 2 2", "w -1 3 3", "alpha -1 4 -1"}));
  EXPECT_EQ(all[4].value.number().to_int(), 2);
  EXPECT_TRUE(all[2].value.is_none() && all[3].value.is_none());
  EXPECT_EQ(c.tensor_slot("w"), 3);
  EXPECT_EQ(LoopCall(op, v).slot("alpha"), 4);
  EXPECT_EQ(Args(v, op.schema).tensors().size(), 4u);
}

TEST(Define, ViewsGiveGeometries) {
  auto& op = late("probe_swap", [] {
    define("probe_swap(Tensor(a) self, int dim0, int dim1) -> Tensor(a)").view([](const Call& c, Geometry g) {
      return g.swap(c.dim("dim0"), c.dim("dim1"));
    });
  });
  EXPECT_FALSE(op.forms.in_place || op.forms.out);
  Tensor t = zeros({2, 3, 4});
  Value v[] = {t, 0, -1};
  auto g = op.as<View>()->rule(Call(op, v), Geometry("probe_swap", t));
  ASSERT_EQ(g.size(), 1u);
  EXPECT_EQ(to_string(g[0].sizes()), "[4, 3, 2]");
  EXPECT_EQ(to_string(g[0].strides()), "[1, 4, 12]");
}

TEST(Define, AliasesAndOverloadsAreFound) {
  late("probe_abs", [] {
    define("probe_abs(Tensor self) -> Tensor").alias("probe_absolute").pointwise([](Expr x) {
      return loop::abs(x);
    });
    define("probe_abs.dim(Tensor self, int dim) -> Tensor").alias("probe_absolute").pointwise([](Expr x) {
      return loop::abs(x);
    });
  });
  EXPECT_EQ(overloads("probe_absolute").size(), 2u);
  EXPECT_EQ(find("probe_absolute.dim"), &get("probe_abs.dim"));
  EXPECT_EQ(find("probe_nothing"), nullptr);
}

TEST(Define, OperatorsThatForwardAreProcedures) {
  auto& op = late("probe_forward", [] {
    define("probe_forward(Tensor self, int n=3) -> Tensor").in_place().forwards("probe_target", {2.5});
  });
  auto* procedure = op.as<Procedure>();
  ASSERT_TRUE(procedure);
  EXPECT_TRUE(procedure->in_place && op.forms.in_place && op.forms.out);
}

TEST(Define, ListenersHearOfLateOperators) {
  static std::string heard;
  on_define([](const Operator& op) { heard = op.schema.full_name(); });
  late("probe_heard",
       [] { define("probe_heard(Tensor self) -> Tensor").pointwise([](Expr x) { return x; }); });
  EXPECT_EQ(heard, "probe_heard");
}

TEST(Define, FaultsNameTheOperatorAndLeaveNoTrace) {
  auto check = [](const char* part, const std::function<void()>& family) {
    std::string message = fault([&] { define_late(family); });
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_EQ(find("probe_bad"), nullptr);
  };
  check("probe_bad: the schema has 2 operands",
        [] { define("probe_bad(Tensor self, Scalar x) -> Tensor").pointwise([](Expr x) { return x; }); });
  check("parameter for `n` does not fit", [] {
    define("probe_bad(Tensor self, int n) -> Tensor").composite([](Tensor x, double) { return x; });
  });
  check("gives 2 results", [] {
    define("probe_bad(Tensor self) -> Tensor").composite([](Tensor x) { return std::pair(x, x); });
  });
  check("takes 1 of the schema's 2",
        [] { define("probe_bad(Tensor self, int n) -> Tensor").composite([](Tensor x) { return x; }); });
  check("probe_bad has no body", [] { define("probe_bad(Tensor self) -> Tensor").doc("nothing"); });
  check("probe_bad is a view",
        [] { define("probe_bad(Tensor self) -> Tensor").view([](const Call&, Geometry g) { return g; }); });
  check("needs a shape rule", [] { define("probe_bad(Tensor self) -> Tensor").library("nothing"); });
  check("results of this kind follow from its definition", [] {
    define("probe_bad(Tensor self) -> Tensor").shape(reduced()).pointwise([](Expr x) { return x; });
  });
  check(".reference(...) is for what a library computes", [] {
    define("probe_bad(Tensor self) -> Tensor")
        .reference([](const Tensor& x) { return x; })
        .pointwise([](Expr x) { return x; });
  });
  check(".in_place(body) is for procedures", [] {
    define("probe_bad(Tensor self) -> Tensor")
        .in_place([](const Tensor& x) { return x; })
        .pointwise([](Expr x) { return x; });
  });
  check(".in_place() needs `Tensor self` first", [] {
    define("probe_bad(Tensor self) -> (Tensor, Tensor)").in_place().pointwise([](Expr x) {
      return std::vector{x, x};
    });
  });
  check("the calls of a procedure are recorded one by one", [] {
    define("probe_bad(Tensor self) -> Tensor")
        .procedure([](const Tensor& x) { return x; })
        .vjp([](const Vjp& v) { return grads(v.grad()); });
  });
  check("probe_bad needs its gradient", [] {
    define("probe_bad(Tensor self) -> Tensor")
        .shape(reduced())
        .library("nothing")
        .reference([](const Tensor& x) { return x; });
  });
  check("two reasons why the gradient is not the derivative", [] {
    define("probe_bad(Tensor self) -> Tensor")
        .non_differentiable("it is constant")
        .undifferenced("it is another function")
        .pointwise([](Expr x) { return x; });
  });
  check(".in_parts() is for composites",
        [] { define("probe_bad(Tensor self) -> Tensor").in_parts().pointwise([](Expr x) { return x; }); });
  check("cannot be a further name", [] {
    define("probe_bad(Tensor self) -> Tensor").also("absent", "x").pointwise([](Expr x) { return x; });
  });
  check("with the same name and overload name multiple times", [] {
    define("probe_heard2(Tensor self) -> Tensor").pointwise([](Expr x) { return x; });
    define("probe_heard2(Tensor self) -> Tensor").pointwise([](Expr x) { return x; });
  });
}

TEST(Call, DimensionErrorsAreThoseOfPyTorch) {
  auto& op = late("probe_dims", [] {
    define("probe_dims(Tensor self, int[] dims=(), int dim=0, int[2] pad=1) -> Tensor")
        .composite([](const Call& c) {
          c.dims("dims");
          c.dim("dim");
          c.ints("pad", 2);
          return c.tensor("self");
        });
  });
  Tensor t = zeros({2, 3});
  auto run = [&](std::vector<SymInt> dims, int dim, std::vector<SymInt> pad = {1}) {
    Value v[] = {t, SymSpan(dims), dim, SymSpan(pad)};
    try {
      (*op.calls())(Call(op, v));
    } catch (const Error& e) { return std::pair(e.type(), e.message()); }
    return std::pair(ErrorType::KeyboardInterrupt, std::string());
  };
  EXPECT_EQ(run({0}, 3),
            std::pair(ErrorType::IndexError,
                      std::string("Dimension out of range (expected to be in range of [-2, 1], but got 3)")));
  EXPECT_EQ(run({1, -1}, 0), std::pair(ErrorType::RuntimeError,
                                       std::string("dim 1 appears multiple times in the list of dims")));
  EXPECT_EQ(run({0}, 0, {1, 2, 3}).first, ErrorType::RuntimeError);
  Value v[] = {t, SymSpan()};
  EXPECT_EQ(Call(op, v).dims("dims"), (Ints{0, 1}));
  EXPECT_EQ(Call(op, v).ints("pad", 2), (Dims{1, 1}));
  EXPECT_NE(fault([&] { Call(op, v)["absent"]; }).find("probe_dims has no parameter absent"),
            std::string::npos);
}

TEST(Mode, NestsAndSwitchesOff) {
  struct Nothing : Mode {
    Results take(const Operator&, std::span<const Value>, Form, std::span<const Tensor>) override {
      return {};
    }
  } m;
  EXPECT_EQ(Mode::current(), nullptr);
  {
    Mode::With on(&m);
    EXPECT_EQ(Mode::current(), &m);
    {
      Mode::With off(nullptr);
      EXPECT_EQ(Mode::current(), nullptr);
    }
    EXPECT_EQ(Mode::current(), &m);
  }
  EXPECT_EQ(Mode::current(), nullptr);
}

TEST(Samples, NameParameters) {
  late("probe_misnamed", [] {
    define("probe_misnamed(Tensor self) -> Tensor")
        .pointwise([](Expr x) { return x; })
        .samples(binary_samples());
  });
  std::string message = fault([] { get("probe_misnamed").samples(); });
  EXPECT_NE(message.find("probe_misnamed: a sample names `other`"), std::string::npos) << message;
}

TEST(Samples, MultiplyByLiterals) {
  Samples s = unary_samples().with("approximate", {"'none'", "'tanh'"}).range(0, 1);
  EXPECT_EQ(s.list().size(), unary_samples().list().size() * 2);
  EXPECT_EQ(s.list()[1].args[1].second.literal, "'tanh'");
  EXPECT_EQ(s.list()[1].args[0].second.low, 0);
}

}  // namespace
}  // namespace facula::op
