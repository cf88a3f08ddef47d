// The schedules of PyTorch's C++ front end. They count calls of step(), and StepLR decays a call later than its Python namesake.
#pragma once
#include <vector>

#include "torch/optim/optimizers.h"

namespace torch::optim {

// The base of a program's own schedules, which outlive no optimizer of theirs.
class LRScheduler {
 public:
  explicit LRScheduler(Optimizer& optimizer) : optimizer_(optimizer) {}
  virtual ~LRScheduler() = default;

  void step() {
    std::vector<double> rates = get_lrs();
    auto& groups = optimizer_.param_groups();
    user_check(rates.size() == groups.size(), "LRScheduler")
        << "get_lrs() returned " << rates.size() << " learning rates for " << groups.size()
        << " groups of parameters";
    for (size_t k = 0; k < rates.size(); ++k) groups[k].options().set_lr(rates[k]);
    ++step_count_;
  }

 protected:
  virtual std::vector<double> get_lrs() = 0;  // the rate of each group from now on
  std::vector<double> get_current_lrs() const {
    std::vector<double> rates;
    for (auto& group : optimizer_.param_groups()) rates.push_back(group.options().get_lr());
    return rates;
  }
  unsigned step_count_ = 0;  // the finished calls of step()

 private:
  Optimizer& optimizer_;
};

class StepLR : public LRScheduler {
 public:
  StepLR(Optimizer& optimizer, unsigned step_size, double gamma = 0.1)
      : LRScheduler(optimizer), step_size_(step_size), gamma_(gamma) {}

 private:
  std::vector<double> get_lrs() override {
    std::vector<double> rates = get_current_lrs();
    if (step_count_ && step_count_ % step_size_ == 0)
      for (double& rate : rates) rate *= gamma_;
    return rates;
  }
  unsigned step_size_;
  double gamma_;
};

using ReduceLROnPlateauScheduler = ReduceLROnPlateau;

}  // namespace torch::optim
