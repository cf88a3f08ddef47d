// What a program does, for people: its steps with the calls in them, and the memory that it holds meanwhile.
#pragma once
#include <string>
#include <vector>

#include "facula/graph/graph.h"

namespace facula::run {

struct StepReport {
  const char* kind;                // kernel, view, library
  std::string calls;               // operators in their order, "mul+sum"
  std::vector<int> reads, writes;  // numbers of values
  // Bytes that it allocates, and that the program holds while it runs, inputs and captured tensors aside.
  size_t allocates = 0, alive = 0;
  std::string text() const;  // "kernel mul+sum: %0, %1 -> %3"
};

struct Report {
  std::vector<StepReport> steps;
  // Bytes of the block in which values lie that do not live at the same time, and the most that a run takes, of that block
  // and others. What the steps hold is a lower bound of it.
  size_t arena = 0, taken = 0;
};
// Of the graph with the sizes that it was traced with. Makes the plan and its kernels, which calls of such sizes take.
Report report(graph::Graph g, const std::string& name);

}  // namespace facula::run
