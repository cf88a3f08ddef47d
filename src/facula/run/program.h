// Program: a functional graph made executable. Fused once (schedule/fuse.h); a plan for each concrete layout
// of the inputs is made on first use and kept: allocations, kernels with their parameters, library calls,
// views.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "facula/backend/backend.h"
#include "facula/graph/graph.h"
#include "facula/tensor/kept.h"

namespace facula::run {

class Plan;

// A traced call; one serves all calls of equal attributes, dtypes and ranks whose operands it accepts.
class TracedCall {
 public:
  virtual ~TracedCall() = default;
  // Whether the assumptions of the trace hold: pinned sizes, layouts, guards.
  virtual bool accepts(std::span<const op::Value> operands) const = 0;
};

class Program final : public TracedCall {
 public:
  // `name` is the operator as users write it: errors of kernels carry it. `keeper`: for whom the
  // memory that a run needs is kept for the next one.
  Program(graph::Graph g, std::string name, std::shared_ptr<const Keeper> keeper = {});
  ~Program() override;
  // Runs on eager inputs: tensors, and Scalars for the inputs that are numbers. `out` may give destinations
  // by output number (undefined: allocated). Mutated inputs are written in place. Throws what the operators
  // throw.
  op::Results run(std::span<const op::Value> inputs, std::span<const Tensor> out = {}) const;
  bool accepts(std::span<const op::Value> inputs) const override;
  // The sizes of output `k` for inputs that it accepts.
  Dims output_sizes(size_t k, std::span<const op::Value> inputs) const;
  // run() in two steps, for callers that keep the plan: it serves every call with equal layouts.
  std::shared_ptr<const Plan> plan(std::span<const op::Value> inputs, std::span<const Tensor> out) const;
  // The plan for inputs that are their memory in a row, if it also serves tensors of any shape and order that
  // lie so: kernels alone, element by element, which write in place. Else null.
  std::shared_ptr<const Plan> plan_of_elements(std::span<const op::Value> inputs) const;
  // Plans for inputs of the sizes that follow when `like` are the inputs of `of`, a graph over the same symbols, so that
  // the kernels are there when such inputs come. For a thread of its own; empty if they do not follow.
  std::function<void()> preparation(std::span<const op::Value> like, const graph::Graph& of) const;
  // `logical`: all of them are known to lie in the logical layout.
  op::Results execute(const Plan& plan, std::span<const op::Value> inputs, std::span<const Tensor> out,
                      bool logical = false) const;
  const graph::Graph& graph() const;
  // May its only result be written over input `i`? If one kernel reads of that what it writes next, or
  // scatters onto it.
  bool writes_onto(size_t i) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace facula::run
