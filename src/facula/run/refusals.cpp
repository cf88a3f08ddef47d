#include "facula/run/refusals.h"

#include <map>
#include <set>
#include <vector>

#include "facula/graph/passes.h"
#include "facula/loop/seen.h"

namespace facula::run {

using loop::Expr;
using loop::Kind;
using schedule::Step;

namespace {

// The identity of a check: its expression over values of the graph, where variables are numbered in the order of their
// occurrence, and the extents of these. Bound variables have none: such a check equals no other.
struct Check {
  const loop::Node* of;
  std::vector<uint64_t> extents;
  auto operator<=>(const Check&) const = default;
};

class Checks {
 public:
  explicit Checks(const Step& step) : step_(step) {
    auto& g = step.group;
    auto look = [&](Expr x) {
      loop::each_node(x, seen_, [&](Expr e) {
        bool checks = e->kind == Kind::check || e->kind == Kind::divisor;
        if (checks && !is_of_constants(e)) all.insert(check(e));
      });
    };
    for (auto& o : g.outputs)
      if (o.value) look(o.value);
    if (!g.scatter) return;
    look(g.scatter->value);
    for (auto& t : g.scatter->target) look(t);
  }
  std::set<Check> all;

 private:
  Check check(Expr e) {
    Check c;
    std::map<int, int> numbers;
    auto& g = step_.group;
    auto& sizes = g.scatter ? g.scatter->domain : g.extents;
    auto go = [&](auto&& self, Expr x) -> Expr {
      return loop::rewrite(x, [&](Expr y) -> Expr {
        if (y->kind == Kind::load) {
          std::vector<Expr> at;
          for (auto& i : y->args) at.push_back(self(self, i));
          return loop::load(step_.inputs[size_t(y->slot)]->id, y->memory, at, y->part);
        }
        if (y->kind != Kind::index) return {};
        auto [it, fresh] = numbers.try_emplace(y->slot, int(numbers.size()));
        if (fresh && size_t(y->slot) < sizes.size()) c.extents.push_back(sizes[size_t(y->slot)].identity());
        else if (fresh) c.extents.push_back(reinterpret_cast<uintptr_t>(&step_));
        return loop::index(it->second);
      });
    };
    c.of = go(go, e).get();
    return c;
  }
  // Whether each run checks the same elements: those of constants of the graph, by constant sizes.
  bool is_of_constants(Expr check) const {
    bool all = true;
    loop::visit(check, [&](Expr e) {
      if (e->kind == Kind::load) all &= step_.inputs[size_t(e->slot)]->constant.defined();
      if (e->kind == Kind::size || e->kind == Kind::param) all = false;
    });
    return all;
  }
  const Step& step_;
  loop::Seen seen_;
};

}  // namespace

Held*& Held::next() {
  static thread_local Held* held = nullptr;
  return held;
}

int last_refusal(std::span<const Step> steps) {
  std::set<Check> accepted;
  int last = -1;
  for (size_t k = 0; k < steps.size(); ++k) {
    auto& step = steps[k];
    bool refuses = step.kind == Step::Kind::library && graph::may_refuse(*step.node);
    if (step.kind == Step::Kind::kernel)
      for (auto& c : Checks(step).all) refuses |= accepted.insert(c).second;
    if (refuses) last = int(k);
  }
  return last;
}

}  // namespace facula::run
