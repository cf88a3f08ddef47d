// Attributes of outside objects, instances, classes, modules and tensors.
#include <cstring>

#include "facula/autograd/autograd.h"
#include "facula/run/open_trace.h"
#include "interpreter.h"

namespace facula::bind::capture {

namespace {

Outcome push_value(Frame& f, size_t drop, PyRef value, bool method) {
  f.drop(drop);
  if (method) f.push({});
  f.push(std::move(value));
  return Outcome::next;
}

// An instance whose class looks attributes up as `object` does, or as modules of nn do.
bool has_usual_lookup(PyTypeObject* t) {
  static const getattrofunc of_modules = [] {
    PyRef module(PyImport_ImportModule("facula._C"));
    PyRef type(module ? PyObject_GetAttrString(module.get(), "ModuleBase") : nullptr);
    return type ? reinterpret_cast<PyTypeObject*>(type.get())->tp_getattro : nullptr;
  }();
  return t->tp_getattro == PyObject_GenericGetAttr || t->tp_getattro == of_modules;
}

PyObject* instance_dict(PyObject* o) {
  PyObject** at = _PyObject_GetDictPtr(o);
  return at ? *at : nullptr;
}

// The value that an instance itself has; borrowed. An attribute of the class comes before parameters, modules and buffers.
PyObject* own_value(PyObject* o, PyObject* name, PyObject* of_class) {
  PyObject* dict = instance_dict(o);
  PyObject* looked_up = dict ? PyDict_GetItemWithError(dict, name) : nullptr;
  PyObject* fallback = is_module(o) && !of_class ? _PyType_Lookup(Py_TYPE(o), names::__getattr__) : nullptr;
  if (looked_up || !dict || !fallback || PyFunction_Check(fallback))
    return looked_up;  // Python's own __getattr__ comes first
  for (PyObject* group : {names::_parameters, names::_modules, names::_buffers}) {
    PyObject* members = PyDict_GetItemWithError(dict, group);
    if (members && PyDict_Check(members) && (looked_up = PyDict_GetItemWithError(members, name)))
      return looked_up;
  }
  return nullptr;
}

// Attributes of tensors that follow from what guards know.
bool is_fact(const char* name) {
  static const char* const names[] = {"shape",     "dtype",     "device",       "ndim",    "requires_grad",
                                      "layout",    "is_cpu",    "is_cuda",      "is_meta", "is_sparse",
                                      "itemsize",  "nbytes",    "is_mps",       "is_xpu",  "is_quantized",
                                      "is_nested", "is_mkldnn", "is_sparse_csr"};
  for (const char* n : names)
    if (!std::strcmp(n, name)) return true;
  return false;
}
bool is_view_attribute(const char* name) {
  for (const char* n : {"T", "mT", "H", "mH", "real", "imag", "data"})
    if (!std::strcmp(n, name)) return true;
  return false;
}

// The gradient of a tensor from outside.
Outcome gradient(Interpreter& in, Frame& f, PyObject* o, PyObject* name, size_t drop, bool method) {
  auto* meta = impl_of(o)->traced ? autograd::meta_of(tensor_of(o)) : nullptr;
  if (impl_of(o)->traced && !(meta && meta->retained))
    return in.breaks("the gradient of a tensor that the function computes", "call retain_grad() on it");
  if (!meta && autograd::node_of(tensor_of(o)))
    return in.breaks("the gradient that a tensor with a history retains");
  PyRef value(PyObject_GetAttr(o, name));
  if (!value) return in.give_recorded(f, drop, nullptr, "grad");
  if (meta) {
    in.recorder->result(value.get());
    return push_value(f, drop, std::move(value), method);
  }
  if (is_tensor(value.get()) && impl_of(value.get())->traced) in.recorder->result(value.get());
  else if (!run::OpenTrace::current()->has_changed_slot(tensor_of(o))) in.recorder->gradient(o, value.get());
  return push_value(f, drop, std::move(value), method);
}

Outcome store_gradient(Interpreter& in, Frame& f, PyObject* o, PyObject* name, PyObject* value, size_t drop) {
  bool is_ours = value == Py_None || (is_tensor(value) && impl_of(value)->traced);
  if (impl_of(o)->traced || !in.recorder->is_outside(o) || !is_ours)
    return in.breaks("an assignment to `.grad` of a tensor that was not computed in the function");
  if (PyObject_SetAttr(o, name, value) < 0) return in.give_recorded(f, drop, nullptr, "grad");
  f.drop(drop);
  return Outcome::next;
}

Outcome tensor_attribute(Interpreter& in, Frame& f, PyObject* o, PyObject* name, size_t drop, bool method) {
  const char* text = PyUnicode_AsUTF8(name);
  PyObject* looked_up = _PyType_Lookup(Py_TYPE(o), name);
  PyObject* dict = instance_dict(o);
  if (!looked_up) {
    PyObject* own = dict ? PyDict_GetItemWithError(dict, name) : nullptr;
    if (!own) {
      in.recorder->absent(o, name);
      return in.give(f, drop, PyObject_GetAttr(o, name));
    }
    in.recorder->attribute(o, name, own);
    return push_value(f, drop, PyRef::share(own), method);
  }
  bool is_method =
      Py_TYPE(looked_up) == &PyMethodDescr_Type || PyFunction_Check(looked_up) || PyCallable_Check(looked_up);
  if (is_method || is_fact(text)) {
    PyRef value(PyObject_GetAttr(o, name));
    if (value) value = in.recorder->without_symbols(std::move(value));
    if (value && in.stops_at_size(value.get())) return Outcome::breaks;
    return value ? push_value(f, drop, std::move(value), method) : Outcome::raised;
  }
  if (!std::strcmp(text, "grad")) return gradient(in, f, o, name, drop, method);
  if (is_view_attribute(text) && std::strcmp(text, "data")) {
    PyRef value(PyObject_GetAttr(o, name));
    if (!value) return in.give_recorded(f, drop, nullptr, text);
    in.recorder->result(value.get());
    return push_value(f, drop, std::move(value), method);
  }
  if (!std::strcmp(text, "__class__")) {
    PyRef type = PyRef::share(reinterpret_cast<PyObject*>(Py_TYPE(o)));
    in.recorder->constant(type.get());
    return push_value(f, drop, std::move(type), method);
  }
  return in.breaks(std::string("the attribute `") + text + "` of a tensor");
}

// A class attribute that is bound to its instance without running code of Python.
bool is_bound_by_c(PyObject* descriptor) {
  PyTypeObject* t = Py_TYPE(descriptor);
  return !t->tp_descr_get || !is_class_of_python(t) || std::strstr(t->tp_name, "Overridable");
}

// A call of a function of Python that computes an attribute; its value replaces `drop` slots, or becomes null and the value.
Outcome computed(Interpreter& in, Frame& f, PyObject* function, std::vector<PyObject*> args, size_t drop,
                 bool method) {
  size_t n = args.size();
  if (!method) return call(in, f, {function, std::move(args), n, nullptr, drop});
  std::vector<PyRef> replaced(f.stack.end() - std::ptrdiff_t(drop), f.stack.end());
  f.drop(drop);
  f.push({});
  Outcome result = call(in, f, {function, std::move(args), n, nullptr, 0});
  if (result == Outcome::breaks) {
    f.drop(1);
    for (auto& s : replaced) f.push(s);
  }
  return result;
}

// The attribute of a descriptor whose __get__ is a function of Python. `o` is None for a class.
Outcome descriptor_value(Interpreter& in, Frame& f, PyObject* descriptor, PyObject* o, PyTypeObject* type,
                         size_t drop, bool method) {
  PyObject* get = python_method(descriptor, "__get__");
  if (!get) return in.breaks("a descriptor that is not a function of Python");
  PyRef name = checked(PyUnicode_InternFromString("__get__"));
  in.recorder->constant(descriptor);
  in.recorder->member(descriptor, name.get(), get);
  in.recorder->constant(reinterpret_cast<PyObject*>(type));
  return computed(in, f, get, {descriptor, o, reinterpret_cast<PyObject*>(type)}, drop, method);
}

Outcome class_attribute(Interpreter& in, Frame& f, PyObject* o, PyObject* name, size_t drop, bool method) {
  auto* type = reinterpret_cast<PyTypeObject*>(o);
  PyObject* of_meta = _PyType_Lookup(Py_TYPE(o), name);
  if (of_meta && Py_TYPE(of_meta)->tp_descr_set && !is_bound_by_c(of_meta))
    return in.breaks("a property of a metaclass");
  PyObject* looked_up = _PyType_Lookup(type, name);
  if (looked_up && !is_bound_by_c(looked_up)) {
    in.recorder->member(o, name, looked_up);
    return descriptor_value(in, f, looked_up, Py_None, type, drop, method);
  }
  PyRef value(PyObject_GetAttr(o, name));
  if (!value) {
    if (!looked_up) in.recorder->member(o, name, nullptr);
    return Outcome::raised;
  }
  if (looked_up) in.recorder->member(o, name, looked_up);
  if (PyMethod_Check(value.get()) || (looked_up && value.get() == looked_up)) {
    if (looked_up && value.get() == looked_up && !is_atom(looked_up)) in.recorder->constant(looked_up);
  } else if (!is_atom(value.get())) {
    in.recorder->constant(value.get());
  }
  return push_value(f, drop, std::move(value), method);
}

Outcome property(Interpreter& in, Frame& f, PyObject* o, PyObject* descriptor, size_t drop, bool method) {
  PyRef getter(PyObject_GetAttrString(descriptor, "fget"));
  if (!getter || !PyFunction_Check(getter.get())) {
    PyErr_Clear();
    return in.breaks("a property whose getter is not a function of Python");
  }
  in.recorder->constant(getter.get());
  return computed(in, f, getter.get(), {o}, drop, method);
}

Outcome missing(Interpreter& in, Frame& f, PyObject* o, PyObject* name, size_t drop, bool method) {
  PyObject* fallback = _PyType_Lookup(Py_TYPE(o), names::__getattr__);
  if (fallback && PyFunction_Check(fallback)) {
    in.recorder->member(o, names::__getattr__, fallback);
    return computed(in, f, fallback, {o, name}, drop, method);
  }
  PyObject* value = PyObject_GetAttr(o, name);
  if (!value) return Outcome::raised;
  return in.give(f, drop, value);
}

Outcome instance_attribute(Interpreter& in, Frame& f, PyObject* o, PyObject* name, size_t drop, bool method) {
  auto* r = in.recorder;
  PyTypeObject* type = Py_TYPE(o);
  PyObject* looked_up = _PyType_Lookup(type, name);
  bool data = looked_up && Py_TYPE(looked_up)->tp_descr_set;
  r->member(o, name, looked_up);
  if (data) {
    if (Py_TYPE(looked_up) == &PyProperty_Type) return property(in, f, o, looked_up, drop, method);
    if (!is_bound_by_c(looked_up)) return descriptor_value(in, f, looked_up, o, type, drop, method);
    PyRef value(PyObject_GetAttr(o, name));
    if (!value) return Outcome::raised;
    r->attribute(o, name, value.get());
    return push_value(f, drop, std::move(value), method);
  }
  if (PyObject* own = own_value(o, name, looked_up)) {
    PyRef value = PyRef::share(own), number;
    r->attribute(o, name, own, &number);
    return push_value(f, drop, number ? std::move(number) : std::move(value), method);
  }
  r->absent(o, name);
  if (!looked_up) return missing(in, f, o, name, drop, method);
  if (!is_bound_by_c(looked_up)) return descriptor_value(in, f, looked_up, o, type, drop, method);
  PyRef value(PyObject_GetAttr(o, name));
  if (!value) return Outcome::raised;
  bool created = PyMethod_Check(value.get()) || PyCFunction_Check(value.get());
  if (!created && !is_atom(value.get())) r->constant(value.get());
  return push_value(f, drop, std::move(value), method);
}

}  // namespace

Outcome load_attribute(Interpreter& in, Frame& f, PyObject* object, PyObject* name, size_t drop,
                       bool method) {
  PyRef o = PyRef::share(object);
  auto* r = in.recorder;
  if (is_tensor(object)) {
    if (!is_plain(Py_TYPE(object))) return in.breaks("an attribute of a subclass of Tensor");
    return tensor_attribute(in, f, object, name, drop, method);
  }
  if (PyModule_Check(object)) {
    PyRef value(PyObject_GetAttr(object, name));
    if (!value) return Outcome::raised;
    r->attribute(object, name, value.get());
    return push_value(f, drop, std::move(value), method);
  }
  if (PyType_Check(object)) return class_attribute(in, f, object, name, drop, method);
  PyTypeObject* t = Py_TYPE(object);
  if (t == &PySuper_Type) {
    PyRef value(PyObject_GetAttr(object, name));
    if (!value) return Outcome::raised;
    if (PyMethod_Check(value.get())) r->constant(PyMethod_GET_FUNCTION(value.get()));
    else if (!PyCFunction_Check(value.get()) && std::strcmp(Py_TYPE(value.get())->tp_name, "method-wrapper"))
      return in.breaks("an attribute of super() that is not a method");
    return push_value(f, drop, std::move(value), method);
  }
  if (is_class_of_python(t)) {
    bool hooked = false;
    if (!has_usual_lookup(t)) {
      PyRef key = checked(PyUnicode_InternFromString("__getattribute__"));
      PyObject* general = _PyType_Lookup(t, key.get());
      hooked = general && PyFunction_Check(general);
      if (!_PyType_Lookup(t, names::__getattr__)) hooked = true;
    }
    // Its AttributeError would lead to __getattr__.
    PyObject* general = python_method(object, "__getattribute__");
    if (general && !_PyType_Lookup(t, names::__getattr__)) {
      PyRef key = checked(PyUnicode_InternFromString("__getattribute__"));
      r->member(object, key.get(), general);
      return computed(in, f, general, {object, name}, drop, method);
    }
    if (hooked)
      return in.breaks(std::string("an attribute of a ") + t->tp_name + ", which looks them up itself");
    return instance_attribute(in, f, object, name, drop, method);
  }
  PyRef value(PyObject_GetAttr(object, name));  // a class of C
  if (!value) return Outcome::raised;
  bool bound =
      PyCFunction_Check(value.get()) || !std::strcmp(Py_TYPE(value.get())->tp_name, "method-wrapper");
  if (!bound && !is_atom(object)) r->attribute(object, name, value.get());
  return push_value(f, drop, std::move(value), method);
}

Outcome load_generic(Interpreter& in, Frame& f, PyObject* o, PyObject* name, size_t drop) {
  PyObject* fallback = _PyType_Lookup(Py_TYPE(o), names::__getattr__);
  if (fallback) return in.breaks("object.__getattribute__ of an object whose class has __getattr__");
  PyRef key = PyRef::share(name), held = PyRef::share(o);
  PyObject* interned = key.detach();
  PyUnicode_InternInPlace(&interned);
  key = PyRef(interned);
  return instance_attribute(in, f, o, key.get(), drop, false);
}

// An attribute of a class or a module.
static Outcome store_in_namespace(Interpreter& in, Frame& f, PyObject* o, PyObject* name, PyObject* value,
                                  size_t drop) {
  PyTypeObject* t = Py_TYPE(o);
  bool usual = t == &PyType_Type || t == &PyModule_Type || t->tp_setattro == PyType_Type.tp_setattro;
  if (!usual) return in.breaks("an assignment to an attribute of a class or module that treats it itself");
  if (PyType_Check(o)) in.recorder->member(o, name, _PyType_Lookup(reinterpret_cast<PyTypeObject*>(o), name));
  in.recorder->constant(o);
  in.recorder->remember(o, name);
  if (PyObject_SetAttr(o, name, value) < 0) return Outcome::raised;
  in.recorder->write(Write::Kind::set_attribute, o, name, value, true);
  f.drop(drop);
  return Outcome::next;
}

Outcome delete_attribute(Interpreter& in, Frame& f, PyObject* object, PyObject* name) {
  auto* r = in.recorder;
  if (is_tensor(object) || PyType_Check(object) || PyModule_Check(object))
    return in.breaks(std::string("`del` of an attribute of a ") + Py_TYPE(object)->tp_name);
  PyRef key = checked(PyUnicode_InternFromString("__delattr__"));
  PyObject* own = python_method(object, "__delattr__");
  if (own) {
    r->member(object, key.get(), own);
    return call(in, f, {own, {object, name}, 2, nullptr, 1, Role::discard});
  }
  PyObject* looked_up = _PyType_Lookup(Py_TYPE(object), name);
  if (looked_up && Py_TYPE(looked_up)->tp_descr_set)
    return in.breaks("`del` of an attribute that a descriptor treats");
  r->member(object, name, looked_up);
  PyRef value(PyObject_GetAttr(object, name));
  if (value) r->attribute(object, name, value.get());
  else PyErr_Clear(), r->absent(object, name);
  r->remember(object, name);
  if (PyObject_GenericSetAttr(object, name, nullptr) < 0) return Outcome::raised;
  if (r->is_outside(object)) r->write(Write::Kind::delete_attribute, object, name, nullptr, true);
  f.drop(1);
  return Outcome::next;
}

// object.__setattr__, as a class looks it up.
static bool is_usual_setter(PyObject* setter) {
  return setter && Py_TYPE(setter) == &PyWrapperDescr_Type &&
         reinterpret_cast<PyWrapperDescrObject*>(setter)->d_wrapped ==
             reinterpret_cast<void*>(PyObject_GenericSetAttr);
}

Outcome store_attribute(Interpreter& in, Frame& f, PyObject* object, PyObject* name, PyObject* value,
                        size_t drop) {
  PyRef o = PyRef::share(object), owner_ref = PyRef::share(value);
  auto* r = in.recorder;
  PyTypeObject* t = Py_TYPE(object);
  if (is_tensor(object)) {
    if (!std::strcmp(PyUnicode_AsUTF8(name), "grad") && is_plain(t))
      return store_gradient(in, f, object, name, value, drop);
    if (_PyType_Lookup(t, name))
      return in.breaks(std::string("an assignment to the attribute `") + PyUnicode_AsUTF8(name) +
                       "` of a tensor");
  } else if (PyType_Check(object) || PyModule_Check(object)) {
    return store_in_namespace(in, f, object, name, value, drop);
  } else {
    PyRef key = checked(PyUnicode_InternFromString("__setattr__"));
    PyObject* setter = _PyType_Lookup(t, key.get());
    if (setter && PyFunction_Check(setter)) {
      r->member(object, key.get(), setter);
      return call(in, f, {setter, {object, name, value}, 3, nullptr, drop, Role::discard});
    }
    if (t->tp_setattro != PyObject_GenericSetAttr && !is_usual_setter(setter))
      return in.breaks("an assignment to an attribute that a class treats itself");
    PyObject* looked_up = _PyType_Lookup(t, name);
    r->member(object, name, looked_up);
    if (looked_up && Py_TYPE(looked_up) == &PyProperty_Type) {
      PyRef set(PyObject_GetAttrString(looked_up, "fset"));
      if (!set || !PyFunction_Check(set.get())) return in.breaks("an assignment to a property");
      r->constant(set.get());
      return call(in, f, {set.get(), {object, value}, 2, nullptr, drop, Role::discard});
    }
    if (looked_up && Py_TYPE(looked_up)->tp_descr_set && !is_bound_by_c(looked_up)) {
      PyObject* set = python_method(looked_up, "__set__");
      if (!set) return in.breaks("an assignment to a descriptor that is not a function of Python");
      r->constant(looked_up);
      return call(in, f, {set, {looked_up, object, value}, 3, nullptr, drop, Role::discard});
    }
  }
  r->remember(object, name);
  if (PyObject_GenericSetAttr(object, name, value) < 0) return Outcome::raised;
  if (is_tensor(object)) track(object);
  if (r->is_outside(object)) r->write(Write::Kind::set_attribute, object, name, value, true);
  f.drop(drop);
  return Outcome::next;
}

}  // namespace facula::bind::capture
