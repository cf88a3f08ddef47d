// Nests of a grid: which form each loop takes, where barriers stand, and that the interpreter gets the same from both,
// which also finds what lacks a barrier.
#include <gtest/gtest.h>

#include <numeric>

#include "facula/base/error.h"
#include "facula/loop/interpret.h"
#include "facula/schedule/grid.h"

using namespace facula;
using namespace facula::loop;
using facula::schedule::on_grid;

namespace {

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++n;
  return n;
}
std::string nest(const std::string& buffers, const std::string& tasks, const std::string& body) {
  return "nest \"test\" params 3 {\n" + buffers + "  tasks i0 < " + tasks + "\n  cost 1000\n" + body + "}\n";
}
const std::string kXY = "  buffer float32 read unique \"x\"\n  buffer float32 write unique \"y\"\n";
const std::string kCounts = "  buffer int64 read unique \"x\"\n  buffer int32 write unique \"y\"\n";

// The text of the nest on a grid. Results of small whole numbers are exact, so that the order of a sum is not seen.
std::string on_both(const std::string& text, const GridLimits& limits = {.threads = 4}) {
  Nest n = parse_nest(text);
  verify(n);
  Nest grid = on_grid(n, limits);
  std::string printed = print(grid);
  EXPECT_EQ(print(parse_nest(printed)), printed);
  EXPECT_EQ(identity(n), identity(parse_nest(text)));
  std::vector<int64_t> params{7, 3, 5};
  auto run = [&](const Nest& which) {
    std::vector<std::vector<char>> memory;
    std::vector<void*> buffers;
    for (auto& b : n.buffers) {
      auto& bytes = memory.emplace_back(size_t(200 * itemsize(b.dtype)));
      for (int64_t k = 0; k < 200; ++k)
        Scalar(k * 31 % 7).store(b.dtype, bytes.data() + k * itemsize(b.dtype));
      buffers.push_back(bytes.data());
    }
    interpret(which, buffers, params);
    return memory;
  };
  EXPECT_TRUE(run(n) == run(grid)) << printed;
  return printed;
}

}  // namespace

TEST(OnGrid, LanesBecomeThreads) {
  std::string text = on_both(nest(kXY, "p1", R"(
  for i1 < p0 vector {
    store 1[add(i1, mul(i0, p0))] = mul(load[0:float32](add(i1, mul(i0, p0))), 2:float32)
  }
)"));
  EXPECT_EQ(count(text, "for i1 < p0 threads {"), 1);
  EXPECT_EQ(count(text, "barrier"), 0);
}

TEST(OnGrid, ATaskWithoutLanesIsAThreads) {
  std::string text = on_both(nest(kXY, "p0", R"(
  let v1 = mul(i0, p1)
  accumulator v2 sum float32
  for i1 < p1 {
    accumulate v2 sum(load[0:float32](add(i1, v1:int64)))
  }
  store 1[i0] = v2:float32
)"));
  EXPECT_EQ(count(text, "tasks i0 < floordiv(add(p0, 3), 4)"), 1) << text;
  EXPECT_EQ(count(text, "threads {"), 1);
  EXPECT_EQ(count(text, "barrier"), 0);
}

TEST(OnGrid, ASumOverTwoLoopsHasOneTree) {
  std::string text = on_both(nest(kXY, "p1", R"(
  accumulator v1 sum float32
  for i1 < p1 {
    for i2 < p0 vector {
      accumulate v1 sum(load[0:float32](add(i2, mul(i1, p0))))
    }
    accumulate v1 sum(2:float32)
  }
  store 1[i0] = v1:float32
)"));
  EXPECT_EQ(count(text, "array v"), 1) << text;
  EXPECT_EQ(count(text, "shr(2, "), 1);
  EXPECT_EQ(count(text, "barrier"), 3);
}

TEST(OnGrid, ATotalThatIsReadInALoopHasATreeThere) {
  std::string text = on_both(nest(kXY, "p1", R"(
  accumulator v1 max float32
  for i1 < p1 {
    for i2 < p0 vector {
      accumulate v1 max(load[0:float32](add(i2, mul(i1, p0))))
    }
    for i3 < p0 vector {
      store 1[add(i3, mul(i1, p0))] = add(v1:float32, load[0:float32](i3))
    }
  }
)"));
  EXPECT_LT(text.find("for i1 < p1"), text.find("shr(2, "));
}

TEST(OnGrid, PositionsAndMomentsGoThroughTrees) {
  for (const char* m : {"argmax", "argmin", "argmax_pool"})
    on_both(nest("  buffer float32 read unique \"x\"\n  buffer int64 write unique \"y\"\n", "p1",
                 std::string("  accumulator v1 ") + m +
                     " float32\n  for i1 < p0 vector {\n    accumulate v1 " + m +
                     "(load[0:float32](add(i1, mul(i0, p0))), i1)\n  }\n  store 1[i0] = v2:int64\n"));
  on_both(nest(kXY, "p1", R"(
  accumulator v1 welford float32
  for i1 < p0 vector {
    accumulate v1 welford(3:float32)
  }
  store 1[i0] = add(v1:float32, add(v2:float32, v3:float32))
)"));
}

TEST(OnGrid, AScanGoesByTiles) {
  std::string text = on_both(nest(kXY, "p1", R"(
  accumulator v1 sum float32
  for i1 < p0 {
    let v3 = add(i1, mul(i0, p0))
    accumulate v1 sum(load[0:float32](v3:int64))
    store 1[v3:int64] = v1:float32
  }
)"));
  EXPECT_EQ(count(text, "floordiv(add(p0, 3), 4)"), 1) << text;  // tiles
  EXPECT_EQ(count(text, "array v"), 2);
  EXPECT_EQ(count(text, "select("), 2);  // from neighbours 1 and 2 apart
}

TEST(OnGrid, AScanOfWhatALoopComputesIsAThreads) {
  std::string text = on_both(nest(kXY, "p1", R"(
  accumulator v1 sum float32
  for i1 < p0 {
    accumulator v3 max float32
    for i2 < p2 {
      accumulate v3 max(load[0:float32](add(i2, i1)))
    }
    accumulate v1 sum(v3:float32)
    store 1[add(i1, mul(i0, p0))] = v1:float32
  }
)"));
  EXPECT_EQ(count(text, "tasks i0 < floordiv("), 1) << text;
}

TEST(OnGrid, WholeNumbersAreChangedAtomically) {
  std::string text = on_both(nest(kCounts, "1", R"(
  for i1 < p0 {
    let v1 = load[0:int64](i1)
    store 1[v1:int64] = add(load[1:int32](v1:int64), cast[int32](i1))
  }
)"));
  EXPECT_EQ(count(text, "atomic sum 1[v1:int64] = cast[int32](i1)"), 1) << text;
}

TEST(OnGrid, FloatingNumbersAreChangedByTheirOwners) {
  for (const char* change : {"add(load[1:float32](v1:int64), 3:float32)",
                             "max(load[1:float32](v1:int64), 3:float32)", "cast[float32](i1)"}) {
    std::string text = on_both(
        nest("  buffer int64 read unique \"x\"\n  buffer float32 write unique \"y\"\n", "1",
             std::string("  for i1 < p0 vector {\n    let v1 = load[0:int64](i1)\n    store 1[v1:int64] = ") +
                 change + "\n  }\n"));
    EXPECT_EQ(count(text, "atomic"), 0);
    EXPECT_EQ(count(text, "if eq(remainder(v1:int64, 4), i2) {"), 1) << text;
  }
}

TEST(OnGrid, ARecurrenceStaysInOrder) {
  std::string text = on_both(nest("  buffer float32 write unique \"x\"\n", "1", R"(
  for i1 < p0 vector {
    store 0[add(i1, 1)] = add(load[0:float32](i1), load[0:float32](add(i1, 1)))
  }
)"));
  EXPECT_EQ(count(text, "for i1 < p0 {"), 1) << text;
}

TEST(OnGrid, ASecondSweepOverTheSamePlacesNeedsNoBarrier) {
  auto sweeps = [](const char* second) {
    return nest(kXY, "p1",
                std::string(R"(
  for i1 < p0 vector {
    store 1[add(i1, mul(i0, p0))] = load[0:float32](i1)
  }
  for i2 < p0 vector {
    store 1[add(i2, mul(i0, p0))] = )") +
                    second + "\n  }\n");
  };
  EXPECT_EQ(count(on_both(sweeps("mul(load[1:float32](add(i2, mul(i0, p0))), 2:float32)")), "barrier"), 0);
  std::string turned = on_both(nest(kXY + "  buffer float32 write unique \"z\"\n", "1", R"(
  for i1 < p0 vector {
    store 1[i1] = load[0:float32](i1)
  }
  for i2 < p0 vector {
    store 2[i2] = load[1:float32](add(mul(i2, -1), add(p0, -1)))
  }
)"));
  EXPECT_EQ(count(turned, "barrier"), 1) << turned;
}

TEST(OnGrid, ArraysAreSharedOrScratchByTheirSize) {
  auto turned = [](const char* extent) {
    return nest(kXY, "p1", std::string("  array v9 float32 ") + extent + R"(
  for i1 < p1 {
    for i2 < p0 vector {
      store -10[add(i1, mul(i2, 4))] = load[0:float32](add(i2, mul(i1, p0)))
    }
  }
  for i3 < p0 {
    for i4 < p1 vector {
      store 1[add(i4, add(mul(i3, p1), mul(i0, 30)))] = load[-10:float32](add(i4, mul(i3, 4)))
    }
  }
)");
  };
  std::string small = on_both(turned("40"));
  EXPECT_EQ(count(small, "array v9 shared float32 40"), 1) << small;
  EXPECT_EQ(count(small, "barrier"), 2);  // before it is read, and at the end of a task
  EXPECT_EQ(count(on_both(turned("40"), {.threads = 4, .shared_bytes = 100}), "array v9 scratch float32 40"),
            1);
  EXPECT_EQ(count(on_both(turned("mul(p0, 4)")), "array v9 scratch float32 mul(p0, 4)"), 1);
}

TEST(OnGrid, AnArrayOfEachLaneOfUnknownSizeIsScratchByThread) {
  std::string text = on_both(nest(kXY, "p1", R"(
  for i1 < p0 vector {
    array v9 float32 p1
    for i2 < p1 {
      store -10[i2] = mul(load[0:float32](i1), cast[float32](i2))
    }
    for i3 < p1 {
      store 1[add(i1, add(mul(i3, p0), mul(i0, 30)))] = load[-10:float32](i3)
    }
  }
)"));
  EXPECT_EQ(count(text, "array v9 scratch float32 mul(p1, 4)"), 1) << text;
}

TEST(OnGrid, IsNotDoneTwice) {
  Nest n = parse_nest(nest(kXY, "1", "  store 1[0] = 1:float32\n"));
  EXPECT_THROW(on_grid(on_grid(n, {}), {}), Error);
  EXPECT_THROW(on_grid(n, {.threads = 48}), Error);
}
