// Optimizers: parameters in groups, each with its options, and a state for each parameter. A step is one call
// of a fused operator for all parameters, as in Python; state_dicts are exchanged with Python and PyTorch.
//
//   optim::AdamW optimizer(model.parameters(), {.lr = 3e-3});
//   optimizer.zero_grad(); backward(loss); optimizer.step();
#pragma once
#include <unordered_map>
#include <utility>
#include <vector>

#include "facula/io/value.h"

namespace facula::optim {

// Options are named as in Python: group.options["lr"].
struct ParamGroup {
  std::vector<Tensor> params;
  io::Dict options = {};  // what is not given has the optimizer's default
  double lr() const { return options.at("lr").number(); }
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  virtual void step() = 0;
  void zero_grad(bool set_to_none = true);
  void add_param_group(ParamGroup group);

  std::vector<ParamGroup>& param_groups() { return groups_; }
  const io::Dict& defaults() const { return defaults_; }
  io::Dict state_dict() const;
  void load_state_dict(const io::Value& state);  // ValueError if groups or numbers of parameters differ

 protected:
  Optimizer(const char* kind, std::vector<ParamGroup> groups, io::Dict defaults);
  io::Dict& state_of(const Tensor& p) { return state_[p.impl()].second; }
  std::vector<Tensor> with_grad(const ParamGroup& group) const;  // parameters that have one
  size_t counted_by(const Tensor& count) const;                  // parameters whose steps it counts
  // Of the state of a parameter, "step" is a float here and a tensor in a state_dict, where `counts_steps`.
  virtual bool counts_steps() const { return false; }

 private:
  const char* kind_;
  io::Dict defaults_;
  std::vector<ParamGroup> groups_;
  std::unordered_map<const TensorImpl*, std::pair<Tensor, io::Dict>> state_;
};

// p -= lr * g; with momentum, g is a running sum.  Sutskever et al., 2013.
class SGD : public Optimizer {
 public:
  struct Options {
    double lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0;
    bool nesterov = false, maximize = false;
  };
  explicit SGD(std::vector<Tensor> params) : SGD(std::move(params), Options()) {}
  SGD(std::vector<Tensor> params, Options o) : SGD(std::vector<ParamGroup>{{std::move(params)}}, o) {}
  SGD(std::vector<ParamGroup> groups, Options o);
  void step() override;
};

// Steps scaled by running means of gradients and of their squares; weight_decay adds to the gradient.  Kingma
// and Ba, 2014; amsgrad: Reddi et al., 2018.
class Adam : public Optimizer {
 public:
  struct Options {
    double lr = 1e-3;
    std::pair<double, double> betas = {0.9, 0.999};
    double eps = 1e-8, weight_decay = 0;
    bool amsgrad = false, maximize = false;
  };
  explicit Adam(std::vector<Tensor> params) : Adam(std::move(params), Options()) {}
  Adam(std::vector<Tensor> params, Options o) : Adam(std::vector<ParamGroup>{{std::move(params)}}, o) {}
  Adam(std::vector<ParamGroup> groups, Options o) : Adam("Adam", std::move(groups), o, false) {}
  void step() override;

 protected:
  Adam(const char* kind, std::vector<ParamGroup> groups, const Options& o, bool decoupled);
  bool counts_steps() const override { return true; }
};

// Adam whose weight decay shrinks the parameter itself.  Loshchilov and Hutter, 2017.
class AdamW : public Adam {
 public:
  struct Options {
    double lr = 1e-3;
    std::pair<double, double> betas = {0.9, 0.999};
    double eps = 1e-8, weight_decay = 1e-2;
    bool amsgrad = false, maximize = false;
  };
  explicit AdamW(std::vector<Tensor> params) : AdamW(std::move(params), Options()) {}
  AdamW(std::vector<Tensor> params, Options o) : AdamW(std::vector<ParamGroup>{{std::move(params)}}, o) {}
  AdamW(std::vector<ParamGroup> groups, Options o)
      : Adam("AdamW", std::move(groups), {o.lr, o.betas, o.eps, o.weight_decay, o.amsgrad, o.maximize},
             true) {}
};

}  // namespace facula::optim
