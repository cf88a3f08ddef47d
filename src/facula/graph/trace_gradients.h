// Replaces the tape while a user's function is traced.
#pragma once
#include <unordered_map>
#include <vector>

#include "facula/autograd/autograd.h"
#include "facula/graph/tracer.h"

namespace facula::graph {

// Records the gradients of a user's function as calls of the graph, and tracks the contents of gradient slots.
class Gradients final : public autograd::Tracing {
 public:
  Gradients(Tracer& t, Graph* g, std::vector<Tensor> arguments)
      : tracer_(t), graph_(g), arguments_(std::move(arguments)) {
    for (auto& x : arguments_) required_.push_back(x.requires_grad());
  }
  ~Gradients() {
    for (auto& s : slots_)
      if (s.argument < 0) set_slot(s.leaf, s.before);
  }
  void enter(autograd::TracedFunction& call) override { tracer_.enter(call); }
  std::vector<Tensor> function(autograd::TracedFunction& call) override { return tracer_.function(call); }
  bool in_backward() const override { return tracer_.in_backward(); }
  void computes_view(const Tensor& result, const Tensor& of) override { tracer_.computes_view(result, of); }
  void slot_is_read(const Tensor& leaf) override { slot_of(leaf, true); }
  void slot_changes(const Tensor& leaf) override { slot_of(leaf, false); }
  std::vector<Tensor> gradients(const char* op, std::span<const Tensor> outputs,
                                std::span<const Tensor> seeds, std::span<const Tensor> inputs,
                                bool create_graph) override;
  void backward(std::span<const Tensor> outputs, std::span<const Tensor> seeds,
                std::span<const Tensor> inputs, bool create_graph) override;

  // Adds the final contents of the slots that the function touched; traced ones become further outputs of the graph.
  void finish(Capture& c);

 private:
  struct Slot {
    int argument;
    Tensor leaf, before;
    bool relied;
  };
  static void set_slot(const Tensor& leaf, const Tensor& grad) { autograd::ensure_meta(leaf).grad = grad; }

  // Remembers what the slot contained before the function touched it.
  void slot_of(const Tensor& leaf, bool reads);

  // The value whose gradient is the leaf's, whatever was written to its memory since.
  Value* leaf_value(const Tensor& t);

  static void check_hooks(const Tensor& leaf);

  std::vector<Tensor> gradients_of(const char* op, std::span<const Tensor> outputs,
                                   std::span<const Tensor> seeds, std::span<Value* const> wrt,
                                   bool create_graph);

  Tracer& tracer_;
  Graph* graph_;
  std::vector<Tensor> arguments_;  // handles of the function's arguments
  // By argument, at the beginning of the function: later writes may give it a history.
  std::vector<bool> required_;
  std::vector<Slot> slots_;
  std::unordered_map<const TensorImpl*, size_t> slot_numbers_;
  bool differentiates_ = false;
};

}  // namespace facula::graph
