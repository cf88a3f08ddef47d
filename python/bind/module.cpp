// ModuleBase: the parts of nn.Module that every forward pass goes through. A call without hooks goes straight
// to forward; an attribute is found in the instance dict, then among parameters, buffers and submodules.
//
// Two traps of CPython. A class with __getattr__ anywhere gets the slow attribute slot, and so would every
// subclass: the fast one is put back for each subclass that defines neither __getattr__ nor __getattribute__ itself. A
// subclass that does is asked in Python's order, for parameters too: __getattribute__ is that of `object`, which does not
// know them, and __getattr__ follows. And 3.11 neither inherits nor clears the vectorcall flag on heap types: it is set for each subclass, and a call
// checks that nobody has put another __call__ there.
//
// Errors of the modules of `nn` name the class, those of functions that they call the function.
#include "capture/guards.h"
#include "override.h"
#include "tensor.h"

namespace facula::bind {

namespace {

struct ModuleObject {
  PyObject_HEAD PyObject* dict;
  PyObject* weakrefs;
  vectorcallfunc call;
};
PyTypeObject* ModuleType;
PyObject* inherited_call;          // ModuleBase's own __call__
PyObject* inherited_getattr;       // ModuleBase's own __getattr__
PyObject* inherited_getattribute;  // that of `object`
bool global_hooks = false;

PyObject* dict_of(PyObject* o) { return reinterpret_cast<ModuleObject*>(o)->dict; }

// Looked up where instances keep parameters, buffers and submodules; borrowed, null without exception if
// absent.
PyObject* registered(PyObject* o, PyObject* name) {
  PyObject* dict = dict_of(o);
  if (!dict) return nullptr;
  for (PyObject* group : {names::_parameters, names::_modules, names::_buffers}) {
    PyObject* members = PyDict_GetItemWithError(dict, group);
    if (!members || !PyDict_Check(members)) continue;
    if (PyObject* found = PyDict_GetItemWithError(members, name)) return found;
  }
  return nullptr;
}

PyObject* no_attribute(PyObject* o, PyObject* name) {
  return PyErr_Format(PyExc_AttributeError, "'%s' object has no attribute '%U'", Py_TYPE(o)->tp_name, name);
}

PyObject* module_getattro(PyObject* o, PyObject* name) {
  PyTypeObject* type = Py_TYPE(o);
  // A name that the class does not know is the usual case of a parameter or submodule.
  if (!_PyType_Lookup(type, name)) {
    PyObject* dict = dict_of(o);
    if (dict)
      if (PyObject* found = PyDict_GetItemWithError(dict, name)) return Py_NewRef(found);
    if (PyObject* found = registered(o, name)) return Py_NewRef(found);
    return PyErr_Occurred() ? nullptr : no_attribute(o, name);
  }
  PyObject* found = PyObject_GenericGetAttr(o, name);
  if (found || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
  PyObject* member = registered(o, name);  // a property raised; a member may stand behind it
  if (!member) return nullptr;
  PyErr_Clear();
  return Py_NewRef(member);
}

// For super().__getattr__(name) in subclasses that define their own.
PyObject* module_getattr(PyObject* o, PyObject* name) {
  if (PyObject* found = registered(o, name)) return Py_NewRef(found);
  return PyErr_Occurred() ? nullptr : no_attribute(o, name);
}

bool has_hooks(PyObject* dict) {
  for (PyObject* name : {names::_forward_hooks, names::_forward_pre_hooks, names::_backward_hooks,
                         names::_backward_pre_hooks}) {
    PyObject* hooks = PyDict_GetItemWithError(dict, name);
    if (hooks && PyDict_Check(hooks) && PyDict_GET_SIZE(hooks)) return true;
  }
  return false;
}

// The exception of a call of `method` of `o`, which says whose it is.
PyObject* raised_by(PyObject* o, PyObject* method, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  std::vector<PyObject*> all{o};
  all.insert(all.end(), args, args + n + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0));
  PyTypeObject* type = Py_TYPE(o);
  PyObject *kind, *value, *trace;
  PyErr_Fetch(&kind, &value, &trace);  // a look-up clears it
  PyRef f = PyRef::share(_PyType_Lookup(type, method));
  PyErr_Restore(kind, value, trace);
  if (f && PyFunction_Check(f.get()) && is_our_module(PyFunction_GET_GLOBALS(f.get()), "facula.nn"))
    name_error(type->tp_name, f.get(), all.data(), n + 1, kwnames, true, method == names::__init__);
  return nullptr;
}

PyObject* module_call(PyObject* o, PyObject* const* args, size_t nargsf, PyObject* kwnames, bool direct) {
  PyTypeObject* type = Py_TYPE(o);
  Py_ssize_t n = PyVectorcall_NARGS(nargsf);
  if (!direct) {
    PyObject* call = _PyType_Lookup(type, names::__call__);
    if (call != inherited_call) {  // a subclass defined or patched __call__
      PyRef bound(Py_TYPE(call)->tp_descr_get
                      ? Py_TYPE(call)->tp_descr_get(call, o, reinterpret_cast<PyObject*>(type))
                      : Py_NewRef(call));
      return bound ? PyObject_Vectorcall(bound.get(), args, nargsf, kwnames) : nullptr;
    }
  }
  PyObject* dict = dict_of(o);
  PyObject* name = names::forward;
  if (global_hooks || (dict && has_hooks(dict))) name = names::_call_impl;
  PyObject* own = dict ? PyDict_GetItemWithError(dict, name) : nullptr;  // forward replaced on the instance
  if (own) {
    PyRef keep = PyRef::share(own);
    return PyObject_Vectorcall(own, args, nargsf, kwnames);
  }
  PyObject* f = _PyType_Lookup(type, name);
  if (!f) return no_attribute(o, name);
  if (!PyType_HasFeature(Py_TYPE(f), Py_TPFLAGS_METHOD_DESCRIPTOR)) {
    PyRef bound(Py_TYPE(f)->tp_descr_get ? Py_TYPE(f)->tp_descr_get(f, o, reinterpret_cast<PyObject*>(type))
                                         : Py_NewRef(f));
    return bound ? PyObject_Vectorcall(bound.get(), args, nargsf, kwnames) : nullptr;
  }
  PyRef keep = PyRef::share(f);
  if (nargsf & PY_VECTORCALL_ARGUMENTS_OFFSET) {  // the slot before the arguments is ours for the call
    auto** with_self = const_cast<PyObject**>(args) - 1;
    PyObject* saved = with_self[0];
    with_self[0] = o;
    PyObject* r = PyObject_Vectorcall(f, with_self, size_t(n) + 1, kwnames);
    with_self[0] = saved;
    return r ? r : raised_by(o, names::forward, args, n, kwnames);
  }
  Py_ssize_t all = n + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  PyObject* few[12];
  std::vector<PyObject*> many;
  PyObject** copy = few;
  if (all + 1 > 12) {
    many.resize(size_t(all) + 1);
    copy = many.data();
  }
  copy[0] = o;
  std::copy(args, args + all, copy + 1);
  PyObject* r = PyObject_Vectorcall(f, copy, size_t(n) + 1, kwnames);
  return r ? r : raised_by(o, names::forward, args, n, kwnames);
}

PyObject* vectorcall(PyObject* o, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  return module_call(o, args, nargsf, kwnames, false);
}
// ModuleBase.__call__: also what super().__call__(...) reaches.
PyObject* call_method(PyObject* o, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  return module_call(o, args, size_t(n), kwnames, true);
}

PyObject* module_new(PyTypeObject* type, PyObject*, PyObject*) {
  PyObject* o = type->tp_alloc(type, 0);
  if (o) reinterpret_cast<ModuleObject*>(o)->call = vectorcall;
  return o;
}
int traverse(PyObject* o, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(o));
  Py_VISIT(dict_of(o));
  return 0;
}
int clear(PyObject* o) {
  Py_CLEAR(reinterpret_cast<ModuleObject*>(o)->dict);
  return 0;
}
void dealloc(PyObject* o) {
  PyObject_GC_UnTrack(o);
  auto* m = reinterpret_cast<ModuleObject*>(o);
  if (m->weakrefs) PyObject_ClearWeakRefs(o);
  Py_CLEAR(m->dict);
  PyTypeObject* t = Py_TYPE(o);
  t->tp_free(o);
  Py_DECREF(t);
}

initproc python_init;  // what calls an __init__ of Python
int module_init(PyObject* o, PyObject* args, PyObject* kwargs) {
  int failed = python_init(o, args, kwargs);
  if (!failed) return 0;
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  std::vector<PyObject*> given(PySequence_Fast_ITEMS(args),
                               PySequence_Fast_ITEMS(args) + PyTuple_GET_SIZE(args));
  PyRef keys(kwargs ? PyDict_Keys(kwargs) : PyList_New(0)), values(kwargs ? PyDict_Values(kwargs) : nullptr);
  PyRef names(keys ? PyList_AsTuple(keys.get()) : nullptr);
  for (Py_ssize_t k = 0; values && k < PyList_GET_SIZE(values.get()); ++k)
    given.push_back(PyList_GET_ITEM(values.get(), k));
  PyErr_Clear();
  PyErr_Restore(type, value, trace);
  if (names) raised_by(o, names::__init__, given.data(), PyTuple_GET_SIZE(args), names.get());
  return failed;
}

// Sets a subclass's slots as the class stands now.
void restore_slots(PyTypeObject* type) {
  if (!python_init && PyDict_Contains(type->tp_dict, names::__init__) == 1) python_init = type->tp_init;
  if (type->tp_init == python_init) type->tp_init = module_init;
  bool inherits_look_up = _PyType_Lookup(type, names::__getattr__) == inherited_getattr &&
                          _PyType_Lookup(type, names::__getattribute__) == inherited_getattribute;
  if (inherits_look_up) type->tp_getattro = module_getattro;
  if (!(type->tp_flags & Py_TPFLAGS_HAVE_VECTORCALL)) {
    type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
    type->tp_vectorcall_offset = offsetof(ModuleObject, call);
  }
}

PyObject* init_subclass(PyObject* cls, PyObject* args, PyObject* kwargs) {
  PyRef super(PyObject_CallFunction(reinterpret_cast<PyObject*>(&PySuper_Type), "OO", ModuleType, cls));
  PyRef f(super ? PyObject_GetAttrString(super.get(), "__init_subclass__") : nullptr);
  PyRef done(f ? PyObject_Call(f.get(), args, kwargs) : nullptr);
  if (!done) return nullptr;
  restore_slots(reinterpret_cast<PyTypeObject*>(cls));
  Py_RETURN_NONE;
}

PyObject* set_global_hooks(PyObject*, PyObject* on) {
  global_hooks = PyObject_IsTrue(on) == 1;
  Py_RETURN_NONE;
}

PyMemberDef members[] = {{"__dictoffset__", T_PYSSIZET, offsetof(ModuleObject, dict), READONLY, nullptr},
                         {"__weaklistoffset__", T_PYSSIZET, offsetof(ModuleObject, weakrefs), READONLY,
                          nullptr},
                         {"__vectorcalloffset__", T_PYSSIZET, offsetof(ModuleObject, call), READONLY,
                          nullptr},
                         {nullptr, 0, 0, 0, nullptr}};
PyMethodDef call_def = {"__call__", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call_method)),
                        METH_FASTCALL | METH_KEYWORDS,
                        "__call__($self, /, *args, **kwargs)\n--\n\nRuns forward, and the hooks around it."};
PyMethodDef methods[] = {{"__getattr__", module_getattr, METH_O, nullptr},
                         {"__init_subclass__",
                          reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(init_subclass)),
                          METH_VARARGS | METH_KEYWORDS | METH_CLASS, nullptr},
                         {nullptr, nullptr, 0, nullptr}};
PyGetSetDef getset[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
                        {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(module_new)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
                       {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                       {Py_tp_clear, reinterpret_cast<void*>(clear)},
                       {Py_tp_getattro, reinterpret_cast<void*>(module_getattro)},
                       {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                       {Py_tp_members, members},
                       {Py_tp_methods, methods},
                       {Py_tp_getset, getset},
                       {0, nullptr}};
PyType_Spec spec = {"facula._C.ModuleBase", sizeof(ModuleObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC |
                        Py_TPFLAGS_HAVE_VECTORCALL,
                    slots};
PyMethodDef functions[] = {{"set_global_hooks", set_global_hooks, METH_O,
                            "True: every module's call goes through _call_impl."},
                           {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool capture::is_module(PyObject* o) { return PyObject_TypeCheck(o, ModuleType); }
bool capture::calls_forward_directly(PyObject* o) {
  PyObject* dict = dict_of(o);
  return _PyType_Lookup(Py_TYPE(o), names::__call__) == inherited_call && !global_hooks &&
         !(dict && has_hooks(dict));
}

void add_module_base(PyObject* module) {
  ModuleType = add_type(module, &spec);
  // A method in place of the slot's wrapper, which would come back to the class's own __call__ from
  // super().__call__.
  inherited_call = checked(PyDescr_NewMethod(ModuleType, &call_def)).detach();
  checked(PyDict_SetItem(ModuleType->tp_dict, names::__call__, inherited_call));
  // The wrapper of tp_getattro finds parameters, so that a subclass's __getattr__ would never be asked for them.
  checked(PyDict_DelItem(ModuleType->tp_dict, names::__getattribute__));
  PyType_Modified(ModuleType);
  inherited_getattr = Py_NewRef(_PyType_Lookup(ModuleType, names::__getattr__));
  inherited_getattribute = Py_NewRef(_PyType_Lookup(ModuleType, names::__getattribute__));
  add_functions(module, functions);
}

}  // namespace facula::bind
