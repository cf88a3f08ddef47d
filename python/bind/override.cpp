#include "override.h"

#include <cstring>
#include <vector>

#include "tensor.h"

namespace facula::bind {

namespace {

thread_local int disabled_depth = 0;
PyObject* default_override;    // Tensor's own __torch_function__, as it stands in its dict
PyObject* disabled_override;   // _disabled_torch_function_impl

bool is_basic(PyTypeObject* t) {
  return t == &PyLong_Type || t == &PyFloat_Type || t == &PyBool_Type || t == &PyTuple_Type || t == &PyList_Type ||
         t == &PyUnicode_Type || t == Py_TYPE(Py_None) || t == &PyComplex_Type || t == &PyDict_Type || t == &PyType_Type;
}

struct Overriding {
  std::vector<PyObject*> objects;   // in PyTorch's order: subclasses before superclasses, else left to right
  PyRef types;

  void add(PyObject* o) {
    PyTypeObject* t = Py_TYPE(o);
    size_t at = objects.size();
    for (size_t i = 0; i < objects.size(); ++i) {
      if (Py_TYPE(objects[i]) == t) return;
      if (at == objects.size() && PyType_IsSubtype(t, Py_TYPE(objects[i]))) at = i;
    }
    objects.insert(objects.begin() + long(at), o);
  }
  void scan(PyObject* o) {
    if (is_plain(Py_TYPE(o))) return;
    if (is_tensor(o)) {
      if (override_of(Py_TYPE(o)) != Override::none) add(o);
    } else if (PyTuple_Check(o) || PyList_Check(o)) {
      for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); ++i) {
        PyObject* item = PySequence_Fast_GET_ITEM(o, i);
        if (is_tensor(item) || has_torch_function(item)) scan(item);
      }
    } else if (has_torch_function(o)) {
      add(o);
    }
  }
};

PyObject* convert(PyObject* owned, PyTypeObject* cls) {
  PyRef result(owned);
  if (!owned) return nullptr;
  if (is_tensor(owned)) {
    if (PyType_IsSubtype(Py_TYPE(owned), cls)) return result.detach();
    Tensor t = tensor_of(owned);
    if (Py_REFCNT(owned) == 1 && is_plain(Py_TYPE(owned))) result = PyRef();   // frees the plain object, not the tensor
    return wrap_as(std::move(t), cls);
  }
  if (!PyTuple_Check(owned) && !PyList_CheckExact(owned)) return result.detach();
  Py_ssize_t n = PySequence_Fast_GET_SIZE(owned);
  PyRef items = checked(PyList_New(n));
  for (Py_ssize_t i = 0; i < n; ++i)
    PyList_SET_ITEM(items.get(), i, checked(convert(Py_NewRef(PySequence_Fast_GET_ITEM(owned, i)), cls)).detach());
  if (PyList_CheckExact(owned)) return items.detach();
  if (PyTuple_CheckExact(owned)) return PyList_AsTuple(items.get());
  return PyObject_CallOneArg(reinterpret_cast<PyObject*>(Py_TYPE(owned)), items.get());
}

struct Disabled {
  Disabled() { ++disabled_depth; }
  ~Disabled() { --disabled_depth; }
};

// Tensor.__torch_function__(cls, func, types, args=(), kwargs=None): natively, then results become cls.
PyObject* tensor_torch_function(PyObject* cls, PyObject* args) {
  return guarded([&]() -> PyObject* {
    PyObject *func, *types, *call_args = nullptr, *kwargs = nullptr;
    if (!PyArg_ParseTuple(args, "OO|OO:__torch_function__", &func, &types, &call_args, &kwargs)) return nullptr;
    PyRef type_list = checked(PySequence_Fast(types, "types must be a sequence"));
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(type_list.get()); ++i) {
      int is = PyObject_IsSubclass(cls, PySequence_Fast_GET_ITEM(type_list.get(), i));
      if (is < 0) return nullptr;
      if (!is) Py_RETURN_NOTIMPLEMENTED;
    }
    PyRef tuple = checked(call_args ? PySequence_Tuple(call_args) : PyTuple_New(0));
    PyRef result;
    {
      Disabled scope;
      result = checked(PyObject_Call(func, tuple.get(), kwargs == Py_None ? nullptr : kwargs));
    }
    return convert(result.detach(), reinterpret_cast<PyTypeObject*>(cls));
  });
}
PyMethodDef default_def = {"__torch_function__", tensor_torch_function, METH_VARARGS | METH_CLASS,
                           "Runs func natively and gives its results as instances of cls."};

PyObject* disabled_impl(PyObject*, PyObject* args) {
  PyObject *func, *types, *call_args = nullptr, *kwargs = nullptr;
  if (!PyArg_ParseTuple(args, "OO|OO", &func, &types, &call_args, &kwargs)) return nullptr;
  Disabled scope;
  PyRef tuple(call_args ? PySequence_Tuple(call_args) : PyTuple_New(0));
  return tuple ? PyObject_Call(func, tuple.get(), kwargs == Py_None ? nullptr : kwargs) : nullptr;
}
PyMethodDef disabled_def = {"_disabled_torch_function_impl", disabled_impl, METH_VARARGS,
                            "As a class's __torch_function__: the class takes part natively and results are Tensors."};

PyObject* enter(PyObject* self, PyObject*) {
  ++disabled_depth;
  return Py_NewRef(self);
}
PyObject* leave(PyObject*, PyObject*) {
  --disabled_depth;
  Py_RETURN_NONE;
}
PyMethodDef scope_methods[] = {{"__enter__", enter, METH_NOARGS, nullptr},
                               {"__exit__", leave, METH_VARARGS, nullptr},
                               {nullptr, nullptr, 0, nullptr}};
PyType_Slot scope_slots[] = {{Py_tp_methods, scope_methods}, {0, nullptr}};
PyType_Spec scope_spec = {"facula._C.DisableTorchFunctionSubclass", sizeof(PyObject), 0, Py_TPFLAGS_DEFAULT, scope_slots};

}  // namespace

bool overrides_disabled() { return disabled_depth > 0; }

Override override_of(PyTypeObject* t) {
  if (is_plain(t)) return Override::none;
  if (!PyType_IsSubtype(t, TensorType)) {
    return !is_basic(t) && _PyType_Lookup(t, names::__torch_function__) ? Override::taken : Override::none;
  }
  if (disabled_depth) return Override::none;
  PyObject* f = _PyType_Lookup(t, names::__torch_function__);
  return f == default_override ? Override::rewrap : f == disabled_override ? Override::none : Override::taken;
}

bool has_torch_function(PyObject* o) {
  PyTypeObject* t = Py_TYPE(o);
  return !is_basic(t) && override_of(t) == Override::taken;
}

PyObject* call_override(PyObject* function, PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  return guarded([&]() -> PyObject* {
    Py_ssize_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    Overriding found;
    if (self) found.scan(self);
    for (Py_ssize_t i = 0; i < n + keywords; ++i) found.scan(args[i]);
    Py_ssize_t offset = self ? 1 : 0;
    PyRef tuple = checked(PyTuple_New(n + offset));
    if (self) PyTuple_SET_ITEM(tuple.get(), 0, Py_NewRef(self));
    for (Py_ssize_t i = 0; i < n; ++i) PyTuple_SET_ITEM(tuple.get(), i + offset, Py_NewRef(args[i]));
    PyRef kwargs = checked(PyDict_New());
    for (Py_ssize_t i = 0; i < keywords; ++i) checked(PyDict_SetItem(kwargs.get(), PyTuple_GET_ITEM(kwnames, i), args[n + i]));
    PyRef types = checked(PyTuple_New(Py_ssize_t(found.objects.size())));
    for (size_t i = 0; i < found.objects.size(); ++i)
      PyTuple_SET_ITEM(types.get(), Py_ssize_t(i), Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(found.objects[i]))));
    for (PyObject* o : found.objects) {
      PyRef f = checked(PyObject_GetAttr(reinterpret_cast<PyObject*>(Py_TYPE(o)), names::__torch_function__));
      PyRef result = checked(PyObject_CallFunctionObjArgs(f.get(), function, types.get(), tuple.get(), kwargs.get(), nullptr));
      if (result.get() != Py_NotImplemented) return result.detach();
    }
    PyErr_Format(PyExc_TypeError, "no implementation found for %R on types that implement __torch_function__: %R", function,
                 types.get());
    return nullptr;
  });
}

bool is_numpy_scalar(PyObject* o) {
  for (PyTypeObject* t = Py_TYPE(o); t; t = t->tp_base)
    if (!strcmp(t->tp_name, "numpy.generic")) return true;
  return false;
}

void add_overrides(PyObject* module) {
  PyRef method = checked(PyDescr_NewClassMethod(TensorType, &default_def));
  checked(PyDict_SetItemString(TensorType->tp_dict, "__torch_function__", method.get()));
  default_override = method.detach();
  PyRef disabled = checked(PyCFunction_New(&disabled_def, nullptr));
  checked(PyModule_AddObjectRef(module, "_disabled_torch_function_impl", disabled.get()));
  disabled_override = disabled.detach();
  add_type(module, &scope_spec);
  PyType_Modified(TensorType);
}

}  // namespace facula::bind
