// Accumulator: the node at a leaf, which sums incoming gradients into the leaf's .grad. The leaf owns it; the
// edges that lead here keep the leaf alive.
#pragma once
#include <mutex>
#include <optional>

#include "facula/autograd/node.h"

namespace facula::autograd {

class Accumulator final : public Node, public detail::Recycled<Accumulator> {
 public:
  explicit Accumulator(const Tensor& leaf);
  std::vector<Tensor> apply(std::vector<Tensor> grads, bool create_graph) override;
  std::string own_name() const override { return "AccumulateGrad"; }
  bool is_accumulator() const override { return true; }
  Tensor leaf() const;  // undefined when the leaf is gone
  void forget();        // the leaf goes
  // The dtype that the user asked for the gradient to have; none: the dtype of the incoming gradient.
  struct OwnDType {
    std::optional<DType> dtype;
  };
  std::optional<OwnDType> own_dtype;
  struct AfterHook {
    int id;
    std::function<void(const Tensor&)> run;
    void* foreign;
  };
  std::vector<AfterHook> after;  // called with the leaf once it has its gradient

 private:
  mutable std::mutex mutex_;
  TensorImpl* leaf_;
};

// A number for the set of hooks of a leaf, 0 if it has none: equal as long as none is added or removed.
uint64_t hooks_digest(const Tensor& leaf);

// The dtype of a leaf's gradient, its own unless it was set; none: any.
std::optional<DType> grad_dtype(const Tensor& leaf);
void set_grad_dtype(const Tensor& leaf, std::optional<DType> dtype);

}  // namespace facula::autograd
