#include "facula/schedule/fusion/join.h"

#include <algorithm>

#include "facula/schedule/analysis.h"

namespace facula::schedule::fusion {

using graph::Node;
using loop::Expr;
using loop::Kind;

namespace {

constexpr double kMaxOperations = 2000;

// Requirements of a node on the space in which it is computed.
struct Needs {
  bool scans = false, positioned = false, reduces = false;
  explicit Needs(const Body& b) {
    for (auto& v : b.values) {
      scans |= contains(v, Kind::scan);
      positioned |= contains(v, Kind::position);
      reduces |= v->has_reduce;
    }
  }
};

// Assigns dimensions to the axes along which they read members of k; gives the axes assigned, or none if reads
// disagree.
std::optional<std::set<int>> take_axes(Placement& j, const std::vector<Read>& reads, const Cluster& k) {
  for (auto& r : reads) {
    auto& m = k.members.at(r.root->id);
    for (size_t d = 0; d < r.at.size(); ++d) {
      if (m.axes[d] < 0 || r.at[d]->kind != Kind::index || r.at[d]->slot >= kFirstBound) continue;
      auto dim = size_t(r.at[d]->slot);
      if (j.axes[dim] >= 0 && j.axes[dim] != m.axes[d]) return {};
      j.axes[dim] = m.axes[d];
    }
  }
  std::set<int> taken(j.axes.begin(), j.axes.end());
  taken.erase(-1);
  if (taken.size() != size_t(std::count_if(j.axes.begin(), j.axes.end(), [](int a) { return a >= 0; })))
    return {};
  return taken;
}

// Assigns the other dimensions to axes of equal size, or to new ones. False if a dimension differs in size from its
// axis, or if there are too many axes.
bool place(Placement& j, SymSpan sizes, std::set<int> taken, const std::vector<Read>& reads, const Cluster& k,
           const Rows& rows) {
  std::set<int> swept;  // axes along which this node runs with bound variables
  for (auto& r : reads)
    for (size_t d = 0; d < r.at.size(); ++d)
      if (int a = k.members.at(r.root->id).axes[d]; a >= 0 && !taken.count(a)) swept.insert(a);
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (is_one(sizes[d])) {
      j.axes[d] = -1;
      continue;
    }
    if (j.axes[d] >= 0) {
      if (!SymInt::surely_equal(sizes[d], j.extents[size_t(j.axes[d])])) return false;
      continue;
    }
    for (size_t i = 0; i <= j.extents.size() && j.axes[d] < 0; ++i) {
      size_t a = i ? i - 1 : d;  // the axis of the same number, if it fits
      if (a >= j.extents.size() || taken.count(int(a)) || swept.count(int(a)) ||
          !SymInt::surely_equal(sizes[d], j.extents[a]))
        continue;
      if (reads.empty() || !rows.vars.count(int(a))) j.axes[d] = int(a);
    }
    if (j.axes[d] < 0) {
      j.axes[d] = int(j.extents.size());
      j.extents.push_back(sizes[d]);
    }
    taken.insert(j.axes[d]);
  }
  return j.extents.size() <= size_t(kFirstBound) / 2;
}

// True if each dimension runs along the axis of its number, and there are no other axes.
bool is_entire_space(const Placement& j) {
  if (j.axes.size() != j.extents.size()) return false;
  for (size_t d = 0; d < j.axes.size(); ++d)
    if (j.axes[d] != int(d) && !(j.axes[d] < 0 && is_one(j.extents[d]))) return false;
  return true;
}

// True if a node along the axes `space` may recompute the member of k at the index at which it reads it.
bool may_compute(const Cluster& k, const Read& r, const std::set<int>& space, const Rows& rows) {
  auto& m = k.members.at(r.root->id);
  std::set<int> plain;
  bool computed = false;
  for (size_t d = 0; d < r.at.size(); ++d) {
    if (m.axes[d] < 0) continue;
    if (r.at[d]->kind == Kind::index) plain.insert(r.at[d]->slot);
    else computed = true;
  }
  if (k.scans && !is_identity(m, r.at)) return false;
  std::set<int> own(m.axes.begin(), m.axes.end());
  own.erase(-1);
  bool row_value = rows.any && is_identity(m, r.at) &&
                   std::includes(rows.vars.begin(), rows.vars.end(), own.begin(), own.end());
  bool repeated = computed;
  for (int a : space)
    if (a >= 0 && !plain.count(a)) repeated = true;
  if (repeated && !row_value && pointwise_cost(m.value) > kCheap) return false;
  return !(repeated && !row_value && contains(m.value, Kind::random));
}

}  // namespace

std::optional<Placement> placement(State& f, const Node& n, const Body& b, int at) {
  const Cluster& k = f.cluster(at);
  if (k.scatter || b.scatter) return {};
  SymSpan sizes = n.results[0]->tensor.sizes();
  for (auto* r : n.results)
    if (r->tensor.sizes().size() != sizes.size()) return {};
  Needs node(b);
  if (node.scans && (k.scans || !k.members.empty())) return {};

  Placement j;
  j.extents = k.extents;
  j.axes.assign(sizes.size(), -1);
  auto reads = f.reads_of(b.values);
  for (auto& r : reads)  // units that it reads elsewhere must not depend on k
    if (int u = f.unit[size_t(r.root->id)]; u != at && f.order.depends(u, at)) return {};
  std::erase_if(reads, [&](auto& r) { return f.unit[size_t(r.root->id)] != at; });
  auto taken = take_axes(j, reads, k);
  if (!taken) return {};
  const Rows& before = k.rows;
  if (!place(j, sizes, *taken, reads, k, before)) return {};
  bool grows = j.extents.size() != k.extents.size(), same_space = !grows && is_entire_space(j);
  if ((k.positioned && grows) || (node.positioned && !same_space)) return {};
  if (k.scans && !(same_space && !node.reduces)) return {};
  if (reads.empty() && !same_space && !(node.reduces && !grows)) return {};

  auto moved = along(j.axes, b.values);
  for (auto& v : moved) j.values.push_back(f.canonical(f.expanded(v, &k)));
  Rows rows = before;
  for (auto& v : j.values) add_rows(rows, v);
  if (!rows.legal) return {};
  // A node that reads no member may only join for the sake of a shared read; a reduction does not bind a cluster of
  // maps to its rows.
  if (reads.empty() && ((node.reduces && !before.any) || !shares_reads(k, j.values, rows))) return {};
  bool maps_only = !rows.any;
  if (maps_only && grows && !k.members.empty())
    return {};  // otherwise a map over more axes would recompute what it reads
  std::set<int> space(j.axes.begin(), j.axes.end());
  for (auto& r : f.reads_of(moved, at))
    if (!may_compute(k, r, space, rows)) return {};
  if (operation_count(j.values) > kMaxOperations) return {};

  auto needs = f.units_read(j.values, at);
  for (int u : needs)
    if (f.order.depends(u, at)) return {};
  std::set<int> buffers = k.loads;
  for (auto& v : j.values) add_loads(v, buffers);
  if (buffers.size() + k.outputs.size() + n.results.size() > kMaxBuffers && !k.members.empty()) return {};
  return j;
}

}  // namespace facula::schedule::fusion
