// Virtual values: they exist only inside of their consumers, and every consumer recomputes them.
#pragma once
#include "facula/schedule/fusion/state.h"

namespace facula::schedule::fusion {

// True for cheap values with few loads that nothing needs in memory.
bool may_be_virtual(State& f, const graph::Node& n, const Body& b);
void make_virtual(State& f, const graph::Node& n, const Body& b);

}  // namespace facula::schedule::fusion
