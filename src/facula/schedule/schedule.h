// Schedules a group: turns it into loop nests for one class of layouts. Axes of size 1 are removed, adjacent axes are
// merged where every plain access allows it, axes are ordered by stride, one runs in lanes, rows become tasks, and
// reductions with too few rows are split into fixed chunks (independent of the number of threads).
//   example:  x + 1 for a contiguous 3x4 tensor  ->  one loop over 12 elements that runs in lanes
//   requires: a verified group; concrete extents and strides
//   ensures:  nests verify; layouts of one class give equal nests, so that different sizes share kernels
//   cost:     the first layout of a class builds nests; later ones only compute parameters
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "facula/loop/lazy_nest.h"
#include "facula/schedule/group.h"

namespace facula::schedule {

// The concrete sizes and strides of one call.
struct Layout {
  Ints extents;                     // of the group's axes
  std::vector<Ints> input_strides;  // by dimension of the input; 0 where it broadcasts
  std::vector<Ints> input_sizes;
  std::vector<Ints> output_strides;
  std::vector<Ints> output_sizes;  // needed for the result of a scatter only
  // True if the output shares memory with an input (in place), element by element in the same order.
  std::vector<bool> output_overlaps;
  std::function<int64_t(SymInt)> size_of;  // value of the group's symbols
};

// One kernel launch. Buffers are numbered: inputs, then outputs, then temporaries.
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

struct AnalysedGroup;  // what a group computes, for any layout; equal groups share one
std::shared_ptr<const AnalysedGroup> analysed(const Group& g);
// `analysis`: the result of analysed(g), if the caller has it.
Schedule schedule(const Group& g, Layout l, std::shared_ptr<const AnalysedGroup> analysis = nullptr);

}  // namespace facula::schedule
