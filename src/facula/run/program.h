// Program: a functional graph made executable. Fused once (schedule/fuse.h); a plan for each concrete layout of the
// inputs is made on first use and kept: allocations, kernels with their parameters, library calls, views.
#pragma once
#include <memory>
#include <string>

#include "facula/graph/graph.h"

namespace facula::run {

class Program {
 public:
  explicit Program(graph::Graph g, std::string name);
  ~Program();
  // Runs on eager inputs (numbers as Values). `out` may give destinations by output number (undefined: allocated).
  // Mutated inputs are written in place. Throws what the operators throw.
  std::vector<Tensor> run(std::span<const op::Value> inputs, std::span<const Tensor> out = {}) const;
  // Do the guards of the trace hold for these inputs?
  bool accepts(std::span<const op::Value> inputs) const;
  const graph::Graph& graph() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace facula::run
