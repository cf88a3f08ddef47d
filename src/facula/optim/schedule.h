// The base of learning rate schedules, which are in lr_scheduler.h. Call step() after each optimizer step or epoch,
// depending on the schedule. The optimizer must outlive its schedules. A schedule is a handle: copies denote the same
// schedule. state_dicts are exchangeable with Python.
#pragma once
#include <concepts>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "facula/nn/argument.h"
#include "facula/nn/module.h"
#include "facula/optim/optimizer.h"

namespace facula::nn {
struct Class;
struct Given;
struct NamedClass;
}  // namespace facula::nn

namespace facula::optim {

using nn::Argument;
using nn::ByName;

// A factor of the rate as a function of the epoch, or one for each group; nullopt is None.
class Factor {
 public:
  using Function = std::function<double(int64_t epoch)>;
  Factor(std::nullopt_t) {}
  template <class F>
    requires(std::is_invocable_r_v<double, F, int64_t> && !std::same_as<F, Factor>)
  Factor(F f) : Factor(Function(std::move(f))) {}
  Factor(Function f);
  Factor(const std::vector<Function>& of_each_group);
  operator io::Value() const { return value_; }

 private:
  io::Value value_;
};

class LRScheduler {
 public:
  void step(std::optional<int64_t> epoch = std::nullopt);  // by one, or to an epoch
  std::vector<double> get_last_lr() const;                 // the rates that the last step set
  io::Dict state_dict() const;                             // everything but the optimizer and functions
  void load_state_dict(const io::Value& state);

 protected:
  // RuntimeError and ValueError for settings that are out of range.
  LRScheduler(const nn::Class& type, nn::Given&& settings);
  void step_with(nn::Given&& arguments);
  static io::Value value_of(Optimizer& optimizer);
  static io::Value value_of(Optimizer* optimizer);  // null: None
  static io::Value value_of(const std::vector<LRScheduler>& schedules);
  static io::Value value_of(const std::vector<int64_t>& numbers);
  static io::Value value_of(const Factor& f) { return f; }

 private:
  nn::Module self_;  // the translated object
};

std::span<const nn::NamedClass> schedules();  // the classes of lr_scheduler.h

}  // namespace facula::optim
