// Optimizers as translated code sees them. For the sources of this room.
#pragma once
#include "facula/nn/dynamic.h"
#include "facula/optim/optimizer.h"

namespace facula::optim {

// There is one for each optimizer that anyone asked for: `is` compares them.
struct OptimizerObject : nn::Native {
  Optimizer* optimizer;  // null: it is gone
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
