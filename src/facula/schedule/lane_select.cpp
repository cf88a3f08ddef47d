#include "facula/schedule/lane_select.h"

#include <algorithm>

#include "facula/loop/simplify.h"

namespace facula::schedule {

using loop::Expr;
using loop::Fn;
using loop::Kind;
using loop::LaneScope;
using loop::Node;
using loop::Seen;

// True if f answers yes for e or for one of its operands; f can also answer no for a whole operand. Shared
// subexpressions are visited once.
template <class F>
bool Selects::any_of(Expr e, Seen& seen, F&& f) {
  if (!seen.insert(e.get())) return false;
  if (Answer a = f(e); a != Answer::in_operands) return a == Answer::yes;
  return std::any_of(e->args.begin(), e->args.end(), [&](const Expr& a) { return any_of(a, seen, f); });
}

// True if e contains loads or checks that only some lanes may perform.
bool Selects::is_guarded(Expr e, bool data_condition, bool first) {
  Seen seen;
  return any_of(e, seen, [&](Expr x) {
    if (x->kind == Kind::check || x->kind == Kind::divisor) return Answer::yes;
    if (x->kind != Kind::load) return Answer::in_operands;
    bool valid = (!first && computed_(x, false)) || (data_condition && !facts_.depends_on_data(x->args[0]));
    return valid ? Answer::no : Answer::yes;
  });
}

bool Selects::has_new_load(LaneScope& scope, Expr e, bool first) {
  Seen seen;
  return any_of(e, seen, [&](Expr x) {
    if (x->kind != Kind::load && x->args.empty()) return Answer::no;
    if (computed_(x, first)) return Answer::no;
    if (x->kind != Kind::load) return Answer::in_operands;
    return scope.varies(x) ? Answer::yes : Answer::no;  // a uniform load costs nothing
  });
}

// True if data alone can make the condition true or false, so that an offset that does not depend on data is valid on
// both sides. That holds if the condition consists of data only, or compares memory with a number of the same dtype.
bool Selects::is_decided_by_data(Expr c) {
  Seen for_data, for_places;
  bool has_data = any_of(c, for_data, [](Expr x) {
    bool data = x->kind == Kind::load || x->kind == Kind::random || x->kind == Kind::local;
    return data ? Answer::yes : Answer::in_operands;
  });
  bool has_place = any_of(c, for_places, [](Expr x) {
    if (x->kind == Kind::load) return Answer::no;
    bool place = x->kind == Kind::index || x->kind == Kind::local || x->kind == Kind::param;
    return place ? Answer::yes : Answer::in_operands;
  });
  if (has_data && !has_place) return true;
  auto named = [&](Expr x) {
    Expr definition = x->kind == Kind::local ? facts_.definition(x->slot) : Expr();
    return definition ? definition : x;
  };
  c = named(c);
  if (!loop::is_call(c, Fn::eq)) return false;
  for (size_t k : {0, 1}) {
    Expr x = named(c->args[k]);
    if (x->kind == Kind::load && x->memory == x.dtype() && !facts_.depends_on_data(x->args[0]) &&
        !facts_.depends_on_data(c->args[1 - k]))
      return true;
  }
  return false;
}

// Estimated operations of e beyond what is computed already: 4 for a division or a root, 16 for a function. A select
// whose branch can skip an expensive side counts as its condition.
int Selects::cost(LaneScope& scope, Expr e, Seen& seen, bool first) {
  if (e->args.empty() || e->kind == Kind::load || (!first && computed_(e, false)) || !seen.insert(e.get()))
    return 0;
  if (is_branch(scope, e, first)) return cost(scope, e->args[0], seen, first);
  int total = 1;
  if (e->kind == Kind::call && is_floating(e->args[0].dtype())) {
    bool root = e->fn == Fn::sqrt || e->fn == Fn::div || e->fn == Fn::reciprocal;
    bool function = loop::ulp(e->fn) > 0 || e->fn == Fn::fmod || e->fn == Fn::remainder;
    total = root ? 4 : function ? 16 : 1;
  }
  for (auto& a : e->args) total += cost(scope, a, seen, first);
  return total;
}
bool Selects::is_dear(LaneScope& scope, Expr e, bool first) {
  Seen seen;
  return cost(scope, e, seen, first) > 12;
}

bool Selects::is_branch(LaneScope& scope, Expr e, bool first) {
  if (e->kind != Kind::select || scope.varies(e->args[0])) return false;
  if (auto it = branches_.find(e.get()); it != branches_.end()) return it->second;
  return branches_[e.get()] = is_dear(scope, e->args[1], first) || is_dear(scope, e->args[2], first);
}

bool Selects::has_border(LaneScope& scope, const Node& n) {
  return scope.varies(n.args[0]) && is_guarded(n.args[1], false, false) && scope.is_convex(n.args[0]);
}

SelectForm Selects::form(LaneScope& scope, const Node& n, bool branch, bool first) {
  bool vector = !first && scope.varies(n.args[0]), data = is_decided_by_data(n.args[0]);
  bool guarded = branch || is_guarded(n.args[1], data, first) || is_guarded(n.args[2], data, first);
  if (guarded) return vector ? SelectForm::masked : SelectForm::branch;
  return SelectForm::blend;
}

bool Selects::is_skipped(LaneScope& scope, const Node& n, size_t side, bool first) {
  return !first && scope.varies(n.args[0]) && is_dear(scope, n.args[side], first) &&
         !has_new_load(scope, n.args[side], first);
}

// Adds the loads that no select inside of e guards; a select may be what makes a load valid.
void Selects::add_new_loads(LaneScope& scope, Expr e, Seen& seen, std::vector<Expr>& out) {
  if (computed_(e, false) || !seen.insert(e.get())) return;
  if (e->kind == Kind::load && scope.varies(e)) return out.push_back(e);
  size_t count = e->kind == Kind::select ? 1 : e->args.size();
  for (size_t k = 0; k < count; ++k) add_new_loads(scope, e->args[k], seen, out);
}

std::vector<Expr> Selects::shared(LaneScope& scope, const Node& n, bool first) {
  std::vector<Expr> out;
  if (first || !scope.varies(n.args[0])) return out;
  Seen loads;
  bool dear = false;
  for (size_t side : {1, 2})
    if (is_dear(scope, n.args[side], first)) dear = true, add_new_loads(scope, n.args[side], loads, out);
  if (!dear) return out;
  loop::NodeMap<bool> of_first;
  Seen of_second;
  auto is_computed = [&](Expr e) { return e->args.empty() || computed_(e, first); };
  auto collect = [&](Expr e, auto& self) -> void {
    if (is_computed(e) || !of_first.try_emplace(e.get()).second) return;
    for (auto& a : e->args) self(a, self);
  };
  auto meet = [&](Expr e, auto& self) -> void {
    if (is_computed(e) || !of_second.insert(e.get())) return;
    if (of_first.contains(e.get())) return out.push_back(e);
    for (auto& a : e->args) self(a, self);
  };
  collect(n.args[1], collect);
  meet(n.args[2], meet);
  return out;
}

}  // namespace facula::schedule
