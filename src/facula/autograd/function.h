// Custom functions: a forward computation with a backward of one's own.
//
//   struct Square {
//     static std::vector<Tensor> forward(Context& c, const Tensor& x) { c.save_for_backward({x}); return {mul(x, x)}; }
//     static std::vector<Tensor> backward(Context& c, std::vector<Tensor> grads) { return {mul(mul(grads[0], c.saved()[0]), 2)}; }
//   };
//   Tensor y = autograd::run<Square>(x)[0];
//
// backward gives one gradient for each Tensor argument of forward, in order; undefined: none.
#pragma once
#include <optional>
#include <type_traits>

#include "facula/autograd/autograd.h"
#include "facula/autograd/tracing.h"

namespace facula::autograd {

// The node of a custom function, also of Python's. Its callable may hold what it likes; it is dropped with
// the node.
class FunctionNode : public Node {
 public:
  FunctionNode(std::string name, std::vector<Tensor> inputs);
  std::vector<Tensor> apply(std::vector<Tensor> grads, bool create_graph) override;
  std::string own_name() const override { return name_; }
  void release_saved() override;
  void each_saved(const std::function<void(Saved&)>& f) override {
    for (auto& s : saved_) f(s);
  }

  std::function<std::vector<Tensor>(std::vector<Tensor> grads)> backward;

  // For use in forward.
  void save_for_backward(std::vector<Tensor> tensors) { to_save_ = std::move(tensors); }
  std::vector<Tensor> saved();  // in backward
  void mark_dirty(std::vector<Tensor> inputs) { dirty_ = std::move(inputs); }
  void mark_non_differentiable(std::vector<Tensor> outputs) { non_differentiable_ = std::move(outputs); }
  void set_materialize_grads(bool on) { materialize_ = on; }
  bool needs_input_grad(size_t k) const {
    return k < wanted_.size() && wanted_[k] && (!applying_ || needs(k));
  }

  // After forward: attaches the node to `outputs`, as PyTorch does: an input given back becomes a view of
  // itself, a dirty one takes the new history, integers and marked outputs carry none.
  std::vector<Tensor> finish(std::vector<Tensor> outputs);

 private:
  std::vector<Tensor> finish_traced(std::vector<Tensor> outputs);
  std::string name_;
  std::optional<TracedFunction> traced_;  // a trace looks on: nothing is recorded on the tape
  std::vector<Tensor> inputs_, to_save_, dirty_, non_differentiable_;  // until finish
  std::vector<bool> wanted_;
  std::vector<Saved> saved_;
  bool materialize_ = true, released_ = false, recording_ = false, applying_ = false;
};
using Context = FunctionNode;

namespace detail {
template <class T>
void collect(std::vector<Tensor>& into, const T& x) {
  if constexpr (std::is_same_v<T, Tensor>) into.push_back(x);
  else if constexpr (std::is_same_v<T, std::vector<Tensor>>) into.insert(into.end(), x.begin(), x.end());
}
}  // namespace detail

template <class F, class... A>
std::vector<Tensor> run(const A&... args) {
  std::vector<Tensor> inputs;
  (detail::collect(inputs, args), ...);
  auto node = make_ref<FunctionNode>("Function", std::move(inputs));
  FunctionNode* n = node.get();
  node->backward = [n](std::vector<Tensor> grads) { return F::backward(*n, std::move(grads)); };
  std::vector<Tensor> outputs;
  {
    GradMode off(false);
    outputs = F::forward(*node, args...);
  }
  return node->finish(std::move(outputs));
}

}  // namespace facula::autograd
