// Replaces the tape while a user's function is traced.
#pragma once
#include <functional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "facula/autograd/autograd.h"
#include "facula/graph/tracer.h"

namespace facula::graph {

// Records the gradients of a user's function as calls of the graph, and tracks the contents of gradient slots. Hooks are
// called while the gradients are recorded, in the order in which the engine of the tape calls them.
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
  std::vector<Tensor> function(autograd::TracedFunction& call) override {
    auto results = tracer_.function(call);
    for (auto& t : results) tracer_.keep(t);
    return results;
  }
  bool in_backward() const override { return tracer_.in_backward(); }
  void computes_view(const Tensor& result, const Tensor& of) override { tracer_.computes_view(result, of); }
  void slot_is_read(const Tensor& leaf) override { slot_of(leaf, true); }
  void slot_changes(const Tensor& leaf) override { slot_of(leaf, false); }
  Ref<autograd::Node> hooks_of(const Tensor& t) override;
  void retain_grad(const Tensor& t) override;
  bool is_leaf(const Tensor& t) const override;
  void becomes_leaf(const Tensor& t) override;
  std::vector<Tensor> gradients(const char* op, std::span<const Tensor> outputs,
                                std::span<const Tensor> seeds, std::span<const Tensor> inputs,
                                bool create_graph) override;
  void backward(std::span<const Tensor> outputs, std::span<const Tensor> seeds,
                std::span<const Tensor> inputs, bool retain_graph, bool create_graph) override;

  // The gradients that the slots of tensors from outside contain now.
  struct Filled {
    Tensor leaf, grad;
  };
  std::vector<Filled> filled() const;
  // The slots of tensors from outside that were read or changed, and what they contained before. `relied`: the
  // contents were read.
  struct Used {
    Tensor leaf, before;
    bool relied;
  };
  std::vector<Used> used() const;

  // Lets backward passes fill slots when all gradients have been recorded, so that a break before leaves the slots alone.
  void fill_slots_last() { fills_last_ = true; }
  // Whether the function has changed the gradient slot of a tensor from outside, so that its contents are the function's.
  bool has_changed_slot(const Tensor& leaf) const;

  // Refuses results that have a history which the function's backward passes have not spent: these results have none.
  void check_histories_spent(std::span<const Tensor> results) const;
  // Refuses hooks that a backward pass through one of these results would have to call.
  void check_results(std::span<const Tensor> results) const;
  // Refuses a backward pass from `outputs` that eager mode would refuse, because the user has written what it needs since.
  void check_saved(const char* op, std::span<const Tensor> outputs) const;
  // Adds the final contents of the slots that the function touched; traced ones become further outputs of the graph.
  // `outside`: the tensors from outside that are inputs behind the arguments, with the numbers of these inputs.
  using InputNumbers = std::unordered_map<const TensorImpl*, int>;
  void finish(Capture& c, const InputNumbers& outside);

 private:
  class Pass;
  struct Slot {
    int argument;
    Tensor leaf, before;
    bool relied;
    uint64_t hooks;
    bool is_late;  // a call before it may raise an error about elements
  };
  struct Retained {
    Tensor tensor;
    Ref<autograd::RetainedGrad> into;
  };
  static void set_slot(const Tensor& leaf, const Tensor& grad) { autograd::ensure_meta(leaf).grad = grad; }

  // Remembers what the slot contained before the function touched it.
  void slot_of(const Tensor& leaf, bool reads);
  std::vector<Value*> roots_of(std::span<const Tensor> outputs) const;
  // Marks the history of these tensors, as eager mode frees what it has saved.
  void spend(std::span<const Tensor> outputs);
  // Whether a leaf can be reached from a value without a value whose history is spent. `depends`: see depend_on_leaves().
  bool has_history_left(Value* v, const std::vector<bool>& depends) const;
  // The value whose gradient is the leaf's, whatever was written to its memory since.
  Value* leaf_value(const Tensor& t) const;
  bool may_refuse_before_now();
  int argument_of(const Tensor& t) const;
  // The tensors whose gradient slots a backward pass fills.
  std::vector<Tensor> leaves() const;
  // By value: whether it depends on one of them through calls that carry gradients.
  std::vector<bool> depend_on_leaves() const;
  void accumulate(const Tensor& leaf, const Tensor& gradient);
  // Whether a slot may take a gradient as it is, as eager mode does where nothing else refers to the memory and the elements do not
  // share any. If so, the memory is the slot's from here on.
  bool takes_memory_of(const Tensor& gradient);
  void mark_referenced(const Tensor& gradient);  // behind a hook that has seen it
  void check_leaf(const Tensor& leaf) const;
  void check_histories(const char* op, std::span<const Tensor> outputs, std::span<Value* const> wrt);
  void check_order(std::span<Value* const> wrt) const;
  // The gradients of `wrt`. `ready` is called with the number of each when it is complete, in the engine's order.
  std::vector<Tensor> gradients_of(const char* op, std::span<const Tensor> outputs,
                                   std::span<const Tensor> seeds, std::span<Value* const> wrt,
                                   bool create_graph, const std::function<void(size_t, Tensor)>& ready = {});

  Tracer& tracer_;
  Graph* graph_;
  std::vector<Tensor> arguments_;  // handles of the function's arguments
  // By argument, at the beginning of the function: later writes may give it a history.
  std::vector<bool> required_;
  std::vector<Slot> slots_;
  size_t examined_ = 0;  // calls, by may_refuse_before_now()
  bool may_refuse_ = false;
  std::unordered_map<const TensorImpl*, size_t> slot_numbers_;
  std::unordered_map<const Value*, Ref<autograd::Node>> hooks_;
  std::vector<Retained> retained_;
  std::vector<std::pair<Tensor, Value*>>
      own_leaves_;                          // leaves that the function has made, and their first values
  std::unordered_set<const Value*> spent_;  // values whose history a pass has freed
  std::unordered_set<const Value*>
      referred_;           // first values of the memory of slots, and of gradients that hooks have kept
  size_t pass_begin_ = 0;  // the number of calls before the backward pass that runs
  bool differentiates_ = false, fills_last_ = false;
  bool is_passing_ = false;  // a backward pass has gradients that it has not put into slots
};

}  // namespace facula::graph
