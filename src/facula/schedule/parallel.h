// May the iterations of a loop of a nest run at the same time?
//   assumes: an element that iterations of a `vector` loop store at places that follow from indices alone is stored by
//            one of them, and buffers that overlap lie on each other element by element, as schedule/ builds them
#pragma once
#include <map>
#include <set>

#include "facula/loop/nest.h"

namespace facula::schedule {

enum class Iterations : uint8_t {
  independent,  // accumulators of outside are only added to
  collide,      // but for stores that several may make to one element: `colliding` of them
  ordered,
};
struct LoopUse {
  Iterations iterations = Iterations::ordered;
  std::set<int> accumulators;  // of outside that are updated, by their first local
  std::set<const loop::Statement*> colliding;
};
// `outer`: the locals that are in scope around the loop. `ignored`: accumulators of outside that do not count.
LoopUse iterations_of(const loop::Statement& loop, const std::set<int>& outer,
                      const std::set<int>& ignored = {});

// x with expressions in place of locals.
loop::Expr expanded(loop::Expr x, const std::map<int, loop::Expr>& locals);

}  // namespace facula::schedule
