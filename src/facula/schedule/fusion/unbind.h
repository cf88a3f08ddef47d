// Detaches reductions from clusters of maps that other consumers read as well.
#pragma once
#include <optional>
#include <set>
#include <vector>

#include "facula/schedule/fusion/state.h"

namespace facula::schedule::fusion {

// The values of a reduction that is detached from such clusters: it recomputes their members or reads them from
// memory. `from`: units that it must not join.
struct Unbound {
  std::vector<loop::Expr> values;
  std::set<int> from;
};
// None if detaching gains nothing, or if recomputing what it reads is expensive.
std::optional<Unbound> unbind(State& f, const std::vector<loop::Expr>& values, const graph::Node& n);

}  // namespace facula::schedule::fusion
