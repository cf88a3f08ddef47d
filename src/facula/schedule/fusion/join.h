// Decides which nodes may join which clusters.
#pragma once
#include <optional>

#include "facula/schedule/fusion/state.h"

namespace facula::schedule::fusion {

constexpr size_t kMaxBuffers = 32;  // of a kernel

// The values of a node in the coordinates of cluster `at`, or none if it may not join it. It may if its dimensions
// run along axes of the cluster, all reductions share rows and domain, nothing expensive is recomputed, and no cycle
// arises.
std::optional<Placement> placement(State& f, const graph::Node& n, const Body& b, int at);

}  // namespace facula::schedule::fusion
