// The passes over graphs, one file each. All of them take and leave a verified functional graph.
#pragma once
#include <functional>

#include "facula/graph/graph.h"

namespace facula::graph {

// dce.cpp: removes nodes whose results are not read.
//   ensures: order is kept; calls with effects (writes, random draws) remain
//   cost:    linear in nodes
void remove_dead(Graph& g);
// Whether the call may raise an error about elements.
bool may_refuse(const Node& n);

// cse.cpp: merges equal calls (same operator, values and attributes) of repeatable operators, except for calls that
// compute two separate results of the program.
//   example: %2 = exp(%0), %3 = exp(%0), %4 = add(%2, %3)  ->  %2 = exp(%0), %4 = add(%2, %2)
//   cost:    linear in nodes
void merge_equal(Graph& g);

// rematerialize.cpp: recomputes in later phases what they read of the first one, where that moves fewer bytes than
// retaining it (what partition does for two programs).
//   requires: a graph with phases, as a traced training step has
//   example:  y = relu(x), phase 1, g = where(y > 0, ...)  ->  phase 1 reads x, and computes a copy of y inside of g
//   cost:     a minimum cut
void rematerialize(Graph& g);

// trace.cpp: replaces calls that were kept whole for their gradient rule (KeepRules) by the calls of their bodies.
// `shapes`: the graph's, or a copy of them.
// `call`: as of interpret().
Graph expanded(const Graph& g, std::shared_ptr<sym::Shapes> shapes, const NodeCall& call = {});

// joint.cpp: the forward computation and its gradient in one graph. Inputs: the graph's, then one tangent per
// differentiable output. Outputs: the graph's, then one gradient per input in `wrt` (null if it has none).
//   example: y = exp(%0)  ->  graph(%0, %1): %2 = exp(%0), %3 = mul(%1, %2), return %2, %3
struct Joint {
  Graph graph;
  int forward_outputs;
  std::vector<int> tangent_of;  // by tangent: the number of its output
  std::vector<int> wrt;         // by gradient: the number of its input
};
Joint differentiate(const Graph& forward, const std::vector<int>& wrt);

// Steps of `differentiate` for the first `nodes` calls. `active` and `grads` are indexed by the number of the value.
// Marks all values that depend on a marked value through operators that carry gradients.
void spread_activity(const Graph& g, size_t nodes, std::vector<bool>& active);
// Watches a backward pass over a graph.
class BackwardObserver {
 public:
  virtual ~BackwardObserver() = default;
  // Gives the tensor that represents a value in the calls of the pass.
  virtual Tensor tensor(Value* v) = 0;
  // Before the gradients of n's results are used, which are complete.
  virtual void before(const Node&) {}
  // After n and all later nodes have passed their gradients on.
  virtual void after(const Node&) {}
  // The gradient formula of n reads v, which `t` represents. May return another tensor, as saved-tensor hooks do.
  virtual Tensor read(const Node&, Value* v, Tensor t) {
    (void)v;
    return t;
  }
};
// Computes the gradients of all active values from those that are present, by calls in the current mode.
void propagate_back(const Graph& g, size_t nodes, const std::vector<bool>& active, std::vector<Tensor>& grads,
                    BackwardObserver& observer);

// absent.cpp: a backward graph, whose inputs from `first` on are gradients, where some of these do not exist. The inputs of
// `absent` gradients are left out, and what depends on them alone is not computed: its outputs are null. A gradient of zeros
// instead would give zeros for None, and NaN where a derivative is infinite.
//   requires: every call is linear in the gradients that it reads
//   example:  return mul(%2, %0), mul(%3, %1) of gradients %2 and %3, the second absent  ->  return mul(%2, %0), None
Graph without_gradients(const Graph& g, size_t first, const std::vector<bool>& absent);

// partition.cpp: splits a joint graph into two graphs such that few bytes are saved between them, by a minimum cut
// (Dinic's algorithm, cut.h); cheap values are recomputed in the backward graph.
//   forward: inputs -> outputs + saved;   backward: saved + tangents -> gradients
//   ensures: both graphs verify; random values are saved
//   cost:    a minimum cut
struct Partition {
  Graph forward, backward;
  int outputs;  // of the original function; the rest of forward's outputs are saved values
  // By saved value: its input number if it is an input of the function, else -1.
  std::vector<int> saved_inputs;
  // Random values are always saved, so that the function can be run again with the same ones. Pairs of a saved
  // value's number and its value in the joint graph.
  std::vector<std::pair<int, const Value*>> random;
  // By saved value: its output number if it is an output of the function, else -1.
  std::vector<int> saved_outputs;
};
Partition partition(const Joint& j);

}  // namespace facula::graph
