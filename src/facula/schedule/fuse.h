// From a functional graph to steps: groups (fused kernels), views, library and data-dependent calls.
//   Vertical: a consumer that reads a pointwise producer inlines it; a consumer that reads a reduction joins its group
//   when the reduction's rows are its own rows. Horizontal: reductions over the same rows of the same input share a
//   sweep. A producer used by several groups is recomputed if cheap, else materialised.
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
  // What programs know of a kernel's group besides: run::treats_each_element_alone, schedule::analysed.
  bool each_element_alone = false;
  std::shared_ptr<const AnalysedGroup> analysed;
};

// What a value between two operators is: rounded to its tensor's dtype, as calls one by one round it, or as
// precise as it is computed, float32 for float16 and bfloat16 (the inside of one operator).
enum class Between : uint8_t { rounded, exact };
std::vector<Step> fuse(const graph::Graph& g, Between between = Between::rounded);

// The definition of one call (kinds pointwise and loop), with the operands as slots and sizes as in the
// traced arguments. Broadcasting and promotion casts are made explicit.
loop::Definition lower(const op::Operator& op, std::span<const op::Value> args);

}  // namespace facula::schedule
