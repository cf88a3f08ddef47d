// Averages of models, as optim.swa_utils of Python, of which this calls the translation: stochastic weight averaging and
// exponential moving averages. SWALR is among the schedules (lr_scheduler.h).
#pragma once
#include <concepts>
#include <functional>
#include <type_traits>
#include <utility>

#include "facula/autograd/autograd.h"
#include "facula/nn/argument.h"
#include "facula/nn/module.h"

namespace facula::optim {

// The new average of a tensor from the old one, a value, and how many values there were before; the mean unless given.
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
  bool use_buffers = false;  // averages buffers too; else they are the last ones
};

// AveragedModel without the type of its model.
class Averaging : public nn::Module {
 public:
  void update_parameters(const nn::Module& model) const;  // takes a model's parameters into the average

 protected:
  Averaging(const nn::Module& model, const nn::Module& average, const AverageOptions& options);
};

// The average of the models that update_parameters() has seen, called as they are. It lies in `module`, another model of
// the same structure, since C++ copies no structs of modules: AveragedModel<Net> average(net, Net());
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

// Makes running statistics of batch norms those of what the model is called with, until it ends; the model trains meanwhile.
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

// The running statistics of all batch norms become those of one pass over a loader, whose batches are tensors or begin
// with what the model takes.
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
