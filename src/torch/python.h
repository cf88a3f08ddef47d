// Tensors between C++ and Python, for modules in C++. Needs Python's headers, and facula imported when it is used.
#pragma once
#include <Python.h>

#include "facula/extend/python_api.h"

namespace facula::python {

// The functions that facula._C offers to modules in C++.
inline const extend::PythonApi& api() {
  static const extend::PythonApi* loaded = [] {
    auto* capsule = static_cast<const extend::PythonApi*>(PyCapsule_Import("facula._C._api", 0));
    if (!capsule) PyErr_Clear();
    runtime_check(capsule, "import") << "this module needs facula, which could not be imported";
    extend::check_build(extend::kBuild, "this module");
    return capsule;
  }();
  return *loaded;
}
inline bool is_tensor(PyObject* o) { return api().tensor_of(o) != nullptr; }
// Undefined for what is no tensor.
inline Tensor tensor_of(PyObject* o) { return Tensor(Ref<TensorImpl>::share(api().tensor_of(o))); }
inline PyObject* wrap(const Tensor& t) { return api().wrap(t.impl()); }  // a new reference; None if undefined

}  // namespace facula::python
