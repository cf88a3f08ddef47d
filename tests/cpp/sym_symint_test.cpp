// Symbolic integers: simplification, ranges and guards, against plain integer arithmetic.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <random>

#include "facula/sym/parse.h"
#include "facula/sym/run_time.h"
#include "facula/sym/symint.h"

namespace facula {
namespace {

using sym::Shapes;

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

TEST(SymInt, ConcreteOnesAreIntegers) {
  SymInt a = 7, b = -3;
  EXPECT_EQ((a + b).concrete(), 4);
  EXPECT_EQ((a / b).concrete(), -3);
  EXPECT_EQ((a % b).concrete(), -2);
  EXPECT_EQ(min(a, b).concrete(), -3);
  EXPECT_EQ(max(a, b).concrete(), 7);
  EXPECT_TRUE(b < a && a >= b && a != b);
  EXPECT_THROW(a / SymInt(0), Error);
  EXPECT_THROW(a % SymInt(0), Error);
  EXPECT_FALSE(SymInt(std::numeric_limits<int64_t>::max()).is_symbolic());
  EXPECT_FALSE(SymInt(std::numeric_limits<int64_t>::min()).is_symbolic());
  EXPECT_EQ(SymInt(-12).concrete(), -12);
}

TEST(SymInt, SumsAndProductsAreCanonical) {
  Shapes shapes;
  SymInt a = shapes.fresh("a", 5), b = shapes.fresh("b", 7);
  EXPECT_EQ((a + b).identity(), (b + a).identity());
  EXPECT_EQ(((a + 1) * (b + 2)).identity(), (a * b + 2 * a + b + 2).identity());
  EXPECT_FALSE((a * b - b * a).is_symbolic());
  EXPECT_EQ((a * b * 6 / (3 * b)).identity(), (2 * a).identity());
  EXPECT_EQ((a * b % a).concrete(), 0);
  EXPECT_EQ(to_string(a * 3 + b - 4), "a*3 + b - 4");
  EXPECT_TRUE(SymInt::surely_equal(a + a, 2 * a));
  EXPECT_FALSE(SymInt::surely_equal(a, b));
  EXPECT_EQ(SymInt::from_identity((a + b).identity()).identity(), (a + b).identity());
}

TEST(SymInt, RangesAnswerWithoutGuards) {
  Shapes shapes;
  Shapes::With with(shapes);
  SymInt a = shapes.fresh("a", 5, 2, 100), b = shapes.fresh("b", 7, 200);
  EXPECT_TRUE(a < b && a + 1 > 2 && a != SymInt(1) && a * 2 >= 4 && a % 4 < 4);
  EXPECT_EQ(min(a, b).identity(), a.identity());
  EXPECT_EQ(max(a, SymInt(1)).identity(), a.identity());
  EXPECT_TRUE(shapes.guards().empty());
}

TEST(SymInt, WhatRangesLeaveOpenIsGuarded) {
  Shapes shapes;
  Shapes::With with(shapes);
  SymInt a = shapes.fresh("a", 5), b = shapes.fresh("b", 7);
  EXPECT_FALSE(a == b);
  EXPECT_TRUE(a < b);
  EXPECT_TRUE(a < b);
  EXPECT_EQ(a.guard_int(), 5);
  ASSERT_EQ(shapes.guards().size(), 3u);
  EXPECT_EQ(to_string(shapes.guards()[0]), "a != b");
  int64_t same[] = {5, 7}, wider[] = {5, 100}, equal[] = {5, 5}, other[] = {6, 7};
  EXPECT_TRUE(shapes.hold(same));
  EXPECT_TRUE(shapes.hold(wider));
  EXPECT_FALSE(shapes.hold(equal));
  EXPECT_FALSE(shapes.hold(other));
  EXPECT_THROW(a.concrete(), Error);
}

// Random expressions: their value under any sizes is what integer arithmetic says, simplified or not, and
// their range contains it.
TEST(SymInt, SizesThatAreKnownAtRunTimeAreNeverTakenForTheirHint) {
  Shapes shapes;
  Shapes::With with(shapes);
  SymInt s = shapes.fresh("s0", 5), u = sym::run_time_size(shapes, 12), v = sym::run_time_size(shapes, 12);
  EXPECT_EQ(to_string(u * 2 + v), "u0*2 + u1");
  EXPECT_TRUE(u >= 0 && u <= 12 && u < 13 && !(u > 12) && u == u && u * 2 == u + u && u != 13 && u + 1 > 0);
  EXPECT_TRUE(sym::is_run_time(u * s + 1) && !sym::is_run_time(s * 2));
  EXPECT_EQ(sym::run_time_size(shapes, 0).concrete(), 0);
  EXPECT_TRUE(sym::may_equal(u, v) && sym::may_equal(u + 1, 13) && !sym::may_equal(u, 13) &&
              !sym::may_equal(u, u + 1));
  EXPECT_TRUE(sym::may_be_at_most(u, 0) && sym::may_be_at_most(12, u) && !sym::may_be_at_most(13, u));
  for (auto compare :
       std::vector<std::function<void()>>{[&] { (void)(u == 0); }, [&] { (void)(u < s); },
                                          [&] { (void)(u == v); }, [&] { (void)u.guard_int(); },
                                          [&] { (void)(u * 3 >= 7); }, [&] { (void)u.concrete(); }}) {
    EXPECT_THROW(compare(), Error);
    sym::Comparing outer("sum", sym::Comparing::raises);
    sym::Comparing inner("mul", sym::Comparing::raises);
    try {
      compare();
      ADD_FAILURE() << "nothing raised";
    } catch (const Error& e) {
      EXPECT_EQ(e.op(), "sum");
      EXPECT_NE(e.message().find("from 0 to "), std::string::npos) << e.message();
    }
  }
  {
    sym::Comparing comparing("sum", sym::Comparing::assumes);
    EXPECT_FALSE(sym::Comparing::assumed());
    EXPECT_TRUE(u != 0 && u != 1 && u != v && !(u < s));
    EXPECT_TRUE(sym::Comparing::assumed());
    EXPECT_THROW(u.guard_int(), Error);
  }
  EXPECT_TRUE(shapes.guards().empty());
}

TEST(SymInt, ExpressionsKeepTheirValue) {
  std::mt19937 rng(3);
  auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(rng);
  };
  for (int round = 0; round < 300; ++round) {
    Shapes shapes;
    std::vector<int64_t> hints, values;
    struct Pair {
      SymInt symbolic;
      int64_t at_hints, at_values;
    };
    std::vector<Pair> known;
    for (int k = 0; k < 3; ++k) {
      hints.push_back(pick(2, 20));
      values.push_back(pick(2, 20));
      known.push_back(
          {shapes.fresh("s" + std::to_string(k), hints.back(), 2, 20), hints.back(), values.back()});
    }
    for (int step = 0; step < 10; ++step) {
      auto a = known[size_t(pick(0, int64_t(known.size()) - 1))],
           b = known[size_t(pick(0, int64_t(known.size()) - 1))];
      if (pick(0, 3) == 0) {
        int64_t c = pick(-4, 4);
        b = {SymInt(c), c, c};
      }
      if (std::abs(a.at_values) > 1000000 || std::abs(b.at_values) > 1000000 ||
          std::abs(a.at_hints) > 1000000 || std::abs(b.at_hints) > 1000000)
        continue;
      auto apply = [&](auto f) {
        known.push_back({f(a.symbolic, b.symbolic), f(SymInt(a.at_hints), SymInt(b.at_hints)).concrete(),
                         f(SymInt(a.at_values), SymInt(b.at_values)).concrete()});
      };
      bool divisible = a.symbolic.is_symbolic() && b.at_hints > 0 && b.at_values > 0;
      switch (pick(0, 6)) {
        case 0: apply([](SymInt x, SymInt y) { return x + y; }); break;
        case 1: apply([](SymInt x, SymInt y) { return x - y; }); break;
        case 2: apply([](SymInt x, SymInt y) { return x * y; }); break;
        case 3: apply([](SymInt x, SymInt y) { return min(x, y); }); break;
        case 4: apply([](SymInt x, SymInt y) { return max(x, y); }); break;
        case 5:
          if (divisible) apply([](SymInt x, SymInt y) { return x / y; });
          break;
        case 6:
          if (divisible) apply([](SymInt x, SymInt y) { return x % y; });
          break;
      }
      auto& made = known.back();
      ASSERT_EQ(made.symbolic.hint(), made.at_hints) << to_string(made.symbolic);
      ASSERT_EQ(sym::evaluate(made.symbolic, values), made.at_values) << to_string(made.symbolic);
      if (made.symbolic.is_symbolic()) {
        ASSERT_LE(made.symbolic.node()->low, made.at_values) << to_string(made.symbolic);
        ASSERT_GE(made.symbolic.node()->high, made.at_values) << to_string(made.symbolic);
      }
      std::string text = to_string(made.symbolic) + ", 7";
      std::string_view rest = text;
      ASSERT_EQ(sym::parse_size(rest, shapes).identity(), made.symbolic.identity()) << text;
      ASSERT_EQ(rest, ", 7");
    }
  }
  EXPECT_EQ((SymInt(-7) / SymInt(2)).concrete(), floor_div(-7, 2));
}

TEST(SymInt, TextThatIsNoSizeIsRefused) {
  Shapes shapes;
  shapes.fresh("s0", 4);
  for (std::string text :
       {"", "+", "s1", "s0 +", "(s0", "min(s0)", "7//0", "9223372036854775808", "s0*(2 + )"}) {
    std::string_view rest = text;
    EXPECT_THROW(sym::parse_size(rest, shapes), Error) << text;
  }
  std::string deep(100000, '(');
  std::string_view rest = deep;
  EXPECT_THROW(sym::parse_size(rest, shapes), Error);
}

TEST(SymInt, ProductsOfSizes) {
  Shapes shapes;
  SymInt n = shapes.fresh("n", 4);
  Dims dims{SymInt(2), n, SymInt(3)};
  EXPECT_EQ(to_string(product(dims)), "n*6");
  EXPECT_TRUE(any_symbolic(dims));
  EXPECT_EQ(to_string(SymSpan(dims)), "[2, n, 3]");
  EXPECT_EQ(product({}).concrete(), 1);
}

}  // namespace
}  // namespace facula
