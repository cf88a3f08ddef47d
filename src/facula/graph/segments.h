// Splits a graph at calls whose results have a size that is only known after they have run (op::DataDependent) into
// graphs without such calls. A segment ends where such calls need what it computes; the next segments know the sizes.
//   example:  y = exp(x), i = nonzero(y), z = i + 1  ->  segment {y}, call nonzero, segment {z}
//   requires: a verified functional graph
//   ensures:  every node is in one segment, except for views and calls without operands, which are in each segment
//             that reads them. Segments run as late as their readers and the order of random draws allow, so that
//             most of the program is in one segment. The last segment performs the writes to inputs.
//   cost:     linear in nodes, times segments
#pragma once
#include "facula/graph/graph.h"

namespace facula::graph {

struct Segment {
  Graph graph;
  std::vector<const Value*> inputs,
      outputs;                     // values of the original graph; outputs are null if there is none
  std::vector<const Node*> calls;  // calls of the original graph that run after the segment
  std::vector<const Value*> dead;  // values that no later segment reads
};

// True if the graph has such calls.
bool has_run_time_sizes(const Graph& g);
// The segments refer to values of `g`, which has to outlive them. ValueError if a size is used that no earlier call
// gives.
std::vector<Segment> segments(const Graph& g);

}  // namespace facula::graph
