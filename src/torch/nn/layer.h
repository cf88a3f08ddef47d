// The base of the classes of torch/nn/layers.h.
#pragma once
#include "torch/nn/module.h"
#include "torch/value.h"

namespace torch::nn {

// The part of Layer that depends on no template argument: the compiler instantiates it once for all layers.
class LayerBase : public CloneableBase {
 public:
  void reset() override { adopt(facula::nn::make_module(kind_, settings())); }
  void pretty_print(std::ostream& s) const override {
    s << "torch::nn::" << facula::front::printed(handle());
  }

 protected:
  explicit LayerBase(const char* kind) : kind_(kind) {}
  template <class R>
  R call(torch::detail::Arguments&& inputs) {
    return torch::detail::from_value<R>(facula::nn::call_module(handle(), inputs.dict()));
  }
  Tensor tensor(const char* name) const { return handle().find_tensor(name); }

 private:
  virtual const facula::io::Dict& settings() const = 0;
  const char* kind_;
};

// A module of Python's nn that is made by its name and settings, and called with inputs by name.
template <class Derived, class Settings>
class Layer : public LayerBase {
 public:
  Settings options;

 protected:
  Layer(const char* kind, const Settings& o) : LayerBase(kind), options(o) {}

 private:
  const facula::io::Dict& settings() const override { return options.settings(); }
  CloneableBase* copy_of_members() const override { return new Derived(static_cast<const Derived&>(*this)); }
};

}  // namespace torch::nn
