// How this room calls operators of the catalog: by name, with the arguments in order (the rest take their
// defaults) or by name of the parameter.
#pragma once
#include <initializer_list>
#include <utility>
#include <vector>

#include "facula/op/call.h"
#include "facula/op/operator.h"
#include "facula/op/registry.h"

namespace facula::autograd {

inline Tensor invoke(const op::Operator& o, std::initializer_list<op::Value> args,
                     op::Form form = op::Form::functional) {
  SmallVector<op::Value, 8> all(args);
  all.resize(o.schema.parameters.size());
  return op::call(o, all, form)[0];
}
inline Tensor invoke(std::string_view name, std::initializer_list<op::Value> args,
                     op::Form form = op::Form::functional) {
  return invoke(op::get(name), args, form);
}
inline Tensor invoke_named(std::string_view name,
                           std::initializer_list<std::pair<std::string_view, op::Value>> args) {
  auto& o = op::get(name);
  std::vector<op::Value> all(o.schema.parameters.size());
  for (auto& [parameter, value] : args) {
    int i = o.schema.index_of(parameter);
    internal_check(i >= 0) << name << " has no parameter " << parameter;
    all[size_t(i)] = value;
  }
  return op::call(o, all)[0];
}
inline Tensor add(const Tensor& a, const Tensor& b) {
  static const op::Operator& o = op::get("add");
  return invoke(o, {a, b});
}
inline void add_(const Tensor& a, const Tensor& b) {
  static const op::Operator& o = op::get("add");
  invoke(o, {a, b}, op::Form::in_place);
}
inline Tensor filled(double value, SymSpan sizes, DType d, Device device) {
  static const op::Operator& o = op::get("full");
  return invoke(o, {sizes, Scalar(value), d, device});
}

}  // namespace facula::autograd
