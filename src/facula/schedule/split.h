// Nests of a reduction or scan with too few rows, whose domain is split into chunks of a fixed size. Partial results of the
// chunks are combined in order, so that bits do not depend on the number of threads.
#pragma once
#include "facula/schedule/build.h"

namespace facula::schedule {

// Requires decisions with a variable to split (Decisions::split). The other functions of build.h apply.
Built build_split(const std::string& name, const Analysis& a, const Decisions& d,
                  std::vector<IndexedNest> indexed);

}  // namespace facula::schedule
