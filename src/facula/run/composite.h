// Composites that need a gradient: the joint forward and backward graph, partitioned by what is worth saving,
// as two programs and one node of the tape.
#pragma once
#include "facula/graph/trace.h"
#include "facula/run/key.h"

namespace facula::run {

// The body of a composite that is a graph of which some sizes vary from call to call: those that are symbols there. A
// trace takes these for symbols, if they are not 0 or 1, and all others as they are.
class GraphBody {
 public:
  using Run = std::function<op::Results(const op::Call&)>;
  GraphBody(const graph::Graph* g, Run run) : graph_(g), run_(std::move(run)) {}
  op::Results operator()(const op::Call& c) const { return run_(c); }
  std::vector<graph::InputSpec> specs(std::span<const op::Value> operands, sym::Shapes& shapes) const;
  bool writes() const { return !graph_->mutated.empty(); }  // operands

 private:
  const graph::Graph* graph_;
  Run run_;
};

// What a trace of a call depends on besides sizes and strides: attributes, dtypes, ranks, dtypes of
// destinations.
Key trace_key(const op::Operator& o, std::span<const op::Value> args, std::span<const Tensor> out);
// The graph of one call with symbolic sizes; results cast to the dtypes of `out`.
graph::Graph trace_call(const op::Operator& o, std::span<const op::Value> args, std::span<const Tensor> out);

// Runs a fused composite and records it as one node.
op::Results run_composite(const op::Operator& o, std::span<const op::Value> args);
bool wants_gradient(const op::Value& operand);
// composite_again.cpp: records a call of calls that something else has made (below.h) as one node, whose gradient computes what it needs anew
// from the operands.
void record_composite(const op::Operator& o, std::span<const op::Value> args, op::Results& results);

}  // namespace facula::run
