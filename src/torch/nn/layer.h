// The base of the classes of torch/nn/layers.h.
#pragma once
#include "torch/nn/module.h"
#include "torch/value.h"

namespace torch::nn {

// A module of Python's nn that is made by its name and settings, and called with inputs by name.
template <class Derived, class Settings>
class Layer : public Cloneable<Derived> {
 public:
  Settings options;
  void reset() override { this->adopt(facula::nn::make_module(kind_, options.settings())); }
  void pretty_print(std::ostream& s) const override {
    s << "torch::nn::" << facula::front::printed(this->handle());
  }

 protected:
  Layer(const char* kind, Settings o) : options(std::move(o)), kind_(kind) {}
  template <class R>
  R call(torch::detail::Arguments&& inputs) {
    return torch::detail::from_value<R>(facula::nn::call_module(this->handle(), inputs.dict()));
  }
  Tensor tensor(const char* name) const { return this->handle().find_tensor(name); }

 private:
  const char* kind_;
};

}  // namespace torch::nn
