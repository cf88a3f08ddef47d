// From a group to loop nests for one class of layouts: size-1 axes vanish, adjacent axes collapse where every
// plain access allows, axes are ordered by stride, one is vectorised, rows become tasks, reductions without
// enough rows are split into fixed chunks (never depending on the number of threads).
//   requires: verified group; concrete extents and strides
//   ensures:  nests verify; equal classes give equal nests, so kernels are shared among sizes
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "facula/loop/lazy_nest.h"
#include "facula/schedule/group.h"

namespace facula::schedule {

// Concrete facts of one call.
struct Layout {
  Ints extents;                     // of the group's axes
  std::vector<Ints> input_strides;  // one a dimension of the input; 0 where it broadcasts
  std::vector<Ints> input_sizes;
  std::vector<Ints> output_strides;
  std::vector<Ints> output_sizes;  // needed for a scatter's result only
  std::vector<bool>
      output_overlaps;  // the output's memory is also an input's (in place): same element order only
  std::function<int64_t(SymInt)> size_of;  // value of the group's symbols
};

// One kernel to launch: buffers are numbered inputs, then outputs, then temporaries.
struct Launch {
  std::shared_ptr<const loop::LazyNest> nest;
  std::vector<int> buffers;
  std::vector<int64_t> params;
};
struct Temporary {
  DType dtype;
  int64_t numel;
};
struct Schedule {
  std::vector<Launch> launches;  // in order
  std::vector<Temporary> temporaries;
};

struct AnalysedGroup;  // what a group does, whatever the layout; equal groups share one
std::shared_ptr<const AnalysedGroup> analysed(const Group& g);
// `known`: analysed(g), if the caller has it.
Schedule schedule(const Group& g, Layout l, std::shared_ptr<const AnalysedGroup> known = nullptr);

}  // namespace facula::schedule
