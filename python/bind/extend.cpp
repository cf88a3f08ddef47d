#include "extend.h"

#include <unordered_map>

#include "facula/extend/library.h"
#include "facula/extend/method_operator.h"
#include "facula/extend/native.h"
#include "facula/extend/python_api.h"
#include "facula/extend/transaction.h"
#include "facula/op/registry.h"
#include "tensor.h"
#include "trampoline.h"
#include "types.h"

namespace facula::bind {
namespace {

using extend::Class;
using extend::Method;

struct ObjectObject {
  PyObject_HEAD CustomClassHolder* object;  // strong; null before __init__
};
PyTypeObject* ObjectType;
PyObject* python_class;  // (namespace, name) -> the Python class of a C++ one

CustomClassHolder* object_of(PyObject* o) { return reinterpret_cast<ObjectObject*>(o)->object; }
bool is_object(PyObject* o) { return PyObject_TypeCheck(o, ObjectType) && object_of(o); }

// ---- values

struct Deeper {
  Deeper() {
    if (Py_EnterRecursiveCall(" in a value for C++")) throw PythonError();
  }
  ~Deeper() { Py_LeaveRecursiveCall(); }
};

io::Value value_of(PyObject* o);
io::List items_of(PyObject* sequence) {
  io::List items;
  for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(sequence); ++k)
    items.push_back(value_of(PySequence_Fast_GET_ITEM(sequence, k)));
  return items;
}
io::Dict dict_of(PyObject* o) {
  io::Dict dict;
  PyObject *key, *x;
  for (Py_ssize_t at = 0; PyDict_Next(o, &at, &key, &x);) dict.set(value_of(key), value_of(x));
  return dict;
}
io::Value number_of(const Scalar& s) {
  switch (s.category()) {
    case Category::boolean: return s.to_bool();
    case Category::integral: return s.to_int();
    case Category::floating: return s.to_double();
    default: return s.to_complex();
  }
}

io::Value value_of(PyObject* o) {
  if (o == Py_None) return {};
  if (is_tensor(o)) return tensor_of(o);
  if (is_object(o)) return Ref<CustomClassHolder>::share(object_of(o));
  if (PyUnicode_Check(o)) return text_of(o);
  Deeper here;
  if (PyTuple_Check(o)) return io::Tuple{items_of(o)};
  if (PyList_Check(o)) return items_of(o);
  if (PyDict_Check(o)) return dict_of(o);
  Scalar s;
  if (to_scalar(o, s)) return number_of(s);
  DType d;
  if (to_dtype(o, d)) return d;
  type_check(false, "")
      << "C++ classes take no " << Py_TYPE(o)->tp_name
      << hint(
             "None, bool, int, float, complex, str, dtype, Tensor, list, tuple, dict and objects "
             "of such classes are taken");
  __builtin_unreachable();
}

PyRef object_of_value(const io::Value& v) {
  using Kind = io::Value::Kind;
  switch (v.kind()) {
    case Kind::none: return PyRef::share(Py_None);
    case Kind::boolean: return PyRef::share(v.boolean() ? Py_True : Py_False);
    case Kind::integer: return checked(PyLong_FromLongLong(v.integer()));
    case Kind::real: return checked(PyFloat_FromDouble(v.number()));
    case Kind::complex: return checked(PyComplex_FromDoubles(v.complex().real(), v.complex().imag()));
    case Kind::string: return checked(unicode(v.string()));
    case Kind::dtype: return checked(wrap(v.dtype()));
    case Kind::tensor: return checked(wrap(v.tensor()));
    case Kind::object: return checked(wrap_object(v.custom_object()));
    case Kind::dict: {
      PyRef dict = checked(PyDict_New());
      for (auto& [key, x] : v.dict())
        checked(PyDict_SetItem(dict.get(), object_of_value(key).get(), object_of_value(x).get()));
      return dict;
    }
    default: break;
  }
  auto& items = v.list();
  bool tuple = v.kind() == Kind::tuple;
  PyRef made = checked(tuple ? PyTuple_New(Py_ssize_t(items.size())) : PyList_New(Py_ssize_t(items.size())));
  for (size_t k = 0; k < items.size(); ++k) {
    PyObject* x = object_of_value(items[k]).detach();
    if (tuple) PyTuple_SET_ITEM(made.get(), Py_ssize_t(k), x);
    else PyList_SET_ITEM(made.get(), Py_ssize_t(k), x);
  }
  return made;
}

// ---- classes

const Class& known_class(const char* ns, const char* name) {
  auto* c = extend::find_class(ns, name);
  runtime_check(c, "")
      << "Tried to instantiate class '" << ns << "." << name
      << "', but it does not exist! Ensure that it is registered via class_, in a library that "
         "load_library was given.";
  return *c;
}
const Class& class_of_object(PyObject* o) {
  runtime_check(object_of(o), Py_TYPE(o)->tp_name) << "the object was never made: __init__ was not called";
  return *extend::class_of(*object_of(o));
}

PyObject* text_ref(const std::string& s) { return unicode(s); }
PyObject* facts_of(const Method& m) {
  PyRef parameters = checked(PyList_New(0));
  for (auto& p : m.parameters) {
    PyRef fallback = p.fallback ? object_of_value(*p.fallback) : PyRef::share(Py_None);
    checked(PyList_Append(parameters.get(),
                          checked(Py_BuildValue("(ssOO)", p.name.c_str(), p.type().c_str(),
                                                p.fallback ? Py_True : Py_False, fallback.get()))
                              .get()));
  }
  return Py_BuildValue("(ssNOs)", m.name.c_str(), m.doc.c_str(), text_ref(m.schema()), parameters.get(),
                       m.result().c_str());
}
PyRef facts_of(const std::vector<Method>& methods) {
  PyRef list = checked(PyList_New(0));
  for (auto& m : methods) checked(PyList_Append(list.get(), checked(facts_of(m)).get()));
  return list;
}

// class_facts(namespace, name) -> dict
PyObject* class_facts(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    const char *ns, *name;
    if (!PyArg_ParseTuple(args, "ss:class_facts", &ns, &name)) return nullptr;
    auto& c = known_class(ns, name);
    PyRef properties = checked(PyList_New(0));
    for (auto& p : c.properties)
      checked(PyList_Append(properties.get(),
                            checked(Py_BuildValue("(sssO)", p.name.c_str(), p.doc.c_str(),
                                                  p.getter.result().c_str(), p.setter ? Py_True : Py_False))
                                .get()));
    PyRef make = PyRef::share(Py_None);
    if (c.make) make = checked(facts_of(*c.make));
    PyRef methods = facts_of(c.methods), statics = facts_of(c.static_methods);
    return Py_BuildValue("{s:s,s:O,s:O,s:O,s:O,s:O}", "doc", c.doc.c_str(), "init", make.get(), "methods",
                         methods.get(), "static", statics.get(), "properties", properties.get(), "pickles",
                         c.get_state ? Py_True : Py_False);
  });
}

PyObject* class_names(PyObject*, PyObject*) {
  return guarded([&]() -> PyObject* {
    PyRef list = checked(PyList_New(0));
    for (auto* c : extend::classes())
      checked(
          PyList_Append(list.get(), checked(Py_BuildValue("(ss)", c->ns.c_str(), c->name.c_str())).get()));
    return list.detach();
  });
}

// `self`: null for what has no object. The method runs without the GIL, as the operators do that it calls.
io::Value call_method(const Method& m, PyObject* self, PyObject* args, PyObject* kwargs) {
  io::List given;
  if (self) given.push_back(Ref<CustomClassHolder>::share(object_of(self)));
  for (auto& v : items_of(args)) given.push_back(v);
  io::Dict named = kwargs && kwargs != Py_None ? dict_of(kwargs) : io::Dict();
  WithoutGil free;
  return m(given, named);
}

const Method* find_method(const std::vector<Method>& methods, std::string_view name) {
  for (auto& m : methods)
    if (m.name == name) return &m;
  return nullptr;
}
const extend::Property* find_property(const Class& c, std::string_view name) {
  for (auto& p : c.properties)
    if (p.name == name) return &p;
  return nullptr;
}

int object_init(PyObject* self, PyObject* args, PyObject* kwargs) {
  return guarded_int([&] {
    PyRef ns = checked(PyObject_GetAttrString(self, "_namespace"));
    PyRef name = checked(PyObject_GetAttrString(self, "_class_name"));
    auto& c = known_class(std::string(text_of(ns.get())).c_str(), std::string(text_of(name.get())).c_str());
    runtime_check(c.make, c.full_name()) << "has no constructor: its class_ has no def(init<...>())";
    auto made = call_method(*c.make, nullptr, args, kwargs).custom_object();
    auto* old = std::exchange(reinterpret_cast<ObjectObject*>(self)->object, made.detach());
    if (old) old->release();
  });
}

// object._call(name, args, kwargs), object._get(name), object._set(name, value), object._state()
PyObject* object_call(PyObject* self, PyObject* args) {
  return guarded([&]() -> PyObject* {
    const char* name;
    PyObject *positional, *named;
    if (!PyArg_ParseTuple(args, "sO!O!:_call", &name, &PyTuple_Type, &positional, &PyDict_Type, &named))
      return nullptr;
    auto* m = find_method(class_of_object(self).methods, name);
    runtime_check(m, name) << "the class has no method of this name";
    return object_of_value(call_method(*m, self, positional, named)).detach();
  });
}
// object._recordable(name, args, kwargs) -> (full name of the method's operator, its arguments behind the object)
PyObject* object_recordable(PyObject* self, PyObject* args) {
  return guarded([&]() -> PyObject* {
    const char* name;
    PyObject *positional, *named;
    if (!PyArg_ParseTuple(args, "sO!O!:_recordable", &name, &PyTuple_Type, &positional, &PyDict_Type, &named))
      return nullptr;
    auto& c = class_of_object(self);
    auto* m = find_method(c.methods, name);
    runtime_check(m, name) << "the class has no method of this name";
    io::List positionals{Ref<CustomClassHolder>::share(object_of(self))};
    for (auto& v : items_of(positional)) positionals.push_back(v);
    io::List checked_arguments = m->arguments(positionals, dict_of(named));
    PyRef rest = object_of_value(io::List(checked_arguments.begin() + 1, checked_arguments.end()));
    return Py_BuildValue("(NO)", text_ref(extend::method_operator(c, *m)), rest.get());
  });
}
PyObject* object_get(PyObject* self, PyObject* name) {
  return guarded([&]() -> PyObject* {
    auto* p = find_property(class_of_object(self), text_of(name));
    runtime_check(p, std::string(text_of(name))) << "the class has no property of this name";
    PyRef none = checked(PyTuple_New(0));
    return object_of_value(call_method(p->getter, self, none.get(), nullptr)).detach();
  });
}
PyObject* object_set(PyObject* self, PyObject* args) {
  return guarded([&]() -> PyObject* {
    const char* name;
    PyObject* value;
    if (!PyArg_ParseTuple(args, "sO:_set", &name, &value)) return nullptr;
    auto* p = find_property(class_of_object(self), name);
    runtime_check(p && p->setter, name) << "the class has no property of this name that can be set";
    PyRef one = checked(PyTuple_Pack(1, value));
    call_method(*p->setter, self, one.get(), nullptr);
    Py_RETURN_NONE;
  });
}
PyObject* object_state(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    auto& c = class_of_object(self);
    runtime_check(c.get_state, "pickle")
        << "Tried to serialize object __torch__.torch.classes." << c.full_name()
        << " which does not have a __getstate__ method defined!"
        << hint("give its class_ a def_pickle(get, set)");
    PyRef none = checked(PyTuple_New(0));
    return object_of_value(call_method(*c.get_state, self, none.get(), nullptr)).detach();
  });
}
PyObject* object_hash_of(PyObject* self, PyObject*) { return PyLong_FromVoidPtr(object_of(self)); }

// class_static(namespace, name, method, args, kwargs)
PyObject* class_static(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    const char *ns, *name, *method;
    PyObject *positional, *named;
    if (!PyArg_ParseTuple(args, "sssO!O!:class_static", &ns, &name, &method, &PyTuple_Type, &positional,
                          &PyDict_Type, &named))
      return nullptr;
    auto* m = find_method(known_class(ns, name).static_methods, method);
    runtime_check(m, method) << "the class has no static method of this name";
    return object_of_value(call_method(*m, nullptr, positional, named)).detach();
  });
}
// class_restore(namespace, name, state) -> an object
PyObject* class_restore(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    const char *ns, *name;
    PyObject* state;
    if (!PyArg_ParseTuple(args, "ssO:class_restore", &ns, &name, &state)) return nullptr;
    auto& c = known_class(ns, name);
    runtime_check(c.set_state, c.full_name()) << "cannot be restored: its class_ has no def_pickle(get, set)";
    PyRef one = checked(PyTuple_Pack(1, state));
    return object_of_value(call_method(*c.set_state, nullptr, one.get(), nullptr)).detach();
  });
}
PyObject* set_class_factory(PyObject*, PyObject* f) {
  Py_XSETREF(python_class, Py_NewRef(f));
  Py_RETURN_NONE;
}

void object_dealloc(PyObject* o) {
  PyTypeObject* t = Py_TYPE(o);
  if (PyType_IS_GC(t)) PyObject_GC_UnTrack(o);
  if (auto* object = object_of(o)) object->release();
  t->tp_free(o);
  Py_DECREF(t);
}
PyObject* object_compare(PyObject* a, PyObject* b, int op) {
  if ((op != Py_EQ && op != Py_NE) || !is_object(a) || !is_object(b)) Py_RETURN_NOTIMPLEMENTED;
  return PyBool_FromLong((object_of(a) == object_of(b)) == (op == Py_EQ));
}
Py_hash_t object_hash(PyObject* o) { return Py_hash_t(reinterpret_cast<uintptr_t>(object_of(o)) >> 4); }

PyMethodDef object_methods[] = {
    {"_call", object_call, METH_VARARGS, "_call(name, args, kwargs): a method of the C++ object."},
    {"_recordable", object_recordable, METH_VARARGS,
     "_recordable(name, args, kwargs) -> (operator that graphs call for the method, arguments)"},
    {"_get", object_get, METH_O, "The value of a property of the C++ object."},
    {"_set", object_set, METH_VARARGS, "_set(name, value): sets a property of the C++ object."},
    {"_state", object_state, METH_NOARGS, "What its class makes an equal object of."},
    {"_identity", object_hash_of, METH_NOARGS, "A number that tells C++ objects apart."},
    {nullptr, nullptr, 0, nullptr}};
PyType_Slot object_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(object_dealloc)},
                              {Py_tp_init, reinterpret_cast<void*>(object_init)},
                              {Py_tp_new, reinterpret_cast<void*>(PyType_GenericNew)},
                              {Py_tp_richcompare, reinterpret_cast<void*>(object_compare)},
                              {Py_tp_hash, reinterpret_cast<void*>(object_hash)},
                              {Py_tp_methods, object_methods},
                              {Py_tp_doc,
                               const_cast<char*>("An object of a C++ class that a library registered.")},
                              {0, nullptr}};
PyType_Spec object_spec = {"facula.ScriptObject", sizeof(ObjectObject), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, object_slots};

// ---- operators

// load_library(path) -> full names of the operators that it brought
PyObject* load_library(PyObject*, PyObject* path) {
  return guarded([&]() -> PyObject* {
    size_t before = op::all().size();
    try {
      facula::load_library(std::string(text_of(path)));
    } catch (const Error& e) {
      if (e.op() != kCouldNotLoad) throw;
      PyErr_SetString(PyExc_OSError, e.what());
      return nullptr;
    }
    PyRef names = checked(PyList_New(0));
    for (size_t k = before; k < op::all().size(); ++k)
      checked(PyList_Append(names.get(), checked(unicode(op::all()[k]->schema.full_name())).get()));
    return names.detach();
  });
}
PyObject* claim_namespace(PyObject*, PyObject* ns) {
  return guarded([&]() -> PyObject* {
    extend::claim_namespace(std::string(text_of(ns)));
    Py_RETURN_NONE;
  });
}
PyObject* release_namespace(PyObject*, PyObject* ns) {
  return guarded([&]() -> PyObject* {
    extend::release_namespace(std::string(text_of(ns)));
    Py_RETURN_NONE;
  });
}

struct Kernel {
  Overload overload;
  op::CompositeBody body;
};
constexpr const char* kKernel = "facula kernel";

PyObject* call_kernel(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  return guarded([&]() -> PyObject* {
    auto& k = *static_cast<Kernel*>(PyCapsule_GetPointer(self, kKernel));
    auto& o = *k.overload.op;
    Frame f;
    if (!parse(k.overload, nullptr, args, n, kwnames, true, false, f)) {
      raise_mismatch(o.name(), {&k.overload, 1}, nullptr, args, n, kwnames, false);
      return nullptr;
    }
    op::Args kept(std::span<const op::Value>(f.values(), o.schema.parameters.size()));
    op::Results results;
    {
      WithoutGil free;
      results = k.body(op::Call(o, kept.values()));
    }
    auto& returns = o.schema.returns;
    if (returns.empty()) Py_RETURN_NONE;
    if (returns.size() == 1 && !returns[0].list) return wrap(results[0]);
    PyRef tuple = checked(wrap_list(results.all()));
    return returns[0].list ? PySequence_List(tuple.get()) : tuple.detach();
  });
}
PyMethodDef kernel_def = {"kernel", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call_kernel)),
                          METH_FASTCALL | METH_KEYWORDS, "A kernel that a library gave in C++."};

PyMethodDef functions[] = {
    {"load_library", load_library, METH_O, "Loads a shared library; gives the names of its operators."},
    {"claim_namespace", claim_namespace, METH_O,
     "Notes that a namespace has its one library of definitions."},
    {"release_namespace", release_namespace, METH_O, "Lets another library define the namespace."},
    {"class_names", class_names, METH_NOARGS, "[(namespace, name)] of the C++ classes that were registered."},
    {"class_facts", class_facts, METH_VARARGS, "class_facts(namespace, name): what a C++ class has."},
    {"class_static", class_static, METH_VARARGS, "class_static(namespace, name, method, args, kwargs)"},
    {"class_restore", class_restore, METH_VARARGS, "class_restore(namespace, name, state) -> object"},
    {"set_class_factory", set_class_factory, METH_O,
     "Sets what gives the Python class of (namespace, name)."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

PyObject* wrap_kernel(const op::Operator& o, op::CompositeBody kernel) {
  auto* made = new Kernel{make_overload(o), std::move(kernel)};
  PyRef capsule = checked(PyCapsule_New(made, kKernel, [](PyObject* c) {
    delete static_cast<Kernel*>(PyCapsule_GetPointer(c, kKernel));
  }));
  return PyCFunction_New(&kernel_def, capsule.get());
}

PyObject* wrap_object(Ref<CustomClassHolder> o) {
  auto* c = extend::class_of(*o);
  runtime_check(c, "") << "an object of a C++ class that was not registered with class_: "
                       << typeid(*o).name();
  if (!python_class) checked(PyImport_ImportModule("facula._classes"));
  PyRef type = checked(PyObject_CallFunction(python_class, "ss", c->ns.c_str(), c->name.c_str()));
  auto* t = reinterpret_cast<PyTypeObject*>(type.get());
  PyRef made = checked(t->tp_alloc(t, 0));
  reinterpret_cast<ObjectObject*>(made.get())->object = o.detach();
  return made.detach();
}

CustomClassHolder* object_argument(PyObject* o, std::string_view class_name) {
  if (!is_object(o)) return nullptr;
  auto* c = extend::class_of(*object_of(o));
  return c && c->full_name() == class_name ? object_of(o) : nullptr;
}

// The functions that users' C++ modules call (torch/python.h).
static const extend::PythonApi api = {
    [](PyObject* o) { return is_tensor(o) ? impl_of(o) : nullptr; },
    [](TensorImpl* t) { return guarded([&] { return wrap(Tensor(Ref<TensorImpl>::share(t))); }); },
    [](PyObject* o, DType* d) { return to_dtype(o, *d); },
    [](DType d) { return wrap(d); },
    [](PyObject* o, Device* d) { return to_device(o, *d); },
    [](Device d) { return wrap(d); },
    [](PyObject* o) { return is_object(o) ? object_of(o) : nullptr; },
    [](CustomClassHolder* o) {
      return guarded([&] { return wrap_object(Ref<CustomClassHolder>::share(o)); });
    },
    [] { set_python_error(); },
};

void add_extend(PyObject* module) {
  add_object(module, "_api", PyCapsule_New(const_cast<extend::PythonApi*>(&api), "facula._C._api", nullptr));
  ObjectType = add_type(module, &object_spec);
  add_functions(module, functions);
}

}  // namespace facula::bind
