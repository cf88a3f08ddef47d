#include "facula/schedule/fusion/cluster.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "facula/loop/seen.h"
#include "facula/schedule/analysis.h"
#include "facula/schedule/fusion/folds.h"

namespace facula::schedule::fusion {

using loop::Expr;
using loop::Kind;

void add_rows(Rows& r, Expr e) {
  if (!e->has_reduce) return;
  loop::Seen seen;
  each_node(e, seen, [&](Expr x) {
    if (x->kind != Kind::reduce) return;
    std::set<int> free;
    for (int v : free_vars(x)) free.insert(v);
    if (!free.empty() && *free.rbegin() >= kFirstBound) {
      r.legal = false;
      return;
    }
    std::vector<const loop::Node*> domain;
    for (auto& b : x->bound) {
      bool one = b.extent->kind == Kind::constant && b.extent->value.to_int() == 1;
      if (!one) domain.push_back(b.extent.get());
      if (!free_vars(b.extent).empty()) r.legal = false;
    }
    if (domain.empty()) return;
    if (!r.any) {
      r.any = true;
      r.vars = free;
      r.domain = domain;
    } else if (r.vars != free || r.domain != domain) r.legal = false;
  });
}

void add_loads(Expr e, std::set<int>& to) {
  loop::Seen seen;
  each_node(e, seen, [&](Expr x) {
    if (x->kind == Kind::load) to.insert(x->slot);
  });
}

namespace {

// The access patterns of values: by dimension the axis, or that it is an inner variable.
std::set<std::string> patterns(const std::vector<Expr>& values, const Rows& rows) {
  std::set<std::string> patterns_read;
  loop::Seen seen;
  for (auto& e : values)
    each_node(e, seen, [&](Expr x) {
      if (x->kind != Kind::load || x->args.empty()) return;
      std::string p = std::to_string(x->slot) + ":";
      for (auto& i : x->args) {
        if (i->kind != Kind::index) p += i->kind == Kind::constant ? "0," : "c,";
        else if (!rows.any || rows.vars.count(i->slot)) p += std::to_string(i->slot) + ",";
        else p += "i,";
      }
      patterns_read.insert(p);
    });
  return patterns_read;
}

}  // namespace

bool shares_reads(const Cluster& k, const std::vector<Expr>& values, const Rows& rows) {
  std::vector<Expr> members;
  for (auto& [id, m] : k.members) members.push_back(m.value);
  auto here = patterns(members, rows), there = patterns(values, rows);
  std::vector<std::string> both;
  std::set_intersection(here.begin(), here.end(), there.begin(), there.end(), std::back_inserter(both));
  return !both.empty();
}

bool is_identity(const Member& m, const std::vector<Expr>& at) {
  for (size_t d = 0; d < at.size(); ++d)
    if (m.axes[d] >= 0 && !(at[d]->kind == Kind::index && at[d]->slot == m.axes[d])) return false;
  return true;
}

std::vector<std::pair<int, Expr>> indices(const std::vector<int>& axes) {
  std::vector<std::pair<int, Expr>> map;
  for (size_t d = 0; d < axes.size(); ++d)
    map.push_back({int(d), axes[d] >= 0 ? loop::index(axes[d]) : integer(0)});
  return map;
}

std::vector<Expr> along(const std::vector<int>& axes, const std::vector<Expr>& values) {
  auto map = indices(axes);
  std::vector<Expr> moved;
  for (auto& v : values) moved.push_back(loop::substitute(v, map));
  return moved;
}

}  // namespace facula::schedule::fusion
