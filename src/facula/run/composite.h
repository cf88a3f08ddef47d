// Composites that need a gradient: the joint forward and backward graph, partitioned by what is worth saving,
// as two programs and one node of the tape.
#pragma once
#include "facula/graph/trace.h"
#include "facula/op/operator.h"
#include "facula/run/key.h"
#include "facula/tensor/kept.h"

namespace facula::run {

// The body of a composite that is a graph. Of a piece of a graph some sizes vary from call to call: those that are symbols
// there. A trace takes these for symbols, if they are not 0 or 1, and all others as they are.
class GraphBody {
 public:
  using Run = std::function<op::Results(const op::Call&)>;
  // `keeper`: for whom the memory that a run needs is kept for the next one.
  GraphBody(const graph::Graph* g, bool is_piece, std::shared_ptr<const Keeper> keeper, Run run)
      : graph_(g), is_piece_(is_piece), keeper_(std::move(keeper)), run_(std::move(run)) {}
  op::Results operator()(const op::Call& c) const { return run_(c); }
  bool is_piece() const { return is_piece_; }
  std::vector<graph::InputSpec> specs(std::span<const op::Value> operands, sym::Shapes& shapes) const;
  bool writes() const { return !graph_->mutated.empty(); }  // operands
  const std::shared_ptr<const Keeper>& keeper() const { return keeper_; }

 private:
  const graph::Graph* graph_;
  bool is_piece_;
  std::shared_ptr<const Keeper> keeper_;
  Run run_;
};
// Null: it is another's.
inline const GraphBody* graph_body(const op::Operator& o) {
  auto* composite = o.as<op::Composite>();
  return composite ? composite->body.target<GraphBody>() : nullptr;
}
// Of what an operator's programs need; null: it serves others in between.
inline std::shared_ptr<const Keeper> keeper_of(const op::Operator& o) {
  auto* body = graph_body(o);
  return body ? body->keeper() : nullptr;
}

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
