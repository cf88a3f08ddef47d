#include <gtest/gtest.h>

#include <thread>

#include "facula/base/error.h"
#include "facula/profile/profile.h"

namespace facula::profile {
namespace {

std::string names(const Recording& r) {
  std::string out;
  for (auto& e : r.events) out += e.name + " ";
  return out;
}

TEST(Profile, RecordsNothingWhileOff) {
  { Scope s(Category::kernel, "before"); }
  EXPECT_EQ(enter(Category::user, "before"), 0u);
  uint64_t n = start({});
  EXPECT_TRUE(on());
  EXPECT_TRUE(stop(n).events.empty());
  EXPECT_FALSE(on());
}

TEST(Profile, NestsAndSubtractsWhatIsInside) {
  uint64_t n = start({.memory = true});
  {
    Scope outer(Category::operation, "outer");
    count_bytes(100);
    {
      Scope inner(Category::kernel, "inner");
      count_bytes(30);
      count_bytes(-20);
    }
  }
  Recording r = stop(n);
  ASSERT_EQ(names(r), "inner outer ");
  auto &inner = r.events[0], &outer = r.events[1];
  EXPECT_EQ(inner.parent, outer.id);
  EXPECT_EQ(outer.parent, 0u);
  EXPECT_EQ(outer.self, outer.end - outer.start - (inner.end - inner.start));
  EXPECT_EQ(inner.self, inner.end - inner.start);
  EXPECT_EQ(inner.allocated, 30);
  EXPECT_EQ(inner.freed, 20);
  EXPECT_EQ(outer.allocated, 130);
  EXPECT_EQ(outer.freed, 20);
  EXPECT_EQ(r.memory.size(), 3u);
}

TEST(Profile, AScopeLeftOutOfOrderEndsThoseInside) {
  uint64_t n = start({});
  uint64_t a = enter(Category::user, "a"), b = enter(Category::user, "b");
  leave(a);
  leave(b);
  std::thread([&] { leave(enter(Category::user, "c") + 1000); }).join();
  EXPECT_EQ(names(stop(n)), "b a ");
}

TEST(Profile, AScopeOfAnEarlierSessionIsForgotten) {
  uint64_t first = start({});
  auto* scope = new Scope(Category::operation, "old");
  EXPECT_EQ(names(stop(first)), "");
  uint64_t second = start({});
  { Scope s(Category::operation, "new"); }
  delete scope;
  Recording r = stop(second);
  EXPECT_EQ(names(r), "new ");
  EXPECT_EQ(r.events[0].parent, 0u);
}

TEST(Profile, SessionsDoNotNest) {
  uint64_t n = start({});
  EXPECT_THROW(start({}), Error);
  EXPECT_TRUE(stop(n + 1).events.empty());
  EXPECT_TRUE(on());
  stop(n);
}

TEST(Profile, GradientsHaveTheLineOfTheirCall) {
  set_location_source([](bool) -> std::string { return "x.py(3): f"; });
  uint64_t n = start({});
  {
    Scope call(Category::operation, "exp");
    made_node(7);
  }
  set_location_source([](bool) -> std::string { return "x.py(9): g"; });
  {
    Scope node("ExpBackward0", 7);
    Scope kernel(Category::kernel, "k");
  }
  { Scope other(Category::operation, "other"); }
  set_location_source(nullptr);
  Recording r = stop(n);
  ASSERT_EQ(names(r), "exp k ExpBackward0 other ");
  for (int k : {0, 1, 2}) EXPECT_EQ(r.locations[r.events[size_t(k)].location], "x.py(3): f");
  EXPECT_EQ(r.locations[r.events[3].location], "x.py(9): g");
  EXPECT_TRUE(r.events[1].backward && r.events[2].backward && !r.events[0].backward);
  EXPECT_EQ(r.events[0].sequence, 7);
  EXPECT_EQ(r.events[2].sequence, 7);
}

TEST(Profile, ThreadsHaveTheirOwnScopes) {
  uint64_t n = start({});
  {
    Scope outer(Category::operation, "outer");
    std::thread([] { Scope s(Category::operation, "elsewhere"); }).join();
  }
  Recording r = stop(n);
  ASSERT_EQ(names(r), "elsewhere outer ");
  EXPECT_EQ(r.events[0].parent, 0u);
  EXPECT_NE(r.events[0].thread, r.events[1].thread);
}

}  // namespace
}  // namespace facula::profile
