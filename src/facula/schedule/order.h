// The execution order of units while fusion creates and merges them: an acyclic graph with a topological order that
// is updated with every new edge, so that a query only visits units between the two that it asks about (Pearce and
// Kelly, "A dynamic topological sort algorithm for directed acyclic graphs", 2006).
#pragma once
#include <cstddef>
#include <set>
#include <vector>

namespace facula::schedule {

class Order {
 public:
  int add();  // adds a unit without dependencies
  void need(int unit,
            int on);  // `on` runs before `unit`; they must differ, and the edge must not close a cycle
  void merge(int from,
             int to);  // moves all edges of `from` to `to`; only a direct edge may connect them
  // True if `on` is `unit` or has to run before it. Gives up after kReach units and answers true, which can only
  // prevent a merge.
  bool depends(int unit, int on);

  const std::set<int>& needs(int unit) const { return units_[size_t(unit)].needs; }
  const std::set<int>& readers(int unit) const { return units_[size_t(unit)].readers; }

  static constexpr int kReach = 2000;

 private:
  struct Unit {
    std::set<int> needs, readers;
    int position, seen = 0;  // `seen`: the number of the last search that visited it
  };
  // The units reachable from `start` along `next` whose positions satisfy `within`; stops at the first one for which
  // `stop` is true.
  template <class Next, class Within, class Stop>
  std::vector<int> reached(int start, Next&& next, Within&& within, Stop&& stop);

  std::vector<Unit> units_;
  int searches_ = 0;
};

}  // namespace facula::schedule
