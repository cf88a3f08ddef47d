// Schedules of learning rates. Call step() after each optimizer step or epoch, as the schedule counts. The
// optimizer must outlive its schedule. state_dicts are exchanged with Python.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "facula/optim/optimizer.h"

namespace facula::optim {

class LRScheduler {
 public:
  virtual ~LRScheduler() = default;
  LRScheduler(const LRScheduler&) = delete;
  void step();
  std::vector<double> get_last_lr() const { return last_lr_; }  // that the last step set
  io::Dict state_dict() const;
  void load_state_dict(const io::Value& state);

 protected:
  explicit LRScheduler(Optimizer& optimizer) : optimizer_(optimizer) {}
  void start();                             // at the end of a subclass's constructor: the rates of step 0
  virtual std::vector<double> rates() = 0;  // of all groups at last_epoch_
  virtual io::Dict settings() const = 0;    // what the subclass adds to a state_dict
  virtual void restore(const io::Dict& state) = 0;
  std::vector<double> current() const;

  Optimizer& optimizer_;
  int64_t last_epoch_ = -1, step_count_ = 0;
  std::vector<double> base_lrs_, last_lr_;
};

// Times gamma every step_size epochs.
class StepLR : public LRScheduler {
 public:
  StepLR(Optimizer& optimizer, int64_t step_size, double gamma = 0.1);

 private:
  std::vector<double> rates() override;
  io::Dict settings() const override;
  void restore(const io::Dict& state) override;
  int64_t step_size_;
  double gamma_;
};

// Half a cosine from the initial rate to eta_min in T_max epochs, then up again.  Loshchilov and Hutter,
// 2016.
class CosineAnnealingLR : public LRScheduler {
 public:
  CosineAnnealingLR(Optimizer& optimizer, int64_t T_max, double eta_min = 0);

 private:
  std::vector<double> rates() override;
  io::Dict settings() const override;
  void restore(const io::Dict& state) override;
  int64_t T_max_;
  double eta_min_;
};

// Up from max_lr / div_factor to max_lr, then down to max_lr / (div_factor * final_div_factor); momentum the
// other way. Steps count batches.  Smith and Topin, "Super-Convergence", 2017.
class OneCycleLR : public LRScheduler {
 public:
  struct Options {
    double max_lr;
    int64_t total_steps = 0, epochs = 0, steps_per_epoch = 0;  // total_steps, or the other two
    double pct_start = 0.3;
    std::string anneal_strategy = "cos";  // or "linear"
    bool cycle_momentum = true;
    double base_momentum = 0.85, max_momentum = 0.95, div_factor = 25, final_div_factor = 1e4;
    bool three_phase = false;
  };
  OneCycleLR(Optimizer& optimizer, Options options);

 private:
  std::vector<double> rates() override;
  io::Dict settings() const override;
  void restore(const io::Dict& state) override;
  double anneal(double start, double end, double part) const;
  void set_momentum(ParamGroup& group, double momentum) const;
  struct Phase {
    double end_step;
    const char *start_lr, *end_lr, *start_momentum, *end_momentum;
  };
  Options options_;
  std::vector<Phase> phases_;
  bool use_beta1_;
};

}  // namespace facula::optim
