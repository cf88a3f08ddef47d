#include "facula/graph/cut.h"

#include <algorithm>
#include <queue>

#include "facula/op/operator.h"

namespace facula::graph {

void Flow::edge(int from, int to, double capacity) {
  arcs_.push_back({to, first_[size_t(from)], capacity});
  first_[size_t(from)] = int(arcs_.size()) - 1;
  arcs_.push_back({from, first_[size_t(to)], 0});
  first_[size_t(to)] = int(arcs_.size()) - 1;
}

std::vector<bool> Flow::cut(int source, int sink) {
  while (layer(source, sink)) {
    next_ = first_;
    while (push(source, sink, kUncut) > 0) {}
  }
  std::vector<bool> side(level_.size());
  for (size_t n = 0; n < side.size(); ++n) side[n] = level_[n] >= 0;
  return side;
}

bool Flow::layer(int source, int sink) {
  std::fill(level_.begin(), level_.end(), -1);
  std::queue<int> ready;
  ready.push(source);
  level_[size_t(source)] = 0;
  while (!ready.empty()) {
    int n = ready.front();
    ready.pop();
    for (int a = first_[size_t(n)]; a >= 0; a = arcs_[size_t(a)].next) {
      auto& arc = arcs_[size_t(a)];
      if (arc.left <= 0 || level_[size_t(arc.to)] >= 0) continue;
      level_[size_t(arc.to)] = level_[size_t(n)] + 1;
      ready.push(arc.to);
    }
  }
  return level_[size_t(sink)] >= 0;
}

// Pushes flow along one augmenting path of the layered network, using an explicit stack.
double Flow::push(int source, int sink, double limit) {
  std::vector<int> path;
  int n = source;
  while (n != sink) {
    int& a = next_[size_t(n)];
    while (a >= 0 &&
           (arcs_[size_t(a)].left <= 0 || level_[size_t(arcs_[size_t(a)].to)] != level_[size_t(n)] + 1))
      a = arcs_[size_t(a)].next;
    if (a >= 0) {
      path.push_back(a);
      n = arcs_[size_t(a)].to;
      continue;
    }
    if (path.empty()) return 0;
    level_[size_t(n)] = -1;
    n = arcs_[size_t(path.back() ^ 1)].to;
    path.pop_back();
  }
  for (int a : path) limit = std::min(limit, arcs_[size_t(a)].left);
  for (int a : path) {
    arcs_[size_t(a)].left -= limit;
    arcs_[size_t(a ^ 1)].left += limit;
  }
  return limit;
}

bool recomputable(const Node& n) {
  if (!n.op->effects.repeatable()) return false;
  if (n.place.checkpoint || n.op->is<op::Pointwise>() || n.op->is<op::View>()) return true;
  bool any = false;
  each_operand(n, [&](Value*) { any = true; });
  return !any;  // constants: zeros, ranges
}

double bytes(const Value& v) {
  double n = itemsize(v.tensor.dtype());
  for (auto s : v.tensor.sizes()) n *= double(std::max<int64_t>(s.hint(), 1));
  return n;
}

}  // namespace facula::graph
