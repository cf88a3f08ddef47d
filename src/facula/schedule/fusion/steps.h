// From units to steps: each after what it needs.
#pragma once
#include <vector>

#include "facula/schedule/fusion/state.h"

namespace facula::schedule::fusion {

std::vector<Step> steps_of(State& f);

}  // namespace facula::schedule::fusion
