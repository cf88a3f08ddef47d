// Jumps, calls, functions, generators, exceptions, `with`.
#include <string_view>

#include "interpreter.h"

namespace facula::bind::capture {

bool has_python_truth(Interpreter& in, PyObject* o) {
  return in.recorder && (python_method(o, "__bool__") || python_method(o, "__len__"));
}
Outcome replace_by_truth(Interpreter& in, Frame& f) {
  PyRef o = f.top();
  Outcome result = call_polyfill(in, f, "bool_", {o.get()}, 1);
  if (result == Outcome::next) f.jump(f.last);
  return result;
}

Outcome do_jump(Interpreter&, Frame& f, const MicroOp& op) {
  f.jump(op.target);
  return Outcome::next;
}
Outcome do_pop_jump(Interpreter& in, Frame& f, const MicroOp& op) {
  PyObject* o = f.top().get();
  bool is_truth = When(op.other) == When::is_true || When(op.other) == When::is_false;
  if (is_truth && has_python_truth(in, o)) return replace_by_truth(in, f);
  bool jumps;
  if (When(op.other) == When::is_none || When(op.other) == When::is_not_none) {
    jumps = (o == Py_None) == (When(op.other) == When::is_none);
  } else {
    int t = in.truth(o);
    if (t < 0) return t == -1 ? Outcome::raised : Outcome::breaks;
    jumps = bool(t) == (When(op.other) == When::is_true);
  }
  f.drop(1);
  if (jumps) f.jump(op.target);
  return Outcome::next;
}

namespace {

// The variables of a frame that have a value, by name.
PyRef variables_of(Frame& f) {
  PyRef all = checked(PyDict_New());
  auto* code = f.code->get();
  for (size_t k = 0; k < f.locals.size(); ++k) {
    PyObject* value = f.locals[k].get();
    if (value && f.code->is_cell(int(k)) && PyCell_Check(value)) value = PyCell_GET(value);
    if (value)
      checked(PyDict_SetItem(all.get(), PyTuple_GET_ITEM(code->co_localsplusnames, Py_ssize_t(k)), value));
  }
  return all;
}

// Calls a function in a frame of the interpreter. Builtins that look at the frame of their caller, which CPython does not know
// here, get what they would read there.
PyObject* call_in_frame(Frame& f, const Call& c) {
  PyObject* self = PyCFunction_Check(c.callable) ? PyCFunction_GET_SELF(c.callable) : nullptr;
  bool is_builtin = self && PyModule_Check(self) && f.builtins && PyModule_GetDict(self) == f.builtins.get();
  std::string_view name =
      is_builtin ? reinterpret_cast<PyCFunctionObject*>(c.callable)->m_ml->ml_name : std::string_view();
  size_t n = c.args.size();
  if (!n && name == "globals") return Py_NewRef(f.globals.get());
  if (!n && (name == "locals" || name == "vars")) return variables_of(f).detach();
  if (!n && name == "dir") {
    PyRef names = checked(PyDict_Keys(variables_of(f).get()));
    checked(PyList_Sort(names.get()));
    return names.detach();
  }
  if (!n && c.callable == reinterpret_cast<PyObject*>(&PySuper_Type)) {
    auto [cls, self] = arguments_of_super(f);
    if (cls && self) return PyObject_CallFunctionObjArgs(c.callable, cls, self, nullptr);
  }
  if (n == 1 && !c.kwnames && (name == "eval" || name == "exec"))
    return PyObject_CallFunctionObjArgs(c.callable, c.args[0], f.globals.get(), variables_of(f).get(),
                                        nullptr);
  return PyObject_Vectorcall(c.callable, c.args.data(), c.positional, c.kwnames);
}

}  // namespace

Outcome do_call(Interpreter& in, Frame& f, const MicroOp& op) {
  size_t n = size_t(op.arg), base = f.stack.size() - n - 2;
  bool method = bool(f.stack[base]);  // a method and its object, or null and a callable
  Call c;
  c.callable = f.stack[base + (method ? 0 : 1)].get();
  c.kwnames = op.object;
  c.drop = n + 2;
  for (size_t k = base + (method ? 1 : 2); k < f.stack.size(); ++k) c.args.push_back(f.stack[k].get());
  c.positional = c.args.size() - (op.object ? size_t(PyTuple_GET_SIZE(op.object)) : 0);
  if (in.recorder) return call(in, f, std::move(c));
  return in.give(f, c.drop, call_in_frame(f, c));
}

Outcome do_call_ex(Interpreter& in, Frame& f, const MicroOp& op) {
  PyRef keywords = op.arg ? f.top() : PyRef(), args = f.top(op.arg ? 2 : 1);
  size_t drop = op.arg ? 4 : 3;
  PyRef callable = f.top(drop - 1);
  if (in.recorder) {
    bool sequence = PyTuple_Check(args.get()) && Py_TYPE(args.get())->tp_iter == PyTuple_Type.tp_iter;
    bool plain = (sequence || PyList_CheckExact(args.get())) && (!keywords || is_dict(keywords.get()));
    if (!plain) return in.breaks(std::string("a call with * of a ") + Py_TYPE(args.get())->tp_name);
    in.recorder->contents(args.get());
    if (keywords) in.recorder->contents(keywords.get());
  }
  PyRef tuple = PyTuple_Check(args.get()) ? args : PyRef(PySequence_Tuple(args.get()));
  if (!tuple) return Outcome::raised;
  if (!in.recorder) return in.give(f, drop, PyObject_Call(callable.get(), tuple.get(), keywords.get()));
  Call c;
  c.callable = callable.get();
  c.drop = drop;
  c.positional = size_t(PyTuple_GET_SIZE(tuple.get()));
  for (size_t k = 0; k < c.positional; ++k) c.args.push_back(PyTuple_GET_ITEM(tuple.get(), Py_ssize_t(k)));
  PyRef names;
  if (keywords && PyDict_GET_SIZE(keywords.get())) {
    names = checked(PyTuple_New(PyDict_GET_SIZE(keywords.get())));
    PyObject *key, *value;
    Py_ssize_t at = 0, k = 0;
    while (PyDict_Next(keywords.get(), &at, &key, &value)) {
      PyTuple_SET_ITEM(names.get(), k++, Py_NewRef(key));
      c.args.push_back(value);
    }
  }
  c.kwnames = names.get();
  return call(in, f, std::move(c));
}

Outcome do_make_function(Interpreter& in, Frame& f, const MicroOp& op) {
  PyRef code = f.pop();
  PyRef created = checked(PyFunction_New(code.get(), f.globals.get()));
  auto* function = reinterpret_cast<PyFunctionObject*>(created.get());
  if (op.arg & 8) function->func_closure = f.pop().detach();
  if (op.arg & 4) function->func_annotations = f.pop().detach();
  if (op.arg & 2) function->func_kwdefaults = f.pop().detach();
  if (op.arg & 1) function->func_defaults = f.pop().detach();
  if (in.recorder) in.recorder->constant(code.get());
  f.push(std::move(created));
  return Outcome::next;
}

Outcome do_return_value(Interpreter& in, Frame& f, const MicroOp&) { return in.leave(f.pop()); }

// ---- patterns

Outcome do_match_type(Interpreter&, Frame& f, const MicroOp& op) {
  unsigned long flag = op.arg ? Py_TPFLAGS_SEQUENCE : Py_TPFLAGS_MAPPING;
  bool matches = PyType_HasFeature(Py_TYPE(f.top().get()), flag);
  f.push(PyRef::share(matches ? Py_True : Py_False));
  return Outcome::next;
}
Outcome do_match_keys(Interpreter& in, Frame& f, const MicroOp&) {
  PyObject *subject = f.top(2).get(), *keys = f.top().get();
  if (in.recorder && !is_dict(subject))
    return in.breaks(std::string("a pattern with the keys of a ") + Py_TYPE(subject)->tp_name);
  std::vector<PyObject*> args{subject, keys};
  if (in.recorder) return call_polyfill(in, f, "match_keys_", args, 0);
  return in.give(f, 0, PyObject_Vectorcall(polyfill("match_keys_"), args.data(), 2, nullptr));
}
Outcome do_match_class(Interpreter& in, Frame& f, const MicroOp& op) {
  PyRef count = checked(PyLong_FromLong(op.arg));
  std::vector<PyObject*> args{f.top(3).get(), f.top(2).get(), count.get(), f.top().get()};
  if (in.recorder) return call_polyfill(in, f, "match_class_", args, 3);
  return in.give(f, 3, PyObject_Vectorcall(polyfill("match_class_"), args.data(), 4, nullptr));
}

Outcome do_load_build_class(Interpreter& in, Frame& f, const MicroOp&) {
  if (in.recorder) return in.breaks("a class that is defined inside of the function");
  return in.give(f, 0, PyMapping_GetItemString(f.builtins.get(), "__build_class__"));
}

// ---- generators

Outcome do_return_generator(Interpreter& in, Frame&, const MicroOp&) {
  auto mine = std::move(in.frames.back());
  in.frames.pop_back();
  Role role = mine->role;
  PyRef generator = make_generator(std::move(mine));
  if (in.frames.empty()) {
    in.result = std::move(generator);
    return Outcome::returned;
  }
  if (role != Role::discard) in.frame().push(std::move(generator));
  return Outcome::next;
}
Outcome do_yield_value(Interpreter& in, Frame& f, const MicroOp&) { return in.yields(f.pop()); }

Outcome do_get_yield_from_iter(Interpreter& in, Frame& f, const MicroOp& op) {
  if (is_generator(f.top().get()) || PyGen_CheckExact(f.top().get())) return Outcome::next;
  return do_get_iter(in, f, op);
}
Outcome do_send(Interpreter& in, Frame& f, const MicroOp& op) {
  PyRef value = f.top(), receiver = f.top(2);
  if (is_generator(receiver.get()) && in.recorder && !in.recorder->is_outside(receiver.get())) {
    auto frame = resume(generator_of(receiver.get()), value.get());
    if (frame) return in.enter(f, 0, std::move(frame), Role::delegate);
    f.drop(2);
    f.push(PyRef::share(Py_None));
    f.jump(op.target);
    return Outcome::next;
  }
  if (in.recorder) {
    bool plain = value.get() == Py_None && !in.recorder->is_outside(receiver.get()) &&
                 !is_class_of_python(Py_TYPE(receiver.get())) && !PyGen_Check(receiver.get());
    if (!plain) return in.breaks("`yield from` of a generator that was made outside");
  }
  PyObject* sent = nullptr;
  PySendResult got = PyIter_Send(receiver.get(), value.get(), &sent);
  if (got == PYGEN_ERROR) return Outcome::raised;
  f.drop(got == PYGEN_RETURN ? 2 : 1);
  f.push(PyRef(sent));
  if (got == PYGEN_RETURN) f.jump(op.target);
  return Outcome::next;
}

// ---- exceptions

Outcome do_raise_op(Interpreter& in, Frame& f, const MicroOp& op) {
  PyRef cause = op.arg > 1 ? f.top() : PyRef();
  PyRef what = op.arg > 0 ? f.top(size_t(op.arg)) : PyRef();
  if (!what) {
    PyRef now(PyErr_GetHandledException());
    if (!now || now.get() == Py_None) {
      PyErr_SetString(PyExc_RuntimeError, "No active exception to reraise");
      return Outcome::raised;
    }
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(now.get())), now.get());
    return Outcome::raised;
  }
  PyRef error = what;
  if (PyExceptionClass_Check(what.get())) {
    PyObject* init = _PyType_Lookup(reinterpret_cast<PyTypeObject*>(what.get()), names::__init__);
    if (in.recorder && init && PyFunction_Check(init)) {
      if (op.arg > 1) return in.breaks("`raise` of a class with an __init__", "raise an instance");
      Outcome result = call(in, f, {what.get(), {}, 0, nullptr, 1});
      if (result == Outcome::next) f.jump(f.last);
      return result;
    }
    error = PyRef(PyObject_CallNoArgs(what.get()));
    if (!error) return Outcome::raised;
  }
  if (!PyExceptionInstance_Check(error.get())) {
    PyErr_SetString(PyExc_TypeError, "exceptions must derive from BaseException");
    return Outcome::raised;
  }
  if (op.arg > 1) {
    if (PyExceptionClass_Check(cause.get())) cause = checked(PyObject_CallNoArgs(cause.get()));
    if (cause.get() == Py_None) PyException_SetCause(error.get(), nullptr);
    else if (PyExceptionInstance_Check(cause.get()))
      PyException_SetCause(error.get(), Py_NewRef(cause.get()));
    else {
      PyErr_SetString(PyExc_TypeError, "exception causes must derive from BaseException");
      return Outcome::raised;
    }
  }
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.get())), error.get());
  return Outcome::raised;
}

static void restore(PyRef error) {
  PyRef trace(PyException_GetTraceback(error.get()));
  PyErr_Restore(Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(error.get()))), Py_NewRef(error.get()),
                trace.detach());
}
Outcome do_reraise(Interpreter& in, Frame& f, const MicroOp& op) {
  PyRef error = f.pop();
  if (op.arg) f.last = int(PyLong_AsLong(f.top(size_t(op.arg)).get()));  // the operation that raised
  restore(std::move(error));
  in.reraises = true;
  return Outcome::raised;
}
// The receiver, the value that was sent, and the exception that was thrown into `yield from`: StopIteration ends it.
Outcome do_cleanup_throw(Interpreter& in, Frame& f, const MicroOp&) {
  PyRef error = f.pop();
  if (PyErr_GivenExceptionMatches(error.get(), PyExc_StopIteration)) {
    f.drop(2);
    f.push(checked(PyObject_GetAttrString(error.get(), "value")));
    return Outcome::next;
  }
  restore(std::move(error));
  in.reraises = true;
  return Outcome::raised;
}
Outcome do_push_exc_info(Interpreter&, Frame& f, const MicroOp&) {
  PyRef error = f.pop();
  PyRef outer(PyErr_GetHandledException());
  f.push(outer ? std::move(outer) : PyRef::share(Py_None));
  PyErr_SetHandledException(error.get());
  f.push(std::move(error));
  return Outcome::next;
}
Outcome do_pop_except(Interpreter&, Frame& f, const MicroOp&) {
  PyRef outer = f.pop();
  PyErr_SetHandledException(outer.get());
  return Outcome::next;
}
Outcome do_check_exc_match(Interpreter&, Frame& f, const MicroOp&) {
  PyRef kinds = f.pop();
  bool plain = PyTuple_Check(kinds.get()) || PyExceptionClass_Check(kinds.get());
  for (Py_ssize_t k = 0; PyTuple_Check(kinds.get()) && k < PyTuple_GET_SIZE(kinds.get()); ++k)
    plain = plain && PyExceptionClass_Check(PyTuple_GET_ITEM(kinds.get(), k));
  if (!plain) {
    PyErr_SetString(PyExc_TypeError,
                    "catching classes that do not inherit from BaseException is not allowed");
    return Outcome::raised;
  }
  f.push(PyRef::share(PyErr_GivenExceptionMatches(f.top().get(), kinds.get()) ? Py_True : Py_False));
  return Outcome::next;
}

// ---- with

static PyRef special(Interpreter& in, PyObject* o, const char* name) {
  PyRef key = checked(PyUnicode_InternFromString(name));
  PyObject* looked_up = _PyType_Lookup(Py_TYPE(o), key.get());
  if (!looked_up) {
    PyErr_Format(PyExc_TypeError, "'%.200s' object does not support the context manager protocol",
                 Py_TYPE(o)->tp_name);
    throw PythonError();
  }
  if (in.recorder) in.recorder->member(o, key.get(), looked_up);
  auto get = Py_TYPE(looked_up)->tp_descr_get;
  return checked(get ? get(looked_up, o, reinterpret_cast<PyObject*>(Py_TYPE(o))) : Py_NewRef(looked_up));
}
Outcome do_before_with(Interpreter& in, Frame& f, const MicroOp&) {
  PyRef manager = f.top();
  PyRef enter = special(in, manager.get(), "__enter__"), exit = special(in, manager.get(), "__exit__");
  if (!in.recorder) {
    PyRef value(PyObject_CallNoArgs(enter.get()));
    if (!value) return Outcome::raised;
    f.top() = exit;
    f.push(std::move(value));
    return Outcome::next;
  }
  f.top() = exit;
  Outcome o = call(in, f, {enter.get(), {}, 0, nullptr, 0});
  if (o == Outcome::breaks || o == Outcome::raised) f.top() = manager;
  return o;
}
Outcome do_with_except_start(Interpreter& in, Frame& f, const MicroOp&) {
  PyObject* error = f.top().get();
  PyRef trace(PyException_GetTraceback(error));
  PyRef owner_ref = trace ? trace : PyRef::share(Py_None);
  PyRef exit = f.top(4);
  std::vector<PyObject*> args{reinterpret_cast<PyObject*>(Py_TYPE(error)), error, owner_ref.get()};
  if (in.recorder) {
    in.recorder->constant(args[0]);
    return call(in, f, {exit.get(), std::move(args), 3, nullptr, 0});
  }
  PyRef value(PyObject_Vectorcall(exit.get(), args.data(), 3, nullptr));
  if (!value) return Outcome::raised;
  f.push(std::move(value));
  return Outcome::next;
}

}  // namespace facula::bind::capture
