// Reductions that read clusters of maps which others read as well.
#pragma once
#include <optional>
#include <set>
#include <vector>

#include "facula/schedule/fusion/state.h"

namespace facula::schedule::fusion {

// Values of a reduction that is not bound to such clusters, but computes their members again, or reads them from
// memory: `from` are units that it must not join.
struct Unbound {
  std::vector<loop::Expr> values;
  std::set<int> from;
};
// None if nothing is won by it, or if what is read is dear to compute again.
std::optional<Unbound> unbind(State& f, const std::vector<loop::Expr>& values, const graph::Node& n);

}  // namespace facula::schedule::fusion
