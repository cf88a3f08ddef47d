// The base of the optimizers of torch/optim/optimizers.h: facula::optim with PyTorch's names.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "facula/optim/listed.h"
#include "facula/optim/lr_scheduler.h"
#include "torch/value.h"

namespace torch::optim {

class Optimizer;

// Settings of an optimizer: of one that is to be made, or of a group of parameters, where setters take effect at once.
class OptimizerOptions {
 public:
  virtual ~OptimizerOptions() = default;
  virtual std::unique_ptr<OptimizerOptions> clone() const {
    return std::make_unique<OptimizerOptions>(*this);
  }
  double get_lr() const { return get<double>("lr", 0); }
  void set_lr(double lr) { set("lr", lr); }
  const facula::io::Dict& settings() const { return group_ ? group_().options : own_; }
  // From now on these are the settings of a group that lives elsewhere.
  void bind(std::function<facula::optim::ParamGroup&()> group) { group_ = std::move(group); }

 protected:
  template <class T>
  void set(const char* name, const T& x) {
    facula::io::Dict& dict = group_ ? group_().options : own_;
    dict = torch::detail::Arguments().with(dict).with(name, x).dict();
  }
  template <class T>
  T get(const char* name, T otherwise) const {
    auto* setting = settings().find(name);
    return setting ? torch::detail::from_value<T>(*setting) : otherwise;
  }

 private:
  facula::io::Dict own_;
  std::function<facula::optim::ParamGroup&()> group_;
};

// Parameters that have settings of their own.
class OptimizerParamGroup {
 public:
  OptimizerParamGroup(std::vector<Tensor> params) : params_(std::move(params)) {}
  OptimizerParamGroup(std::vector<Tensor> params, std::unique_ptr<OptimizerOptions> options)
      : params_(std::move(params)), options_(std::move(options)) {}
  OptimizerParamGroup(const OptimizerParamGroup& o)
      : params_(o.params_), options_(o.options_ ? o.options_->clone() : nullptr) {}
  bool has_options() const { return bool(options_); }
  OptimizerOptions& options() {
    user_check(options_, "OptimizerParamGroup")
        << "the group has no options yet: its optimizer gives it some";
    return *options_;
  }
  const OptimizerOptions& options() const { return const_cast<OptimizerParamGroup*>(this)->options(); }
  void set_options(std::unique_ptr<OptimizerOptions> options) { options_ = std::move(options); }
  std::vector<Tensor>& params() { return params_; }
  const std::vector<Tensor>& params() const { return params_; }

 private:
  std::vector<Tensor> params_;
  std::unique_ptr<OptimizerOptions> options_;
};

// Holds an optimizer of Facula.
class Optimizer {
 public:
  using LossClosure = std::function<Tensor()>;
  Optimizer(const char* kind, const std::vector<OptimizerParamGroup>& groups,
            std::unique_ptr<OptimizerOptions> defaults)
      : defaults_(std::move(defaults)) {
    std::vector<facula::optim::ParamGroup> plain;
    for (auto& g : groups) plain.push_back(plain_group(g));
    optimizer_ = facula::optim::make_optimizer(kind, std::move(plain), defaults_->settings());
    for (auto& g : groups) take_group(g);
  }
  Optimizer(Optimizer&&) = default;
  virtual ~Optimizer() = default;

  // After a closure, which clears gradients, computes the loss and calls backward; gives its loss.
  Tensor step(LossClosure closure = nullptr) {
    if (closure) return optimizer_->step([&]() -> facula::Tensor { return closure(); });
    optimizer_->step();
    return {};
  }
  void zero_grad(bool set_to_none = true) { optimizer_->zero_grad(set_to_none); }
  void add_param_group(const OptimizerParamGroup& group) {
    optimizer_->add_param_group(plain_group(group));
    take_group(group);
  }
  std::vector<OptimizerParamGroup>& param_groups() { return groups_; }
  const std::vector<OptimizerParamGroup>& param_groups() const { return groups_; }
  OptimizerOptions& defaults() { return *defaults_; }
  const OptimizerOptions& defaults() const { return *defaults_; }
  std::vector<Tensor> parameters() const {
    std::vector<Tensor> all;
    for (auto& g : groups_) all.insert(all.end(), g.params().begin(), g.params().end());
    return all;
  }
  size_t size() const { return parameters().size(); }
  facula::optim::Optimizer& impl() const { return *optimizer_; }

 private:
  static facula::optim::ParamGroup plain_group(const OptimizerParamGroup& g) {
    facula::optim::ParamGroup plain{torch::detail::plain(g.params())};
    if (g.has_options()) plain.options = g.options().settings();
    return plain;
  }
  void take_group(const OptimizerParamGroup& group_to_add) {
    OptimizerParamGroup& g = groups_.emplace_back(group_to_add);
    g.set_options(defaults_->clone());
    g.options().bind([optimizer = optimizer_.get(), k = groups_.size() - 1]() -> facula::optim::ParamGroup& {
      return optimizer->param_groups().at(k);
    });
  }
  std::unique_ptr<OptimizerOptions> defaults_;
  std::unique_ptr<facula::optim::Optimizer> optimizer_;
  std::vector<OptimizerParamGroup> groups_;
};

// A schedule of facula::optim.
template <class Base>
class Schedule : public Base {
 public:
  template <class... A>
  explicit Schedule(Optimizer& optimizer, A&&... settings)
      : Base(optimizer.impl(), std::forward<A>(settings)...) {}
};

}  // namespace torch::optim
