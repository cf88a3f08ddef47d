#include "facula/schedule/lanes.h"

#include <algorithm>
#include <map>
#include <set>

#include "facula/base/log.h"
#include "facula/loop/lanes.h"
#include "facula/loop/monoid.h"
#include "facula/schedule/lane_access.h"
#include "facula/schedule/statements.h"

namespace facula::schedule {
namespace {

using loop::Block;
using loop::Expr;
using loop::Kind;
using loop::LaneLimits;
using loop::Lanes;
using loop::LoopKind;
using loop::Statement;
using SK = Statement::Kind;

// Gives each local a unique number where several blocks use the same one.
class OwnNumbers {
 public:
  explicit OwnNumbers(Block& block) {
    each_statement(block, [&](const Statement& s) { next_ = std::max(next_, s.var + kMostComponents); });
    rename(block, {});
  }

 private:
  static constexpr int kMostComponents = 3;
  using Names = std::map<int, int>;

  void rename(Block& block, Names names) {
    for (auto& s : block) {
      if (changed_) each_expression(s, [&](Expr& e) { e = renamed(e, names); });
      if (s.kind == SK::store && s.buffer < 0) s.buffer = -1 - names.at(-1 - s.buffer);
      bool again = s.kind == SK::accumulate || (s.kind == SK::assign && names.count(s.var));
      if (again) s.var = names.at(s.var);
      else if (s.kind == SK::let || s.kind == SK::assign || s.kind == SK::accumulator || s.kind == SK::array)
        declare(s, names);
      rename(s.body, names);
    }
  }
  void declare(Statement& s, Names& names) {
    int count = s.kind == SK::accumulator ? loop::components(s.monoid) : 1, to = s.var;
    for (int k = 0; k < count; ++k)
      if (used_.count(s.var + k)) to = next_;
    if (to != s.var) {
      next_ += count;
      changed_ = true;
    }
    for (int k = 0; k < count; ++k) {
      names[s.var + k] = to + k;
      used_.insert(to + k);
    }
    s.var = to;
  }
  static Expr renamed(Expr e, const Names& names) {
    return loop::rewrite(e, [&](Expr x) -> Expr {
      if (x->kind == Kind::local) return loop::local(names.at(x->slot), x.dtype());
      if (x->kind != Kind::load || x->slot >= 0) return {};
      return loop::load(-1 - names.at(-1 - x->slot), x->memory, {renamed(x->args[0], names)}, x->part);
    });
  }

  int next_ = 0;
  bool changed_ = false;
  std::set<int> used_;
};

// Lanes for short elements that are stored one by one: stores leave the register early, and a tail masks few lanes.
constexpr int kSpread = 8;

// The most nodes in the body of a loop that takes no longer than counting its steps.
constexpr int kFewOperations = 24;

// Summarises what a loop over lanes computes, as far as that decides how it runs.
class Survey {
 public:
  Survey(loop::NestFacts& facts, const Statement& s) : facts_(facts), scope_(facts, s), loop_(s) {
    each_statement(s.body, [&](const Statement& t) { look_at(t); });
    for (auto& t : s.body) look_at_child(t);
    if (narrow_ == 0 && wide_ == 0)
      for (auto& [var, t] : scope_.accumulators()) count(t->values[0].dtype());
  }
  const char* hazard() { return scope_.hazard(); }

  Lanes lanes(const LaneLimits& limits) const {
    Lanes l;
    l.width = narrow_ || !wide_ ? limits.lanes : limits.lanes / 2;
    if (only_moves_ && narrow_ && !wide_ && moved_ < 4)
      l.width = spreads_ ? std::min(limits.lanes, kSpread) : limits.lanes * 4 / int(moved_);
    bool adds = !scope_.accumulators().empty();
    l.scan = loop_.lanes.scan;
    for (auto& [var, t] : scope_.accumulators())
      if (l.scan && t->monoid == loop::Monoid::prod && is_floating(t->values[0].dtype()))
        l.width = std::min(l.width, loop::kFactors);
    if (adds && !l.scan)
      l.unroll = std::min(limits.unroll, operations_ <= 12 ? 4 : operations_ <= 40 ? 2 : 1);
    bool fixed = loop_.extent->kind == Kind::constant;
    int64_t extent = fixed ? loop_.extent->value.to_int() : 0;
    if (fixed && extent < int64_t(l.width) * l.unroll) l.unroll = 1;
    l.tail = !fixed || extent % (int64_t(l.width) * l.unroll);
    bool strips = plain_ && inner_ && inner_ <= 4 && operations_ <= 40 && !fixed && !adds;
    if (strips) l.strip = costly_ ? std::min(2, limits.strip) : inner_ <= 2 ? limits.strip : limits.strip / 2;
    return l;
  }
  // True if an inner loop runs in chains. It does not if tables and polynomials need the registers.
  bool chains(const Statement& inside) {
    return !costly_ && inside.kind == SK::loop && inside.loop == LoopKind::serial &&
           !scope_.varies(inside.extent) && scope_.only_sums(inside.body);
  }

 private:
  void count(DType d) { (itemsize(real_of(d)) == 8 ? wide_ : narrow_)++; }
  bool is_even(Expr e) { return scope_.motion(e).simple; }
  // True if the offset is uniform, or grows by one from lane to lane.
  bool is_beside(Expr e) {
    auto stride = scope_.motion(e).constant();
    return stride && (*stride == 0 || *stride == 1);
  }
  // True if e consists of loads that are either uniform or affine in the lane, so that elements are only moved.
  bool moves_along(Expr e, DType d) {
    if (!scope_.varies(e)) return true;
    if (e->kind == Kind::select)
      return scope_.is_convex(e->args[0]) && moves_along(e->args[1], d) && moves_along(e->args[2], d);
    return e->kind == Kind::load && e->memory == d && is_even(e->args[0]);
  }
  void look_at(Expr e) {
    ++operations_;
    if (e->kind == Kind::call && is_floating(e.dtype()) && loop::ulp(e->fn) > 0)
      operations_ += 12, costly_ = true;
    if (e->kind == Kind::select || e->kind == Kind::check || e->kind == Kind::divisor) plain_ = false;
    if (e->kind != Kind::load) return;
    if (e->slot < 0 || !is_beside(e->args[0])) plain_ = false;
    if (!scope_.is_lane_array(-1 - e->slot) && scope_.varies(e->args[0])) count(e->memory);
  }
  void look_at(const Statement& t) {
    each_expression(t, [&](Expr root) { loop::each_node(root, seen_, [&](Expr e) { look_at(e); }); });
    if (t.kind == SK::array) plain_ = false;
    if (t.kind != SK::store && t.kind != SK::let && t.kind != SK::loop) only_moves_ = false;
    if (t.kind == SK::let && scope_.varies(t.values[0]) && !is_even(t.values[0])) only_moves_ = false;
    if (t.kind != SK::store || scope_.is_lane_array(-1 - t.buffer)) return;
    DType d = facts_.memory(t.buffer);
    if (scope_.varies(t.offset)) count(d);
    if (!is_beside(t.offset)) plain_ = false, spreads_ = true;
    only_moves_ &= is_even(t.offset) && loop::is_move(t.values[0], d) && moves_along(t.values[0], d);
    moved_ = std::max(moved_, int64_t(itemsize(d)));
  }
  void look_at_child(const Statement& t) {
    if (t.kind == SK::condition) plain_ = false;
    if (t.kind != SK::loop) return;
    each_statement(t.body, [&](const Statement& u) {
      inner_ += u.kind == SK::accumulate ? loop::components(u.monoid) : 0;
      if (u.kind == SK::loop) plain_ = false;
    });
  }

  loop::NestFacts& facts_;
  loop::LaneScope scope_;
  const Statement& loop_;
  loop::Seen seen_;
  int operations_ = 0;
  bool costly_ = false;        // contains elementary functions
  bool plain_ = true;          // every access is unguarded, and uniform or contiguous
  int inner_ = 0;              // accumulators that inner loops update
  int wide_ = 0, narrow_ = 0;  // accesses to 64-bit elements, and to smaller ones
  bool only_moves_ = true;     // nothing is computed
  bool spreads_ = false;  // elements are stored one by one, so that a longer vector only adds masked lanes
  int64_t moved_ = 1;     // size of an element in bytes
};

class Lowering {
 public:
  Lowering(loop::Nest& n, const LaneLimits& limits) : nest_(n), facts_(n), limits_(limits) {}
  void run() {
    block(nest_.body, false);
    bool by_elements = false;  // some loop only updates elements of memory
    each_statement(nest_.body, [&](const Statement& s) {
      by_elements |= s.kind == SK::loop && s.loop == LoopKind::serial && s.lanes.unroll > 1;
    });
    give_prefetches(nest_.body, by_elements);
    state_accesses(facts_, nest_.body, limits_);
  }

 private:
  void block(Block& b, bool in_lanes) {
    for (auto& s : b) {
      bool lanes = s.kind == SK::loop && goes_in_lanes(s, in_lanes);
      block(s.body, in_lanes || lanes);
      if (lanes && s.lanes.strip > 1) give_chains(s);
      if (!lanes && !in_lanes && only_changes_memory(s)) s.lanes.unroll = limits_.unroll;
    }
  }
  // True if counting iterations takes a good part of the time, as in adding a number to an element.
  static bool only_changes_memory(const Statement& s) {
    if (s.kind != SK::loop || s.loop != LoopKind::serial || s.extent->kind == Kind::constant) return false;
    int operations = 0;
    for (auto& t : s.body) {
      if (t.kind != SK::store && t.kind != SK::let) return false;
      loop::Seen seen;
      each_expression(t, [&](Expr root) { loop::each_node(root, seen, [&](Expr) { ++operations; }); });
    }
    return operations <= kFewOperations;
  }
  bool goes_in_lanes(Statement& s, bool in_lanes) {
    if (s.loop == LoopKind::unrolled &&
        (s.extent->kind != Kind::constant || s.extent->value.to_int() > limits_.unrolled))
      s.loop = LoopKind::serial;
    if (s.loop != LoopKind::vector) return false;
    if (!in_lanes) {
      s.lanes.scan = loop::LaneScope(facts_, s).scans();
      Survey survey(facts_, s);
      const char* hazard = survey.hazard();
      if (!hazard) {
        s.lanes = survey.lanes(limits_);
        return true;
      }
      s.lanes.scan = false;
      if (log_on(Log::kernels))
        log_line(Log::kernels, nest_.name + ": a loop over lanes runs element by element: " + hazard);
    }
    s.loop = LoopKind::serial;
    return false;
  }
  // Loops with little work prefetch: serial ones that only change memory, and loops over lanes that only store the
  // places of a scatter or initialise its result. Interleaved streams, such as the places and the values of a scatter,
  // stop the hardware prefetcher at every page boundary.
  void give_prefetches(Block& b, bool by_elements) {
    for (auto& s : b) {
      give_prefetches(s.body, by_elements);
      if (s.kind != SK::loop) continue;
      bool prefetches = s.loop == LoopKind::serial   ? s.lanes.unroll > 1
                        : s.loop == LoopKind::vector ? takes_turns(s, by_elements)
                                                     : false;
      if (prefetches) s.lanes.prefetch = limits_.prefetch;
    }
  }
  // True if a loop over lanes only stores the places of a scatter, or only initialises its result.
  bool takes_turns(const Statement& loop, bool by_elements) const {
    std::set<int> own;  // arrays
    each_statement(loop.body, [&](const Statement& t) {
      if (t.kind == SK::array) own.insert(t.var);
    });
    bool any = false, all = true;
    each_statement(loop.body, [&](const Statement& t) {
      if (t.kind != SK::store) return;
      any = true;
      bool places = t.buffer < 0 && !own.count(-1 - t.buffer) && facts_.memory(t.buffer) == DType::Int64;
      all &= places || (t.buffer >= 0 && by_elements && loop::is_move(t.values[0], facts_.memory(t.buffer)));
    });
    return any && all;
  }
  void give_chains(Statement& s) {
    Survey survey(facts_, s);
    for (auto& t : s.body)
      if (survey.chains(t)) t.lanes.chains = limits_.chains;
  }

  loop::Nest& nest_;
  loop::NestFacts facts_;
  const LaneLimits& limits_;
};

}  // namespace

loop::Nest in_lanes(const loop::Nest& n, const LaneLimits& limits) {
  internal_check(!n.threads && !n.lanes) << "nest " << n.name << " is lowered already";
  loop::Nest r = n;
  OwnNumbers{r.body};
  r.lanes = limits.lanes;
  Lowering(r, limits).run();
  return r;
}

}  // namespace facula::schedule
