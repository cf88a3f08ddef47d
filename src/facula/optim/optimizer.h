// The base of optimizers, which are in optimizers.h: parameters in groups, each with its options, and a state for each
// parameter. state_dicts are exchangeable with Python and PyTorch.
//
//   optim::AdamW optimizer(model.parameters(), {.lr = 3e-3});
//   optimizer.zero_grad(); backward(loss); optimizer.step();
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "facula/io/value.h"

namespace facula::optim {

struct OptimizerObject;

// Options are named as in Python: group.options["lr"].
struct ParamGroup {
  std::vector<Tensor> params;
  io::Dict options = {};  // missing ones have the optimizer's default
  double lr() const { return options.at("lr").number(); }
};

class Optimizer {
 public:
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  virtual void step() = 0;
  using Closure = std::function<Tensor()>;      // clears gradients, computes the loss and calls backward
  virtual Tensor step(const Closure& closure);  // calls the closure, steps, and returns its loss
  void zero_grad(bool set_to_none = true);
  void add_param_group(ParamGroup group);

  std::vector<ParamGroup>& param_groups() { return groups_; }
  const io::Dict& defaults() const { return defaults_; }
  io::Dict state_dict() const;
  void load_state_dict(const io::Value& state);  // ValueError if groups or numbers of parameters differ

 protected:
  Optimizer(const char* kind, std::vector<ParamGroup> groups, io::Dict defaults);
  void note_step() { stepped_ = true; }  // in step(): schedules warn if they are stepped before
  io::Dict& state_of(const Tensor& p) { return state_[p.impl()].second; }
  std::vector<Tensor> with_grad(const ParamGroup& group) const;            // parameters that have a gradient
  size_t counted_by(const std::string& name, const Tensor& number) const;  // parameters with this number
  // Values in a parameter's state that are numbers here and tensors in a state_dict, with their initial values.
  virtual io::Dict numbers() const { return {}; }
  // The sizes of one kind of state; nullopt: any.
  virtual std::optional<Dims> state_sizes(const Tensor& p, const ParamGroup&, const std::string&) {
    return Dims(p.sizes());
  }

 private:
  friend struct OptimizerObject;  // objects.h
  std::shared_ptr<OptimizerObject> object_;
  bool stepped_ = false;
  const char* kind_;
  io::Dict defaults_;
  std::vector<ParamGroup> groups_;
  std::unordered_map<const TensorImpl*, std::pair<Tensor, io::Dict>> state_;
};

}  // namespace facula::optim
