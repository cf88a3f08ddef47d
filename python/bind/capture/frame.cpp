#include "frame.h"

#include "../override.h"
#include "interpreter.h"

namespace facula::bind::capture {

PyTypeObject* GeneratorType;

namespace {

// ---- arguments

class Binder {
 public:
  Binder(PyObject* function, Frame& frame)
      : f_(reinterpret_cast<PyFunctionObject*>(function)),
        code_(reinterpret_cast<PyCodeObject*>(f_->func_code)),
        frame_(frame) {}

  bool bind(PyObject* const* args, size_t positional, PyObject* kwnames) {
    auto n = size_t(code_->co_argcount);
    for (size_t k = 0; k < positional && k < n; ++k) frame_.locals[k] = PyRef::share(args[k]);
    size_t next = n + size_t(code_->co_kwonlyargcount);
    if (code_->co_flags & CO_VARARGS) {
      PyRef rest = checked(PyTuple_New(positional > n ? Py_ssize_t(positional - n) : 0));
      for (size_t k = n; k < positional; ++k) PyTuple_SET_ITEM(rest.get(), k - n, Py_NewRef(args[k]));
      frame_.locals[next++] = std::move(rest);
    } else if (positional > n) {
      return false;
    }
    PyRef keywords;
    if (code_->co_flags & CO_VARKEYWORDS) frame_.locals[next] = keywords = checked(PyDict_New());
    for (Py_ssize_t k = 0; kwnames && k < PyTuple_GET_SIZE(kwnames); ++k)
      if (!keyword(PyTuple_GET_ITEM(kwnames, k), args[positional + size_t(k)], keywords.get())) return false;
    return defaults();
  }

 private:
  bool keyword(PyObject* name, PyObject* value, PyObject* others) {
    int n = code_->co_argcount + code_->co_kwonlyargcount;
    for (int k = code_->co_posonlyargcount; k < n; ++k) {
      PyObject* existing = PyTuple_GET_ITEM(code_->co_localsplusnames, k);
      if (existing != name && PyUnicode_Compare(existing, name) != 0) continue;
      auto& slot = frame_.locals[size_t(k)];
      if (slot) return false;
      slot = PyRef::share(value);
      return true;
    }
    if (!others || PyDict_Contains(others, name)) return false;
    checked(PyDict_SetItem(others, name, value));
    return true;
  }
  bool defaults() {
    int n = code_->co_argcount;
    Py_ssize_t count = f_->func_defaults ? PyTuple_GET_SIZE(f_->func_defaults) : 0;
    for (int k = 0; k < n; ++k) {
      if (frame_.locals[size_t(k)]) continue;
      if (k < n - count) return false;
      frame_.locals[size_t(k)] = PyRef::share(PyTuple_GET_ITEM(f_->func_defaults, k - (n - count)));
    }
    for (int k = n; k < n + code_->co_kwonlyargcount; ++k) {
      if (frame_.locals[size_t(k)]) continue;
      PyObject* name = PyTuple_GET_ITEM(code_->co_localsplusnames, k);
      PyObject* value = f_->func_kwdefaults ? PyDict_GetItemWithError(f_->func_kwdefaults, name) : nullptr;
      if (!value) return false;
      frame_.locals[size_t(k)] = PyRef::share(value);
    }
    return true;
  }

  PyFunctionObject* f_;
  PyCodeObject* code_;
  Frame& frame_;
};

// ---- generators

PyObject* run_generator(PyObject* self, PyObject* sent) {
  GeneratorObject* g = generator_of(self);
  if (g->running) {
    PyErr_SetString(PyExc_ValueError, "generator already executing");
    return nullptr;
  }
  auto frame = resume(g, sent);
  if (!frame) return nullptr;
  frame->role = Role::next;
  return Interpreter::run_alone(std::move(frame));
}
PyObject* generator_next(PyObject* self) { return run_generator(self, Py_None); }
PyObject* generator_send(PyObject* self, PyObject* value) {
  return guarded([&]() -> PyObject* {
    bool ended = !generator_of(self)->frame && !generator_of(self)->running;
    PyObject* result = run_generator(self, value);
    if (!result && !PyErr_Occurred()) PyErr_SetNone(PyExc_StopIteration);
    (void)ended;
    return result;
  });
}
PyObject* generator_throw(PyObject* self, PyObject* args) {
  return guarded([&]() -> PyObject* {
    PyObject *kind, *value = nullptr, *trace = nullptr;
    if (!PyArg_ParseTuple(args, "O|OO:throw", &kind, &value, &trace)) return nullptr;
    if (PyExceptionInstance_Check(kind)) PyErr_SetObject(PyExceptionInstance_Class(kind), kind);
    else PyErr_SetObject(kind, value == Py_None ? nullptr : value);
    GeneratorObject* g = generator_of(self);
    if (!g->frame) return nullptr;
    bool started = g->started;
    PyObject *type, *error, *tb;
    PyErr_Fetch(&type, &error, &tb);
    auto frame = resume(g, Py_None);
    PyErr_Restore(type, error, tb);
    frame->drop(1);
    if (!started) {
      g->running = false;
      return nullptr;
    }
    frame->role = Role::next;
    PyObject* result = Interpreter::run_alone(std::move(frame), true);
    if (!result && !PyErr_Occurred()) PyErr_SetNone(PyExc_StopIteration);
    return result;
  });
}
PyObject* generator_close(PyObject* self, PyObject*) {
  GeneratorObject* g = generator_of(self);
  if (!g->frame) Py_RETURN_NONE;
  PyRef args = PyRef(Py_BuildValue("(O)", PyExc_GeneratorExit));
  PyRef result(generator_throw(self, args.get()));
  if (result) {
    PyErr_SetString(PyExc_RuntimeError, "generator ignored GeneratorExit");
    return nullptr;
  }
  if (!PyErr_ExceptionMatches(PyExc_StopIteration) && !PyErr_ExceptionMatches(PyExc_GeneratorExit))
    return nullptr;
  PyErr_Clear();
  Py_RETURN_NONE;
}

thread_local size_t closed = 0;

// A generator that is destroyed while it waits within `try` or `with` runs these to their end, as in CPython.
void generator_finalize(PyObject* o) {
  GeneratorObject* g = generator_of(o);
  if (!g->frame || !g->started || !(*g->frame)->code->handler_of((*g->frame)->last)) return;
  ++closed;
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyRef done(generator_close(o, nullptr));
  if (!done) PyErr_WriteUnraisable(o);
  PyErr_Restore(type, value, trace);
}

void generator_dealloc(PyObject* o) {
  GeneratorObject* g = generator_of(o);
  if (PyObject_CallFinalizerFromDealloc(o) < 0) return;
  PyObject_GC_UnTrack(o);
  if (g->weakrefs) PyObject_ClearWeakRefs(o);
  delete std::exchange(g->frame, nullptr);
  Py_XDECREF(g->name);
  PyTypeObject* type = Py_TYPE(o);
  PyObject_GC_Del(o);
  Py_DECREF(type);
}
int generator_traverse(PyObject* o, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(o));
  GeneratorObject* g = generator_of(o);
  if (!g->frame) return 0;
  for (auto* list : {&(*g->frame)->locals, &(*g->frame)->stack})
    for (auto& s : *list) Py_VISIT(s.get());
  return 0;
}

PyMethodDef generator_methods[] = {{"send", generator_send, METH_O, "Resumes it with a value."},
                                   {"throw", generator_throw, METH_VARARGS, "Raises an exception in it."},
                                   {"close", generator_close, METH_NOARGS, "Ends it."},
                                   {nullptr, nullptr, 0, nullptr}};
PyMemberDef generator_members[] = {{"__name__", T_OBJECT, offsetof(GeneratorObject, name), READONLY, nullptr},
                                   {"__weaklistoffset__", T_PYSSIZET, offsetof(GeneratorObject, weakrefs),
                                    READONLY, nullptr},
                                   {nullptr, 0, 0, 0, nullptr}};
PyType_Slot generator_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(generator_dealloc)},
                                 {Py_tp_finalize, reinterpret_cast<void*>(generator_finalize)},
                                 {Py_tp_traverse, reinterpret_cast<void*>(generator_traverse)},
                                 {Py_tp_iter, reinterpret_cast<void*>(PyObject_SelfIter)},
                                 {Py_tp_iternext, reinterpret_cast<void*>(generator_next)},
                                 {Py_tp_methods, generator_methods},
                                 {Py_tp_members, generator_members},
                                 {0, nullptr}};
PyType_Spec generator_spec = {"facula._C.CapturedGenerator", sizeof(GeneratorObject), 0,
                              Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                              generator_slots};

}  // namespace

namespace {

// The argument that a parameter has got, by its place or its name. Borrowed; None if the function has deleted the variable.
PyObject* argument(const Frame& f, Py_ssize_t place, PyObject* name) {
  auto* code = f.code->get();
  auto variable = [&](Py_ssize_t k) {
    PyObject* o = size_t(k) < f.locals.size() ? f.locals[size_t(k)].get() : nullptr;
    if (o && PyCell_Check(o)) o = PyCell_GET(o);
    return o ? o : Py_None;
  };
  Py_ssize_t by_name = code->co_argcount + code->co_kwonlyargcount;
  if (!name && place < code->co_argcount) return variable(place);
  for (Py_ssize_t k = 0; name && k < by_name; ++k)
    if (!PyUnicode_Compare(PyTuple_GET_ITEM(code->co_localsplusnames, k), name)) return variable(k);
  PyObject* rest = variable(by_name + (name && code->co_flags & CO_VARARGS ? 1 : 0));
  if (name) {
    PyObject* value = PyDict_Check(rest) ? PyDict_GetItemWithError(rest, name) : nullptr;
    return value ? value : Py_None;
  }
  place -= code->co_argcount;
  return PyTuple_Check(rest) && place < PyTuple_GET_SIZE(rest) ? PyTuple_GET_ITEM(rest, place) : Py_None;
}

}  // namespace

void name_error_of(const Frame& f) {
  auto& named = *f.named;
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  std::vector<PyRef> alive;
  std::vector<PyObject*> args;
  Py_ssize_t by_name = named.kwnames ? PyTuple_GET_SIZE(named.kwnames.get()) : 0;
  for (Py_ssize_t k = 0; k < Py_ssize_t(named.positional) + by_name; ++k) {
    Py_ssize_t at = k - Py_ssize_t(named.positional);
    PyObject* name = at < 0 ? nullptr : PyTuple_GET_ITEM(named.kwnames.get(), at);
    alive.push_back(PyRef::share(argument(f, k, name)));
    args.push_back(alive.back().get());
  }
  PyErr_Clear();
  PyErr_Restore(type, value, trace);
  name_error(named.name, named.function.get(), args.data(), Py_ssize_t(named.positional), named.kwnames.get(),
             named.method, named.also_of_operators);
}

std::pair<PyObject*, PyObject*> arguments_of_super(const Frame& f) {
  auto* code = f.code->get();
  PyObject *cls = nullptr, *self = code->co_argcount ? f.locals[0].get() : nullptr;
  for (int k = f.code->free_begin; k < f.code->locals; ++k) {
    PyObject *name = PyTuple_GET_ITEM(code->co_localsplusnames, k), *cell = f.locals[size_t(k)].get();
    if (cell && !PyUnicode_CompareWithASCIIString(name, "__class__")) cls = PyCell_GET(cell);
  }
  if (self && f.code->is_cell(0) && PyCell_Check(self)) self = PyCell_GET(self);
  return {cls, self};
}

std::unique_ptr<Frame> frame_of_call(PyObject* function, PyObject* const* args, size_t positional,
                                     PyObject* kwnames) {
  auto* f = reinterpret_cast<PyFunctionObject*>(function);
  auto frame = std::make_unique<Frame>();
  frame->code = &code_of(f->func_code);
  frame->function = PyRef::share(function);
  frame->globals = PyRef::share(f->func_globals);
  frame->builtins = PyRef::share(f->func_builtins);
  frame->locals.resize(size_t(frame->code->locals));
  frame->stack.reserve(size_t(frame->code->get()->co_stacksize));
  if (!Binder(function, *frame).bind(args, positional, kwnames)) return nullptr;
  return frame;
}

PyRef make_generator_without_frame(PyObject* name, bool running) {
  auto* g = PyObject_GC_New(GeneratorObject, GeneratorType);
  if (!g) throw PythonError();
  g->name = Py_NewRef(name);
  g->frame = nullptr;
  g->started = true;
  g->running = running;
  g->weakrefs = nullptr;
  PyObject_GC_Track(reinterpret_cast<PyObject*>(g));
  return PyRef(reinterpret_cast<PyObject*>(g));
}
PyRef make_generator(std::unique_ptr<Frame> frame) {
  PyRef created = make_generator_without_frame(frame->code->get()->co_name, false);
  GeneratorObject* g = generator_of(created.get());
  g->started = false;
  g->frame = new std::unique_ptr<Frame>(std::move(frame));
  return created;
}

std::unique_ptr<Frame> resume(GeneratorObject* g, PyObject* sent) {
  if (!g->frame) return nullptr;
  auto frame = std::move(*g->frame);
  delete std::exchange(g->frame, nullptr);
  g->started = g->running = true;
  frame->generator = PyRef::share(reinterpret_cast<PyObject*>(g));
  frame->push(PyRef::share(sent));
  return frame;
}

size_t closed_generators() { return closed; }

void add_generator_type(PyObject* module) { GeneratorType = add_type(module, &generator_spec); }

}  // namespace facula::bind::capture
