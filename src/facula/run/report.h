// A readable account of a program: its steps, the calls in each, and the memory in use at each.
#pragma once
#include <string>
#include <vector>

#include "facula/graph/graph.h"

namespace facula::run {

struct StepReport {
  const char* kind;                // kernel, view, library
  std::string calls;               // operators in order, "mul+sum"
  std::vector<int> reads, writes;  // value numbers
  // Bytes that the step allocates, and that are in use while it runs, without inputs and captured tensors.
  size_t allocates = 0, alive = 0;
  std::string text() const;  // "kernel mul+sum: %0, %1 -> %3"
};

struct Report {
  std::vector<StepReport> steps;
  // Bytes of the arena, and the peak of a run. The bytes in use at the steps are a lower bound of the peak.
  size_t arena = 0, taken = 0;
};
// The report for the sizes of the trace. Makes the plan and its kernels, which later calls of these sizes use.
Report report(graph::Graph g, const std::string& name);

}  // namespace facula::run
