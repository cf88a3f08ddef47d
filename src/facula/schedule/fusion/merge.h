// Merges clusters that a node connects.
#pragma once
#include "facula/schedule/fusion/state.h"

namespace facula::schedule::fusion {

// Merges cluster `from` into `to`, whose node n reads a member of `from`, if one kernel can compute both.
void merge(State& f, int from, int to, const graph::Node& n, const Body& b);

}  // namespace facula::schedule::fusion
