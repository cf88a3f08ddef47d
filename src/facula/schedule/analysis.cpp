#include "facula/schedule/analysis.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "facula/loop/complex.h"
#include "facula/loop/seen.h"
#include "facula/loop/simplify.h"

namespace facula::schedule {

using loop::Expr;
using loop::Kind;
using loop::Monoid;

namespace {

bool is_one(Expr e) { return e->kind == Kind::constant && e->value.to_int() == 1; }
bool is_zero(Expr e) { return e->kind == Kind::constant && e->value.to_int() == 0; }
// The values to store for a result of dtype `d`: the value itself, or its real and imaginary parts.
std::vector<Expr> components(Expr value, DType d) {
  if (!is_complex(d)) return {loop::without_complex(value)};
  auto [re, im] = loop::split_complex(value);
  return {re, im};
}
bool is_fold(Expr e) { return e->kind == Kind::reduce || e->kind == Kind::scan; }
Expr integer(int64_t i) { return loop::constant(Scalar(i), DType::Int64); }

class FreeVars {
 public:
  using Vars = SmallVector<int, 8>;  // sorted
  const Vars& of(Expr e) {
    auto [it, fresh] = variables_.try_emplace(e.get());
    if (!fresh) return it->second;
    Vars s;
    if (e->kind == Kind::index) s.push_back(e->slot);
    for (auto& a : e->args) unite(s, of(a));
    if (is_fold(e)) {
      for (auto& b : e->bound) unite(s, of(b.extent));
      for (auto& b : e->bound) s.resize(size_t(std::remove(s.begin(), s.end(), b.var) - s.begin()));
      if (e->kind == Kind::scan) unite(s, Vars{e->slot});
    }
    return variables_[e.get()] = std::move(s);
  }

 private:
  static void unite(Vars& to, const Vars& other) {
    if (to.empty()) to = other;
    for (int v : other) {
      int* at = std::lower_bound(to.begin(), to.end(), v);
      if (at != to.end() && *at == v) continue;
      auto place = at - to.begin();
      to.push_back(v);
      std::rotate(to.begin() + place, to.end() - 1, to.end());
    }
  }
  std::unordered_map<const loop::Node*, Vars> variables_;
};

// The row axes of all reductions that depend on axes only, and whether there are any reductions.
struct Rows {
  std::set<int> vars;
  bool any = false;
  int scan = -1;
};
Rows rows_of(const std::vector<Expr>& values, int axes) {
  Rows r;
  FreeVars free;
  loop::Seen seen;
  for (auto& v : values)
    each_node(v, seen, [&](Expr e) {
      if (e->kind == Kind::scan) {
        internal_check(r.scan < 0 || r.scan == e->slot) << "schedule: scans along two axes in one group";
        r.scan = e->slot;
      }
      if (e->kind != Kind::reduce) return;
      bool positioned = false;
      loop::Seen inside;
      each_node(e, inside, [&](Expr x) { positioned |= x->kind == Kind::position; });
      auto& f = free.of(e);
      if (!f.empty() && f.back() >= axes) return;
      r.any = true;
      r.vars.insert(f.begin(), f.end());
      if (positioned)
        for (int a = 0; a < axes; ++a) r.vars.insert(a);
    });
  return r;
}

// Removes axes of extent one, numbers bound variables in `vars`, and drops reductions over single elements.
class Renamer {
 public:
  Renamer(Analysis& a, const std::set<int>& rows, int axes) : a_(a), rows_(rows), axes_(axes) {}

  Expr operator()(Expr e) { return rename(e); }

 private:
  using Memo = std::unordered_map<const loop::Node*, Expr>;

  Expr rename(Expr e) {
    if (auto it = memo_.find(e.get()); it != memo_.end()) return it->second;
    Expr r = fresh(e);
    memo_.emplace(e.get(), r);
    return r;
  }

  Expr fresh(Expr e) {
    switch (e->kind) {
      case Kind::constant:
      case Kind::size:
      case Kind::position:
      case Kind::param:
      case Kind::local: return e;
      case Kind::index: {
        auto it = map_.find(e->slot);
        if (it != map_.end()) return it->second;
        return is_one(a_.vars[size_t(e->slot)].extent) ? integer(0) : e;
      }
      case Kind::reduce: return fold(e);
      case Kind::scan: return scan(e);
      case Kind::part: {
        Expr r = rename(e->args[0]);
        auto it = single_.find(e->args[0].get());
        return it == single_.end() ? loop::part(r, e->slot) : it->second.at(size_t(e->slot));
      }
      default: return with_args(e);
    }
  }

  Expr with_args(Expr e) {
    std::vector<Expr> args;
    for (auto& x : e->args) args.push_back(rename(x));
    switch (e->kind) {
      case Kind::load: return loop::load(e->slot, e->memory, args, e->part);
      case Kind::cast:
        return e->memory == e->dtype ? loop::cast(args[0], e->dtype) : loop::round_to(args[0], e->memory);
      case Kind::call: return loop::call(e->fn, args);
      case Kind::select: return loop::select(args[0], args[1], args[2]);
      case Kind::random: return loop::random(args[0], args[1]);
      case Kind::check: return e->slot ? loop::within(args[0], args[1]) : loop::check(args[0], args[1]);
      case Kind::divisor: return loop::divisor(args[0]);
      default: internal_check(false) << "schedule: no such expression in a group: " << loop::print(e);
    }
    return e;
  }

  // Calls f while the bound variables of `e` stand for `to`.
  template <class F>
  auto scoped(Expr e, const std::vector<Expr>& to, F&& f) {
    auto map = map_;
    Memo memo;
    memo.swap(memo_);
    decltype(single_) single;
    single.swap(single_);
    for (size_t k = 0; k < to.size(); ++k) map_.insert_or_assign(e->bound[k].var, to[k]);
    auto r = f();
    map_ = std::move(map);
    memo_.swap(memo);
    single_.swap(single);
    return r;
  }

  Expr fold(Expr e) {
    std::vector<Expr> extents;
    std::vector<size_t> remaining;
    for (size_t k = 0; k < e->bound.size(); ++k) {
      extents.push_back(rename(e->bound[k].extent));
      if (!is_one(extents[k])) remaining.push_back(k);
    }
    auto& f = free_.of(e);
    bool hoistable = true, ragged = false;
    for (int v : f) hoistable &= v < axes_ && rows_.count(v);
    std::vector<const loop::Node*> signature;
    for (size_t k : remaining) {
      signature.push_back(extents[k].get());
      ragged |= !free_.of(extents[k]).empty();
    }
    std::vector<int> vars;
    int domain = kNested;
    if (hoistable && !ragged) {
      domain = domain_of(signature);
      vars = a_.domains[size_t(domain)].vars;
      a_.domains[size_t(domain)].ordered |= has_position(e->monoid);
    } else {
      for (size_t k : remaining) vars.push_back(add(extents[k], kNested));
    }
    std::vector<Expr> to(e->bound.size(), integer(0));
    for (size_t k = 0; k < remaining.size(); ++k) to[remaining[k]] = loop::index(vars[k]);
    auto values = scoped(e, to, [&] {
      std::vector<Expr> v;
      for (auto& x : e->args) v.push_back(rename(x));
      return v;
    });
    if (remaining.empty()) {
      single_[e.get()] = loop::lift(e->monoid, values);
      return single_[e.get()][0];
    }
    std::vector<loop::BoundVar> bound;
    for (size_t k = 0; k < remaining.size(); ++k) bound.push_back({vars[k], extents[remaining[k]]});
    return loop::reduce(e->monoid, bound, values);
  }

  Expr scan(Expr e) {
    if (is_one(a_.vars[size_t(e->slot)].extent)) {
      auto values = scoped(e, {integer(0)}, [&] {
        std::vector<Expr> v;
        for (auto& x : e->args) v.push_back(rename(x));
        return v;
      });
      single_[e.get()] = loop::lift(e->monoid, values);
      return single_[e.get()][0];
    }
    // A scan becomes a fold over the axis from its beginning to the current element, with the axis as its variable.
    Expr extent = rename(e->bound[0].extent);
    int var = add(extent, kNested);
    auto values = scoped(e, {loop::index(e->slot)}, [&] {
      std::vector<Expr> v;
      for (auto& x : e->args) v.push_back(rename(x));
      return v;
    });
    return loop::scan(e->monoid, e->slot, {var, extent}, values);
  }

  int add(Expr extent, int domain) {
    Variable v;
    v.extent = extent;
    v.domain = domain;
    v.ragged = !free_.of(extent).empty();
    a_.vars.push_back(v);
    return int(a_.vars.size()) - 1;
  }

  int domain_of(const std::vector<const loop::Node*>& signature) {
    for (size_t b = 0; b < a_.domains.size(); ++b) {
      auto& vars = a_.domains[b].vars;
      bool equal = vars.size() == signature.size();
      for (size_t k = 0; equal && k < vars.size(); ++k)
        equal = a_.vars[size_t(vars[k])].extent.get() == signature[k];
      if (equal) return int(b);
    }
    ReductionDomain b;
    int number = int(a_.domains.size());
    for (auto* n : signature) b.vars.push_back(add(Expr(n), number));
    a_.domains.push_back(b);
    return number;
  }

  Analysis& a_;
  const std::set<int>& rows_;
  int axes_;
  FreeVars free_;
  std::map<int, Expr> map_;
  Memo memo_;
  std::unordered_map<const loop::Node*, std::vector<Expr>> single_;
};

bool is_costly(loop::Fn f) { return loop::ulp(f) > 0; }

// Fills `accesses`, and the properties of variables that follow from them.
class AccessCollector {
 public:
  explicit AccessCollector(Analysis& a) : a_(a) {}

  void run() {
    std::vector<Expr> counted;
    for (auto& o : a_.outputs) {
      counted.push_back(o.value);
      add_store(o);
    }
    for (auto& o : a_.outputs) {
      visit(o.value);
      for (size_t k = 0; k < o.target.size(); ++k)
        if (o.axes[k] == Access::kComputed) {
          mark_computed(o.target[k]);
          visit(o.target[k]);
        }
    }
    a_.operations = operation_count(counted) + double(a_.outputs.size());
    find_periods();
  }

 private:
  void add(Access s) {
    s.indices.resize(s.dims.size());
    s.computed_of.resize(s.dims.size());
    for (size_t d = 0; d < s.dims.size(); ++d)
      if (s.dims[d] == Access::kComputed) s.computed_of[d] = free_vars(s.indices[d]);
    a_.accesses.push_back(std::move(s));
  }

  void find_periods() {
    a_.periods.assign(a_.vars.size(), 1);
    std::vector<Expr> divisions;
    for (auto& o : a_.outputs)
      loop::visit(o.value, [&](Expr e) {
        if (e->kind == Kind::call && (e->fn == loop::Fn::floordiv || e->fn == loop::Fn::remainder))
          divisions.push_back(e);
      });
    for (int v : a_.rows) {
      bool one = true;
      int64_t divisor = 1;
      for (auto& e : divisions) {
        auto vars = free_vars(e);
        if (std::find(vars.begin(), vars.end(), v) == vars.end()) continue;
        loop::Linear at;
        bool plain = e->args[1]->kind == Kind::constant && loop::linear(e->args[0], at) &&
                     at.terms.size() == 1 && same(at.terms[0].x, loop::index(v)) &&
                     at.terms[0].coefficient == 1;
        int64_t by = plain ? e->args[1]->value.to_int() : 0;
        one &= by > 1 && (divisor == 1 || divisor == by);
        divisor = by;
      }
      if (one) a_.periods[size_t(v)] = divisor;
    }
  }

  void add_store(Output& o) {
    Access s;
    s.kind = Access::Kind::store;
    s.buffer = o.buffer;
    s.dims = o.axes;
    s.indices = o.target;
    s.bytes = itemsize(a_.dtypes[size_t(o.buffer)]);
    for (int v : o.axes) s.inner |= v >= 0 && a_.vars[size_t(v)].domain >= 0;
    o.access = int(a_.accesses.size());
    add(std::move(s));
  }

  void mark_computed(Expr e) {
    for (int v : free_.of(e)) a_.vars[size_t(v)].plain = false;
  }

  void visit(Expr e) {
    if (!seen_.insert(e.get())) return;
    for (auto& b : e->bound) {
      visit(b.extent);
      mark_computed(b.extent);
    }
    if (e->kind == Kind::load) return add_load(e);
    if (e->kind == Kind::position) return add_position(e);
    if (e->kind == Kind::reduce && loop::has_position(e->monoid)) add_position_within(*e);
    if (e->kind == Kind::index) a_.vars[size_t(e->slot)].plain = false;
    if (e->kind == Kind::scan) a_.vars[size_t(e->slot)].plain = false;
    for (auto& x : e->args) visit(x);
  }

  void add_load(Expr e) {
    Access s;
    s.kind = Access::Kind::load;
    s.buffer = e->slot;
    s.node = e;
    s.bytes = itemsize(e->memory);
    for (auto& i : e->args) {
      bool is_variable = i->kind == Kind::index;
      s.dims.push_back(is_variable ? i->slot : is_zero(i) ? Access::kNothing : Access::kComputed);
      s.indices.push_back(is_variable ? Expr() : i);
      if (!is_variable) {
        mark_computed(i);
        visit(i);
      }
      for (int v : free_.of(i)) s.inner |= a_.vars[size_t(v)].domain != -1;
    }
    add(std::move(s));
  }

  void add_position(Expr e) {
    Access s;
    s.kind = Access::Kind::position;
    s.node = e;
    s.bytes = 1;
    for (int v = 0; v < a_.axes; ++v) {
      s.dims.push_back((!is_one(a_.vars[size_t(v)].extent)) ? v : Access::kNothing);
      if ((!is_one(a_.vars[size_t(v)].extent))) s.inner |= a_.vars[size_t(v)].domain >= 0;
    }
    add(std::move(s));
  }

  // Adds the position that an argmax over several axes computes, if it is the row-major one: then its axes can be
  // merged.
  void add_position_within(const loop::Node& reduction) {
    if (reduction.bound.size() < 2) return;
    Access s;
    s.kind = Access::Kind::position;
    s.bytes = 1;
    s.inner = true;
    Expr p;
    for (auto& b : reduction.bound) {
      auto& v = a_.vars[size_t(b.var)];
      if (v.domain < 0 || v.ragged) return;
      Expr i = loop::index(b.var);
      p = p.get() ? p * b.extent + i : i;
      s.dims.push_back(b.var);
    }
    if (!same(p, reduction.args[1]) || !seen_.insert(p.get())) return;
    s.node = p;
    add(std::move(s));
  }

  Analysis& a_;
  loop::Seen seen_;
  FreeVars free_;
};

// The axes that become rows of a scatter's domain. Points that differ in an axis never write to the same element if
// the axis alone is the index of a dimension. If it also occurs in another index (of windows, or through an index
// tensor), it only becomes a row if it is the outermost or the innermost axis, which can run in lanes: any other
// choice would leave memory order.
std::set<int> axes_apart(const Analysis& a, const std::vector<Expr>& target) {
  std::vector<int> uses(size_t(a.axes), 0);
  FreeVars free;
  for (auto& t : target)
    for (int v : free.of(t))
      if (v < a.axes) ++uses[size_t(v)];
  std::set<int> alone, parallel;
  for (auto& t : target)
    if (t->kind == Kind::index) alone.insert(t->slot);
  bool outside = true;
  int innermost = a.axes - 1;
  while (innermost > 0 && is_one(a.vars[size_t(innermost)].extent)) --innermost;
  for (int v = 0; v < a.axes; ++v) {
    if (is_one(a.vars[size_t(v)].extent)) continue;
    if (alone.count(v) && (outside || v == innermost || uses[size_t(v)] == 1)) parallel.insert(v);
    else outside = false;
  }
  return parallel;
}

// The value to store over `before`.
Expr combined(const loop::Scatter& scatter, Expr before, DType d) {
  Expr value = loop::cast(scatter.value, before.dtype());
  using Combine = loop::Scatter::Combine;
  bool truth = d == DType::Bool;
  switch (scatter.combine) {
    case Combine::assign: break;
    case Combine::sum: value = truth ? before | value : before + value; break;
    case Combine::prod: value = truth ? before & value : before * value; break;
    case Combine::max: value = truth ? before | value : loop::max(before, value); break;
    case Combine::min: value = truth ? before & value : loop::min(before, value); break;
  }
  return value;
}

}  // namespace

std::vector<int> free_vars(Expr e) {
  FreeVars f;
  auto& s = f.of(e);
  return {s.begin(), s.end()};
}

double operation_count(std::span<const Expr> roots) {
  double n = 0;
  loop::Seen seen;
  for (auto& r : roots)
    each_node(r, seen, [&](Expr e) {
      if (e->kind == Kind::load || e->kind == Kind::select || e->kind == Kind::cast || is_fold(e)) n += 1;
      if (e->kind == Kind::random) n += 20;
      if (e->kind != Kind::call || e.dtype() == DType::Int64) return;
      n += is_costly(e->fn) ? 10 : e->fn == loop::Fn::div || e->fn == loop::Fn::sqrt ? 4 : 1;
    });
  return std::max(n, 1.0);
}

std::vector<std::vector<int>> parts(const Group& g) {
  std::vector<int> left;
  for (size_t k = 0; k < g.outputs.size(); ++k) left.push_back(int(k));
  std::vector<std::vector<int>> result;
  auto real_axes = [&](int k) {
    std::set<int> s;
    for (auto a : g.outputs[size_t(k)].axes)
      if (a >= 0 && !is_one(loop::size(g.extents[size_t(a)]))) s.insert(int(a));
    return s;
  };
  while (!left.empty()) {
    std::vector<Expr> values;
    for (int k : left) values.push_back(g.outputs[size_t(k)].value);
    Rows r = rows_of(values, int(g.extents.size()));
    std::set<int> rows = r.vars;
    if (r.scan >= 0 || !r.any) rows = real_axes(left[0]);
    for (auto it = rows.begin(); it != rows.end();)
      it = is_one(loop::size(g.extents[size_t(*it)])) ? rows.erase(it) : std::next(it);
    std::vector<int> part, rest;
    for (int k : left) {
      auto axes = real_axes(k);
      bool joins = std::includes(axes.begin(), axes.end(), rows.begin(), rows.end());
      if (r.scan >= 0 || !r.any) joins = axes == rows;
      (joins ? part : rest).push_back(k);
    }
    if (part.empty()) {  // no output runs along every row: each one is analysed alone
      part = {left[0]};
      rest.assign(left.begin() + 1, left.end());
    }
    result.push_back(part);
    left = rest;
  }
  return result;
}

Analysis analyse(const Group& g, const std::vector<int>& outputs) {
  Analysis a;
  a.inputs = int(g.inputs.size());
  for (auto& i : g.inputs) a.dtypes.push_back(i.dtype);
  for (auto& o : g.outputs) a.dtypes.push_back(o.dtype);
  int axes = a.axes = int(g.extents.size());
  for (auto e : g.extents) {
    Variable v;
    v.extent = loop::size(e);
    a.vars.push_back(v);
  }

  std::vector<std::pair<int, std::vector<Expr>>> values;  // by output: the components of its value
  std::vector<Expr> all;
  for (int k : outputs) {
    auto& o = g.outputs[size_t(k)];
    values.push_back({k, components(o.value, o.dtype)});
    for (auto& v : values.back().second) all.push_back(v);
  }
  Rows r = rows_of(all, axes);
  std::set<int> stored;
  for (int k : outputs)
    for (auto x : g.outputs[size_t(k)].axes)
      if (x >= 0) stored.insert(int(x));
  std::set<int> rows = r.any ? r.vars : stored;
  if (r.scan >= 0) {
    rows.insert(stored.begin(), stored.end());
    if (!is_one(a.vars[size_t(r.scan)].extent)) rows.erase(r.scan), a.scan_axis = r.scan;
  }
  a.reduces = r.any;
  auto wide = [&](int v) { return !is_one(a.vars[size_t(v)].extent); };
  for (int v : rows)
    if (wide(v)) a.rows.push_back(v);
  ReductionDomain inner;
  for (int v : stored)
    if (wide(v) && !rows.count(v)) inner.vars.push_back(v);
  if (!inner.vars.empty()) {
    for (int v : inner.vars) a.vars[size_t(v)].domain = 0;
    inner.ordered = a.scan_axis >= 0;
    a.domains.push_back(inner);
  }

  Renamer rename(a, rows, axes);
  for (auto& [k, parts] : values) {
    auto& o = g.outputs[size_t(k)];
    for (size_t p = 0; p < parts.size(); ++p) {
      Output out;
      out.buffer = a.inputs + k;
      out.part = parts.size() > 1 ? int(p) + 1 : 0;
      out.value = rename(parts[p]);
      for (auto x : o.axes) out.axes.push_back(x >= 0 && wide(int(x)) ? int(x) : Access::kNothing);
      a.outputs.push_back(out);
    }
  }

  AccessCollector(a).run();
  return a;
}

Analysis analyse_scatter(const Group& g) {
  Analysis a;
  a.scatter = true;
  a.inputs = int(g.inputs.size());
  for (auto& i : g.inputs) a.dtypes.push_back(i.dtype);
  DType d = g.outputs[0].dtype;
  a.dtypes.push_back(d);
  auto& scatter = *g.scatter;
  a.base = scatter.base;
  int axes = a.axes = int(scatter.domain.size());
  for (auto e : scatter.domain) {
    Variable v;
    v.extent = loop::size(e);
    a.vars.push_back(v);
  }
  std::set<int> parallel = axes_apart(a, scatter.target);
  ReductionDomain order;
  order.ordered = true;
  for (int v = 0; v < axes; ++v) {
    if (is_one(a.vars[size_t(v)].extent)) continue;
    if (parallel.count(v)) a.rows.push_back(v);
    else {
      a.vars[size_t(v)].domain = 0;
      order.vars.push_back(v);
    }
  }
  a.domains.push_back(order);

  auto parts = components(combined(scatter, loop::load(a.inputs, d, scatter.target), d), d);
  std::set<int> none;
  Renamer rename(a, none, axes);
  std::vector<Expr> target;
  for (auto& t : scatter.target) target.push_back(rename(components(t, DType::Int64)[0]));
  for (size_t p = 0; p < parts.size(); ++p) {
    Output out;
    out.buffer = a.inputs;
    out.part = parts.size() > 1 ? int(p) + 1 : 0;
    out.value = rename(parts[p]);
    for (auto& t : target)
      out.axes.push_back(t->kind == Kind::index ? t->slot
                         : is_zero(t)           ? Access::kNothing
                                                : Access::kComputed);
    out.target = target;
    a.outputs.push_back(out);
  }
  AccessCollector(a).run();
  return a;
}

}  // namespace facula::schedule
