// __torch_dispatch__: modes of the thread, and subclasses of Tensor, that take calls in place of kernels (run/interpose.h).
#include <algorithm>
#include <atomic>
#include <vector>

#include "call_arguments.h"
#include "facula/op/registry.h"
#include "facula/run/interpose.h"
#include "override.h"
#include "torch_dispatch.h"

namespace facula::bind {

using op::Form;
using op::Operator;
using op::Results;
using op::Value;

namespace {

thread_local std::vector<PyRef> modes;  // the innermost last
thread_local int paused = 0;
PyObject* overload_source;  // (full name, form, args, kwargs) -> OpOverload

PyObject* dispatch_of(PyTypeObject* t) {  // borrowed; null: it takes no calls
  if (is_plain(t)) return nullptr;
  PyObject* f = _PyType_Lookup(t, names::__torch_dispatch__);
  return f == Py_None ? nullptr : f;
}
// The classes that take calls, which live as long as the process: calls look at them without the GIL.
using Classes = std::vector<PyTypeObject*>;
std::atomic<const Classes*> dispatching{nullptr};

}  // namespace

bool has_dispatch_mode() { return !modes.empty(); }

bool takes_calls(const TensorImpl* t) {
  if (!t || !t->py_object) return false;
  PyTypeObject* type = Py_TYPE(static_cast<PyObject*>(t->py_object));
  if (is_plain(type)) return false;
  auto* all = dispatching.load(std::memory_order_acquire);
  return all && std::find(all->begin(), all->end(), type) != all->end();
}

namespace {

// The classes of operands that take calls: subclasses before superclasses, else from left to right.
std::vector<PyTypeObject*> classes_of(std::span<const Value> args, std::span<const Tensor> out) {
  std::vector<PyTypeObject*> all;
  auto add = [&](const TensorImpl* t) {
    if (!takes_calls(t)) return false;
    PyTypeObject* type = Py_TYPE(static_cast<PyObject*>(t->py_object));
    if (std::find(all.begin(), all.end(), type) != all.end()) return false;
    auto at = std::find_if(all.begin(), all.end(), [&](auto* x) { return PyType_IsSubtype(type, x); });
    all.insert(at, type);
    return false;
  };
  op::any_tensor(args, add);
  for (auto& t : out) add(t.impl());
  return all;
}

// An argument as PyTorch shows it: what has its default value at the end, or by keyword, is left out.
bool is_default(const op::Parameter& p, const Value& v, PyObject* shown) {
  if (!p.has_default) return false;
  if (v.is_none()) return true;
  if (p.type == op::Type::Tensor) return false;
  PyRef fallback = wrap_argument(p, p.fallback[0], [](int) { return Tensor(); });
  if (Py_TYPE(shown) != Py_TYPE(fallback.get())) return false;
  int same = PyObject_RichCompareBool(shown, fallback.get(), Py_EQ);
  if (same < 0) PyErr_Clear();
  return same == 1;
}

// (func, args, kwargs)
struct DispatchedCall {
  PyRef function, args, kwargs;
  DispatchedCall(const Operator& o, std::span<const Value> values, Form form, std::span<const Tensor> out) {
    op::Call c(o, values);
    PyRef list = checked(PyList_New(0));
    kwargs = checked(PyDict_New());
    Py_ssize_t needed = 0;
    for (size_t k = 0; k < o.schema.parameters.size(); ++k) {
      auto& p = o.schema.parameters[k];
      PyRef x = wrap_argument(p, c.at(k), [&](int item) { return tensor_of_call(c, p, item); });
      // requires_grad= applies to the tensor that the caller gets.
      bool left_out = is_default(p, values[k], x.get()) || p.name == "requires_grad";
      if (!p.keyword_only) {
        checked(PyList_Append(list.get(), x.get()));
        if (!left_out) needed = PyList_GET_SIZE(list.get());
      } else if (!left_out) {
        checked(PyDict_SetItemString(kwargs.get(), p.name.c_str(), x.get()));
      }
    }
    PyRef given = checked(PyList_GetSlice(list.get(), 0, needed));
    args = checked(PyList_AsTuple(given.get()));
    if (form == Form::out) {
      PyRef to = out.size() == 1 ? checked(wrap(out[0])) : checked(wrap_list(out));
      checked(PyDict_SetItemString(kwargs.get(), "out", to.get()));
    }
    if (!overload_source) checked(PyImport_ImportModule("facula._ops"));  // sets it
    PyRef name = checked(unicode(o.schema.full_name()));
    const char* how = form == Form::in_place ? "in_place" : form == Form::out ? "out" : "functional";
    function =
        checked(PyObject_CallFunction(overload_source, "OsOO", name.get(), how, args.get(), kwargs.get()));
  }
};

PyRef types_tuple(const std::vector<PyTypeObject*>& classes) {
  PyRef types = checked(PyTuple_New(Py_ssize_t(classes.size())));
  for (size_t k = 0; k < classes.size(); ++k)
    PyTuple_SET_ITEM(types.get(), Py_ssize_t(k), Py_NewRef(reinterpret_cast<PyObject*>(classes[k])));
  return types;
}

// Without the innermost mode, while that handles a call.
struct WithoutTop {
  WithoutTop() : top(std::move(modes.back())) { modes.pop_back(); }
  ~WithoutTop() { modes.push_back(std::move(top)); }
  PyRef top;
};

class TorchDispatch final : public run::Interposer {
 public:
  Results take(const Operator& o, std::span<const Value> args, Form form,
               std::span<const Tensor> out) override {
    WithGil gil;
    try {
      DispatchedCall call(o, args, form, out);
      auto classes = classes_of(args, out);
      PyRef types = types_tuple(classes);
      PyRef result = asked(call, classes, types.get());
      if (form == Form::functional) return results_of(o, result.get());
      return {};
    } catch (const PythonError&) { throw_carried(); }
  }

 private:
  static PyRef handled(PyObject* handler, const DispatchedCall& call, PyObject* types) {
    PyRef f = checked(PyObject_GetAttr(handler, names::__torch_dispatch__));
    return checked(PyObject_CallFunctionObjArgs(f.get(), call.function.get(), types, call.args.get(),
                                                call.kwargs.get(), nullptr));
  }
  static PyRef asked(const DispatchedCall& call, const std::vector<PyTypeObject*>& classes, PyObject* types) {
    if (!modes.empty()) {
      WithoutTop inside;
      PyRef result = handled(inside.top.get(), call, types);
      if (result.get() != Py_NotImplemented) return result;
    }
    for (auto* c : classes) {
      PyRef result = handled(reinterpret_cast<PyObject*>(c), call, types);
      if (result.get() != Py_NotImplemented) return result;
    }
    PyErr_Format(
        PyExc_TypeError,
        "Multiple dispatch failed for '%S'; all __torch_dispatch__ handlers returned NotImplemented: "
        "of the modes, and of %R",
        call.function.get(), types);
    throw PythonError();
  }
};

run::Interposer* find(std::span<const Value> args, std::span<const Tensor> out) {
  static TorchDispatch dispatch;
  if (paused) {
    op::any_tensor(args, [](const TensorImpl* t) {
      runtime_check(!takes_calls(t) || t->storage->bytes() || t->sizes.empty(), "_DisableTorchDispatch")
          << "an operand is a wrapper of other tensors, which only its class's __torch_dispatch__ computes with";
      return false;
    });
    return nullptr;
  }
  if (!modes.empty() || op::any_tensor(args, takes_calls)) return &dispatch;
  return std::any_of(out.begin(), out.end(), [](auto& t) { return takes_calls(t.impl()); }) ? &dispatch
                                                                                            : nullptr;
}

// ---- functions of facula._C

PyObject* push_mode(PyObject*, PyObject* mode) {
  run::set_interposer_source(find);
  modes.push_back(PyRef::share(mode));
  Py_RETURN_NONE;
}
PyObject* pop_mode(PyObject*, PyObject*) {
  if (modes.empty()) Py_RETURN_NONE;
  PyRef top = std::move(modes.back());
  modes.pop_back();
  return top.detach();
}
PyObject* mode_stack(PyObject*, PyObject*) {
  PyObject* list = PyList_New(0);
  for (auto& m : modes)
    if (list && PyList_Append(list, m.get()) < 0) Py_CLEAR(list);
  return list;
}
PyObject* set_source(PyObject*, PyObject* f) {
  Py_XSETREF(overload_source, Py_NewRef(f));
  Py_RETURN_NONE;
}
// wrapper_subclass(cls, tensor on meta, device, requires_grad): a tensor of the class that has no memory.
PyObject* wrapper_subclass(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    PyObject *cls, *like, *device;
    int requires_grad;
    if (!PyArg_ParseTuple(args, "O!O!Op:_make_wrapper_subclass", &PyType_Type, &cls, TensorType, &like,
                          &device, &requires_grad))
      return nullptr;
    auto* type = reinterpret_cast<PyTypeObject*>(cls);
    type_check(PyType_IsSubtype(type, TensorType) && dispatch_of(type), "_make_wrapper_subclass")
        << type->tp_name << " must be a subclass of Tensor that defines __torch_dispatch__";
    Device d;
    type_check(to_device(device, d), "_make_wrapper_subclass") << "device must be a device";
    run::set_interposer_source(find);
    auto& t = *impl_of(like);
    // A storage in a physical layout whose order has no item size holds no elements (tensor/sparse.cpp).
    auto nothing = make_ref<StorageImpl>(nullptr, size_t(0), d, [] {});
    PhysicalOrder none;
    none.rank = 1;
    Tensor made(make_ref<TensorImpl>(make_ref<StorageImpl>(std::move(nothing), none), t.sizes, t.strides,
                                     t.offset, t.dtype, d));
    made.impl()->requires_grad = requires_grad;
    return wrap_as(std::move(made), type);
  });
}

// set_shared_memory(tensor, other): both are over the memory of the other.
PyObject* set_shared_memory(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    PyObject *a, *b;
    if (!PyArg_ParseTuple(args, "O!O!:set_shared_memory", TensorType, &a, TensorType, &b)) return nullptr;
    impl_of(a)->storage = impl_of(b)->storage;
    Py_RETURN_NONE;
  });
}

// is_dispatched_in_python(args): whether a mode is active, or a tensor among these has a class with __torch_dispatch__.
PyObject* is_dispatched_in_python(PyObject*, PyObject* args) {
  if (!PyTuple_Check(args)) Py_RETURN_FALSE;
  bool taken = !modes.empty();
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(args) && !taken; ++k) {
    PyObject* o = PyTuple_GET_ITEM(args, k);
    taken = is_tensor(o) && takes_calls(impl_of(o));
  }
  return PyBool_FromLong(taken && !paused);
}

PyObject* enter(PyObject* self, PyObject*) {
  ++paused;
  return Py_NewRef(self);
}
PyObject* leave(PyObject*, PyObject*) {
  --paused;
  Py_RETURN_NONE;
}
PyMethodDef scope_methods[] = {{"__enter__", enter, METH_NOARGS, nullptr},
                               {"__exit__", leave, METH_VARARGS, nullptr},
                               {nullptr, nullptr, 0, nullptr}};
PyType_Slot scope_slots[] = {{Py_tp_methods, scope_methods}, {0, nullptr}};
PyType_Spec scope_spec = {"facula._C._DisableTorchDispatch", sizeof(PyObject), 0, Py_TPFLAGS_DEFAULT,
                          scope_slots};

PyMethodDef functions[] = {
    {"is_dispatched_in_python", is_dispatched_in_python, METH_O,
     "Is there a mode, or a tensor among these arguments whose class takes calls?"},
    {"push_torch_dispatch_mode", push_mode, METH_O,
     "This object's __torch_dispatch__ takes every call of this thread in place of kernels."},
    {"pop_torch_dispatch_mode", pop_mode, METH_NOARGS, "Ends the innermost; gives it, or None."},
    {"torch_dispatch_modes", mode_stack, METH_NOARGS, "The modes of this thread, the innermost last."},
    {"set_overload_source", set_source, METH_O, "f(full_name, form, args, kwargs) -> OpOverload"},
    {"set_shared_memory", set_shared_memory, METH_VARARGS,
     "set_shared_memory(tensor, other): the tensor lies over the memory of the other."},
    {"wrapper_subclass", wrapper_subclass, METH_VARARGS,
     "wrapper_subclass(cls, like, device, requires_grad): a tensor of the class that has no memory."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

void note_class(PyTypeObject* type) {
  if (!dispatch_of(type)) return;
  keep_results_plain(type);
  auto* before = dispatching.load(std::memory_order_relaxed);
  auto more = before ? *before : Classes();
  more.push_back(type);
  Py_INCREF(type);
  dispatching.store(new Classes(std::move(more)),
                    std::memory_order_release);  // readers may hold the one before
  run::set_interposer_source(find);
}

void add_torch_dispatch(PyObject* module) {
  add_functions(module, functions);
  add_type(module, &scope_spec);
}

}  // namespace facula::bind
