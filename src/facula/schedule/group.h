// Group: what becomes one fused kernel (or two, when a reduction is split): definitions of several graph
// nodes, substituted into each other, over one space of axes.
//   values may contain reduce and scan nodes; all reductions of a group have the same free axes (its rows) and the
//   same extents, so that they are computed row by row and reused by every value that mentions them
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "facula/loop/definition.h"

namespace facula::schedule {

struct GroupInput {
  DType dtype;
  int rank;
};
struct GroupOutput {
  DType dtype;
  loop::Expr value;  // over index(axis), load(input, ...)
  Ints axes;         // dimension d of the output runs along axis axes[d]; -1: it has size 1
};
struct Group {
  std::string name;  // operators inside, joined: "sub_mean_mul"
  Dims extents;      // of the axes
  std::vector<GroupInput> inputs;
  std::vector<GroupOutput> outputs;
  std::optional<loop::Scatter>
      scatter;  // then one output, whose dtype counts and whose value and axes are empty;
                // extents is the scatter's domain
};

}  // namespace facula::schedule
