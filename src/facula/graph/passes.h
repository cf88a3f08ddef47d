// The passes, one file each. All take and leave a verified functional graph.
#pragma once
#include <functional>

#include "facula/graph/graph.h"

namespace facula::graph {

// dce.cpp: removes nodes whose results nobody reads. Order is kept. Linear in nodes.
void remove_dead(Graph& g);

// cse.cpp: merges equal calls (same operator, values and attributes) of operators that are not random, but those that
// make the memory of two results.
void merge_equal(Graph& g);

// rematerialize.cpp: what a later phase reads of the first is computed again there, where that moves fewer bytes than
// keeping it (as partition does for two programs).
void rematerialize(Graph& g);

// trace.cpp: the graph with the calls that are made by composites kept for their gradient rule (KeepRules) in their place.
// `shapes`: its own, or a copy of them.
Graph expanded(const Graph& g, std::shared_ptr<sym::Shapes> shapes);

// joint.cpp: the gradient of a traced function. Inputs: the graph's, then one tangent an output that is
// differentiable. Outputs: the graph's, then one gradient an input in `wrt` (null where there is none).
struct Joint {
  Graph graph;
  int forward_outputs;
  std::vector<int> tangent_of;  // output number of each tangent
  std::vector<int> wrt;         // input number of each gradient
};
Joint differentiate(const Graph& forward, const std::vector<int>& wrt);

// The steps of it, of the first `nodes` calls. `active`, `grads`: by value number.
// Marks what depends on a value that is marked, as far as gradients go.
void spread_activity(const Graph& g, size_t nodes, std::vector<bool>& active);
// From the gradients that are there, those of all active values, by calls under the mode that is current. `tensor`: what
// stands for a value in these calls.
void propagate_back(const Graph& g, size_t nodes, const std::vector<bool>& active, std::vector<Tensor>& grads,
                    const std::function<Tensor(Value*)>& tensor);

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
