// Nests for lanes: how each loop runs, what cannot, what is refused, and in which order the interpreter adds up.
#include <gtest/gtest.h>

#include "facula/base/error.h"
#include "facula/loop/interpret.h"
#include "facula/loop/lanes.h"
#include "facula/schedule/lanes.h"

using namespace facula;
using namespace facula::loop;
using facula::schedule::in_lanes;

namespace {

const LaneLimits kLimits{.lanes = 4};

std::string nest(const std::string& body, int params = 3, const std::string& type = "float32") {
  return "nest \"test\" params " + std::to_string(params) + " {\n  buffer " + type +
         " read unique \"x\"\n  buffer " + type + " write unique \"y\"\n  tasks i0 < p1\n  cost 1000\n" +
         body + "}\n";
}
std::string lowered(const std::string& text) {
  Nest n = parse_nest(text);
  verify(n);
  Nest lanes = in_lanes(n, kLimits);
  verify(lanes, kLimits);
  std::string printed = print(lanes);
  EXPECT_EQ(print(parse_nest(printed)), printed);
  return printed;
}
// How the loop over i1 runs.
std::string how(const std::string& text) {
  std::string printed = lowered(text);
  size_t from = printed.find("for i1 < "), to = printed.find(" {", from);
  std::string line = printed.substr(from, to - from);
  size_t vector = line.find(" vector");
  return vector == line.npos ? "serial" : line.substr(vector + 1);
}
std::string sum(const std::string& value) {
  return nest("  accumulator v1 sum float32\n  for i1 < p0 vector {\n    accumulate v1 sum(" + value +
              ")\n  }\n  store 1[i0] = v1:float32\n");
}

std::string scan(const std::string& monoid, const std::string& type, const std::string& value) {
  return nest("  accumulator v1 " + monoid + " " + type + "\n  for i1 < p0 vector {\n    accumulate v1 " +
              monoid + "(" + value + ")\n    store 1[i1] = cast[float32](v1:" + type + ")\n  }\n");
}

std::string with(std::string text, const std::string& before, const std::string& now) {
  size_t at = text.find(before);
  EXPECT_NE(at, text.npos) << before;
  return text.replace(at, before.size(), now);
}
std::string refusal(const std::string& text) {
  try {
    verify(parse_nest(text));
  } catch (const Error& e) { return e.what(); }
  return "";
}
void expect_refused(const std::string& text, const std::string& why) {
  EXPECT_NE(refusal(text).find(why), std::string::npos) << refusal(text);
}

std::vector<float> computed(const Nest& n, std::vector<float> x, size_t results,
                            std::vector<int64_t> params) {
  std::vector<float> y(results);
  void* buffers[] = {x.data(), y.data()};
  interpret(n, buffers, params);
  return y;
}

const char kColumns[] = R"(  for i1 < p0 vector {
    accumulator v1 sum float32
    for i2 < p2 {
      accumulate v1 sum(load[0:float32](add(i1, mul(i2, p0))))
    }
    store 1[i1] = v1:float32
  }
)";

}  // namespace

TEST(InLanes, TheLoweredNestSaysHowItsLoopsRun) {
  EXPECT_EQ(lowered(nest(kColumns)), R"(nest "test" params 3 {
  buffer float32 read unique "x"
  buffer float32 write unique "y"
  lanes 4
  tasks i0 < p1
  cost 1000
  for i1 < p0 vector 4 strip 8 {
    accumulator v1 sum float32
    for i2 < p2 chains 4 {
      accumulate v1 sum(load[0:float32](add(i1, mul(i2, p0))))
    }
    store 1[i1] = v1:float32
  }
}
)");
}

TEST(InLanes, SumsOfLittleHaveSeveralAccumulatorsALane) {
  EXPECT_EQ(how(sum("load[0:float32](i1)")), "vector 4 unroll 4");
  EXPECT_EQ(how(sum("exp(load[0:float32](i1))")), "vector 4 unroll 2");
  EXPECT_EQ(how(sum("exp(exp(exp(exp(load[0:float32](i1)))))")), "vector 4");
}

TEST(InLanes, ElementsOf64BitsHaveHalfAsManyLanesAndBytesThatMoveMore) {
  auto copy = [](const std::string& type) {
    return nest("  for i1 < p0 vector {\n    store 1[i1] = load[0:" + type + "](i1)\n  }\n", 3, type);
  };
  EXPECT_EQ(how(copy("float64")), "vector 2");
  EXPECT_EQ(how(copy("float32")), "vector 4");
  EXPECT_EQ(how(copy("bfloat16")), "vector 8");
  EXPECT_EQ(how(copy("int8")), "vector 16");
  EXPECT_EQ(how(nest("  for i1 < p0 vector {\n    store 1[i1] = neg(load[0:int8](i1))\n  }\n", 3, "int8")),
            "vector 4");
  // Fewer where they are stored one by one.
  EXPECT_EQ(how(nest("  for i1 < p0 vector {\n    store 1[mul(i1, 65)] = load[0:uint8](i1)\n  }\n", 3,
                     "uint8")),
            "vector 4");
}

TEST(InLanes, ExtentsThatAreWholeVectorsHaveNoTail) {
  auto copy = [](int n) {
    return nest("  for i1 < " + std::to_string(n) +
                " vector {\n    store 1[i1] = load[0:float32](i1)\n  }\n");
  };
  EXPECT_EQ(how(copy(8)), "vector 4 whole");
  EXPECT_EQ(how(copy(9)), "vector 4");
}

TEST(InLanes, IterationsThatNeedEachOtherRunOneAfterTheOther) {
  auto body = [](const std::string& b) { return how(nest("  for i1 < p0 vector {\n" + b + "  }\n")); };
  EXPECT_EQ(body("    store 1[i1] = load[1:float32](i1)\n"), "vector 4");
  EXPECT_EQ(body("    store 1[add(i1, 1)] = load[1:float32](i1)\n"), "serial");
  EXPECT_EQ(body("    store 1[0] = load[0:float32](i1)\n"), "serial");
  EXPECT_EQ(body("    store 1[0] = load[0:float32](p2)\n"), "vector 4");
  // The loop inside can.
  std::string text =
      lowered(nest("  for i1 < p0 vector {\n    for i2 < p0 vector {\n      store 1[add(i2, i1)] = "
                   "add(load[1:float32](add(i2, i1)), 1:float32)\n    }\n  }\n"));
  EXPECT_NE(text.find("for i1 < p0 vector 4 {"), text.npos) << text;
  EXPECT_NE(text.find("for i2 < p0 {"), text.npos) << text;
}

TEST(InLanes, ScansTakeTheirLanesTogether) {
  const std::string x = "load[0:float32](i1)", wide = "cast[float64](" + x + ")";
  EXPECT_EQ(how(scan("sum", "float32", x)), "vector 4 scan");
  EXPECT_EQ(how(scan("max", "float64", wide)), "vector 4 scan");
  // Factors of a smaller range do not overflow together; others might, where one by one they do not.
  EXPECT_EQ(how(scan("prod", "float64", wide)), "vector 4 scan");
  EXPECT_EQ(how(scan("prod", "float64", "mul(" + wide + ", 2:float64)")), "serial");
  EXPECT_EQ(how(scan("prod", "float32", x)), "serial");
  std::string text = scan("sum", "float32", x);
  EXPECT_EQ(how(with(text, "    accumulate", "    store 1[i1] = 0:float32\n    accumulate")), "serial");
  EXPECT_EQ(how(with(text, "    accumulate", "    let v2 = add(v1:float32, 1:float32)\n    accumulate")),
            "serial");
  EXPECT_EQ(how(with(text, "    accumulate", "    accumulate v1 sum(" + x + ")\n    accumulate")), "serial");
  EXPECT_EQ(how(with(with(text, "    accumulate", "    if lt(i1, 3) {\n    accumulate"), "    store",
                     "    }\n    store")),
            "serial");
}

TEST(InLanes, LocalsOfSeveralBlocksGetNumbersOfTheirOwn) {
  std::string text = lowered(nest(R"(  for i1 < p0 vector {
    let v1 = load[0:float32](i1)
    store 1[i1] = v1:float32
  }
  if lt(i0, 1) {
    let v1 = add(i0, 1)
    array v2 float32 4
    store -3[0] = load[0:float32](v1:int64)
    store 1[v1:int64] = load[-3:float32](0)
  }
  array v2 float32 8
  store -3[1] = load[0:float32](i0)
)"));
  for (auto* part : {"let v5 = add(i0, 1)", "store -3[0] = load[0:float32](v5:int64)", "array v6 float32 8",
                     "store -7[1]"})
    EXPECT_NE(text.find(part), text.npos) << part << "\n" << text;
}

TEST(InLanes, UnrolledLoopsHaveFewSteps) {
  auto steps = [](const std::string& n) {
    return lowered(nest("  for i1 < " + n + " unrolled {\n    store 1[i1] = load[0:float32](i1)\n  }\n"));
  };
  EXPECT_NE(steps("16").find("16 unrolled"), std::string::npos);
  EXPECT_NE(steps("17").find("i1 < 17 {"), std::string::npos);
  EXPECT_NE(steps("p0").find("i1 < p0 unroll 4 prefetch 512 {"), std::string::npos);
}

TEST(InLanes, LoopsWithLittleWorkSayHowFarTheyPrefetch) {
  const std::string text = lowered(nest(R"(  for i1 < p0 {
    let v1 = load[0:float32](mul(i1, 2))
    store 1[add(i1, 3)] = add(v1:float32, load[0:float32](remainder(i1, 5)))
  }
)"));
  Nest n = parse_nest(text);
  const Statement& loop = n.body.back();
  EXPECT_EQ(loop.lanes.prefetch, 512) << text;
  EXPECT_EQ(print(n), text);
  auto places = prefetched_places(loop);
  ASSERT_EQ(places.size(), 2U);  // not the load at a remainder, which is not linear
  EXPECT_EQ(places[0].slot, 0);
  EXPECT_EQ(print(places[0].offset), "mul(i1, 2)");
  EXPECT_EQ(places[1].slot, 1);
  EXPECT_EQ(print(places[1].offset), "add(i1, 3)");
  expect_refused(with(lowered(nest(kColumns)), "chains 4", "chains 4 prefetch 512"),
                 "prefetches and has no rounds");
  EXPECT_THROW(verify(n, LaneLimits{.lanes = 4, .prefetch = 256}), Error);
}

TEST(InLanes, AreRefusedWhereLanesWouldMeet) {
  const std::string good = lowered(sum("load[0:float32](i1)")), columns = lowered(nest(kColumns));
  EXPECT_EQ(refusal(good), "");
  expect_refused(with(good, "  lanes 4\n", ""), "has lanes and is none over lanes");
  expect_refused(with(good, "vector 4 unroll 4", "vector"), "has no lanes");
  expect_refused(with(good, "vector 4 unroll 4", "vector 6"), "no power of two");
  expect_refused(with(good, "vector 4 unroll 4", "vector 1"), "has one lane");
  expect_refused(with(good, "unroll 4", "strip 2"), "has strips beside rounds");
  expect_refused(with(good, "unroll 4", "unroll 4 whole"), "has a tail");
  expect_refused(with(good, "accumulate v1", "store 1[i1] = v1:float32\n    accumulate v1"),
                 "reads an accumulator that it adds to");
  expect_refused(with(good, "accumulate v1", "assign v1 = 0:float32\n    accumulate v1"),
                 "assigns a local of outside");
  const std::string scans = lowered(scan("sum", "float32", "load[0:float32](i1)"));
  expect_refused(with(scans, "vector 4 scan", "vector 4"), "reads an accumulator that it adds to");
  expect_refused(with(scans, "vector 4 scan", "vector 4 unroll 2 scan"), "scans in rounds");
  expect_refused(with(good, "vector 4 unroll 4", "scan"), "has vectors and no lanes");
  expect_refused(with(columns, "strip 8", "scan"), "scans in rounds or nothing");
  expect_refused(with(with(scans, "v1 sum float32", "v1 prod float32"), "v1 sum(", "v1 prod("), "one by one");
  expect_refused(with(columns, "store 1[i1] =", "store 1[i0] ="), "store different values to one element");
  expect_refused(with(columns, "load[0:float32]", "load[1:float32]"), "may read what another one stores");
  expect_refused(with(columns, "for i2 < p2 chains 4", "for i2 < i1 chains 4"), "does not only add up");
  expect_refused(with(with(columns, "v1 sum float32", "v1 prod float32"), "accumulate v1 sum",
                      "accumulate v1 prod"),
                 "does not only add up");
  expect_refused(with(columns, "for i2 < p2 chains 4", "for i2 < p2 vector 4"), "has lanes inside of lanes");
  const std::string block =
      "  if lt(i0, 1) {\n    let v9 = add(i0, 1)\n    store 1[v9:int64] = 0:float32\n  }\n";
  expect_refused(with(good, "  accumulator v1", block + block + "  accumulator v1"),
                 "declared by several statements");
  EXPECT_THROW(verify(parse_nest(good), LaneLimits{.lanes = 8}), Error);
  EXPECT_THROW(verify(parse_nest(good), LaneLimits{.lanes = 4, .unroll = 2}), Error);
  EXPECT_THROW(in_lanes(parse_nest(good), kLimits), Error);
}

// The fixed tree, written out.
TEST(InLanes, TheInterpreterAddsUpAsTheLanesDo) {
  std::vector<float> x;
  for (int k = 0; k < 23; ++k) x.push_back(1.0f / float(k + 1));
  Nest n = parse_nest(with(lowered(sum("load[0:float32](i1)")), "vector 4 unroll 4", "vector 4 unroll 2"));
  float copies[2][4] = {};
  for (int k = 0; k < 23; ++k) copies[k < 16 ? k / 4 % 2 : 0][k % 4] += x[size_t(k)];
  float lane[4];
  for (int l = 0; l < 4; ++l) lane[l] = copies[0][l] + copies[1][l];
  EXPECT_EQ(computed(n, x, 1, {23, 1, 0})[0], (lane[0] + lane[2]) + (lane[1] + lane[3]));
}

TEST(InLanes, TheInterpreterScansAsTheLanesDo) {
  std::vector<float> x;
  for (int k = 0; k < 7; ++k) x.push_back(1.0f / float(k + 3));
  auto y = computed(parse_nest(lowered(scan("sum", "float32", "load[0:float32](i1)"))), x, 7, {7, 1, 0});
  float before = 0;
  for (int k = 0; k < 7; k += 4) {
    auto at = [&](int l) { return k + l < 7 ? x[size_t(k + l)] : 0.0f; };
    float totals[4] = {at(0), at(0) + at(1), at(0) + (at(1) + at(2)), (at(0) + at(1)) + (at(2) + at(3))};
    for (int l = 0; l < 4 && k + l < 7; ++l) EXPECT_EQ(y[size_t(k + l)], before + totals[l]) << k + l;
    before += totals[3];
  }
}

TEST(InLanes, ChainsAreOfColumnsThatAreInNoStrip) {
  constexpr int64_t kWide = 35, kRows = 7;  // a strip of 32 columns, and 3
  std::vector<float> x;
  for (int k = 0; k < kWide * kRows; ++k) x.push_back(1.0f / float(k % 31 + 1));
  auto y = computed(parse_nest(lowered(nest(kColumns))), x, kWide, {kWide, 1, kRows});
  for (int64_t c = 0; c < kWide; ++c) {
    auto at = [&](int64_t row) { return x[size_t(row * kWide + c)]; };
    float one_by_one = 0, rest = (at(0) + at(1)) + (at(2) + at(3));
    for (int64_t r = 0; r < kRows; ++r) one_by_one += at(r);
    for (int64_t r = 4; r < kRows; ++r) rest += at(r);
    EXPECT_EQ(y[size_t(c)], c < 32 ? one_by_one : rest) << c;
  }
}
