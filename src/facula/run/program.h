// Program: an executable functional graph. It is fused once (schedule/fuse.h). Each concrete layout of the inputs gets a plan
// (plan.h) when it is first used, which is cached: allocations, kernels with their parameters, library calls, views.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "facula/device/device.h"
#include "facula/graph/graph.h"
#include "facula/tensor/retained_block.h"

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
  // `name`: the operator as users write it, for errors of kernels. `keeper`: retains the memory of a run for the next one.
  Program(graph::Graph g, std::string name, std::shared_ptr<const Keeper> keeper = {});
  // The same for a graph behind its passes (pipeline::simplify), which is stored on the disk as `stored` (stored_graph.h), if
  // that is not empty.
  struct Simplified {
    graph::Graph graph;
    std::string stored;
  };
  Program(Simplified g, std::string name, std::shared_ptr<const Keeper> keeper = {});
  ~Program() override;
  // Runs on eager inputs: tensors, and Scalars for the inputs that are numbers. `out`, by output number: destinations, or
  // undefined tensors for results to allocate. Mutated inputs are written in place. Raises what the operators raise.
  op::Results run(std::span<const op::Value> inputs, std::span<const Tensor> out = {}) const;
  bool accepts(std::span<const op::Value> inputs) const override;
  // The sizes of output `k` for accepted inputs.
  Dims output_sizes(size_t k, std::span<const op::Value> inputs) const;
  // run() in two steps, for callers that cache the plan, which serves every call with equal layouts.
  std::shared_ptr<const Plan> plan(std::span<const op::Value> inputs, std::span<const Tensor> out) const;
  // The plan for flattened inputs (FlattenedOperands), if it consists of elementwise kernels that write in place, so that it
  // serves dense tensors of any shape; else null.
  std::shared_ptr<const Plan> plan_of_elements(std::span<const op::Value> inputs) const;
  // A job that plans this program, and compiles its kernels, for the sizes that follow when `like` are the inputs of `of`, a
  // graph over the same symbols. It may run on another thread. Empty if the sizes do not follow.
  std::function<void()> preparation(std::span<const op::Value> like, const graph::Graph& of) const;
  // `logical`: all inputs are known to be in the logical layout.
  op::Results execute(const Plan& plan, std::span<const op::Value> inputs, std::span<const Tensor> out,
                      bool logical = false) const;
  const graph::Graph& graph() const;
  // Whether its only result may be written over input `i`: one kernel reads the input only at the element that it writes next,
  // or scatters onto it.
  bool writes_onto(size_t i) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace facula::run
