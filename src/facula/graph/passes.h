// The passes, one file each. All take and leave a verified functional graph.
#pragma once
#include "facula/graph/graph.h"

namespace facula::graph {

// dce.cpp: removes nodes whose results nobody reads. Order is kept. Linear in nodes.
void remove_dead(Graph& g);

// cse.cpp: merges equal calls (same operator, values and attributes) of operators that are not random.
void merge_equal(Graph& g);

// trace.cpp: calls that were kept for their gradient rule (KeepRules), in their place the calls that they make.
Graph expanded(Graph g);

// joint.cpp: the gradient of a traced function. Inputs: the graph's, then one tangent an output that is
// differentiable. Outputs: the graph's, then one gradient an input in `wrt` (null where there is none).
struct Joint {
  Graph graph;
  int forward_outputs;
  std::vector<int> tangent_of;  // output number of each tangent
  std::vector<int> wrt;         // input number of each gradient
};
Joint differentiate(const Graph& forward, const std::vector<int>& wrt);

// partition.cpp: splits a joint graph in two so that the bytes saved between them are few: a minimum cut
// (Boykov and Kolmogorov's max-flow is not needed at this size; see the file), cheap values are recomputed.
//   forward: inputs -> outputs + saved;   backward: saved + tangents -> gradients
struct Partition {
  Graph forward, backward;
  int outputs;                    // of the original function; the rest of forward's outputs are saved
  std::vector<int> saved_inputs;  // for saved values that are inputs of the function: input number, else -1
  // What was random is always saved, so that the function can be run again with the same: which saved value
  // is which of the joint graph.
  std::vector<std::pair<int, const Value*>> random;
  std::vector<int>
      saved_outputs;  // for saved values that are outputs of the function: output number, else -1
};
Partition partition(const Joint& j);

}  // namespace facula::graph
