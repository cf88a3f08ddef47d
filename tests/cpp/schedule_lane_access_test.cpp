// How loads, stores and selects in lanes are done, by what is known of their places.
#include <gtest/gtest.h>

#include "facula/base/error.h"
#include "facula/loop/lane_access.h"
#include "facula/schedule/lane_select.h"
#include "facula/schedule/lanes.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::schedule;

namespace {

// A nest with one loop over 8 lanes, i1; `x` is read, `y` written. Its first statement stores to y.
struct Lowered {
  Nest nest;
  NestFacts facts;
  LaneScope scope;
  Lowered(const std::string& body, const std::string& type, const std::string& before, LaneLimits limits)
      : nest(in_lanes(parse_nest("nest \"test\" params 4 {\n  buffer " + type +
                                 " read unique \"x\"\n  buffer " + type +
                                 " write unique \"y\"\n  tasks i0 < p1\n  cost 1000\n" + before +
                                 "  for i1 < p0 vector {\n" + body + "  }\n}\n"),
                      limits)),
        facts(nest),
        scope(facts, loop()) {
    verify(nest, limits);
    EXPECT_EQ(print(parse_nest(print(nest))), print(nest));
  }
  const Statement& loop() const { return nest.body.back(); }
  const Statement& statement(size_t k) const { return loop().body[k]; }
  const Node& value() const { return *statement(loop().body.size() - 1).values[0]; }
};
Lowered lowered(const std::string& body, const std::string& type = "float32",
                const std::string& before = "") {
  return Lowered(body, type, before, {.lanes = 8});
}

// The access of the last statement to x or, if `load` is false, of its store.
Access access(Lowered l, bool load) {
  auto& s = l.statement(l.loop().body.size() - 1);
  return access_of(l.scope, s, load ? s.values[0]->slot : s.buffer, load ? s.values[0]->args[0] : s.offset,
                   load);
}
// How x is read at an offset.
Access read_at(const std::string& offset, const std::string& type = "float32",
               LaneLimits limits = {.lanes = 8}) {
  return access(Lowered("    store 1[i1] = load[0:" + type + "](" + offset + ")\n", type, "", limits), true);
}
Access::Kind written_at(const std::string& offset) {
  return access(lowered("    store 1[" + offset + "] = 1:float32\n"), false).kind;
}

// The form of the select that the last statement of a loop stores; nothing is computed before.
SelectForm form_of(const std::string& select, bool with_loads = false) {
  auto l = lowered("    store 1[i1] = " + select + "\n");
  Selects selects(l.facts,
                  [&](Expr e, bool) { return with_loads && e->kind == Kind::load && l.scope.varies(e); });
  bool branch = selects.is_branch(l.scope, Expr(&l.value()), false);
  return selects.form(l.scope, l.value(), branch, false);
}
// Which sides a vector goes past; loads are computed.
std::pair<bool, bool> skipped(const std::string& select) {
  auto l = lowered("    store 1[i1] = " + select + "\n");
  Selects selects(l.facts, [&](Expr e, bool) { return e->kind == Kind::load && l.scope.varies(e); });
  EXPECT_EQ(selects.form(l.scope, l.value(), false, false), SelectForm::blend);
  return {selects.is_skipped(l.scope, l.value(), 1, false), selects.is_skipped(l.scope, l.value(), 2, false)};
}
bool has_border(const std::string& select) {
  auto l = lowered("    store 1[i1] = " + select + "\n");
  return Selects(l.facts, [](Expr, bool) { return false; }).has_border(l.scope, l.value());
}

}  // namespace

using AK = Access::Kind;

TEST(LaneAccess, LoadsFollowTheMotionOfTheirOffset) {
  EXPECT_EQ(read_at("p2").kind, AK::uniform);
  EXPECT_EQ(read_at("add(i1, mul(i0, p2))").kind, AK::contiguous);
  EXPECT_EQ(read_at("sub(p2, i1)").kind, AK::reversed);
  EXPECT_EQ(read_at("mul(i1, 3)").kind, AK::spaced);
  EXPECT_EQ(read_at("mul(i1, 3)").count, 3);
  EXPECT_EQ(read_at("mul(i1, 9)").kind, AK::each);
  EXPECT_EQ(read_at("mul(i1, p2)").kind, AK::each);
  EXPECT_EQ(read_at("mul(i1, i1)").kind, AK::each);
  // A let is what it stands for, as long as that does not change.
  EXPECT_EQ(
      access(lowered("    let v1 = add(i1, 4)\n    store 1[i1] = load[0:float32](v1:int64)\n"), true).kind,
      AK::contiguous);
}

TEST(LaneAccess, OnlyAccessesThatAreNotDirectAreListed) {
  EXPECT_TRUE(lowered("    store 1[i1] = add(load[0:float32](i1), load[0:float32](p2))\n")
                  .statement(0)
                  .accesses.empty());
  auto l = lowered("    store 1[mul(i1, 5)] = add(load[0:float32](sub(p2, i1)), load[0:float32](i1))\n");
  std::string printed = print(l.nest);
  EXPECT_NE(printed.find("    access store each\n"), printed.npos) << printed;
  EXPECT_NE(printed.find("] reversed\n"), printed.npos) << printed;
  EXPECT_EQ(l.statement(0).accesses.size(), 2u);
}

TEST(LaneAccess, ElementsThatIndicesPickAreGatheredWhereThatIsQuick) {
  auto picked = [](const std::string& type, bool gathers) {
    return read_at("within(i1, p2)", type, {.lanes = 8, .gathers = gathers}).kind;
  };
  EXPECT_EQ(picked("float32", true), AK::gathered);
  EXPECT_EQ(picked("int64", true), AK::gathered);
  EXPECT_EQ(picked("float32", false), AK::each);
  EXPECT_EQ(picked("bfloat16", true), AK::each);  // no machine gathers 16 bits
}

TEST(LaneAccess, CountedLanesArePackedWhereTheMachineCan) {
  auto stored = [](const std::string& type, int bytes, const std::string& around = "",
                   const std::string& end = "") {
    std::string one = "cast[int64](gt(load[0:" + type + "](i1), 1:" + type + "))";
    Lowered l("    accumulate v1 sum(" + one + ")\n" + around + "    store 1[sub(v1:int64, " + one +
                  ")] = load[0:" + type + "](i1)\n" + end,
              type, "  accumulator v1 sum int64\n", {.lanes = 16, .packed_bytes = bytes});
    auto* s = &l.statement(1);
    while (!s->body.empty()) s = &s->body[0];
    return s->accesses.empty() ? AK::contiguous : s->accesses[0].kind;
  };
  EXPECT_EQ(stored("int32", 64), AK::packed);
  EXPECT_EQ(stored("int32", 0), AK::each);
  EXPECT_EQ(stored("int16", 64), AK::each);
  EXPECT_EQ(stored("int32", 64, "    if gt(load[0:int32](i1), 1:int32) {\n", "    }\n"), AK::each);
}

TEST(LaneAccess, QuotientsByWhatDividesTheLanesReadAnElementSeveralTimes) {
  auto a = read_at("floordiv(add(i1, 3), 2)");
  EXPECT_EQ(a.kind, AK::repeated);
  EXPECT_EQ(a.count, 2);
  EXPECT_EQ(a.from, 1);
  EXPECT_EQ(read_at("floordiv(i1, 3)").kind, AK::each);
}

TEST(LaneAccess, StoresAreToNeighboursOrOneByOne) {
  EXPECT_EQ(written_at("i1"), AK::contiguous);
  EXPECT_EQ(written_at("p2"), AK::uniform);
  EXPECT_EQ(written_at("mul(i1, 2)"), AK::each);
  EXPECT_EQ(written_at("sub(p2, i1)"), AK::each);
}

TEST(LaneAccess, PartsOfComplexNumbersAreStoredTogether) {
  auto pair = [](const std::string& re, const std::string& im) {
    return lowered("    store 1.re[i1] = " + re + "\n    store 1.im[i1] = " + im + "\n", "complex64")
        .statement(0)
        .accesses;
  };
  auto part = [](const std::string& p, const std::string& at) {
    return "load[0:complex64." + p + "](" + at + ")";
  };
  auto moved = pair(part("re", "i1"), part("im", "i1"));
  ASSERT_EQ(moved.size(), 1u);
  EXPECT_EQ(moved[0].kind, AK::pairs);
  EXPECT_EQ(moved[0].moved, 1);
  EXPECT_EQ(pair(part("re", "sub(p2, i1)"), part("im", "sub(p2, i1)"))[0].moved, -1);
  auto conjugate = pair(part("re", "i1"), "neg(" + part("im", "i1") + ")");
  ASSERT_EQ(conjugate.size(), 2u);
  EXPECT_EQ(conjugate[0].moved, 0);
  EXPECT_EQ(conjugate[1].kind, AK::spaced);  // real numbers, in units of which parts are two apart
  EXPECT_EQ(conjugate[1].count, 2);
}

TEST(LaneAccess, StoresToEveryPlaceOfAStrideAreWoven) {
  auto l = lowered("    store 1[mul(i1, 2)] = 1:float32\n    store 1[add(mul(i1, 2), 1)] = 2:float32\n");
  // Lanes would be refused for two stores to a buffer that is read, not for these.
  ASSERT_EQ(l.loop().lanes.width, 8);
  ASSERT_EQ(l.statement(0).accesses.size(), 1u);
  EXPECT_EQ(l.statement(0).accesses[0].kind, AK::neighbours);
  EXPECT_EQ(l.statement(0).accesses[0].count, 2);
  EXPECT_TRUE(l.statement(1).accesses.empty());
}

TEST(LaneAccess, ArraysOfTheLanesLieBesideEachOther) {
  EXPECT_EQ(access(lowered("    array v1 float32 p2\n    store -2[0] = load[0:float32](i1)\n"
                           "    store 1[i1] = load[-2:float32](p3)\n"),
                   true)
                .kind,
            AK::own);
  EXPECT_EQ(access(lowered("    array v1 float32 p2\n    store -2[0] = load[0:float32](i1)\n"
                           "    store 1[i1] = load[-2:float32](i1)\n"),
                   true)
                .kind,
            AK::each);
}

TEST(LaneAccess, UnrolledStepsThatAreRowsOfALaneAreTransposed) {
  auto rows = [](const std::string& before, const std::string& end) {
    auto l = lowered("    for i2 < 3 unrolled {\n" + before +
                     "      store 1[add(mul(i1, 3), i2)] = load[0:float32](add(mul(i1, 3), i2))\n" + end +
                     "    }\n");
    auto* s = &l.statement(0);
    while (!s->body.empty()) s = &s->body[0];
    return s->accesses;
  };
  auto both = rows("", "");
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0].kind, AK::each);
  EXPECT_EQ(both[0].rows, 2);
  EXPECT_EQ(both[1].kind, AK::spaced);
  EXPECT_EQ(both[1].rows, 2);
  for (auto& a : rows("      if lt(i2, p2) {\n", "      }\n")) EXPECT_EQ(a.rows, -1);
}

// Each of these nests states an access that is not possible.
TEST(LaneAccess, ImpossibleAccessesAreRefused) {
  auto refused = [](const std::string& from, const std::string& to, const std::string& body,
                    const std::string& type = "float32") {
    std::string text = print(lowered(body, type).nest);
    size_t at = text.find(from);
    ASSERT_NE(at, text.npos) << text;
    text.replace(at, from.size(), to);
    EXPECT_THROW(verify(parse_nest(text)), Error) << text;
  };
  const std::string every = "    store 1[i1] = load[0:float32](mul(i1, 3))\n", line = " spaced 3\n";
  refused(line, " spaced 2\n", every);
  refused(line, " reversed\n", every);
  refused(line, " contiguous\n", every);
  refused(line, " repeated 2 from 0\n", every);
  refused(line, " packed\n", every);
  refused(line, " spaced 3 rows i1\n", every);
  const std::string back = "    store 1[i1] = load[0:float32](sub(p2, i1))\n";
  refused(" reversed\n", " spaced 2\n", back);
  const std::string stored = "    store 1[mul(i1, 2)] = 1:float32\n";
  refused("    access store each\n", "", stored);
  refused("    access store each\n", "    access store each\n    access store each\n", stored);
  refused("    access store each\n", "    access store neighbours 2\n", stored);
  refused("    access store each\n", "    access store pairs\n", stored);
  refused("    access store each\n", "    access store packed\n", stored);
  refused(" moved\n", " moved reversed\n",
          "    store 1.re[i1] = load[0:complex64.re](i1)\n    store 1.im[i1] = load[0:complex64.im](i1)\n",
          "complex64");
}

TEST(LaneSelect, SidesWithoutLoadsAreBothComputed) {
  EXPECT_EQ(form_of("select(lt(i1, p2), 1:float32, 2:float32)"), SelectForm::blend);
  EXPECT_EQ(form_of("select(lt(load[0:float32](i1), 0:float32), neg(load[0:float32](i1)), 2:float32)", true),
            SelectForm::blend);
}

TEST(LaneSelect, LoadsAndChecksAreGuarded) {
  EXPECT_EQ(form_of("select(lt(i1, p2), load[0:float32](i1), 2:float32)"), SelectForm::masked);
  EXPECT_EQ(form_of("select(lt(p3, p2), load[0:float32](i1), 2:float32)"), SelectForm::branch);
  EXPECT_EQ(form_of("select(lt(i1, p2), load[0:float32](check(i1, p3)), 2:float32)", true),
            SelectForm::blend);
  EXPECT_EQ(form_of("select(lt(i1, p2), 1:float32, cast[float32](check(i1, p3)))", true), SelectForm::masked);
}

TEST(LaneSelect, DearSidesAreJumpedOver) {
  EXPECT_EQ(form_of("select(lt(p3, p2), exp(load[0:float32](i1)), 2:float32)", true), SelectForm::branch);
  EXPECT_EQ(skipped("select(lt(load[0:float32](i1), 0:float32), exp(load[0:float32](i1)), 2:float32)"),
            (std::pair{true, false}));
  EXPECT_EQ(skipped("select(lt(load[0:float32](i1), 0:float32), 2:float32, exp(load[0:float32](i1)))"),
            (std::pair{false, true}));
  EXPECT_EQ(skipped("select(lt(load[0:float32](i1), 0:float32), mul(load[0:float32](p3), "
                    "exp(load[0:float32](i1))), log(load[0:float32](i1)))"),
            (std::pair{true, true}));  // one number is read for all lanes
}

TEST(LaneSelect, WhatBothSidesNeedIsComputedBefore) {
  std::string e = "exp(load[0:float32](i1))", select = "select(lt(load[0:float32](i1), 0:float32), neg(log(" +
                                                       e + ")), mul(2:float32, log(" + e + ")))";
  auto l = lowered("    store 1[i1] = " + select + "\n");
  Selects selects(l.facts, [&](Expr x, bool) { return x->kind == Kind::load && l.scope.varies(x); });
  auto shared = selects.shared(l.scope, l.value(), false);
  ASSERT_EQ(shared.size(), 1u);
  EXPECT_EQ(loop::print(shared[0]), "log(" + e + ")");
}

TEST(LaneSelect, ConditionsOnThePlaceHaveABorder) {
  const std::string sides = ", load[0:float32](add(i1, p3)), 0:float32)";
  EXPECT_TRUE(has_border("select(lt(i1, p2)" + sides));
  EXPECT_TRUE(has_border("select(bit_and(ge(add(i1, -1), 0), lt(i1, p2))" + sides));
  EXPECT_FALSE(has_border("select(lt(remainder(i1, 2), p2)" + sides));  // not all lanes between two that pass
  EXPECT_FALSE(has_border("select(ne(i1, p2)" + sides));
  EXPECT_FALSE(has_border("select(lt(p3, p2)" + sides));
  EXPECT_FALSE(has_border("select(lt(i1, p2), 1:float32, 0:float32)"));
}
