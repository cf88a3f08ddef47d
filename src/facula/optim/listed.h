// Optimizers whose step is one operator over lists of parameters, gradients and each kind of state. Options, kinds of
// state and the call of the operator are defined once, in Python (python/facula/optim), and translated by nn/generate.py
// to the classes of optimizers.h; lists are assembled here.
#pragma once
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "facula/nn/argument.h"
#include "facula/nn/module.h"
#include "facula/optim/optimizer.h"

namespace facula::nn {
struct Class;
struct Given;
}  // namespace facula::nn

namespace facula::optim {

using nn::Argument;

class ListOptimizer : public Optimizer {
 public:
  using Optimizer::step;
  void step() override;

 protected:
  // Raises RuntimeError and ValueError for options that are out of range.
  ListOptimizer(const nn::Class& type, std::vector<ParamGroup> groups, nn::Given&& options);
  io::Dict numbers() const override;
  std::optional<Dims> state_sizes(const Tensor& p, const ParamGroup& group, const std::string& kind) override;

 private:
  struct Batch;  // parameters with equal numbers: one call
  ListOptimizer(nn::Module module, std::vector<ParamGroup> groups);
  void step_group(ParamGroup& group);
  void step_batch(ParamGroup& group, Batch& batch);
  io::Dict& first_state(const Tensor& p, const ParamGroup& group);
  io::Dict counted(Batch& batch);
  void count(Batch& batch, const io::Dict& numbers);
  nn::Module self_;  // the translated object
};

// An optimizer whose entire step is translated: SGD, LBFGS, Muon, SparseAdam.
class GroupOptimizer : public Optimizer {
 public:
  using Optimizer::step;
  void step() override;

 protected:
  GroupOptimizer(const nn::Class& type, std::vector<ParamGroup> groups, nn::Given&& options);
  Tensor step_with(const Closure& closure);  // for a step that calls the closure any number of times
  std::optional<Dims> state_sizes(const Tensor& p, const ParamGroup& group, const std::string& kind) override;

 private:
  GroupOptimizer(nn::Module module, std::vector<ParamGroup> groups);
  io::Value bound();
  nn::Module self_;
};

// The optimizers of optimizers.h by name; options that are not given have their defaults.
struct OptimizerFactory {
  std::string_view name;
  std::unique_ptr<Optimizer> (*make)(std::vector<ParamGroup> params, const io::Dict& options);
};
std::span<const OptimizerFactory> optimizers();
std::unique_ptr<Optimizer> make_optimizer(std::string_view name, std::vector<ParamGroup> params,
                                          const io::Dict& options);

}  // namespace facula::optim
