// Turns units into steps, each one after the steps that it depends on.
#pragma once
#include <vector>

#include "facula/schedule/fusion/state.h"

namespace facula::schedule::fusion {

std::vector<Step> steps_of(State& f);

}  // namespace facula::schedule::fusion
