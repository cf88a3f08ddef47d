// The body of a composite that was made of a graph: a traced program, or one segment of it.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "facula/graph/trace.h"
#include "facula/op/operator.h"
#include "facula/tensor/retained_block.h"

namespace facula::run {

class GraphBody {
 public:
  using Run = std::function<op::Results(const op::Call&)>;
  // `is_piece`: a segment, some of whose sizes vary from call to call. `keeper`: retains the memory of a run for the next one.
  GraphBody(const graph::Graph* g, bool is_piece, std::shared_ptr<const Keeper> keeper, Run run)
      : graph_(g), is_piece_(is_piece), keeper_(std::move(keeper)), run_(std::move(run)) {}
  op::Results operator()(const op::Call& c) const { return run_(c); }
  bool is_piece() const { return is_piece_; }
  // The inputs under which a trace of a segment sees these operands. Sizes that are symbols of the graph are symbols of
  // `shapes`, unless they are 0 or 1; all other sizes are constants.
  std::vector<graph::InputSpec> specs(std::span<const op::Value> operands, sym::Shapes& shapes) const;
  const graph::Graph& graph() const { return *graph_; }
  bool writes() const { return !graph_->mutated.empty(); }  // to operands
  const std::shared_ptr<const Keeper>& keeper() const { return keeper_; }

 private:
  const graph::Graph* graph_;
  bool is_piece_;
  std::shared_ptr<const Keeper> keeper_;
  Run run_;
};

// Null if the operator has another body.
inline const GraphBody* graph_body(const op::Operator& o) {
  auto* composite = o.as<op::Composite>();
  return composite ? composite->body.target<GraphBody>() : nullptr;
}
// Retains the memory that programs of the operator need between runs; null: other programs may use it meanwhile.
inline std::shared_ptr<const Keeper> keeper_of(const op::Operator& o) {
  auto* body = graph_body(o);
  return body ? body->keeper() : nullptr;
}

}  // namespace facula::run
