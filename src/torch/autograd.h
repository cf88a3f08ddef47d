// torch::autograd: grad, backward, and Function, a custom function with PyTorch's conventions, on
// facula/autograd/function.h.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "torch/ivalue.h"
#include "torch/types.h"

namespace torch::autograd {

using Variable = Tensor;
using tensor_list = std::vector<Tensor>;
using variable_list = tensor_list;

// Gradients of `outputs` with respect to `inputs`; nothing is summed into .grad. An output of several elements needs its
// gradient in `grad_outputs`. An input that is not reached raises, or with `allow_unused` its gradient is undefined.
inline variable_list grad(const variable_list& outputs, const variable_list& inputs,
                          const variable_list& grad_outputs = {},
                          std::optional<bool> retain_graph = std::nullopt, bool create_graph = false,
                          bool allow_unused = false) {
  std::vector<facula::Tensor> grads = detail::plain(grad_outputs);
  grads.resize(outputs.size());
  return detail::as_torch<Tensor>(facula::autograd::grad(detail::plain(outputs), detail::plain(inputs), grads,
                                                         retain_graph.value_or(create_graph), create_graph,
                                                         allow_unused));
}
// Sums gradients of `tensors` into the .grad of leaves, or of `inputs` alone.
inline void backward(const variable_list& tensors, const variable_list& grad_tensors = {},
                     std::optional<bool> retain_graph = std::nullopt, bool create_graph = false,
                     const variable_list& inputs = {}) {
  std::vector<facula::Tensor> grads = detail::plain(grad_tensors);
  grads.resize(tensors.size());
  facula::autograd::backward(detail::plain(tensors), grads, retain_graph.value_or(create_graph), create_graph,
                             detail::plain(inputs));
}

// The values that forward saves for backward.
class AutogradContext {
 public:
  explicit AutogradContext(facula::autograd::FunctionNode& node) : node_(node) {}
  void save_for_backward(const tensor_list& tensors) { node_.save_for_backward(detail::plain(tensors)); }
  tensor_list get_saved_variables() const { return detail::as_torch<Tensor>(node_.saved()); }
  void mark_dirty(const tensor_list& inputs) { node_.mark_dirty(detail::plain(inputs)); }
  void mark_non_differentiable(const tensor_list& outputs) {
    node_.mark_non_differentiable(detail::plain(outputs));
  }
  void set_materialize_grads(bool on) { node_.set_materialize_grads(on); }
  // Whether argument k of forward, a tensor, requires a gradient.
  bool needs_input_grad(size_t k) const {
    return k < tensor_of.size() && tensor_of[k] >= 0 && node_.needs_input_grad(size_t(tensor_of[k]));
  }
  std::map<std::string, c10::IValue> saved_data;
  std::vector<int> tensor_of;  // by argument: the number of the tensor, -1: none

 private:
  facula::autograd::FunctionNode& node_;
};

// A struct F : Function<F> with static forward(AutogradContext*, ...) and backward(AutogradContext*, tensor_list), which
// gives one gradient for each argument of forward, undefined for what is no tensor.
template <class F>
struct Function {
  template <class... A>
  static auto apply(A&&... arguments) {
    using Result =
        decltype(F::forward(static_cast<AutogradContext*>(nullptr), std::forward<A>(arguments)...));
    std::vector<facula::Tensor> inputs;
    std::vector<int> tensor_of;
    (collect(inputs, tensor_of, arguments), ...);
    auto node = facula::make_ref<facula::autograd::FunctionNode>("Function", std::move(inputs));
    auto context = std::make_shared<AutogradContext>(*node);
    context->tensor_of = std::move(tensor_of);
    node->backward = [context](std::vector<facula::Tensor> grads) {
      tensor_list all = F::backward(context.get(), detail::as_torch<Tensor>(std::move(grads)));
      size_t arguments = context->tensor_of.size();
      while (all.size() > arguments && !all.back().defined()) all.pop_back();  // of default arguments
      user_check(all.size() == arguments, "Function")
          << "backward gave " << all.size() << " gradients for " << arguments
          << " arguments of forward; it gives one for each, undefined for what is no tensor";
      std::vector<facula::Tensor> of_tensors;
      for (size_t k = 0; k < all.size(); ++k)
        if (context->tensor_of[k] >= 0) of_tensors.push_back(all[k]);
      return of_tensors;
    };
    if constexpr (std::is_same_v<Result, tensor_list>) {
      tensor_list results;
      {
        facula::NoGrad off;
        results = F::forward(context.get(), std::forward<A>(arguments)...);
      }
      return detail::as_torch<Tensor>(node->finish(detail::plain(results)));
    } else {
      Tensor results;
      {
        facula::NoGrad off;
        results = F::forward(context.get(), std::forward<A>(arguments)...);
      }
      return Tensor(node->finish({results})[0]);
    }
  }

 private:
  template <class T>
  static void collect(std::vector<facula::Tensor>& inputs, std::vector<int>& tensor_of, const T& x) {
    if constexpr (std::is_convertible_v<const T&, facula::Tensor>) {
      tensor_of.push_back(int(inputs.size()));
      inputs.push_back(x);
    } else tensor_of.push_back(-1);
  }
};

}  // namespace torch::autograd
