// Values that exist only inside of their readers, each of which computes them again.
#pragma once
#include "facula/schedule/fusion/state.h"

namespace facula::schedule::fusion {

// True for cheap values of few loads that nobody needs in memory.
bool may_be_virtual(State& f, const graph::Node& n, const Body& b);
void make_virtual(State& f, const graph::Node& n, const Body& b);

}  // namespace facula::schedule::fusion
