// For Python modules in C++: PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) with torch::Tensors as arguments and results.
// It needs pybind11 (pip install pybind11); facula.utils.cpp_extension finds it.
#pragma once
#include "torch/torch.h"

#if __has_include(<pybind11/pybind11.h>)
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "torch/python.h"

namespace py = pybind11;

namespace facula::python {
// Errors keep their types: torch's, not those of any exception of C++.
inline void register_errors() {
  pybind11::register_local_exception_translator([](std::exception_ptr p) {
    try {
      if (p) std::rethrow_exception(p);
    } catch (const Error&) { api().set_error(); }
  });
}
namespace {
// Loading a module is what makes this.
[[maybe_unused]] const bool errors_registered = Py_IsInitialized() && (register_errors(), true);
}  // namespace
}  // namespace facula::python

namespace pybind11::detail {

template <>
struct type_caster<torch::Tensor> {
  PYBIND11_TYPE_CASTER(torch::Tensor, const_name("Tensor"));
  bool load(handle h, bool) {
    if (!facula::python::is_tensor(h.ptr())) return false;
    value = facula::python::tensor_of(h.ptr());
    return true;
  }
  static handle cast(const torch::Tensor& t, return_value_policy, handle) { return facula::python::wrap(t); }
};
template <>
struct type_caster<facula::Tensor> {
  PYBIND11_TYPE_CASTER(facula::Tensor, const_name("Tensor"));
  bool load(handle h, bool) {
    value = facula::python::tensor_of(h.ptr());
    return value.defined();
  }
  static handle cast(const facula::Tensor& t, return_value_policy, handle) { return facula::python::wrap(t); }
};
template <>
struct type_caster<torch::ScalarType> {
  PYBIND11_TYPE_CASTER(torch::ScalarType, const_name("dtype"));
  bool load(handle h, bool) { return facula::python::api().dtype_of(h.ptr(), &value); }
  static handle cast(torch::ScalarType d, return_value_policy, handle) {
    return facula::python::api().wrap_dtype(d);
  }
};
template <>
struct type_caster<torch::Device> {
  PYBIND11_TYPE_CASTER(torch::Device, const_name("device"));
  type_caster() : value(torch::kCPU) {}
  bool load(handle h, bool) {
    facula::Device device;
    if (!facula::python::api().device_of(h.ptr(), &device)) return false;
    value = device;
    return true;
  }
  static handle cast(torch::Device d, return_value_policy, handle) {
    return facula::python::api().wrap_device(d);
  }
};
// Objects of classes that class_ registered.
template <class T>
  requires std::is_base_of_v<facula::CustomClassHolder, T>
struct type_caster<facula::Ref<T>> {
  PYBIND11_TYPE_CASTER(facula::Ref<T>, const_name("ScriptObject"));
  bool load(handle h, bool) {
    auto* object = dynamic_cast<T*>(facula::python::api().object_of(h.ptr()));
    value = facula::Ref<T>::share(object);
    return object;
  }
  static handle cast(const facula::Ref<T>& o, return_value_policy, handle) {
    return o ? handle(facula::python::api().wrap_object(o.get())) : none().release();
  }
};

}  // namespace pybind11::detail
#else
#define PYBIND11_MODULE(name, m) static_assert(false, "a Python module in C++ needs pybind11: pip install pybind11")
#endif
