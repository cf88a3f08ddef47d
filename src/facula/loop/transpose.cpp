// Transposes definitions. A definition says result[i...] = f(..., x[T(i, k)], ...), where k are the variables of a
// reduction. The gradient of x is
//   dx[j] = sum over the points (i, k) with T(i, k) = j of d(i, k).
// If T can be solved for its variables, this is a gather over the remaining variables; otherwise it is a scatter-sum
// over all points.
#include <algorithm>
#include <map>
#include <optional>

#include "facula/loop/definition.h"
#include "facula/loop/derivative.h"
#include "facula/loop/simplify.h"

namespace facula::loop {
namespace {

struct Axis {
  int var;
  Expr extent;
  bool reduction;  // bound by a reduction inside the value; otherwise an axis of the result
};
// d(load) = value at every point of `domain`.
struct Contribution {
  Expr load, value;
  std::vector<Axis> domain;
};
using Map = std::vector<std::pair<int, Expr>>;

Expr zero(DType d) { return constant(int64_t(0), d); }
Expr both(Expr a, Expr b) { return a.get() ? b.get() ? a & b : a : b; }
bool equal_sizes(Expr a, Expr b) {
  return same(a, b) ||
         (a->kind == Kind::size && b->kind == Kind::size && SymInt::surely_equal(a->size, b->size));
}

class Transposer {
 public:
  Transposer(int slot, SymSpan sizes, int first_fresh) : slot_(slot), sizes_(sizes), next_(first_fresh) {}

  // Follows y, whose gradient is g at every point of the domain, to the loads of the slot.
  void follow(Expr y, Expr g, std::vector<Axis> domain) {
    for (auto& a : sweep(y, g)) {
      if (a.load->kind == Kind::load) {
        if (a.load->slot == slot_) contributions_.push_back({a.load, a.value, domain});
      } else if (touches(a.load)) {
        fold(a.load, a.value, domain);
      }
    }
  }

  std::vector<Definition> definitions() {
    std::vector<Definition> r;
    Expr gathered;
    for (auto& c : contributions_) {
      if (Expr g = gather(c); g.get()) gathered = gathered.get() ? gathered + g : g;
      else r.push_back(scatter(c));
    }
    if (gathered.get()) {
      Definition d;
      d.rank = int(sizes_.size());
      d.values = {gathered};
      r.insert(r.begin(), std::move(d));
    }
    return r;
  }

 private:
  bool touches(Expr x) const {
    bool yes = false;
    visit(x, [&](Expr e) { yes = yes || (e->kind == Kind::load && e->slot == slot_); });
    return yes;
  }

  void fold(Expr leaf, Expr g, std::vector<Axis> domain) {
    int component = leaf->kind == Kind::part ? leaf->slot : 0;
    Expr r = leaf->kind == Kind::part ? leaf->args[0] : leaf;
    // Bound variables become axes of the domain, under new names. A scan is a reduction that ends at an axis of the
    // result; here it runs over the entire axis, and a condition selects the points that count.
    Map names;
    Expr inside;
    for (auto& b : r->bound) {
      int v = next_++;
      names.push_back({b.var, index(v)});
      Expr extent = b.extent;
      for (auto& a : domain) {
        if (!same(extent, index(a.var) + 1)) continue;
        inside = both(inside, index(v) <= index(a.var));
        extent = a.extent;
        break;
      }
      domain.push_back({v, extent, true});
    }
    std::vector<Expr> x;
    for (auto& a : r->args) x.push_back(substitute(a, names));
    DType d = x[0].dtype();
    auto unsupported = [&] {
      supported_check(false, name(r->monoid))
          << "the gradient of a reduction or scan with " << name(r->monoid) << " is not derived"
          << hint("define a vjp for the operator");
    };
    switch (r->monoid) {
      case Monoid::sum: break;
      case Monoid::max:
      case Monoid::min: {  // divided evenly among ties
        Expr ties = reduce(Monoid::sum, r->bound, {cast(eq(r->args[0], r), d)});
        g = select(eq(x[0], r), g / ties, zero(d));
        break;
      }
      case Monoid::argmax:
      case Monoid::argmin:
      case Monoid::argmax_pool: g = select(eq(x[1], part(r, 1)), g, zero(d)); break;
      case Monoid::welford:
        if (component == 2) return;
        g = component == 0 ? g / part(r, 2) : g * ((x[0] - part(r, 0)) * 2.0);
        break;
      default: unsupported();
    }
    if (inside.get()) g = select(inside, g, zero(d));
    follow(x[0], g, std::move(domain));
  }

  const Axis* axis_of(const Contribution& c, Expr x) const {
    if (x->kind != Kind::index) return nullptr;
    for (auto& a : c.domain)
      if (a.var == x->slot) return &a;
    return nullptr;
  }
  bool depends(const Contribution& c, Expr x) const {
    bool yes = false;
    visit(x, [&](Expr e) { yes = yes || axis_of(c, e); });
    return yes;
  }

  // The variables of a domain as functions of the position j that they load, with conditions on j.
  struct Solution {
    std::map<int, Expr> solved;
    std::vector<BoundVar> periods;  // variables that enumerate the solutions if there are several
    std::vector<Expr> conditions;
    Map so_far;  // the contents of `solved`

    void add(int var, const Expr& v) {  // earlier solutions may mention this variable
      Map now{{var, v}};
      for (auto& [other, e] : solved) e = substitute(e, now);
      for (auto& e : conditions) e = substitute(e, now);
      solved[var] = v;
      so_far.assign(solved.begin(), solved.end());
    }
  };
  // Picks the axis for which `l` is to be solved, with its factor; null if all axes in it are solved. False if it
  // cannot be solved.
  bool pick_axis(const Contribution& c, const Linear& l, const Solution& s, const Axis*& pick,
                 int64_t& factor) {
    size_t open_axes = 0, open = 0;
    for (auto& term : l.terms) {
      const Axis* a = axis_of(c, term.x);
      if (!a && depends(c, term.x)) return false;
      bool is_open = a && !s.solved.count(a->var);
      open += is_open;
      open_axes += is_open && !a->reduction;
      if (is_open && (!pick || (pick->reduction && !a->reduction))) {
        pick = a;
        factor = term.coefficient;
      }
    }
    return open <= 1 || open_axes == 1;  // otherwise too many points would be tried
  }
  // Solves (i + rest) mod n = j for an axis i: i = (j - rest) mod n + n q for every q. Whether this succeeds depends
  // on the form of t only, not on sizes.
  bool solve_period(const Contribution& c, Expr t, size_t k, Solution& s) {
    if (!is_call(t, Fn::remainder) || !(t->args[1]->kind == Kind::size || is_constant(t->args[1])))
      return false;
    Linear l, rest;
    if (!linear(t->args[0], l)) return false;
    const Axis* axis = nullptr;
    rest.constant = l.constant;
    for (auto& term : l.terms) {
      const Axis* a = axis_of(c, term.x);
      if (a && !axis && term.coefficient == 1 && !s.solved.count(a->var)) axis = a;
      else if (a || depends(c, term.x)) return false;
      else rest.terms.push_back(term);
    }
    bool sized = axis && (axis->extent->kind == Kind::size || is_constant(axis->extent));
    if (!sized) return false;
    Expr j = index(int(k)), n = t->args[1];
    if (!equal_sizes(n, size(sizes_[k]))) s.conditions.push_back(j < n);
    Expr i = rest.terms.empty() && rest.constant == 0 ? j : remainder(j - from_linear(rest, DType::Int64), n);
    if (!equal_sizes(axis->extent, n)) {
      SymInt extent = extent_of(axis->extent), each = extent_of(n);
      SymInt count = (extent + each - SymInt(int64_t(1))) / each, full_periods = extent / each;
      int q = next_++;
      s.periods.push_back(
          {q, size(SymInt::surely_equal(full_periods * each, extent) ? full_periods : count)});
      i = i + index(q) * n;
      if (!SymInt::surely_equal(full_periods * each, extent)) s.conditions.push_back(i < axis->extent);
    }
    s.add(axis->var, i);
    return true;
  }
  // Solves dimension k of the load for one more axis; false if that is impossible.
  bool solve(const Contribution& c, size_t k, Solution& s) {
    Expr t = c.load->args[k], j = index(int(k)), n = size(sizes_[k]);
    if (solve_period(c, t, k, s)) return true;
    if (!depends(c, t)) {
      if (!(is_constant(t) && t->value.to_int() == 0 && is_constant(n) && n->value.to_int() == 1))
        s.conditions.push_back(eq(j, t));
      return true;
    }
    Linear l;
    if (!linear(t, l)) return false;
    const Axis* pick = nullptr;
    int64_t factor = 0;
    if (!pick_axis(c, l, s, pick, factor)) return false;
    if (!pick) {
      s.conditions.push_back(eq(j, substitute(t, s.so_far)));
      return true;
    }
    Linear rest;
    rest.constant = l.constant;
    for (auto& term : l.terms)
      if (!(term.x->kind == Kind::index && term.x->slot == pick->var)) rest.terms.push_back(term);
    Expr difference = j - substitute(from_linear(rest, DType::Int64), s.so_far);
    if (factor < 0) difference = -difference;
    int64_t step = factor < 0 ? -factor : factor;
    Expr v = difference;
    if (step != 1) {
      s.conditions.push_back(eq(remainder(difference, step), 0));
      v = floordiv(difference, step);
    }
    bool plain = factor == 1 && rest.terms.empty();
    bool from_zero = plain && rest.constant <= 0;
    bool to_end = plain && ((rest.constant == 0 && equal_sizes(pick->extent, n)) ||
                            (is_constant(n) && is_constant(pick->extent) &&
                             n->value.to_int() - rest.constant <= pick->extent->value.to_int()));
    if (!from_zero) s.conditions.push_back(v >= 0);
    if (!to_end) s.conditions.push_back(v < pick->extent);
    s.add(pick->var, v);
    return true;
  }

  static bool names(Expr x, int var) {
    bool yes = false;
    visit(x, [&](Expr e) { yes = yes || (e->kind == Kind::index && e->slot == var); });
    return yes;
  }

  // ---- ranges of loop variables

  struct Range {
    int var;
    SymInt extent;  // the variable is in [0, extent)
  };
  // The least value of an integer expression that follows from the ranges; nullopt if none does.
  static std::optional<int64_t> least(Expr x, const std::vector<Range>& ranges) {
    Linear l;
    if (!linear(x, l)) return std::nullopt;
    SymInt sum = l.constant;
    for (auto& t : l.terms) {
      if (t.x->kind == Kind::size) {
        sum += t.x->size * SymInt(t.coefficient);
        continue;
      }
      auto r = std::ranges::find_if(ranges,
                                    [&](auto& r) { return t.x->kind == Kind::index && t.x->slot == r.var; });
      if (r == ranges.end()) return std::nullopt;
      if (t.coefficient < 0) sum += (r->extent - SymInt(int64_t(1))) * SymInt(t.coefficient);
    }
    return sum.is_symbolic() ? sum.node()->low : sum.concrete();
  }
  static bool always(Expr e, const std::vector<Range>& ranges) {
    if (e->kind != Kind::call || e->args.size() != 2 || e->args[0].dtype() != DType::Int64) return false;
    Expr a = e->args[0], b = e->args[1];
    auto at_least = [&](Expr difference, int64_t n) {
      auto low = least(difference, ranges);
      return low && *low >= n;
    };
    switch (e->fn) {
      case Fn::ge: return at_least(a - b, 0);
      case Fn::gt: return at_least(a - b, 1);
      case Fn::le: return at_least(b - a, 0);
      case Fn::lt: return at_least(b - a, 1);
      default: return false;
    }
  }
  // Removes the comparisons from x that hold for all indices of the operand and all values of `bound`.
  Expr without_the_sure(Expr x, const std::vector<BoundVar>& bound) const {
    std::vector<Range> ranges;
    for (size_t k = 0; k < sizes_.size(); ++k) ranges.push_back({int(k), sizes_[k]});
    for (auto& b : bound) {
      if (b.extent->kind == Kind::size) ranges.push_back({b.var, b.extent->size});
      else if (is_constant(b.extent)) ranges.push_back({b.var, b.extent->value.to_int()});
    }
    return rewrite(x, [&](Expr e) { return always(e, ranges) ? loop::constant(true, DType::Bool) : Expr(); });
  }

  // ---- gathers

  static void conjuncts(Expr e, std::vector<Expr>& to) {
    if (is_call(e, Fn::bit_and) && e.dtype() == DType::Bool) {
      for (auto& a : e->args) conjuncts(a, to);
      return;
    }
    to.push_back(e);
  }
  static bool is_zero(Expr x) { return is_constant(x) && x->value.to_complex() == 0.0; }
  // The value of `var` that satisfies the equation `e`; empty if e does not determine it.
  static Expr solved_for(int var, Expr e) {
    if (!is_call(e, Fn::eq) || e->args[0].dtype() != DType::Int64) return {};
    Linear l, rest;
    if (!linear(e->args[0] - e->args[1], l)) return {};
    int64_t factor = 0;
    rest.constant = l.constant;
    for (auto& t : l.terms) {
      bool own = t.x->kind == Kind::index && t.x->slot == var;
      if (own) factor = t.coefficient;
      else if (names(t.x, var)) return {};
      else rest.terms.push_back(t);
    }
    if (factor != 1 && factor != -1) return {};
    Expr r = from_linear(rest, DType::Int64);
    return factor == 1 ? -r : r;
  }
  // Replaces a sum over a variable by its only nonzero term, if a condition fixes the variable.
  static bool pick_one(std::vector<BoundVar>& remaining, Expr& inside, Expr& v) {
    std::vector<Expr> conditions;
    if (inside.get()) conjuncts(inside, conditions);
    for (Expr x = v; x->kind == Kind::select && is_zero(x->args[2]); x = x->args[1])
      conjuncts(x->args[0], conditions);
    for (size_t k = 0; k < remaining.size(); ++k) {
      auto [var, extent] = remaining[k];
      bool free = std::ranges::none_of(remaining, [&, var = var](auto& r) { return names(r.extent, var); });
      for (auto& e : conditions) {
        Expr at = free ? solved_for(var, e) : Expr();
        if (!at.get()) continue;
        Map now{{var, at}};
        v = substitute(v, now);
        Expr there = (at >= 0) & (at < extent);
        inside = both(there, inside.get() ? substitute(inside, now) : Expr());
        remaining.erase(remaining.begin() + long(k));
        return true;
      }
    }
    return false;
  }

  static bool checks(Expr x) {
    bool yes = false;
    visit(x, [&](Expr e) { yes = yes || e->kind == Kind::check; });
    return yes;
  }

  // Null if T cannot be solved.
  Expr gather(const Contribution& c) {
    Solution s;
    for (size_t k = 0; k < c.load->args.size(); ++k)
      if (!solve(c, k, s)) return {};
    std::vector<BoundVar> remaining;
    for (auto& a : c.domain)
      if (!s.solved.count(a.var)) remaining.push_back({a.var, a.extent});
    for (auto& r : remaining)
      for (auto& a : c.domain)
        if (names(r.extent, a.var)) return {};
    remaining.insert(remaining.end(), s.periods.begin(), s.periods.end());
    Expr v = substitute(c.value, s.so_far), all;
    for (auto& e : s.conditions) all = both(all, e);
    while (pick_one(remaining, all, v)) {}
    v = without_the_sure(v, remaining);
    std::vector<Expr> conditions;
    if (all.get()) conjuncts(without_the_sure(all, remaining), conditions);
    Expr outside, inside;  // conditions without and with remaining variables
    for (auto& e : conditions) {
      if (is_constant(e) && e->value.to_bool()) continue;
      bool uses = std::ranges::any_of(remaining, [&](auto& r) { return names(e, r.var); });
      (uses ? inside : outside) = both(uses ? inside : outside, e);
    }
    if ((inside.get() || outside.get()) && checks(v))
      return {};  // a check is performed whichever side a select takes
    if (inside.get()) v = select(inside, v, zero(v.dtype()));
    if (!remaining.empty()) v = reduce(Monoid::sum, remaining, {v});
    return outside.get() ? select(outside, v, zero(v.dtype())) : v;
  }

  static SymInt extent_of(Expr e) {
    if (is_constant(e)) return e->value.to_int();
    if (e->kind == Kind::size) return e->size;
    if (e->kind == Kind::call && e->args.size() == 2) {
      SymInt a = extent_of(e->args[0]), b = extent_of(e->args[1]);
      switch (e->fn) {
        case Fn::add: return a + b;
        case Fn::sub: return a - b;
        case Fn::mul: return a * b;
        case Fn::floordiv: return a / b;
        case Fn::remainder: return a % b;
        case Fn::max: return max(a, b);
        case Fn::min: return min(a, b);
        default: break;
      }
    }
    supported_check(false, "transpose")
        << "a reduction over " << print(e) << " elements" << hint("define a vjp for the operator");
    __builtin_unreachable();
  }

  // Targets that may be outside of the operand (reads that a select masks) add 0 to its first element.
  Definition scatter(const Contribution& c) {
    Scatter s;
    Map names;
    for (auto& a : c.domain) {
      names.push_back({a.var, index(int(s.domain.size()))});
      s.domain.push_back(extent_of(a.extent));
    }
    Expr valid;
    for (size_t k = 0; k < c.load->args.size(); ++k) {
      Expr t = c.load->args[k], n = size(sizes_[k]);
      const Axis* a = axis_of(c, t);
      bool sure = t->kind == Kind::check || (a && equal_sizes(a->extent, n)) ||
                  (is_constant(t) && is_constant(n) && t->value.to_int() >= 0 &&
                   t->value.to_int() < n->value.to_int());
      t = substitute(t, names);
      if (!sure) {
        Expr ok = (t >= 0) & (t < n);
        valid = both(valid, ok);
        t = select(ok, t, 0);
      }
      s.target.push_back(t);
    }
    s.value = substitute(c.value, names);
    if (valid.get()) s.value = select(valid, s.value, zero(s.value.dtype()));
    Definition d;
    d.rank = int(sizes_.size());
    d.scatter = std::move(s);
    return d;
  }

  int slot_;
  SymSpan sizes_;
  int next_;
  std::vector<Contribution> contributions_;
};

int fresh_among(std::vector<Expr> xs) { return fresh_var(xs); }

Expr row_major(std::span<const Expr> at, SymSpan sizes) {
  Expr p = constant(int64_t(0), DType::Int64);
  for (size_t k = 0; k < at.size(); ++k) p = k == 0 ? at[0] : p * size(sizes[k]) + at[k];
  return p;
}

// Renames the definition's axes to names that no axis of the gradient has, and spells out `position`.
struct Renamed {
  Map names;
  std::vector<Axis> domain;
  std::vector<Expr> at;
  Expr position_;
  Renamed(SymSpan sizes, int first) {
    for (size_t k = 0; k < sizes.size(); ++k) {
      int v = first + int(k);
      names.push_back({int(k), index(v)});
      domain.push_back({v, size(sizes[k]), false});
      at.push_back(index(v));
    }
    position_ = row_major(at, sizes);
  }
  Expr operator()(Expr x) const {
    x = substitute(x, names);
    return rewrite(x, [&](Expr e) { return e->kind == Kind::position ? position_ : Expr(); });
  }
};

std::vector<Definition> transpose_scatter(const Scatter& s, DType grad_dtype, int grad_slot, int slot,
                                          SymSpan slot_sizes) {
  using Combine = Scatter::Combine;
  supported_check(s.combine == Combine::sum || s.combine == Combine::assign, "scatter")
      << "the gradient of this combination is not derived" << hint("define a vjp for the operator");
  std::vector<Definition> r;
  if (s.base == slot) {
    Definition d;
    d.rank = int(slot_sizes.size());
    if (s.combine == Combine::sum) {
      std::vector<Expr> at;
      for (int k = 0; k < d.rank; ++k) at.push_back(index(k));
      d.values = {load(grad_slot, grad_dtype, at)};
    } else {  // a value that was overwritten has no influence
      Scatter masked = s;
      masked.base = grad_slot;
      masked.value = zero(s.value.dtype());
      d.scatter = std::move(masked);
    }
    r.push_back(std::move(d));
  }
  std::vector<Expr> all = s.target;
  all.push_back(s.value);
  int first = fresh_among(all);
  Renamed renamed(s.domain, first);
  std::vector<Expr> target;
  for (auto& t : s.target) target.push_back(renamed(t));
  Expr seed = cast(load(grad_slot, grad_dtype, target), s.value.dtype());
  Transposer t(slot, slot_sizes, first + int(s.domain.size()));
  t.follow(renamed(s.value), seed, renamed.domain);
  for (auto& d : t.definitions()) r.push_back(std::move(d));
  return r;
}

}  // namespace

std::vector<Definition> transpose(const Definition& d, int result, SymSpan result_sizes, DType grad_dtype,
                                  int grad_slot, int slot, SymSpan slot_sizes) {
  if (d.scatter) return transpose_scatter(*d.scatter, grad_dtype, grad_slot, slot, slot_sizes);
  Expr y = d.values[size_t(result)];
  if (!is_differentiable(y.dtype())) return {};
  int first = fresh_among({y});
  Renamed renamed(result_sizes, first);
  Expr seed = load(grad_slot, grad_dtype, renamed.at);
  if (is_complex(seed.dtype()) && !is_complex(y.dtype())) seed = real(seed);
  Transposer t(slot, slot_sizes, first + int(result_sizes.size()));
  t.follow(renamed(y), cast(seed, y.dtype()), renamed.domain);
  return t.definitions();
}

}  // namespace facula::loop
