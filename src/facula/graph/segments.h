// A graph with calls whose results have a size that is known only when they have run (op::DataDependent), as graphs
// without: each ends where such calls need what it computes, and the next ones know the sizes.
//   requires: a verified functional graph
//   ensures:  every node is in one segment, but views and calls without operands, which are in each that reads them; as
//             late as its readers and the order of random draws allow, so that most of the program is one piece;
//             writes to inputs are the last segment's
#pragma once
#include "facula/graph/graph.h"

namespace facula::graph {

struct Segment {
  Graph graph;
  std::vector<const Value*> inputs, outputs;  // of it, in the whole graph; outputs null where there is none
  std::vector<const Node*> calls;             // of the whole graph, that run behind it
  std::vector<const Value*> dead;             // what no later one reads
};

// Are there such calls?
bool has_run_time_sizes(const Graph& g);
// Values refer to `g`, which has to live as long. ValueError where a size is used that no call before gives.
std::vector<Segment> segments(const Graph& g);

}  // namespace facula::graph
