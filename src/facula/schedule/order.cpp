#include "facula/schedule/order.h"

#include <algorithm>
#include <utility>

#include "facula/base/error.h"

namespace facula::schedule {

int Order::add() {
  int unit = int(units_.size());
  units_.push_back({{}, {}, unit});
  return unit;
}

template <class Next, class Within, class Stop>
std::vector<int> Order::reached(int start, Next&& next, Within&& within, Stop&& stop) {
  ++searches_;
  std::vector<int> units{start};
  units_[size_t(start)].seen = searches_;
  for (size_t k = 0; k < units.size(); ++k) {
    if (stop(units[k])) break;
    for (int u : next(units_[size_t(units[k])])) {
      auto& unit = units_[size_t(u)];
      if (unit.seen == searches_ || !within(unit.position)) continue;
      unit.seen = searches_;
      units.push_back(u);
    }
  }
  return units;
}

void Order::need(int unit, int on) {
  internal_check(unit != on) << "schedule: a unit would run before itself";
  units_[size_t(unit)].needs.insert(on);
  units_[size_t(on)].readers.insert(unit);
  int first = units_[size_t(unit)].position, last = units_[size_t(on)].position;
  if (last < first) return;
  // Moves all successors of `unit` behind all predecessors of `on`, within the positions that these occupy now.
  auto never = [](int) { return false; };
  auto after =
      reached(unit, [](Unit& u) -> auto& { return u.readers; }, [&](int p) { return p <= last; }, never);
  for (int u : after) internal_check(u != on) << "schedule: units would run before each other";
  auto before =
      reached(on, [](Unit& u) -> auto& { return u.needs; }, [&](int p) { return p >= first; }, never);
  auto sooner = [&](int a, int b) { return units_[size_t(a)].position < units_[size_t(b)].position; };
  std::sort(before.begin(), before.end(), sooner);
  std::sort(after.begin(), after.end(), sooner);
  before.insert(before.end(), after.begin(), after.end());
  std::vector<int> places;
  for (int u : before) places.push_back(units_[size_t(u)].position);
  std::sort(places.begin(), places.end());
  for (size_t k = 0; k < before.size(); ++k) units_[size_t(before[k])].position = places[k];
}

void Order::merge(int from, int to) {
  auto needs = std::exchange(units_[size_t(from)].needs, {}),
       readers = std::exchange(units_[size_t(from)].readers, {});
  for (int u : needs) units_[size_t(u)].readers.erase(from);
  for (int u : readers) units_[size_t(u)].needs.erase(from);
  for (int u : needs)
    if (u != to) need(to, u);
  for (int u : readers)
    if (u != to) need(u, to);
}

bool Order::depends(int unit, int on) {
  if (unit == on) return true;
  int first = units_[size_t(on)].position, looked = 0;
  bool reaches = false;
  reached(
      unit, [](Unit& u) -> auto& { return u.needs; }, [&](int p) { return p >= first; },
      [&](int u) { return reaches = u == on || ++looked > kReach; });
  return reaches;
}

}  // namespace facula::schedule
