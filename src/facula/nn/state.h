// The contents of a module. For the sources of this room only.
#pragma once
#include "facula/nn/dynamic.h"

namespace facula::nn {

struct Module::State {
  struct Buffer {
    Tensor tensor;
    bool persistent;
  };
  std::string kind, options;
  const Class* type = nullptr;                   // a translated class; null: a class of C++
  io::Value attributes = io::Dict();             // of a translated class, by name
  std::function<io::Value(Arguments&)> forward;  // for a class of C++ that translated code may call
  Named<Tensor> parameters;
  Named<Buffer> buffers;
  Named<Module> modules;
  bool training = true;
  bool lists_parameters = false;  // to_string() has a line for each, as for ParameterList

  void check_name(const std::string& name) const;
};

template <class T>
T* find_named(Named<T>& named, std::string_view name) {
  for (auto& [n, x] : named)
    if (n == name) return &x;
  return nullptr;
}

}  // namespace facula::nn
