#include "facula/schedule/flatten.h"

#include <algorithm>
#include <set>

namespace facula::schedule {

using loop::Expr;
using loop::Kind;

namespace {

constexpr int64_t kWindow = 16;  // constant extents up to this are part of the kernel

Merged joined(const std::vector<Merged>& loops) {
  Merged all;
  for (auto& m : loops) all.insert(all.end(), m.begin(), m.end());
  return all;
}

}  // namespace

std::string text(const std::vector<Merged>& loops) {
  std::string s;
  for (auto& m : loops) {
    for (int v : m) s += std::to_string(v) + ",";
    s += ";";
  }
  return s;
}

Flattener::Flattener(const Analysis& a, const Decisions& d) : a_(a), d_(d), next_var_(int(a.vars.size())) {
  for (size_t k = 0; k < a.accesses.size(); ++k)
    if (a.accesses[k].node) at_[a.accesses[k].node.get()] = k;
  size_t index = 0;
  for (auto& access : a.accesses) {
    computed_at_.push_back(index);
    for (int v : access.dims) index += v == Access::kComputed;
  }
}

Expr Flattener::param(std::string key, Count value) {
  auto [it, fresh] = numbers_.try_emplace(key, int(recipes_.size()));
  if (fresh) recipes_.push_back({std::move(key), std::move(value)});
  return loop::param(it->second);
}
Expr Flattener::extent(const Merged& m) {
  if (d_.short_rows && m.back() == d_.domains[0][0].back()) return integer(d_.short_rows);
  auto& first = a_.vars[size_t(m[0])];
  // Only the extents of windows are constants of the kernel. All others are parameters, so that different sizes
  // share it.
  bool window =
      m[0] >= a_.axes && first.extent->kind == Kind::constant && first.extent->value.to_int() <= kWindow;
  if (m.size() == 1 && (first.ragged || window)) return flat(first.extent);
  std::vector<Merged> loops{m};
  return param("extent " + text(loops), [loops](const Numbers& n) { return n.count(loops); });
}
Expr Flattener::stride(int buffer, const std::vector<size_t>& dims) {
  std::string key = "stride " + std::to_string(buffer) + ":";
  for (size_t k : dims) key += std::to_string(k) + ",";
  return param(key, [buffer, dims](const Numbers& n) {
    int64_t s = 0;
    for (size_t k : dims) s += n.stride(buffer, k);
    return s;
  });
}

// The stride of access number k along a loop.
Expr Flattener::coefficient(size_t k, int var) {
  auto& access = a_.accesses[k];
  int8_t stride_class = d_.stride_class(k, var, a_.vars.size());
  if (stride_class >= 0) return integer(stride_class);
  std::vector<size_t> dims;
  for (size_t i = 0; i < access.dims.size(); ++i)
    if (access.dims[i] == var) dims.push_back(i);
  if (dims.empty()) return integer(0);
  if (access.kind != Access::Kind::position) return stride(access.buffer, dims);
  std::vector<Merged> inner;
  for (size_t i = dims[0] + 1; i < access.dims.size(); ++i)
    if (access.dims[i] >= 0) inner.push_back({access.dims[i]});
  if (inner.empty()) return integer(1);
  return param("extent " + text(inner), [inner](const Numbers& n) { return n.count(inner); });
}

Expr Flattener::offset(size_t k) {
  auto& access = a_.accesses[k];
  Expr sum = integer(0);
  std::set<int> done;
  for (int v : access.dims)
    if (v >= 0 && done.insert(v).second && is_loop(v)) sum = sum + loop::index(v) * coefficient(k, v);
  size_t computed = computed_at_[k];
  for (size_t i = 0; i < access.dims.size(); ++i) {
    if (access.dims[i] != Access::kComputed) continue;
    Expr at = flat(access.indices[i]);
    int64_t stride_class = d_.computed_strides[computed++];
    sum = sum +
          (stride_class == 1 ? at : at * (stride_class ? integer(stride_class) : stride(access.buffer, {i})));
  }
  return sum;
}
// True for the variable that stands for a merged loop, and for the bound variables of nested reductions.
bool Flattener::is_loop(int v) {
  auto in = [&](const std::vector<Merged>& loops) {
    for (auto& m : loops)
      if (std::find(m.begin(), m.end(), v) != m.end()) return m.back() == v ? 1 : 0;
    return -1;
  };
  if (int r = in(d_.rows); r >= 0) return r;
  for (auto& b : d_.domains)
    if (int r = in(b); r >= 0) return r;
  return true;
}

// Rewrites e for a nest: loads get flat offsets, sizes become parameters, reductions run over merged loops.
Expr Flattener::flat(Expr e) {
  if (auto it = flat_.find(e.get()); it != flat_.end()) return it->second;
  Expr r;
  auto access = at_.find(e.get());
  if (access != at_.end() && e->kind != Kind::load)
    return flat_[e.get()] = offset(access->second);  // a position
  switch (e->kind) {
    case Kind::load: r = loop::load(e->slot, e->memory, {offset(access->second)}, e->part); break;
    case Kind::size: {
      SymInt s = e->size;
      r = s.is_symbolic() ? param("size " + std::to_string(s.identity()),
                                  [s](const Numbers& n) { return n.layout->size_of(s); })
                          : e;
      break;
    }
    case Kind::reduce: {
      std::vector<loop::BoundVar> bound;
      int domain = e->bound.empty() ? kNested : a_.vars[size_t(e->bound[0].var)].domain;
      if (domain >= 0)
        for (auto& m : d_.domains[size_t(domain)]) bound.push_back({m.back(), extent(m)});
      else
        for (auto& b : e->bound) bound.push_back({b.var, flat(b.extent)});
      std::vector<Expr> values;
      for (auto& x : e->args) values.push_back(flat(x));
      r = loop::reduce(e->monoid, bound, values);
      break;
    }
    case Kind::scan: {
      std::vector<Expr> values;
      for (auto& x : e->args) values.push_back(flat(x));
      r = loop::scan(e->monoid, e->slot, {e->bound[0].var, flat(e->bound[0].extent)}, values);
      break;
    }
    default: {
      bool removed = false;
      r = loop::rewrite(e, [&](Expr x) -> Expr {
        if (same(x, e) && !removed) {
          removed = true;
          return {};
        }
        return flat(x);
      });
    }
  }
  flat_.emplace(e.get(), r);
  return r;
}
Flattener::Count Flattener::counter(const std::vector<Merged>& loops) {
  return [all = joined(loops)](const Numbers& n) { return n.count(all); };
}
Flattener::Count Flattener::widest_domain() {
  std::vector<Merged> domains;
  for (auto& b : d_.domains) domains.push_back(joined(b));
  return [domains](const Numbers& n) {
    int64_t most = 1;
    for (auto& b : domains) most = std::max(most, n.count(b));
    return most;
  };
}
std::vector<Loop> Flattener::loops_of(const std::vector<Merged>& merged) {
  std::vector<Loop> l;
  for (auto& m : merged) l.push_back({m.back(), extent(m)});
  return l;
}

bool Flattener::of_rows(Expr e) {
  for (int v : free_vars(e))
    if (std::none_of(d_.rows.begin(), d_.rows.end(), [&](const Merged& m) { return m.back() == v; }))
      return false;
  return true;
}

}  // namespace facula::schedule
