// Splits a graph into graphs that run one after the other.
// A segment ends at calls whose results have a size that is only known after they have run (op::DataDependent), and which are in
// no segment; the next segments know the sizes. If histories are divided, it also ends behind values in which the gradients of
// other results pass on: so each of these values is a result of one node of the tape and an input of the next one.
//   example:  y = exp(x), i = nonzero(y), z = i + 1  ->  segment {y}, call nonzero, segment {z}
//   requires: a verified functional graph
//   ensures:  every node is in one segment, except for views and calls without operands, which are in each segment
//             that reads them. Segments run as late as their readers and the order of random draws allow, so that
//             most of the program is in one segment. The last segment performs the writes to inputs. If histories are
//             divided, each output and each written value is an output of the segment that computes it.
//   cost:     linear in nodes, times segments
#pragma once
#include <span>
#include <vector>

#include "facula/graph/graph.h"

namespace facula::graph {

struct Segment {
  Graph graph;
  // Values of the original graph. Outputs are null if there is none.
  std::vector<const Value*> inputs, outputs;
  std::vector<const Node*> calls;  // calls of the original graph that run after the segment
  std::vector<const Value*> dead;  // values that no later segment reads
};

// True if the graph has such calls.
bool has_run_time_sizes(const Graph& g);
// Gives those `candidates` that are read by a call through which a gradient flows back to them from a value of `ends`.
std::vector<const Value*> inside_histories(const Graph& g, std::span<Value* const> candidates,
                                           std::span<Value* const> ends);
// The segments refer to values of `g`, which has to outlive them. ValueError if a size is used that no earlier call
// gives. Behind each value of `inside` a segment ends; views among them are calls between segments.
std::vector<Segment> segments(const Graph& g, std::span<const Value* const> inside = {});

}  // namespace facula::graph
