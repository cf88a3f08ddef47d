// A recording of operator calls as one graph. It can be suspended and resumed, so that a function can be traced from
// outside of it, call by call. trace() and capture() (trace.h) record a whole function by it.
//   Recording r(shapes, {}, &c);
//   { Recording::Active on(r); y = x * 2; }      // x is a tensor from outside: it becomes an input of the graph
//   { Recording::Active on(r); Graph g = r.finish({y}); }
#pragma once
#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "facula/graph/trace_gradients.h"
#include "facula/graph/tracer.h"

namespace facula::graph {

// While it lives, the next recording of a user's function may read values of the active recording, as tensors from
// outside: for functions of control flow (python/facula/_higher_order_ops).
class ReadsEnclosing {
 public:
  ReadsEnclosing();
  ~ReadsEnclosing();

 private:
  bool outer_;
};

class Recording {
 public:
  // `capture`: set for a function of users, whose gradients are recorded too and which may read tensors from outside;
  // finish() fills it. The inputs become arguments.
  Recording(std::shared_ptr<sym::Shapes> shapes, std::span<const InputSpec> inputs, Capture* capture);
  Recording(const Recording&) = delete;

  // While it lives, calls of the thread are recorded.
  class Active {
   public:
    explicit Active(Recording& r);
    ~Active();

   private:
    Recording& recording_;
    Recording* outer_;
    Tracer::Observed host_;
    std::optional<KeepRules> rules_;
    At place_;
    sym::Shapes::With symbols_;
    op::Mode::With on_;
    autograd::Tracing::With tape_;
  };

  // The recording of a user's function on this thread, the innermost active one; null: none.
  static Recording* current();

  std::span<const Tensor> arguments() const { return arguments_; }
  // Makes a tensor from outside an input of the graph in front of those that are captured when they are read. A second
  // call for the same tensor gives the same number and ignores `spec`.
  size_t outside(const Tensor& t, const InputSpec& spec);
  // The handle of a number, a tensor of rank 0 from outside that promotes like a number, as an input.
  Tensor number(const Tensor& t);
  Value* outside_value(size_t number) const { return outside_values_[number]; }
  bool is_outside(const Value* v) const {
    return std::find(outside_values_.begin(), outside_values_.end(), v) != outside_values_.end();
  }
  const std::vector<Tensor>& outside() const { return outside_; }

  // Sets a function that finish() calls with each call whose results nobody reads, so that no program will contain it.
  void on_unread(std::function<void(const Node&)> f) { on_unread_ = std::move(f); }

  // Ends the recording, whose results are these tensors. It has to be active.
  Graph finish(std::span<const Tensor> results);
  // Removes the calls from number `first` on if one of them draws random numbers. Nothing may read or have written what they compute.
  void take_back_draws(size_t first);

  Tracer& tracer() { return tracer_; }
  Gradients& gradients() { return *gradients_; }
  Graph& graph() { return graph_; }

 private:
  void give_inputs();
  void list_writes();
  // Makes outputs of results that nobody reads, of calls that may refuse elements: their errors are the function's.
  void keep_checks();

  Graph graph_;
  Capture* capture_;
  Tracer tracer_;
  std::function<void(const Node&)> on_unread_;
  std::vector<Tensor> arguments_;
  std::optional<Gradients> gradients_;
  std::vector<Tensor> outside_;
  std::vector<Value*> outside_values_;
  Gradients::InputNumbers outside_numbers_;
  Place at_;                                    // of the calls that follow
  std::vector<std::unique_ptr<Node>> removed_;  // the tracer may know them
};

}  // namespace facula::graph
