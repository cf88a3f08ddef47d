// Fuses a functional graph into steps: groups (fused kernels), views, library calls and data-dependent calls.
//   vertical:   a consumer that reads a pointwise producer inlines it; a consumer that reads a reduction joins its
//               group if the reduction's rows are the consumer's rows
//   horizontal: reductions over the same rows of the same input share a sweep
//   A producer that several groups use is recomputed in each of them if it is cheap, and stored otherwise.
//   example:    y = x - x.mean(-1, keepdim); return y, y.exp()  ->  one group with two outputs
//   requires:   a verified functional graph
//   ensures:    steps in an order in which every step's inputs exist before it runs; every output of the graph is
//               stored
//   cost:       close to linear in the nodes (order.h bounds each question about the order)
#pragma once
#include <memory>
#include <vector>

#include "facula/graph/graph.h"
#include "facula/schedule/group.h"

namespace facula::schedule {

struct AnalysedGroup;  // schedule/schedule.h

struct Step {
  enum class Kind : uint8_t { kernel, view, library } kind;
  Group group;                         // kernel
  const graph::Node* node = nullptr;   // view, library (and data-dependent)
  std::vector<graph::Value*> inputs;   // kernel: by group input
  std::vector<graph::Value*> outputs;  // kernel: by group output
  // Annotations that programs add: the results of run::treats_each_element_alone and of schedule::analysed.
  bool each_element_alone = false;
  std::shared_ptr<const AnalysedGroup> analysed;
};

// The precision of a value between two operators: rounded to its tensor's dtype, as separate calls round it, or
// exact, in its compute dtype (as inside one operator).
enum class Between : uint8_t { rounded, exact };
std::vector<Step> fuse(const graph::Graph& g, Between between = Between::rounded);

// The definition of one call (kinds pointwise and loop), with operands as slots and the sizes of the traced
// arguments. Broadcasting and promotion casts are explicit.
loop::Definition lower(const op::Operator& op, std::span<const op::Value> args);

}  // namespace facula::schedule
