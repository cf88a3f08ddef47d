// Calls of operators as Python functions get them: (args, kwargs) by the schema, and results of what they give.
#pragma once
#include <utility>

#include "facula/op/operator.h"
#include "tensor.h"
#include "types.h"

namespace facula::bind {

// An argument that is no tensor.
PyRef wrap_plain_argument(const op::Parameter& p, const op::Value& v);
// The results that a Python function returned, checked against the schema; raises RuntimeError for others.
op::Results results_of(const op::Operator& o, PyObject* given);

// An argument as the user's function gets it. `tensor(k)`: item k of a list, or the only one.
template <class F>
PyRef wrap_argument(const op::Parameter& p, const op::Value& v, F tensor) {
  if (v.is_none()) return PyRef::share(Py_None);
  if (p.type == op::Type::Tensor && p.list) {
    PyRef list = checked(PyList_New(Py_ssize_t(v.tensors().size())));
    for (size_t k = 0; k < v.tensors().size(); ++k)
      PyList_SET_ITEM(list.get(), Py_ssize_t(k), checked(wrap(tensor(int(k)))).detach());
    return list;
  }
  if (v.tag == op::Tag::tensor) return checked(wrap(tensor(0)));
  return wrap_plain_argument(p, v);
}

// (args, kwargs) of a call; `tensor(parameter, item)` gives its tensors.
template <class F>
std::pair<PyRef, PyRef> wrap_call(const op::Call& c, F tensor) {
  PyRef args = checked(PyList_New(0)), kwargs = checked(PyDict_New());
  auto& parameters = c.op().schema.parameters;
  for (size_t k = 0; k < parameters.size(); ++k) {
    auto& p = parameters[k];
    PyRef x = wrap_argument(p, c.at(k), [&](int item) { return tensor(p, item); });
    if (p.keyword_only) checked(PyDict_SetItemString(kwargs.get(), p.name.c_str(), x.get()));
    else checked(PyList_Append(args.get(), x.get()));
  }
  return {checked(PyList_AsTuple(args.get())), std::move(kwargs)};
}
inline Tensor tensor_of_call(const op::Call& c, const op::Parameter& p, int item) {
  return p.list ? c.tensors(p.name)[size_t(item)] : c.tensor(p.name);
}

}  // namespace facula::bind
