// Analyses whether iterations of a loop of a nest can run at the same time.
//   assumes:  of the iterations of a `vector` loop, at most one stores to each element whose place depends on indices
//             alone; overlapping buffers coincide element by element. The nests of schedule/ are built so.
#pragma once
#include <map>
#include <set>

#include "facula/loop/nest.h"

namespace facula::schedule {

enum class Iterations : uint8_t {
  independent,  // outer accumulators are only added to
  collide,      // several stores (`colliding`) may write to the same element
  ordered,
};
struct LoopUse {
  Iterations iterations = Iterations::ordered;
  std::set<int> accumulators;  // the outer accumulators that the loop updates, by their first local
  std::set<const loop::Statement*> colliding;
};
// `outer`: the locals in scope around the loop. `ignored`: outer accumulators to leave out of account.
LoopUse iterations_of(const loop::Statement& loop, const std::set<int>& outer,
                      const std::set<int>& ignored = {});

// x with locals replaced by expressions.
loop::Expr expanded(loop::Expr x, const std::map<int, loop::Expr>& locals);

}  // namespace facula::schedule
