// Group: the input of the scheduler, which becomes one fused kernel (or two, if a reduction is split). It holds the
// definitions of several graph nodes, substituted into each other, over one space of axes. Values may contain reduce
// and scan nodes; all reductions of a group have the same free axes (its rows) and the same extents, so that they are
// computed row by row and shared by every value that mentions them.
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
  std::string name;  // the operators' names, joined: "sub_mean_mul"
  Dims extents;      // of the axes
  std::vector<GroupInput> inputs;
  std::vector<GroupOutput> outputs;
  // If present there is one output, with a dtype but without value and axes; `extents` is then the scatter's domain.
  std::optional<loop::Scatter> scatter;
};

}  // namespace facula::schedule
