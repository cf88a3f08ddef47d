// What runs before what, while units are made and merged: an acyclic graph with a topological order that follows each
// edge as it comes, so that a question looks only at what lies between two units (Pearce and Kelly, "A dynamic
// topological sort algorithm for directed acyclic graphs", 2006).
#pragma once
#include <cstddef>
#include <set>
#include <vector>

namespace facula::schedule {

class Order {
 public:
  int add();                    // a unit; it needs nothing yet
  void need(int unit, int on);  // `on` runs before `unit`; no edge to itself, and no cycle
  void merge(int from,
             int to);  // `to` takes what `from` needs and what needs it; no path between but an edge
  // Does `on` run before `unit` by need, or are they the same? Where that takes more than kReach units to see: yes, for
  // which nothing is merged that must not be.
  bool depends(int unit, int on);

  const std::set<int>& needs(int unit) const { return units_[size_t(unit)].needs; }
  const std::set<int>& readers(int unit) const { return units_[size_t(unit)].readers; }

  static constexpr int kReach = 2000;

 private:
  struct Unit {
    std::set<int> needs, readers;
    int position, seen = 0;  // seen: in the search of this number
  };
  // Units from `start` along `next` whose positions `within` takes; fewer than all if `stop` says so of one.
  template <class Next, class Within, class Stop>
  std::vector<int> reached(int start, Next&& next, Within&& within, Stop&& stop);

  std::vector<Unit> units_;
  int searches_ = 0;
};

}  // namespace facula::schedule
