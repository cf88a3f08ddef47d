// The call of a traced function from Python. An assumption about Python objects is data, so that checking one costs a
// look-up: an item of a dict or list, the contents of a cell, the number of items, or what a function returns.
#include "program_call.h"
#include "graph.h"

#include <vector>

#include "facula/op/value.h"
#include "tensor.h"

namespace facula::bind {

namespace {

// ---- assumptions

struct Assumption {
  enum class Kind : uint8_t { item, cell, length, called } kind;
  PyRef what, object, key, value;  // `what`: the description, or a tuple of texts that are joined

  // The present value, or null without an exception if there is none.
  PyRef now() const {
    PyObject* o = object.get();
    switch (kind) {
      case Kind::item:
        if (PyDict_Check(o)) {
          PyObject* x = PyDict_GetItemWithError(o, key.get());
          if (!x && PyErr_Occurred()) throw PythonError();
          return x ? PyRef::share(x) : PyRef();
        } else {
          Py_ssize_t k = PyLong_AsSsize_t(key.get());
          return k < PyList_GET_SIZE(o) ? PyRef::share(PyList_GET_ITEM(o, k)) : PyRef();
        }
      case Kind::cell: {
        PyObject* x = PyCell_GET(o);
        return x ? PyRef::share(x) : PyRef();
      }
      case Kind::length: return checked(PyLong_FromSsize_t(PyObject_Size(o)));
      case Kind::called: return checked(PyObject_CallNoArgs(o));
    }
    return {};
  }

  // Equal numbers of one type are the same value; tensors, modules and functions have to be the same object.
  static bool same(PyObject* a, PyObject* b) {
    if (a == b) return true;
    if (!a || !b || Py_TYPE(a) != Py_TYPE(b) || is_tensor(a) || PyDict_Check(a) || PyList_Check(a))
      return false;
    int equal = PyObject_RichCompareBool(a, b, Py_EQ);
    if (equal < 0) PyErr_Clear();  // a tuple of tensors, for example
    return equal > 0;
  }
  // The same without a reference, for what is nearly always unchanged.
  bool holds() const {
    if (kind == Kind::item && PyDict_CheckExact(object.get())) {
      PyObject* x = PyDict_GetItemWithError(object.get(), key.get());
      if (x == value.get()) return true;
    }
    return same(now().get(), value.get());
  }
  [[noreturn]] void fail() const {
    PyRef present = now();
    PyRef was = checked(value ? PyObject_Repr(value.get()) : PyUnicode_FromString("missing"));
    PyRef is = checked(present ? PyObject_Repr(present.get()) : PyUnicode_FromString("missing"));
    bool number =
        value && (PyNumber_Check(value.get()) || PyUnicode_Check(value.get())) && !is_tensor(value.get());
    PyErr_Format(
        PyExc_ValueError, "the program was traced when %S was %.200S, and it is %.200S now: %s", what.get(),
        was.get(), is.get(),
        number ? "numbers are part of a program\n"
                 "  hint: give it as a tensor of one element, which is read at each call, or trace again"
               : "what a program has read is part of it\n  hint: trace again");
    throw PythonError();
  }
};

// ---- the call

struct CallObject {
  PyObject_HEAD PyObject* native;  // facula._C.Program
  PyObject* readers;               // tuple of functions that give the numbers which are operands
  PyObject* effects;               // tuple of functions that a call calls behind the program
  PyObject*
      in_general;  // the call for other arguments than plain tensors, and for other results; null: none needed
  std::vector<Assumption>* assumptions;
  Py_ssize_t arguments;  // how many tensors; -1: others than tensors as well
  Py_ssize_t single;     // number of the only result; -1: a tuple of the results in `order`; -2: in_general
  std::vector<Py_ssize_t>* order;
};
CallObject& call_of(PyObject* o) { return *reinterpret_cast<CallObject*>(o); }

void check_assumptions(CallObject& c) {
  for (auto& a : *c.assumptions)
    if (!a.holds()) a.fail();
}

std::vector<Tensor> run(CallObject& c, std::vector<Tensor> inputs) {
  auto& program = traced_of(c.native);
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(c.readers); ++k) {
    PyRef x = checked(PyObject_CallNoArgs(PyTuple_GET_ITEM(c.readers, k)));
    Scalar number;
    type_check(to_scalar(x.get(), number), program.name().c_str())
        << "reads a number, which is a " << Py_TYPE(x.get())->tp_name << " now";
    auto& spec = program.graph().inputs[inputs.size()]->tensor;
    Scalar typed = spec.dtype() == DType::Float64 ? Scalar(number.to_double()) : number;
    inputs.push_back(op::wrapped_number(typed));
  }
  std::vector<Tensor> results;
  {
    WithoutGil released;
    results = program(inputs);
  }
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(c.effects); ++k)
    checked(PyObject_CallNoArgs(PyTuple_GET_ITEM(c.effects, k)));
  return results;
}

PyObject* call(PyObject* self, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    auto& c = call_of(self);
    runtime_check(c.native, "Program") << "was not initialised";
    bool plain =
        PyTuple_GET_SIZE(args) == c.arguments && c.single > -2 && !(kwargs && PyDict_GET_SIZE(kwargs));
    for (Py_ssize_t k = 0; plain && k < c.arguments; ++k)
      plain = is_plain(Py_TYPE(PyTuple_GET_ITEM(args, k)));
    if (!plain) return PyObject_Call(c.in_general, args, kwargs);
    check_assumptions(c);
    std::vector<Tensor> inputs;
    inputs.reserve(size_t(c.arguments + PyTuple_GET_SIZE(c.readers)));
    for (Py_ssize_t k = 0; k < c.arguments; ++k) inputs.push_back(tensor_of(PyTuple_GET_ITEM(args, k)));
    auto results = run(c, std::move(inputs));
    if (c.single >= 0) return wrap(std::move(results[size_t(c.single)]));
    PyRef tuple = checked(PyTuple_New(Py_ssize_t(c.order->size())));
    for (size_t k = 0; k < c.order->size(); ++k)
      PyTuple_SET_ITEM(tuple.get(), Py_ssize_t(k), checked(wrap(results[size_t((*c.order)[k])])).detach());
    return tuple.detach();
  });
}

// _run(tensors): checks the assumptions and gives a tuple of results.
PyObject* run_method(PyObject* self, PyObject* list) {
  return guarded([&] {
    auto& c = call_of(self);
    check_assumptions(c);
    return wrap_list(run(c, tensor_list_argument(traced_of(c.native).name().c_str(), "inputs", list)));
  });
}

Assumption::Kind kind_of(const char* kind) {
  std::string_view k = kind;
  return k == "item"     ? Assumption::Kind::item
         : k == "cell"   ? Assumption::Kind::cell
         : k == "length" ? Assumption::Kind::length
                         : Assumption::Kind::called;
}

// An item of (kind, what, object, key, value).
Assumption assumption_of(PyObject* o) {
  const char* kind;
  PyObject *what, *object, *key, *value;
  if (!PyArg_ParseTuple(o, "sOOOO", &kind, &what, &object, &key, &value)) throw PythonError();
  Assumption a{kind_of(kind), PyRef::share(what), PyRef::share(object), PyRef::share(key),
               PyRef::share(value)};
  bool list_item = a.kind == Assumption::Kind::item && PyList_Check(object) && PyLong_Check(key);
  bool fits = a.kind == Assumption::Kind::item ? PyDict_Check(object) || list_item
                                               : a.kind != Assumption::Kind::cell || PyCell_Check(object);
  type_check(fits, "Program") << "cannot check a " << kind << " of a " << Py_TYPE(object)->tp_name;
  return a;
}

// _prepare(native, arguments, results, assumptions, readers, effects, in_general): `results` is the number of the only
// result, a tuple of numbers, or None.
PyObject* prepare(PyObject* self, PyObject* args) {
  return guarded([&]() -> PyObject* {
    PyObject *native, *results, *assumptions, *readers, *effects, *in_general;
    Py_ssize_t arguments;
    if (!PyArg_ParseTuple(args, "OnOO!O!O!O:_prepare", &native, &arguments, &results, &PyList_Type,
                          &assumptions, &PyTuple_Type, &readers, &PyTuple_Type, &effects, &in_general))
      return nullptr;
    auto& c = call_of(self);
    std::vector<Assumption> all;
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(assumptions); ++k)
      all.push_back(assumption_of(PyList_GET_ITEM(assumptions, k)));
    *c.assumptions = std::move(all);
    Py_XSETREF(c.native, Py_NewRef(native));
    Py_XSETREF(c.readers, Py_NewRef(readers));
    Py_XSETREF(c.effects, Py_NewRef(effects));
    Py_XSETREF(c.in_general, Py_NewRef(in_general));
    c.arguments = arguments;
    c.order->clear();
    if (PyLong_Check(results)) {
      c.single = PyLong_AsSsize_t(results);
    } else if (PyTuple_Check(results)) {
      c.single = -1;
      for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(results); ++k)
        c.order->push_back(PyLong_AsSsize_t(PyTuple_GET_ITEM(results, k)));
    } else {
      c.single = -2;
    }
    return Py_NewRef(Py_None);
  });
}

PyObject* call_new(PyTypeObject* type, PyObject*, PyObject*) {
  return guarded([&] {
    PyRef o = checked(type->tp_alloc(type, 0));
    auto& c = call_of(o.get());
    c.assumptions = new std::vector<Assumption>;
    c.order = new std::vector<Py_ssize_t>;
    c.single = -2;
    return o.detach();
  });
}
int call_traverse(PyObject* o, visitproc visit, void* arg) {
  auto& c = call_of(o);
  Py_VISIT(Py_TYPE(o));
  Py_VISIT(c.native);
  Py_VISIT(c.readers);
  Py_VISIT(c.effects);
  Py_VISIT(c.in_general);
  if (c.assumptions)
    for (auto& a : *c.assumptions)
      for (auto* r : {&a.object, &a.key, &a.value}) Py_VISIT(r->get());
  return 0;
}
int call_clear(PyObject* o) {
  auto& c = call_of(o);
  Py_CLEAR(c.native);
  Py_CLEAR(c.readers);
  Py_CLEAR(c.effects);
  Py_CLEAR(c.in_general);
  if (c.assumptions) {
    std::vector<Assumption> dropped;
    dropped.swap(*c.assumptions);
  }
  return 0;
}
void call_dealloc(PyObject* o) {
  PyObject_GC_UnTrack(o);
  call_clear(o);
  delete call_of(o).assumptions;
  delete call_of(o).order;
  PyTypeObject* t = Py_TYPE(o);
  t->tp_free(o);
  Py_DECREF(t);
}

PyMethodDef call_methods[] = {
    {"_run", run_method, METH_O, "_run(tensors) -> tuple of results, behind the checks."},
    {"_prepare", prepare, METH_VARARGS,
     "_prepare(native, arguments, results, assumptions, readers, effects, in_general)"},
    {nullptr, nullptr, 0, nullptr}};
PyType_Slot call_slots[] = {{Py_tp_new, reinterpret_cast<void*>(call_new)},
                            {Py_tp_dealloc, reinterpret_cast<void*>(call_dealloc)},
                            {Py_tp_traverse, reinterpret_cast<void*>(call_traverse)},
                            {Py_tp_clear, reinterpret_cast<void*>(call_clear)},
                            {Py_tp_call, reinterpret_cast<void*>(call)},
                            {Py_tp_methods, call_methods},
                            {0, nullptr}};
PyType_Spec call_spec = {"facula._C.ProgramBase", sizeof(CallObject), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, call_slots};

}  // namespace

void add_program_call(PyObject* module) { add_type(module, &call_spec); }

}  // namespace facula::bind
