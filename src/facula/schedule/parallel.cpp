#include "facula/schedule/parallel.h"

#include <algorithm>
#include <utility>

#include "facula/schedule/statements.h"

namespace facula::schedule {

using loop::Expr;
using loop::Fn;
using loop::Kind;
using loop::Statement;
using SK = loop::Statement::Kind;

namespace {

class Iterated {
 public:
  Iterated(const Statement& loop, const std::set<int>& outer, const std::set<int>& ignored)
      : loop_(loop), outer_(outer), ignored_(ignored) {}

  LoopUse run() {
    declare();
    find_lanes();
    if (changes_outside() || !stores_apart()) return {};
    use_.iterations = use_.colliding.empty() ? Iterations::independent : Iterations::collide;
    return std::move(use_);
  }

 private:
  // Collects the locals and arrays of an iteration, and what it does to outer ones.
  void declare() {
    each_statement(loop_.body, [&](const Statement& s) {
      if (s.kind == SK::array) arrays_.insert(s.var);
      if (s.kind == SK::let) {
        bool again = inside_.count(s.var);  // declared in another block, with another meaning
        if (again) lanes_.insert(s.var), lets_.erase(s.var);
        else lets_[s.var] = expanded(s.values[0], lets_);
      }
      if (s.kind == SK::let || (s.kind == SK::assign && !outer_.count(s.var))) inside_.insert(s.var);
      if (s.kind == SK::accumulator)
        for (int k = 0; k < loop::components(s.monoid); ++k) inside_.insert(s.var + k);
    });
    each_statement(loop_.body, [&](const Statement& s) {
      if (s.kind == SK::accumulate && !inside_.count(s.var) && !ignored_.count(s.var))
        for (int k = 0; k < loop::components(s.monoid); ++k) totals_.insert(s.var + k);
      if (s.kind == SK::accumulate && !inside_.count(s.var) && !ignored_.count(s.var))
        use_.accumulators.insert(s.var);
    });
  }
  bool changes_outside() {
    bool yes = false;
    each_statement(loop_.body, [&](const Statement& s) {
      yes |= s.kind == SK::assign && !inside_.count(s.var);
      each_expression(s, [&](Expr root) {
        loop::visit(root, [&](Expr e) { yes |= e->kind == Kind::local && totals_.count(e->slot); });
      });
    });
    return yes;
  }

  // Finds the locals that differ between iterations: repeats until nothing changes, because they may feed each other.
  void find_lanes() {
    size_t before;
    do {
      before = lanes_.size();
      each_statement(loop_.body, [&](const Statement& s) {
        if (s.kind == SK::let && in_lane(s.values[0])) lanes_.insert(s.var);
        if (s.kind == SK::assign) lanes_.insert(s.var);
        if (s.kind == SK::accumulator)
          for (int k = 0; k < loop::components(s.monoid); ++k) lanes_.insert(s.var + k);
      });
    } while (lanes_.size() != before);
  }
  bool in_lane(Expr root) const {
    bool yes = false;
    loop::visit(root, [&](Expr e) {
      yes |= (e->kind == Kind::index && e->slot == loop_.var) ||
             (e->kind == Kind::local && lanes_.count(e->slot)) ||
             (e->kind == Kind::load && arrays_.count(-1 - e->slot));
    });
    return yes;
  }
  // True if e is affine in the iteration.
  bool is_affine(Expr e) const {
    if (!in_lane(e) || e->kind == Kind::index) return true;
    if (e->kind == Kind::local) {
      auto it = lets_.find(e->slot);
      return it != lets_.end() && is_affine(it->second);
    }
    if (e->kind != Kind::call) return false;
    bool product = e->fn == Fn::mul;
    if (product && in_lane(e->args[0]) && in_lane(e->args[1])) return false;
    return (product || e->fn == Fn::add || e->fn == Fn::sub || e->fn == Fn::neg) &&
           std::all_of(e->args.begin(), e->args.end(), [&](Expr x) { return is_affine(x); });
  }

  // True if no iteration accesses what another one writes, except for colliding stores.
  using Place = std::pair<int, int>;  // buffer or array, part
  bool stores_apart() {
    std::map<Place, std::set<const loop::Node*>> loads;
    std::map<Place, std::vector<const Statement*>> stores;
    each_statement(loop_.body, [&](const Statement& s) {
      if ((s.kind == SK::store || s.kind == SK::atomic) && !arrays_.count(-1 - s.buffer))
        stores[{s.buffer, s.part}].push_back(&s);
      each_expression(s, [&](Expr root) {
        loop::visit(root, [&](Expr e) {
          if (e->kind == Kind::load && !arrays_.count(-1 - e->slot))
            loads[{e->slot, e->part}].insert(expanded(e->args[0], lets_).get());
        });
      });
    });
    for (auto& [place, list] : stores)
      if (!apart(list, loads[place])) return false;
    return true;
  }
  bool apart(const std::vector<const Statement*>& stores, const std::set<const loop::Node*>& loads) {
    std::set<const loop::Node*> offsets;
    bool wild = false;
    for (auto* s : stores) {
      if (!in_lane(s->offset)) return false;
      Expr at = expanded(s->offset, lets_);
      offsets.insert(at.get());
      bool affine = is_affine(s->offset);
      wild |= !affine;
      bool reads_itself = false;
      loop::visit(at, [&](Expr e) { reads_itself |= e->kind == Kind::load && e->slot == s->buffer; });
      if (reads_itself) return false;
    }
    bool one = offsets.size() == 1;
    if (!loads.empty() && !(one && loads == offsets)) return false;
    if (!wild) return true;
    if (!one || !use_.accumulators.empty()) return false;
    use_.colliding.insert(stores.begin(), stores.end());
    return true;
  }

  const Statement& loop_;
  const std::set<int>&outer_, &ignored_;
  LoopUse use_;
  std::set<int> inside_, arrays_, totals_, lanes_;
  std::map<int, Expr> lets_;
};

}  // namespace

LoopUse iterations_of(const Statement& loop, const std::set<int>& outer, const std::set<int>& ignored) {
  return Iterated(loop, outer, ignored).run();
}

Expr expanded(Expr x, const std::map<int, Expr>& locals) {
  return loop::rewrite(x, [&](Expr e) -> Expr {
    if (e->kind != Kind::local) return {};
    auto it = locals.find(e->slot);
    return it == locals.end() ? Expr() : it->second;
  });
}

}  // namespace facula::schedule
