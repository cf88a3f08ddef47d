// How loads, stores and selects in lanes are done, by what is known of their places.
#include <gtest/gtest.h>

#include "facula/schedule/lane_access.h"
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
  Lowered(const std::string& body, const std::string& type, const std::string& before)
      : nest(in_lanes(parse_nest("nest \"test\" params 4 {\n  buffer " + type +
                                 " read unique \"x\"\n  buffer " + type +
                                 " write unique \"y\"\n  tasks i0 < p1\n  cost 1000\n" + before +
                                 "  for i1 < p0 vector {\n" + body + "  }\n}\n"),
                      {.lanes = 8})),
        facts(nest),
        scope(facts, loop()) {}
  const Statement& loop() const { return nest.body.back(); }
  const Statement& statement(size_t k) const { return loop().body[k]; }
  const Node& value() const { return *statement(loop().body.size() - 1).values[0]; }
};
Lowered lowered(const std::string& body, const std::string& type = "float32",
                const std::string& before = "") {
  return Lowered(body, type, before);
}

// How x is read at an offset.
LaneAccess read_at(const std::string& offset, bool masked = false, const std::string& type = "float32") {
  auto l = lowered("    store 1[i1] = load[0:" + type + "](" + offset + ")\n", type);
  return lane_access(l.scope, 0, l.value().args[0], {.loads = true, .masked = masked});
}
LaneAccess::Kind written_at(const std::string& offset, bool masked = false) {
  auto l = lowered("    store 1[" + offset + "] = 1:float32\n");
  return lane_access(l.scope, 1, l.statement(0).offset, {.loads = false, .masked = masked}).kind;
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

TEST(LaneAccess, LoadsFollowTheMotionOfTheirOffset) {
  EXPECT_EQ(read_at("p2").kind, LaneAccess::uniform);
  EXPECT_EQ(read_at("add(i1, mul(i0, p2))").kind, LaneAccess::contiguous);
  EXPECT_EQ(read_at("sub(p2, i1)").kind, LaneAccess::reversed);
  EXPECT_EQ(read_at("mul(i1, 3)").kind, LaneAccess::spaced);
  EXPECT_EQ(read_at("mul(i1, 3)").apart, 3);
  EXPECT_EQ(read_at("mul(i1, 9)").kind, LaneAccess::each);
  EXPECT_TRUE(same(read_at("mul(i1, p2)").stride, param(2)));
  EXPECT_TRUE(read_at("mul(i1, i1)").has_own_offsets());
  // A let is what it stands for, as long as that does not change.
  auto l = lowered("    let v1 = add(i1, 4)\n    store 1[i1] = load[0:float32](v1:int64)\n");
  EXPECT_EQ(lane_access(l.scope, 0, l.value().args[0], {}).kind, LaneAccess::contiguous);
}

TEST(LaneAccess, MasksForbidWhatTouchesMoreThanTheLanesWant) {
  EXPECT_EQ(read_at("mul(i1, 3)", true).kind, LaneAccess::gathered);
  EXPECT_EQ(read_at("mul(i1, p2)", true).kind, LaneAccess::gathered);
  EXPECT_EQ(read_at("sub(p2, i1)", true).kind, LaneAccess::reversed);
  EXPECT_EQ(read_at("i1", true).kind, LaneAccess::contiguous);
}

TEST(LaneAccess, ElementsThatIndicesPickAreGatheredWhereThatIsQuick) {
  auto picked = [](const std::string& type, bool gathers) {
    auto l = lowered("    store 1[i1] = load[0:" + type + "](within(i1, p2))\n", type);
    return lane_access(l.scope, 0, l.value().args[0], {.gathers = gathers}).kind;
  };
  EXPECT_EQ(picked("float32", true), LaneAccess::gathered);
  EXPECT_EQ(picked("int64", true), LaneAccess::gathered);
  EXPECT_EQ(picked("float32", false), LaneAccess::each);
  EXPECT_EQ(picked("bfloat16", true), LaneAccess::each);  // no machine gathers 16 bits
}

TEST(LaneAccess, QuotientsByWhatDividesTheLanesReadAnElementSeveralTimes) {
  auto a = read_at("floordiv(add(i1, 3), 2)");
  EXPECT_EQ(a.kind, LaneAccess::repeated);
  EXPECT_EQ(a.lanes.times, 2);
  EXPECT_EQ(a.lanes.from, 1);
  EXPECT_EQ(a.lanes.at(0), 0);
  EXPECT_EQ(a.lanes.at(1), 1);
  EXPECT_TRUE(read_at("floordiv(i1, 3)").has_own_offsets());
}

TEST(LaneAccess, StoresAreToNeighboursOrOneByOne) {
  EXPECT_EQ(written_at("i1"), LaneAccess::contiguous);
  EXPECT_EQ(written_at("p2"), LaneAccess::uniform);
  EXPECT_EQ(written_at("mul(i1, 2)"), LaneAccess::each);
  EXPECT_EQ(written_at("sub(p2, i1)"), LaneAccess::each);
  EXPECT_EQ(written_at("mul(i1, 2)", true), LaneAccess::gathered);
}

TEST(LaneAccess, PartsOfComplexNumbersAreTwiceAsFarApart) {
  auto l = lowered(
      "    store 1.re[i1] = load[0:complex64.re](i1)\n    store 1.im[i1] = load[0:complex64.im](i1)\n",
      "complex64");
  auto a = lane_access(l.scope, 0, l.value().args[0], {});
  EXPECT_EQ(a.kind, LaneAccess::spaced);
  EXPECT_EQ(a.apart, 2);
  EXPECT_TRUE(stores_pairs(l.scope, l.statement(0), l.statement(1)));
  EXPECT_FALSE(stores_pairs(l.scope, l.statement(1), l.statement(0)));
  EXPECT_EQ(loads_pairs(l.scope, l.statement(0).values[0], l.statement(1).values[0], DType::Float32), 1);
  auto back = lowered(
      "    store 1.re[i1] = load[0:complex64.re](sub(p2, i1))\n"
      "    store 1.im[i1] = load[0:complex64.im](sub(p2, i1))\n",
      "complex64");
  EXPECT_EQ(loads_pairs(back.scope, back.statement(0).values[0], back.statement(1).values[0], DType::Float32),
            -1);
}

TEST(LaneAccess, StoresToEveryPlaceOfAStrideAreWoven) {
  auto l = lowered("    store 1[mul(i1, 2)] = 1:float32\n    store 1[add(mul(i1, 2), 1)] = 2:float32\n");
  // Lanes would be refused for two stores to a buffer that is read, not for these.
  ASSERT_EQ(l.loop().lanes.width, 8);
  EXPECT_EQ(stores_of_neighbours(l.scope, l.loop().body, 0), 2u);
  EXPECT_EQ(stores_of_neighbours(l.scope, l.loop().body, 1), 0u);
}

TEST(LaneAccess, ArraysOfTheLanesLieBesideEachOther) {
  auto l = lowered(
      "    array v1 float32 p2\n    store -2[0] = load[0:float32](i1)\n    store 1[i1] = load[-2:float32](p3)\n");
  EXPECT_EQ(lane_access(l.scope, -2, l.value().args[0], {.masked = true}).kind, LaneAccess::own);
  EXPECT_EQ(lane_access(l.scope, -2, index(1), {}).kind, LaneAccess::each);
}

TEST(LaneAccess, UnrolledStepsThatAreRowsOfALaneStartWithTheFirst) {
  auto l = lowered(
      "    for i2 < 3 unrolled {\n      store 1[add(mul(i1, 3), i2)] = load[0:float32](add(mul(i1, 3), i2))\n    }\n");
  auto& s = l.statement(0).body[0];
  EXPECT_TRUE(same(start_of_rows(l.scope, 0, s.values[0]->args[0], 2, 3, true), index(1) * Scalar(3)));
  EXPECT_TRUE(start_of_rows(l.scope, 1, s.offset, 2, 3, false));
  EXPECT_EQ(start_of_rows(l.scope, 1, s.offset, 2, 3, true).get(), nullptr);  // what is written is not kept
  EXPECT_EQ(start_of_rows(l.scope, 0, s.offset, 2, 4, true).get(), nullptr);
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
