// While a user's function is traced (graph::capture), tensors have no data and the tape is empty: what the tape would do
// is done by the trace.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "facula/autograd/node.h"

namespace facula::autograd {

// A call of a custom function, as its forward and its context leave it to a trace.
struct TracedFunction {
  std::string name;
  std::vector<Tensor> inputs;  // tensor arguments of forward, in order
  std::vector<bool> needs;     // by input: does it require a gradient?
  // Known when forward has run.
  std::vector<Tensor> outputs;       // undefined: no tensor
  std::vector<bool> carries, dirty;  // by output: has it a gradient; is it an input that was written?
  bool materialize = true;           // gradients that do not arrive are zeros
  // Gradients by input from those by output (undefined: none), as backward gives them if these inputs need one.
  std::function<std::vector<Tensor>(std::vector<Tensor> grads, const std::vector<bool>& needs)> backward;
  // Told what callers get for `outputs`, before backward is called; gives what was saved for it.
  std::function<std::vector<Tensor>(const std::vector<Tensor>& results)> attach;
  // Set by the trace: the inputs before forward, and the number of calls recorded before it.
  std::vector<Tensor> at_entry;
  size_t begun = 0;
};

class Tracing {
 public:
  virtual ~Tracing() = default;
  // Around the forward of a custom function, which runs with history off: its gradient becomes a part of the trace,
  // which calls `backward` right away. Gives the results as callers get them.
  virtual void enter(TracedFunction& call) = 0;
  virtual std::vector<Tensor> function(TracedFunction& call) = 0;
  // Whether the backward of a custom function is being traced.
  virtual bool in_backward() const = 0;
  // Before the gradient slot of `leaf` is looked at, and before it gets another tensor, or none.
  virtual void slot_is_read(const Tensor& leaf) = 0;
  virtual void slot_changes(const Tensor& leaf) = 0;
  // Gradients of traced tensors; undefined where there is none. `seeds`: as long as `outputs`, all defined.
  virtual std::vector<Tensor> gradients(const char* op, std::span<const Tensor> outputs,
                                        std::span<const Tensor> seeds, std::span<const Tensor> inputs,
                                        bool create_graph) = 0;
  // Sums gradients into the slots of the leaves that were read so far, or of `inputs` alone.
  virtual void backward(std::span<const Tensor> outputs, std::span<const Tensor> seeds,
                        std::span<const Tensor> inputs, bool retain_graph, bool create_graph) = 0;

  // The hooks of a traced tensor, and its retained gradient: a node that has nothing else.
  virtual Ref<Node> hooks_of(const Tensor& t) = 0;
  virtual void retain_grad(const Tensor& t) = 0;
  // Whether a traced tensor is a leaf; and before it becomes one that requires gradients.
  virtual bool is_leaf(const Tensor& t) const = 0;
  virtual void becomes_leaf(const Tensor& t) = 0;

  // `result` is computed, where eager gives a view of the memory of `of` (conj()): neither may be written from here on.
  virtual void computes_view(const Tensor& result, const Tensor& of) = 0;

  static Tracing* current();  // of the thread; null: none
  class With {
   public:
    explicit With(Tracing* t);
    ~With();

   private:
    Tracing* outer_;
  };
};

}  // namespace facula::autograd
