// While a user's function is traced (graph::capture), tensors have no data and the tape is empty: what the tape would do
// is done by the trace.
#pragma once
#include <span>
#include <vector>

#include "facula/tensor/tensor.h"

namespace facula::autograd {

class Tracing {
 public:
  virtual ~Tracing() = default;
  // Before the gradient slot of `leaf` is looked at, and before it gets another tensor, or none.
  virtual void slot_is_read(const Tensor& leaf) = 0;
  virtual void slot_changes(const Tensor& leaf) = 0;
  // Gradients of traced tensors; undefined where there is none. `seeds`: as long as `outputs`, all defined.
  virtual std::vector<Tensor> gradients(const char* op, std::span<const Tensor> outputs,
                                        std::span<const Tensor> seeds, std::span<const Tensor> inputs,
                                        bool create_graph) = 0;
  // Sums gradients into the slots of the leaves that were read so far, or of `inputs` alone.
  virtual void backward(std::span<const Tensor> outputs, std::span<const Tensor> seeds,
                        std::span<const Tensor> inputs, bool create_graph) = 0;

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
