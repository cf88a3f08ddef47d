// Averages of models, by the translation of Python's optim.swa_utils: stochastic weight averaging and exponential moving
// averages. SWALR is one of the schedules (lr_scheduler.h).
#pragma once
#include <concepts>
#include <functional>
#include <type_traits>
#include <utility>

#include "facula/autograd/autograd.h"
#include "facula/nn/argument.h"
#include "facula/nn/module.h"

namespace facula::optim {

// Computes the new average of a tensor from the old one, a value, and the number of previous values; by default the mean.
class Average {
 public:
  using Function = std::function<Tensor(const Tensor& average, const Tensor& value, const Tensor& count)>;
  Average() = default;
  explicit Average(io::Value translated) : value_(std::move(translated)) {}
  template <class F>
    requires(std::is_invocable_r_v<Tensor, F, const Tensor&, const Tensor&, const Tensor&>)
  Average(F f) : Average(function_of(Function(std::move(f)))) {}
  operator io::Value() const { return value_; }

 private:
  static io::Value function_of(Function f);
  io::Value value_;
};
Average get_swa_avg_fn();
Average get_ema_avg_fn(double decay = 0.999);  // decay * average + (1 - decay) * value

struct AverageOptions {
  nn::ByName by_name = {};
  Average avg_fn = {};
  bool use_buffers = false;  // averages buffers too; otherwise copies the last model's
};

// AveragedModel without the model's type.
class Averaging : public nn::Module {
 public:
  void update_parameters(const nn::Module& model) const;  // includes a model's parameters in the average

 protected:
  Averaging(const nn::Module& model, const nn::Module& average, const AverageOptions& options);
};

// The average of the models that update_parameters() has seen; it is called like them. It is stored in `module`, another
// model of the same structure, since C++ cannot copy structs of modules: AveragedModel<Net> average(net, Net());
template <std::derived_from<nn::Module> M>
class AveragedModel : public Averaging {
 public:
  AveragedModel(const M& model, M average, AverageOptions options = {})
      : Averaging(model, average, options), module(std::move(average)) {}
  template <class... X>
  auto operator()(X&&... x) const {
    return module(std::forward<X>(x)...);
  }
  M module;
};

// Resets the running statistics of batch norms and collects new ones, in training mode, during its lifetime.
class FreshNorms {
 public:
  explicit FreshNorms(const nn::Module& model);
  ~FreshNorms();
  FreshNorms(const FreshNorms&) = delete;
  FreshNorms& operator=(const FreshNorms&) = delete;
  bool empty() const;

 private:
  nn::Module model_;
  bool training_;
  io::Value norms_;
};

// Recomputes the running statistics of all batch norms by one pass over a loader, whose batches are tensors or begin with
// the model's input.
template <class Loader, std::derived_from<nn::Module> M>
void update_bn(Loader&& loader, const M& model) {
  FreshNorms norms(model);
  if (norms.empty()) return;
  autograd::GradMode off(false);
  for (auto&& batch : loader) {
    if constexpr (std::convertible_to<decltype(batch), const Tensor&>) model(batch);
    else model(std::get<0>(batch));
  }
}

}  // namespace facula::optim
