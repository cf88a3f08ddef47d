// Decides how a `select` is computed, given that the side that is not taken must have no effect. A target's printer
// emits what is decided here.
#pragma once
#include <functional>
#include <unordered_map>
#include <vector>

#include "facula/loop/lanes.h"

namespace facula::schedule {

enum class SelectForm : uint8_t {
  blend,  // both sides are computed, and each lane picks its own; is_skipped: a side may be skipped if no lane takes it
  masked,  // each side is computed under a mask of the lanes that take it
  branch,  // the condition is uniform: only one side is computed
};

class Selects {
 public:
  // Answers whether the emitted code already has a value, for all lanes or for the first one. A load that was
  // performed needs no guard.
  using Computed = std::function<bool(loop::Expr, bool first)>;
  Selects(loop::NestFacts& facts, Computed computed) : facts_(facts), computed_(std::move(computed)) {}

  // True if the condition is one on places (padding, for example) that most vectors satisfy in all lanes, so that a
  // second copy of the code without masks pays.
  bool has_border(loop::LaneScope& scope, const loop::Node& select);
  // True if the condition is uniform and a side is expensive enough for a jump.
  bool is_branch(loop::LaneScope& scope, loop::Expr select, bool first);
  // The form, once the code has the condition. `branch`: the result of is_branch before that; `first`: compute the
  // first lane only.
  SelectForm form(loop::LaneScope& scope, const loop::Node& select, bool branch, bool first);
  // For a blend: true if side 1 or 2 is expensive, so that vectors should jump over it if no lane takes it.
  // Values that both sides need (`shared`) and the side's loads are computed before the jump and do not count.
  bool is_skipped(loop::LaneScope& scope, const loop::Node& select, size_t side, bool first);
  std::vector<loop::Expr> shared(loop::LaneScope& scope, const loop::Node& select, bool first);
  void forget() {
    branches_.clear();
  }  // discards cached answers, which depend on what was computed at the time

 private:
  enum class Answer : uint8_t { no, yes, in_operands };
  template <class F>
  static bool any_of(loop::Expr e, loop::Seen& seen, F&& f);
  bool is_guarded(loop::Expr e, bool data_condition, bool first);
  bool has_new_load(loop::LaneScope& scope, loop::Expr e, bool first);
  void add_new_loads(loop::LaneScope& scope, loop::Expr e, loop::Seen& seen, std::vector<loop::Expr>& out);
  bool is_decided_by_data(loop::Expr condition);
  int cost(loop::LaneScope& scope, loop::Expr e, loop::Seen& seen, bool first);
  bool is_dear(loop::LaneScope& scope, loop::Expr e, bool first);

  loop::NestFacts& facts_;
  Computed computed_;
  std::unordered_map<const loop::Node*, bool> branches_;
};

}  // namespace facula::schedule
