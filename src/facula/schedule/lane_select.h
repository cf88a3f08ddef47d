// How a select chooses between its sides, of which the one that is not taken must have no effect. It is decided here; a
// target's printer does it.
#pragma once
#include <functional>
#include <unordered_map>
#include <vector>

#include "facula/loop/lanes.h"

namespace facula::schedule {

enum class SelectForm : uint8_t {
  blend,  // both sides are computed, and each lane takes its own; is_skipped: or only where some lane takes them
  masked,  // each side for the lanes that take it
  branch,  // one condition for all lanes: one side is computed
};

class Selects {
 public:
  // Whether the code so far has a value, of all lanes or of the first one: a load that was made needs no guard.
  using Computed = std::function<bool(loop::Expr, bool first)>;
  Selects(loop::NestFacts& facts, Computed computed) : facts_(facts), computed_(std::move(computed)) {}

  // Is the condition one on the place (of padding, say) that most vectors pass in all lanes, so that code without masks for
  // these is worth while?
  bool has_border(loop::LaneScope& scope, const loop::Node& select);
  // Is a jump worth while that lets all lanes past a dear side?
  bool is_branch(loop::LaneScope& scope, loop::Expr select, bool first);
  // The form, when the code has the condition; `branch`: is_branch before that, `first`: of the first lane alone.
  SelectForm form(loop::LaneScope& scope, const loop::Node& select, bool branch, bool first);
  // Of a blend: is side 1 or 2 dear, so that a vector of which no lane takes it goes past? Without what both sides need,
  // `shared`, which is to be computed before, and its loads.
  bool is_skipped(loop::LaneScope& scope, const loop::Node& select, size_t side, bool first);
  std::vector<loop::Expr> shared(loop::LaneScope& scope, const loop::Node& select, bool first);
  void forget() { branches_.clear(); }  // what was computed when it was asked

 private:
  enum class Answer : uint8_t { no, yes, below };
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
