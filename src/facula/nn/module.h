// Module: parameters, buffers and submodules by name. A module is a handle, like a tensor: copies share
// everything, so a module is a plain struct whose members are layers and tensors, put together by value:
//
//   struct Net : nn::Module {
//     nn::Linear hidden = register_module("hidden", nn::Linear(784, 128));
//     nn::Linear out = register_module("out", nn::Linear(128, 10));
//     Tensor operator()(const Tensor& x) const { return out(relu(hidden(x))); }
//   };
//   Net net;
//   Tensor y = net(x);
//
// A layer is called; there is no virtual function. Names and orders of parameters, and the random numbers
// drawn for them, are those of the Python modules: the same seed gives the same weights, bit for bit, and
// state_dicts are exchanged.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "facula/io/value.h"

namespace facula::nn {

template <class T>
using Named = std::vector<std::pair<std::string, T>>;

class Module {
 public:
  explicit Module(std::string kind = "Module");  // kind: its name in messages and text

  // Definition of a module. These return the registered object; an undefined tensor is None.
  Tensor register_parameter(const std::string& name, Tensor t, bool requires_grad = true);
  Tensor register_buffer(const std::string& name, Tensor t, bool persistent = true);
  template <std::derived_from<Module> M>
  M register_module(const std::string& name, M m) {
    add(name, m);
    return m;
  }

  // In the order of registration, a module's own ones first, each tensor or module once; with dotted names.
  std::vector<Tensor> parameters() const;
  Named<Tensor> named_parameters() const;
  std::vector<Tensor> buffers() const;
  Named<Tensor> named_buffers() const;
  std::vector<Module> children() const;
  Named<Module> named_modules() const;              // itself too, as ""
  Tensor parameter(const std::string& name) const;  // by dotted name; IndexError
  // The module's parameter or buffer of this name; undefined if there is none or it is None.
  Tensor find_tensor(std::string_view name) const;

  bool is_training() const;
  void train(bool on = true) const;  // also of all submodules
  void eval() const { train(false); }
  void requires_grad_(bool on = true) const;
  void zero_grad(bool set_to_none = true) const;
  void to(DType dtype) const;    // floating-point parameters and buffers, in place: optimizers keep them
  void to(Device device) const;  // parameters and buffers, in place
  void apply(const std::function<void(const Module&)>& f) const;  // below first

  // Parameters and persistent buffers, sharing memory with the module's.
  io::Dict state_dict() const;
  struct LoadResult {
    std::vector<std::string> missing_keys, unexpected_keys;
  };
  // Copies tensors by name. Raises RuntimeError for other sizes, and, if strict, for missing and unexpected names.
  LoadResult load_state_dict(const io::Value& state, bool strict = true) const;

  const std::string& kind() const;
  std::string to_string() const;  // as Python prints a module
  bool is_same(const Module& o) const { return state_ == o.state_; }

 protected:
  void add(const std::string& name, const Module& m);
  // For containers: put() replaces the member of this name or adds it; remove() raises IndexError if there is none.
  void put(const std::string& name, const Module& m);
  void put(const std::string& name, const Tensor& parameter);
  void remove(const std::string& name);
  void describe(std::string options);  // the text that to_string() shows in parentheses
  size_t child_count() const;
  // Sets the call for translated modules that use this one, such as a norm in a TransformerEncoder.
  void called_by_modules(std::function<Tensor(const Tensor&)> f);

 private:
  friend struct Dynamic;  // dynamic.h
  struct State;
  template <class F>
  void walk(const std::string& prefix, F&& f) const;
  // Replaces the data of each parameter, its gradient and each buffer by what f makes of them.
  void convert(const std::function<Tensor(const Tensor&)>& f) const;
  std::shared_ptr<State> state_;
};

}  // namespace facula::nn
