// Nests of a grid: text, what is refused, and how the interpreter runs them.
#include <gtest/gtest.h>

#include <numeric>

#include "facula/base/error.h"
#include "facula/loop/interpret.h"
#include "facula/loop/nest.h"

using namespace facula;
using namespace facula::loop;

namespace {

// The sum of p0 numbers by 4 threads: each adds up its own, then a tree does.
const char kSum[] = R"(nest "sum" params 1 {
  buffer float32 read unique "x"
  buffer float32 write unique "y"
  threads 4
  tasks i0 < 1
  cost 1000
  array v9 shared float32 4
  accumulator v1 sum float32
  for i1 < p0 threads {
    accumulate v1 sum(load[0:float32](i1))
  }
  for i2 < 4 threads {
    store -10[i2] = v1:float32
  }
  barrier
  for i3 < 2 {
    let v2 = shr(2, i3)
    for i4 < v2:int64 threads {
      let v3 = add(load[-10:float32](i4), load[-10:float32](add(i4, v2:int64)))
      store -10[i4] = v3:float32
    }
    barrier
  }
  for i5 < 1 threads {
    store 1[0] = load[-10:float32](0)
  }
  barrier
}
)";

std::string without(std::string text, const std::string& part) {
  size_t at = text.find(part);
  EXPECT_NE(at, text.npos) << part;
  return text.replace(at, part.size(), "");
}
std::string with(std::string text, const std::string& before, const std::string& more) {
  size_t at = text.find(before);
  EXPECT_NE(at, text.npos) << before;
  return text.insert(at, more);
}

float sum_of(const std::string& text, int64_t count) {
  Nest n = parse_nest(text);
  verify(n);
  std::vector<float> x(static_cast<size_t>(count));
  std::iota(x.begin(), x.end(), 1.0f);
  float y = -1;
  void* buffers[] = {x.data(), &y};
  interpret(n, buffers, std::vector<int64_t>{count});
  return y;
}

std::string refusal(const std::string& text, const GridLimits& limits = {}) {
  try {
    verify(parse_nest(text), limits);
  } catch (const Error& e) { return e.what(); }
  return "none";
}
std::string race(const std::string& text) {
  try {
    sum_of(text, 11);
  } catch (const Error& e) { return e.what(); }
  return "none";
}
bool holds(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

}  // namespace

TEST(Grid, ReadsWhatItPrints) {
  EXPECT_EQ(print(parse_nest(kSum)), kSum);
  std::string narrow = with(kSum, "  tasks", "  index 32\n");
  EXPECT_EQ(print(parse_nest(narrow)), narrow);
  EXPECT_EQ(parse_nest(narrow).index_bits, 32);
  std::string more = with(kSum, "  for i5",
                          "  array v20 scratch int8 mul(p0, 3)\n  for i8 < p0 threads {\n"
                          "    array v21 float32 3\n    atomic sum -21[0] = 1:int8\n  }\n");
  EXPECT_EQ(print(parse_nest(more)), more);
  EXPECT_EQ(refusal(more), "none");
}

TEST(Grid, ThreadsShareALoopAndMeetAtBarriers) {
  for (int64_t count : {0, 1, 3, 4, 11, 100}) EXPECT_EQ(sum_of(kSum, count), float(count * (count + 1) / 2));
}

TEST(Grid, RefusesWhatNotEveryThreadReaches) {
  EXPECT_TRUE(holds(refusal(with(kSum, "    accumulate", "    barrier\n")),
                    "a barrier inside of a loop over threads"));
  // v1 is each thread's own: it decides about a condition, or about the length of a loop.
  std::string at_end = "  for i5", less = "lt(v1:float32, 3:float32)";
  EXPECT_TRUE(holds(refusal(with(kSum, at_end, "  if " + less + " {\n    barrier\n  }\n")),
                    "a barrier where not every thread of the block comes by"));
  EXPECT_TRUE(holds(refusal(with(kSum, at_end, "  for i9 < cast[int64](v1:float32) {\n    barrier\n  }\n")),
                    "a barrier where not every thread of the block comes by"));
  EXPECT_TRUE(holds(refusal(with(kSum, at_end,
                                 "  let v30 = " + less +
                                     "\n  if v30:bool {\n    for i9 < 3 threads {\n    }\n  }\n")),
                    "a loop over threads where not every thread of the block comes by"));
  EXPECT_EQ(refusal(with(kSum, at_end, "  if lt(p0, 3) {\n    barrier\n  }\n")), "none");
}

TEST(Grid, RefusesWhatNoMachineOfThemCanDo) {
  EXPECT_TRUE(holds(refusal(with(kSum, "  for i5", "  store 1[0] = 2:float32\n")),
                    "every thread of the block writes one element"));
  EXPECT_TRUE(holds(refusal(with(kSum, "    accumulate", "    atomic sum 1[0] = 2:float32\n")),
                    "an atomic sum of float32 depends on the order"));
  EXPECT_TRUE(holds(refusal(with(kSum, "  for i5", "  array v30 shared float32 p0\n")),
                    "the size of the shared array v30 is not known beforehand"));
  EXPECT_TRUE(holds(refusal(with(kSum, "  for i5", "  array v30 shared float64 10000\n")),
                    "shared arrays of 80016 bytes; 49152 are the most"));
  EXPECT_TRUE(holds(refusal(with(kSum, "  for i5", "  array v30 float64 3\n")), "an array of no thread"));
  EXPECT_TRUE(holds(refusal(kSum, {.threads = 2}), "blocks of 4 threads; 2 are the most"));
  EXPECT_TRUE(
      holds(refusal(with(kSum, "  for i5", "  for i9 < 3 vector {\n  }\n")), "lanes in a nest of a grid"));
  EXPECT_TRUE(holds(refusal(without(kSum, "  threads 4\n")), "in a nest of no grid"));
}

TEST(Grid, FindsMissingBarriers) {
  EXPECT_EQ(race(kSum), "none");
  std::string first = without(kSum, "  barrier\n"), between = without(kSum, "    barrier\n");
  EXPECT_TRUE(holds(race(first), "two threads use an element of float32 with no barrier between"))
      << race(first);
  EXPECT_TRUE(holds(race(between), "two threads use an element")) << race(between);
  std::string last = kSum;
  last = last.substr(0, last.rfind("  barrier\n")) + "}\n";
  EXPECT_TRUE(holds(race(last), "array v9 is in use at the end of a task")) << race(last);
}

TEST(Grid, AtomicChangesNeedNoBarrierBetween) {
  std::string text = R"(nest "count" params 1 {
  buffer int32 write unique "y"
  threads 4
  tasks i0 < 1
  cost 1000
  for i1 < p0 threads {
    %0 = remainder(i1, 3)
    %1 = cast[int32](i1)
    atomic sum 0[%0] = %1
    atomic max 0[add(%0, 3)] = %1
  }
}
)";
  Nest n = parse_nest(text);
  verify(n);
  EXPECT_EQ(print(n), text);
  std::vector<int32_t> y{1, 0, 0, 0, 0, 50};
  void* buffers[] = {y.data()};
  interpret(n, buffers, std::vector<int64_t>{10});
  EXPECT_EQ(y, (std::vector<int32_t>{1 + 0 + 3 + 6 + 9, 1 + 4 + 7, 2 + 5 + 8, 9, 7, 50}));
}

TEST(Grid, NarrowIndicesAreHeldToTheirPromise) {
  Nest n = parse_nest(with(kSum, "  tasks", "  index 32\n"));
  float x = 1, y = 0;
  void* buffers[] = {&x, &y};
  EXPECT_THROW(interpret(n, buffers, std::vector<int64_t>{int64_t(1) << 30}), Error);
}
