#include "facula/run/graph_body.h"

#include <string>
#include <unordered_map>

#include "facula/sym/substitute.h"

namespace facula::run {

using op::Value;

namespace {

// The sizes of a segment's operands over symbols of another trace: a symbol for each symbol of the segment's graph.
class SegmentSizes {
 public:
  SegmentSizes(const sym::Shapes& of_graph, sym::Shapes& shapes)
      : shapes_(shapes), has_symbol_(size_t(of_graph.symbol_count())) {
    for (int k = 0; k < of_graph.symbol_count(); ++k) symbols_.push_back(of_graph.symbol(k));
  }
  // Notes that a size which the graph knows as the symbol `e` is `n`.
  void note(SymInt e, int64_t n) {
    if (!e.is_symbol()) return;
    symbols_[size_t(e.node()->value)] = symbol(e, n);
    has_symbol_[size_t(e.node()->value)] = true;
  }
  // The size that the graph knows as `e`, and that is `n`.
  SymInt size(SymInt e, int64_t n) {
    if (!e.is_symbolic()) return SymInt(n);
    if (e.is_symbol()) return symbols_[size_t(e.node()->value)];
    bool follows = true;
    sym::each_symbol(e, [&](size_t k) { follows &= has_symbol_[k]; });
    return follows ? sym::substitute(e, symbols_) : symbol(e, n);
  }

 private:
  SymInt symbol(SymInt e, int64_t n) {
    auto it = of_expression_.find(e.identity());
    if (it != of_expression_.end() && it->second.hint() == n) return it->second;
    SymInt s = n < 2 ? SymInt(n) : shapes_.fresh("s" + std::to_string(shapes_.symbol_count()), n);
    return of_expression_[e.identity()] = s;
  }
  sym::Shapes& shapes_;
  std::vector<SymInt> symbols_;  // by number of the graph's symbol
  std::vector<bool> has_symbol_;
  std::unordered_map<uint64_t, SymInt> of_expression_;
};

}  // namespace

std::vector<graph::InputSpec> GraphBody::specs(std::span<const Value> operands, sym::Shapes& shapes) const {
  internal_check(operands.size() == graph_->inputs.size()) << "other operands than the graph has";
  SegmentSizes sizes(*graph_->shapes, shapes);
  auto each_size = [&](auto&& f) {
    for (size_t i = 0; i < operands.size(); ++i) {
      auto expected = graph_->inputs[i]->tensor.sizes();
      for (size_t d = 0; d < expected.size(); ++d) f(i, expected[d], operands[i].tensor->sizes[d].hint());
    }
  };
  each_size([&](size_t, SymInt e, int64_t n) { sizes.note(e, n); });
  std::vector<Dims> of_operand(operands.size());
  each_size([&](size_t i, SymInt e, int64_t n) { of_operand[i].push_back(sizes.size(e, n)); });
  std::vector<graph::InputSpec> all;
  for (size_t i = 0; i < operands.size(); ++i)
    all.push_back(
        graph::spec_with(Tensor(Ref<TensorImpl>::share(operands[i].tensor)), std::move(of_operand[i])));
  return all;
}

}  // namespace facula::run
