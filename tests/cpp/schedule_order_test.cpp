#include "facula/schedule/order.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

#include "facula/base/error.h"

using facula::schedule::Order;

namespace {

// The same by looking at everything.
struct Plain {
  std::vector<std::set<int>> needs;
  std::vector<bool> gone;
  bool depends(int unit, int on) const {
    if (unit == on) return true;
    for (int u : needs[size_t(unit)])
      if (depends(u, on)) return true;
    return false;
  }
  void merge(int from, int to) {
    for (int u : needs[size_t(from)])
      if (u != to) needs[size_t(to)].insert(u);
    needs[size_t(from)].clear();
    for (size_t u = 0; u < needs.size(); ++u)
      if (needs[u].erase(from) && int(u) != to) needs[u].insert(to);
    gone[size_t(from)] = true;
  }
  bool has_path_beside_edges(int a, int b) const {
    for (int u : needs[size_t(a)])
      if (u != b && depends(u, b)) return true;
    return false;
  }
};

TEST(ScheduleOrder, AnswersWhatALookAtEverythingDoes) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    auto below = [&](size_t n) { return int(random() % n); };
    Order order;
    Plain plain;
    for (int step = 0; step < 300; ++step) {
      if (plain.needs.size() < 2 || below(6) == 0) {
        EXPECT_EQ(order.add(), int(plain.needs.size()));
        plain.needs.emplace_back();
        plain.gone.push_back(false);
        continue;
      }
      int a = below(plain.needs.size()), b = below(plain.needs.size());
      if (a == b || plain.gone[size_t(a)] || plain.gone[size_t(b)]) continue;
      ASSERT_EQ(order.depends(a, b), plain.depends(a, b)) << seed << " " << step;
      if (below(8) == 0) {
        if (plain.has_path_beside_edges(a, b) || plain.has_path_beside_edges(b, a)) continue;
        order.merge(a, b);
        plain.merge(a, b);
      } else if (!plain.depends(b, a)) {
        order.need(a, b);
        plain.needs[size_t(a)].insert(b);
      }
      for (size_t u = 0; u < plain.needs.size(); ++u) ASSERT_EQ(order.needs(int(u)), plain.needs[u]);
    }
  }
}

TEST(ScheduleOrder, RefusesACycle) {
  Order order;
  for (int k = 0; k < 3; ++k) order.add();
  order.need(1, 0);
  order.need(2, 1);
  EXPECT_THROW(order.need(0, 2), facula::Error);
  EXPECT_THROW(order.need(1, 1), facula::Error);
}

TEST(ScheduleOrder, SaysYesOfWhatIsTooFarAwayToSee) {
  Order order;
  int n = 3 * Order::kReach;
  for (int k = 0; k < n; ++k) {
    order.add();
    if (k > 1) order.need(k, k - 1);  // 0 stands alone
  }
  EXPECT_TRUE(order.depends(n - 1, n - 10));
  EXPECT_FALSE(order.depends(Order::kReach / 2, 0));
  EXPECT_TRUE(order.depends(n - 1, 0));
}

}  // namespace
