// Hash-consing, exact simplification, text form, verification and derivatives of scalar expressions.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <thread>

#include "facula/loop/differentiate.h"
#include "facula/loop/interpret.h"
#include "facula/loop/mapped.h"
#include "facula/loop/monoid.h"
#include "facula/loop/number.h"

using namespace facula;
using namespace facula::loop;

namespace {

constexpr DType kF32 = DType::Float32, kF64 = DType::Float64, kI64 = DType::Int64;
Expr x32(int slot = 0) { return load(slot, kF32, {}); }
Expr x64(int slot = 0) { return load(slot, kF64, {}); }
Expr i(int k) { return index(k); }

Scalar evaluated(Expr e, const std::vector<Tensor>& operands, Precision p = Precision::faithful) {
  Definition d;
  d.values = {e};
  Dims sizes[] = {{}};
  DType types[] = {e.dtype()};
  return interpret(d, operands, sizes, types, p)[0].item();
}

}  // namespace

TEST(LoopExpr, EqualExpressionsAreOneNode) {
  EXPECT_TRUE(same(x32() * 2.0 + exp(x32(1)), x32() * 2.0 + exp(x32(1))));
  EXPECT_FALSE(same(constant(0.0, kF32), constant(-0.0, kF32)));
  EXPECT_TRUE(same(constant(std::nan(""), kF32), constant(-std::nan("1"), kF32)));
  EXPECT_FALSE(same(constant(1.0, kF32), constant(1.0, kF64)));
}

TEST(LoopExpr, TheTableTakesManyThreads) {
  std::vector<Expr> made(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < made.size(); ++t)
    threads.emplace_back([&, t] {
      Expr e = x32(77);
      for (int k = 0; k < 2000; ++k) e = sin(e) + double(k % 50);
      made[t] = e;
    });
  for (auto& t : threads) t.join();
  for (auto& e : made) EXPECT_TRUE(same(e, made[0]));
  EXPECT_TRUE(same(parse_expr(print(made[0])), made[0]));  // a deep expression needs no deep stack
}

TEST(LoopExpr, ConstantsTakeTheValuesOfTheirDType) {
  EXPECT_EQ(constant(300, DType::UInt8)->value.to_int(), 44);
  EXPECT_EQ(constant(-1, DType::UInt8)->value.to_int(), 255);
  EXPECT_EQ(constant(0.1, kF32)->value.to_double(), double(0.1f));
  EXPECT_EQ(constant(2.9, kI64)->value.to_int(), 2);
  int64_t least = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(cast(constant(1e30, kF64), DType::Int32)->value.to_int(), -2147483648);
  EXPECT_EQ(cast(constant(std::nan(""), kF64), kI64)->value.to_int(), least);
  EXPECT_EQ(cast(constant(-1.5, kF64), DType::UInt8)->value.to_int(), 255);
  EXPECT_EQ(cast(constant(70000.0, kF64), DType::Int16)->value.to_int(), 4464);
  EXPECT_TRUE(cast(constant(0.5, kF64), DType::Bool)->value.to_bool());
  EXPECT_THROW(constant(1.0, DType::Float16), Error);
}

TEST(LoopExpr, IntegersFoldAndGatherIntoLinearForms) {
  auto text = [](Expr e) { return print(e); };
  EXPECT_EQ(text((i(0) * 4 + i(1)) * 3 - i(0) * 12 + 5), "add(mul(i1, 3), 5)");
  EXPECT_EQ(text(i(0) + size(7) - i(0)), "7");
  EXPECT_EQ(text((i(0) + 3) + (2 - i(0))), "5");
  EXPECT_EQ(text(floordiv(i(0) * 8 + i(1) + 16, 4)), "add(add(mul(i0, 2), floordiv(i1, 4)), 4)");
  EXPECT_EQ(text(remainder(i(0) * 8 + i(1) + 16, 4)), "remainder(i1, 4)");
  EXPECT_EQ(text(floordiv(floordiv(i(0), 3), 5)), "floordiv(i0, 15)");
  EXPECT_EQ(text(floordiv(i(0), 1)), "i0");
  EXPECT_EQ(text(remainder(i(0), 1)), "0");
  EXPECT_EQ(text(max(i(0), i(0))), "i0");
  EXPECT_EQ(text(i(0) < i(0)), "false");
  EXPECT_EQ(text(param(0) * 1 + 0), "p0");
  EXPECT_EQ(text(i(0) * 0), "0");
}

TEST(LoopExpr, FloatingIdentitiesKeepEveryBit) {
  Expr x = x32();
  EXPECT_TRUE(same(x * 1.0, x));
  EXPECT_TRUE(same(x + -0.0, x));
  EXPECT_FALSE(same(x + 0.0, x));  // -0 + 0 is 0
  EXPECT_TRUE(same(x - 0.0, x));
  EXPECT_FALSE(is_bool((x * 0.0).dtype()) || (x * 0.0)->kind == Kind::constant);
  EXPECT_FALSE((x - x)->kind == Kind::constant);
  EXPECT_FALSE(eq(x, x)->kind == Kind::constant);
  EXPECT_TRUE(same(-(-x), x));
  EXPECT_TRUE(same(cast(cast(x, kF64), kF32), x));
  EXPECT_FALSE(same(cast(cast(x64(), kF32), kF64), x64()));
  EXPECT_TRUE(same(select(constant(true, DType::Bool), x, 0.0), x));
  EXPECT_TRUE(same(bit_not(bit_not(x < 0.0)), x < 0.0));
  EXPECT_FALSE(same(bit_not(x < 0.0), x >= 0.0));  // NaN
  EXPECT_EQ((constant(1.0, kF32) / constant(3.0, kF32))->value.to_double(), double(1.0f / 3.0f));
}

// Expressions of random operators over constants: folding as they are built against running them over loads.
TEST(LoopExpr, FoldingAgreesWithTheInterpreter) {
  std::mt19937 rng(5);
  const double interesting[] = {0.0,  -0.0,     1.0,       -1.0, 2.0,   0.5,   -3.0,
                                7.25, INFINITY, -INFINITY, NAN,  100.0, -128.0};
  std::vector<Fn> fns;
#define FACULA_FN(n, a, r, u) if (u == 0 && Fn::n != Fn::copysign) fns.push_back(Fn::n);  /* the sign of a NaN is free */
  FACULA_SCALAR_FUNCTIONS(FACULA_FN)
#undef FACULA_FN
  int checked = 0;
  for (int round = 0; round < 4000; ++round) {
    DType d = std::array{kF32, kF64, DType::Int32, kI64, DType::UInt8, DType::Int8, DType::Bool}[rng() % 7];
    std::vector<Tensor> operands;
    std::vector<Expr> constants, loads;
    for (int k = 0; k < 6; ++k) {
      double v = interesting[rng() % std::size(interesting)];
      Scalar s = is_floating(d) ? Scalar(v) : Scalar(std::isfinite(v) ? int64_t(v) : 3);
      Expr c = constant(s, d);
      operands.push_back(Tensor::scalar(c->value, d));
      constants.push_back(c);
      loads.push_back(load(k, d, {}));
    }
    try {
      for (int step = 0; step < 4; ++step) {
        Fn f = fns[rng() % fns.size()];
        size_t to = rng() % 6;
        std::vector<Expr> a, b;
        for (int k = 0; k < arity(f); ++k) {
          size_t from = rng() % 6;
          a.push_back(constants[from]);
          b.push_back(loads[from]);
        }
        Expr folded = call(f, a), run = call(f, b);
        if (folded.dtype() != d) {
          folded = cast(folded, d);
          run = cast(run, d);
        }
        constants[to] = folded;
        loads[to] = run;
        Scalar p = evaluated(folded, operands), q = evaluated(run, operands);
        bool equal = p == q || (std::isnan(p.to_double()) && std::isnan(q.to_double()));
        if (is_floating(d) && equal && !std::isnan(p.to_double()))
          equal = std::signbit(p.to_double()) == std::signbit(q.to_double());
        ASSERT_TRUE(equal) << print(folded) << " against " << print(run) << ": " << p.to_double() << ", "
                           << q.to_double();
        ++checked;
      }
    } catch (const Error&) {  // not defined for the dtype
    }
  }
  EXPECT_GT(checked, 3000);
}

TEST(LoopExpr, MixedDTypesAreRefused) {
  EXPECT_THROW(x32() + x64(), Error);
  EXPECT_THROW(call(Fn::exp, {i(0)}), Error);
  EXPECT_THROW(call(Fn::add, {x32()}), Error);
  EXPECT_THROW(select(x32(), x32(), x32()), Error);
  EXPECT_THROW(load(0, kF32, {x32()}), Error);
}

TEST(LoopExpr, PrintingNamesSharedPartsOnceAndParsesBack) {
  Expr x = load(0, kF32, {i(0), i(1)});
  EXPECT_EQ(print(x + 2.0), "add(load[0:float32](i0, i1), 2:float32)");
  EXPECT_EQ(print(tanh(x) * tanh(x)), "%0 = tanh(load[0:float32](i0, i1))\nmul(%0, %0)");
  Expr doubling = x;
  for (int k = 0; k < 60; ++k) doubling = doubling * doubling;  // 2^60 as a tree
  EXPECT_LT(print(doubling).size(), 3000u);

  Expr m = reduce(monoid::argmax, {{64, size(5)}, {65, i(0) + 1}},
                  {load(0, kF32, {i(64), i(65)}), i(64) * 7 + i(65)});
  for (Expr e : {x + 2.0,
                 doubling,
                 constant(0.1, kF32),
                 constant(-0.0, kF64),
                 constant(INFINITY, kF32),
                 constant(NAN, kF64),
                 constant(-7, kI64),
                 constant(200, DType::UInt8),
                 constant(true, DType::Bool),
                 constant(std::complex<double>(1.5, -0.25), DType::Complex64),
                 load(3, DType::Complex64, {i(0)}, 2),
                 load(-2, DType::BFloat16, {param(1)}),
                 part(m, 1),
                 cast(part(m, 1), kF32) + part(m, 0),
                 position() * 3 + param(2),
                 scan(monoid::sum, 1, {64, size(5)}, {load(0, kF64, {i(64)})}),
                 random(constant(1, kI64), position()),
                 check(load(1, kI64, {i(0)}), size(9)),
                 local(4, kF32) + local(5, kF32),
                 select(x < 1.0, exp(x), x)})
    EXPECT_TRUE(same(parse_expr(print(e)), e)) << print(e);
}

TEST(LoopExpr, SymbolicSizesParseBackWithinTheirTrace) {
  sym::Shapes shapes;
  sym::Shapes::With with(shapes);
  SymInt n = shapes.fresh("s0", 8);
  Expr e = i(0) * size(n * 3 + 1);
  EXPECT_TRUE(same(parse_expr(print(e)), e)) << print(e);
}

TEST(LoopExpr, MistakesInATextAreLocated) {
  auto message = [](const char* text) -> std::string {
    try {
      parse_expr(text);
    } catch (const Error& e) {
      EXPECT_EQ(e.type(), ErrorType::ValueError);
      return e.message();
    }
    return "accepted";
  };
  EXPECT_NE(message("add(i0,\n  oops(i1))").find("line 2, column 3"), std::string::npos)
      << message("add(i0,\n  oops(i1))");
  EXPECT_NE(message("add(i0, 1:float32)").find("line 1, column 1"), std::string::npos);
  for (const char* bad : {"", "add(i0", "add(i0, 1) 2", "%3", "load[0:float33](i0)", "1.5", "select(true, 1)",
                          "(1, 2):float32", "size[s9]"})
    EXPECT_NE(message(bad), "accepted") << bad;
}

TEST(LoopExpr, VerifyFindsVariablesOutOfScope) {
  Expr r = reduce(monoid::sum, {{64, size(5)}}, {load(0, kF32, {i(0), i(64)})});
  int zero[] = {0};
  EXPECT_NO_THROW(verify(r, zero));
  EXPECT_THROW(verify(r, {}), Error);
  EXPECT_THROW(verify(r + load(0, kF32, {i(64), i(0)}), zero), Error);
}

TEST(LoopExpr, SubstitutionAvoidsCapture) {
  Expr r = reduce(monoid::sum, {{64, size(5)}}, {load(0, kF32, {i(0), i(64)})});
  std::pair<int, Expr> map[] = {{0, i(64)}};
  EXPECT_EQ(print(substitute(r, map)), "reduce[sum](i65 < 5; load[0:float32](i64, i65))");
  std::pair<int, Expr> bound[] = {{64, i(3)}};
  EXPECT_TRUE(same(substitute(r, bound), r));
  Expr s = scan(monoid::sum, 0, {64, size(5)}, {load(0, kF32, {i(64)})});
  std::pair<int, Expr> axis[] = {{0, i(2)}};
  EXPECT_EQ(print(substitute(s, axis)), "scan[sum, 2](i64 < 5; load[0:float32](i64))");
  std::pair<int, Expr> flip[] = {{0, 4 - i(0)}};
  EXPECT_EQ(print(substitute(s, flip)), "reduce[sum](i64 < add(neg(i0), 5); load[0:float32](i64))");
  EXPECT_GE(fresh_var(std::array{r}), 65);
}

// d f / d operand of every function by central differences, at random points away from kinks.
TEST(LoopDerivative, AgreesWithFiniteDifferencesForEveryFunction) {
  std::mt19937 rng(3);
  std::uniform_real_distribution<double> u(0.2, 0.9);
  for (Fn f :
#define FACULA_FN(n, a, r, u) Fn::n,
       {FACULA_SCALAR_FUNCTIONS(FACULA_FN)}
#undef FACULA_FN
  ) {
    std::vector<Expr> x;
    for (int k = 0; k < arity(f); ++k) x.push_back(x64(k));
    Expr y;
    try {
      y = call(f, x);
    } catch (const Error&) {
      continue;  // integers only
    }
    if (y.dtype() != kF64) continue;
    if (f == Fn::airy_ai || (f >= Fn::igamma && f <= Fn::legendre_p)) continue;  // no rule: derivative.cpp
    for (int round = 0; round < 5; ++round) {
      std::vector<double> at;
      for (size_t k = 0; k < x.size(); ++k)
        at.push_back(f == Fn::acosh ? 1 + u(rng)
                     : round % 2 && k == 0 && f != Fn::pow && f != Fn::sqrt && f != Fn::rsqrt &&
                             (f < Fn::bessel_y0 || f > Fn::bessel_k1e) && name(f)[0] != 'l'
                         ? -u(rng)
                         : u(rng));
      auto run = [&](Expr e, std::vector<double> v) {
        std::vector<Tensor> operands;
        for (double w : v) operands.push_back(Tensor::scalar(w, kF64));
        return evaluated(e, operands).to_double();
      };
      std::vector<double> g(x.size(), 0.0);
      for (auto& a : differentiate(y, constant(1.0, kF64))) g[size_t(a.load->slot)] += run(a.value, at);
      for (size_t k = 0; k < x.size(); ++k) {
        auto up = at, down = at;
        up[k] += 1e-6;
        down[k] -= 1e-6;
        EXPECT_NEAR(g[k], (run(y, up) - run(y, down)) / 2e-6, 1e-6 * std::max(1.0, std::fabs(g[k])))
            << name(f) << " operand " << k << " at " << at[0];
      }
    }
  }
}

TEST(LoopDerivative, WritesExpTanhSigmoidThroughTheirOwnValue) {
  Expr x = x32(), g = x32(1);
  for (Fn f : {Fn::exp, Fn::tanh, Fn::sigmoid, Fn::sqrt, Fn::relu, Fn::reciprocal, Fn::rsqrt}) {
    Expr y = call(f, {x}), saved = x32(2);
    Expr d = differentiate(y, g)[0].value;
    Expr through = rewrite(d, [&](Expr e) { return same(e, y) ? saved : Expr(); });
    visit(through, [&](Expr e) { EXPECT_FALSE(same(e, x)) << name(f) << ": " << print(through); });
  }
}

TEST(LoopDerivative, ReachesThroughCastsAndSelects) {
  Expr x = load(0, DType::BFloat16, {}), b = load(1, DType::Bool, {});
  auto a = differentiate(select(b, cast(x, kF64) * 3.0, 0.0), x64(2));
  ASSERT_EQ(a.size(), 1u);
  EXPECT_EQ(print(a[0].value),
            "select(load[1:bool](), cast[float32](mul(load[2:float64](), 3:float64)), 0:float32)");
  EXPECT_TRUE(differentiate(floor(x32()), x32(1)).empty());
  EXPECT_TRUE(differentiate(cast(load(0, kI64, {}), kF32), x32(1)).empty());
}

TEST(LoopDerivative, MasksComeAfterProductsAndSidesMeet) {
  // Neither exp(x), infinite where the first side is taken, nor x * exp(x) may multiply a masked gradient.
  Expr x = x64(0), e = exp(x);
  auto a = differentiate(select(x > 0.0, select(x < 9.0, x * 2.0, x), x * e), x64(1));
  ASSERT_EQ(a.size(), 1u);
  ASSERT_EQ(a[0].value->kind, Kind::select);
  EXPECT_EQ(print(a[0].value->args[0]), "gt(load[0:float64](), 0:float64)");
  EXPECT_EQ(print(a[0].value->args[1]),
            "select(lt(load[0:float64](), 9:float64), mul(load[1:float64](), 2:float64), load[1:float64]())");
  visit(a[0].value, [](Expr n) {
    if (n->kind != Kind::call) return;
    for (auto& operand : n->args) EXPECT_NE(operand->kind, Kind::select);
  });
  // An expression of many guards is still the sum of its parts.
  Expr y = x, sum = x;
  for (int k = 0; k < 9; ++k) sum = sum + select(x > double(k), y = y * x, constant(1.0, kF64));
  EXPECT_EQ(differentiate(sum, x64(1)).size(), 1u);
}

TEST(LoopExpr, TheInverseOfErfIsInfiniteAtOneAndNothingBeyond) {
  auto at = [](double x) { return evaluated(erfinv(constant(x, kF64)), {}).to_double(); };
  for (double x : {1e-300, 1e-9, 0.1, 0.5, 0.9, 0.999, 1 - 1e-12}) {
    EXPECT_NEAR(std::erf(at(x)), x, 1e-15 * x);
    EXPECT_EQ(at(-x), -at(x));
  }
  EXPECT_TRUE(std::signbit(at(-0.0)) && at(-0.0) == 0);
  EXPECT_EQ(at(1), INFINITY);
  EXPECT_EQ(at(-1), -INFINITY);
  for (double x : {1.5, -2.0, double(INFINITY), double(NAN)}) EXPECT_TRUE(std::isnan(at(x))) << x;
}

TEST(LoopMapped, LanesHaveTheBitsOfNumbersByThemselves) {
  const double special[] = {0.0, -0.0, NAN, INFINITY, -INFINITY, 1,     -1,     0.5,
                            2,   -2,   -3,  7,        10,        1e-30, 1e-310, 1e300};
  std::mt19937_64 random(1);
  auto some = [&] {
    double any = std::ldexp(double(random() % 1000) / 500, int(random() % 8) - 4);
    return random() % 4 ? any : special[random() % std::size(special)];
  };
  auto compare = [&](const char* name, auto one, auto lanes) {  // of two operands or one
    for (int64_t count : {1, 2, 4, 8, 16})
      for (int round = 0; round < 500; ++round) {
        double x[16], y[16], want[16];
        for (int64_t l = 0; l < count; ++l) {
          x[l] = some(), y[l] = random() % 2 ? double(random() % 9) - 1 : some();
          if (std::fabs(y[l]) > 1e3 || std::fabs(x[l]) > 1e4) y[l] = 3;  // a recurrence takes as many steps
          if constexpr (std::is_invocable_v<decltype(one), double>) want[l] = one(x[l]);
          else want[l] = one(x[l], y[l]);
        }
        lanes(x, y, count);
        for (int64_t l = 0; l < count; ++l)
          ASSERT_TRUE((std::isnan(x[l]) && std::isnan(want[l])) ||
                      std::bit_cast<uint64_t>(x[l]) == std::bit_cast<uint64_t>(want[l]))
              << name << " lane " << l << " of " << count << ": " << x[l] << " for " << want[l];
      }
  };
  bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
              __builtin_cpu_supports("avx512vl");
#define FACULA_FN(n, ...)                                     \
  for (bool eight : {false, wide})                            \
    compare(                                                  \
        #n, [](double x, double y) { return mapped::n(x, y); }, \
        [&](double* x, const double* y, int64_t c) {          \
          eight ? mapped::wide::n(x, y, c) : mapped::n(x, y, c); \
        });
  FACULA_MAPPED_BINARY(FACULA_FN)
#undef FACULA_FN
#define FACULA_FN(n, ...)                                     \
  for (bool eight : {false, wide})                            \
    compare(                                                  \
        #n, [](double x) { return mapped::n(x); },            \
        [&](double* x, const double* y, int64_t c) {          \
          eight ? mapped::wide::n(x, y, c) : mapped::n(x, y, c); \
        });
  FACULA_MAPPED_UNARY(FACULA_FN)
#undef FACULA_FN
}

TEST(LoopMonoid, CombinationIsAssociativeEnoughForPartialResults) {
  std::mt19937 rng(11);
  std::uniform_real_distribution<double> u(-3, 3);
  std::vector<double> x(9);
  for (auto& v : x) v = u(rng);
  for (Monoid m : {Monoid::sum, Monoid::prod, Monoid::max, Monoid::min, Monoid::argmax, Monoid::argmin,
                   Monoid::argmax_pool, Monoid::logsumexp, Monoid::welford, Monoid::complex_prod}) {
    auto element = [&](size_t k) {
      std::vector<Expr> v{constant(x[k], kF64)};
      if (has_position(m)) v.push_back(constant(int64_t(k), kI64));
      if (m == Monoid::complex_prod) v.push_back(constant(x[k] * 0.5, kF64));
      return lift(m, v);
    };
    auto run = [&](size_t from, size_t to) {
      auto acc = identity(m, kF64);
      for (size_t k = from; k < to; ++k) acc = combine(m, acc, element(k));
      return acc;
    };
    auto all = run(0, 9), halves = combine(m, run(4, 9), run(0, 4));
    for (int k = 0; k < components(m); ++k)
      EXPECT_NEAR(evaluated(all[size_t(k)], {}).to_double(), evaluated(halves[size_t(k)], {}).to_double(),
                  1e-12)
          << name(m) << " " << k;
    std::vector<Expr> values{load(0, kF64, {i(64)})};
    if (has_position(m)) values.push_back(i(64));
    if (m == Monoid::complex_prod) values.push_back(values[0] * 0.5);
    Expr r = reduce(m, {{64, size(9)}}, values);
    Tensor t = Tensor::empty(Ints{9}, kF64);
    std::copy(x.begin(), x.end(), t.data<double>());
    for (int k = 0; k < components(m); ++k)
      EXPECT_NEAR(evaluated(part(r, k), {t}).to_double(), evaluated(all[size_t(k)], {}).to_double(), 1e-12)
          << name(m) << " " << k;
  }
}

TEST(LoopMonoid, ExtremaAndLogsumexpTreatNanInfinitiesAndTies) {
  double inf = INFINITY;
  auto argmax = [&](std::vector<double> v, Monoid m = Monoid::argmax) {
    auto acc = identity(m, kF64);
    for (size_t k = 0; k < v.size(); ++k)
      acc = combine(m, acc, std::array{constant(v[k], kF64), constant(int64_t(k), kI64)});
    return evaluated(acc[1], {}).to_int();
  };
  EXPECT_EQ(argmax({1, 3, 3}), 1);
  EXPECT_EQ(argmax({-inf, -inf}), 0);
  EXPECT_EQ(argmax({1, NAN, 5, NAN}), 1);
  EXPECT_EQ(argmax({1, 3, 3}, Monoid::argmax_pool), 1);
  EXPECT_EQ(argmax({-inf, -inf}, Monoid::argmax_pool), 0);
  EXPECT_EQ(argmax({1, NAN, 5, NAN, 7}, Monoid::argmax_pool), 3);
  auto logsumexp = [&](std::vector<double> v) {
    auto acc = identity(Monoid::logsumexp, kF64);
    for (double x : v)
      acc = combine(Monoid::logsumexp, acc, lift(Monoid::logsumexp, std::array{constant(x, kF64)}));
    return evaluated(acc[0] + log(acc[1]), {}).to_double();
  };
  EXPECT_EQ(logsumexp({-inf, -inf}), -inf);
  EXPECT_EQ(logsumexp({-inf, 0}), 0);
  EXPECT_EQ(logsumexp({inf, 0, inf}), inf);
  EXPECT_TRUE(std::isnan(logsumexp({0, NAN})));
  EXPECT_NEAR(logsumexp({1000, 1000}), 1000 + std::log(2), 1e-12);
}

TEST(Number, RoundsBothPartsOfAComplexNumber) {  // which GCC 12 would not, taking them side by side
  std::complex<double> z(0.1, 0.7), want(double(0.1f), double(0.7f));
  EXPECT_EQ(number_of(Scalar(z), DType::Complex64).z, want);
  EXPECT_EQ(convert({0, z}, DType::Complex128, DType::Complex64).z, want);
  EXPECT_EQ(number_of(Scalar(z), DType::Complex128).z, z);
}
