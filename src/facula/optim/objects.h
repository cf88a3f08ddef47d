// Optimizers as objects of translated code. For the sources of this room only.
#pragma once
#include "facula/nn/dynamic.h"
#include "facula/optim/optimizer.h"

namespace facula::optim {

// Each optimizer has one object, created on demand: `is` compares them.
struct OptimizerObject : nn::Native {
  Optimizer* optimizer;  // null: the optimizer was destroyed
  explicit OptimizerObject(Optimizer* o) : optimizer(o) {}
  static io::Value of(Optimizer& o);
  static io::Value states_of(Optimizer& o);  // as nn::States
  static void forget(Optimizer& o);
  io::Dict& state_of(const Tensor& p) const;

  const nn::Class& type() const override { return nn::optimizer_class; }
  bool find(std::string_view name, io::Value& found) const override;
  void set(std::string_view name, const io::Value& v) override;
};

}  // namespace facula::optim
