// Accumulator: the node at a leaf, which sums incoming gradients into the leaf's .grad. The leaf owns it; the
// edges that lead here keep the leaf alive.
#pragma once
#include <mutex>

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

}  // namespace facula::autograd
