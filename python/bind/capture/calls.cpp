// Calls: functions of Python are entered, operators are recorded, C functions are run on the real objects where
// that can be repeated.
#include <algorithm>
#include <cstring>

#include "../generator.h"
#include "../override.h"
#include "compiled.h"
#include "facula/autograd/autograd.h"
#include "facula/run/open_trace.h"
#include "interpreter.h"

namespace facula::bind::capture {

namespace {

Outcome call_wrapper(Interpreter& in, Frame& f, Call& c);
Outcome convert(Interpreter& in, Frame& f, Call& c);
Outcome call_ruled(Interpreter& in, Frame& f, Call& c, const Rule& rule);
Outcome call_folded(Interpreter& in, Frame& f, Call& c);
Outcome call_values(Interpreter& in, Frame& f, Call& c, const Rule& rule);

PyObject* run_unpinned(const Call& c) {
  return PyObject_Vectorcall(c.callable, c.args.data(), c.positional, c.kwnames);
}
void pin_all(Interpreter& in, const Call& c) {
  if (in.recorder->has_free())
    for (auto* a : c.args) in.recorder->pin(a);
}
// C code sees the values of numbers.
PyObject* run_native(Interpreter& in, const Call& c) {
  pin_all(in, c);
  return run_unpinned(c);
}
size_t keywords(const Call& c) { return c.args.size() - c.positional; }
const char* kind(PyObject* o) { return Py_TYPE(o)->tp_name; }
bool named(PyObject* o, const char* name) { return !std::strcmp(kind(o), name); }

bool named_type(PyTypeObject* t, const char* name) { return !std::strcmp(t->tp_name, name); }

std::string shown(PyObject* callable) {
  PyRef name(PyObject_GetAttrString(callable, "__qualname__"));
  if (!name || !PyUnicode_Check(name.get())) {
    PyErr_Clear();
    return std::string("a ") + kind(callable);
  }
  return std::string(text_of(name.get()));
}

Outcome opaque(Interpreter& in, const Call& c) {
  return in.breaks("a call of " + shown(c.callable) + ", which is opaque");
}

// Replaces the value of a call that has been made by C code: `drop` slots by the result.
Outcome finish(Interpreter& in, Frame& f, const Call& c, PyObject* owned) {
  if (!owned) return Outcome::raised;
  if (c.role == Role::discard) {
    Py_DECREF(owned);
    f.drop(c.drop);
    return Outcome::next;
  }
  return in.give(f, c.drop, owned);
}

bool all_data(const Call& c, bool tensors) {
  for (auto* a : c.args)
    if (!is_data(a, tensors)) return false;
  return true;
}
void read_all(Interpreter& in, const Call& c) {
  for (auto* a : c.args) in.recorder->deep_contents(a);
}

// Calls a function of C that has no effects, for one or two numbers, one of them free. Null: it takes others, or returns neither a
// number nor a bool.
PyRef apply_to_numbers(Interpreter& in, const Call& c) {
  auto* r = in.recorder;
  if (!r->has_free() || keywords(c) || c.args.empty() || c.args.size() > 2) return {};
  if (!std::ranges::all_of(c.args, is_changeable) ||
      std::ranges::none_of(c.args, [&](PyObject* a) { return r->is_free(a); }))
    return {};
  PyRef result(run_unpinned(c));
  if (!result) PyErr_Clear();  // the call that pins its arguments raises the error
  bool follows = result && (is_changeable(result.get()) || PyBool_Check(result.get()));
  return follows ? r->applied(c.callable, c.args, std::move(result)) : PyRef();
}

// The arguments as a tuple, and a dict of those with keywords or null.
std::pair<PyRef, PyRef> arguments_of(const Call& c) {
  PyRef args = checked(PyTuple_New(Py_ssize_t(c.positional))), named;
  for (size_t k = 0; k < c.positional; ++k) PyTuple_SET_ITEM(args.get(), Py_ssize_t(k), Py_NewRef(c.args[k]));
  if (keywords(c)) named = checked(PyDict_New());
  for (size_t k = 0; k < keywords(c); ++k)
    checked(
        PyDict_SetItem(named.get(), PyTuple_GET_ITEM(c.kwnames, Py_ssize_t(k)), c.args[c.positional + k]));
  return {std::move(args), std::move(named)};
}

// Iterables that C code walks over without calling Python.
bool is_walkable(Interpreter& in, PyObject* o) {
  if (is_container(o) || is_atom(o) || is_read_as_dict(in.recorder, o)) return true;
  if (PyTuple_Check(o) && Py_TYPE(o)->tp_iter == PyTuple_Type.tp_iter) return true;
  if (is_dict_view(o)) return true;
  bool iterator = false;
  for (const char* n : {"list_iterator", "tuple_iterator", "range_iterator", "enumerate", "zip", "reversed",
                        "dict_keyiterator", "dict_valueiterator", "dict_itemiterator", "list_reverseiterator",
                        "odict_iterator"})
    iterator |= named(o, n);
  return iterator && !in.recorder->is_outside(o);
}

// Whether the program can draw from this generator: it refers to the object, which has to be the same at each call.
bool is_fixed_generator(Interpreter& in, PyObject* o) {
  return to_generator(o) && in.recorder->is_outside(o) && !in.recorder->is_changing(o);
}

// The graphs that a back end of Python gets hold no gradients: it would never see a program that computes some.
Outcome break_for_backend(Interpreter& in, const std::string& name) {
  return in.breaks("`" + name + "` for a back end of Python, whose graphs hold no gradients");
}

// The indices of a sparse tensor and their number decide what its methods give, and no guard knows them.
bool takes_sparse(const Call& c) {
  auto is_one = [](PyObject* o) { return o && is_tensor(o) && is_sparse(impl_of(o)); };
  return (PyCFunction_Check(c.callable) && is_one(PyCFunction_GET_SELF(c.callable))) ||
         std::ranges::any_of(c.args, is_one);
}

Outcome call_recorded(Interpreter& in, Frame& f, Call& c) {
  for (auto* a : c.args) {
    if (!is_data(a, true) && !is_fixed_generator(in, a))
      return in.breaks("an operator with an argument that is not data: " + shown(c.callable));
    if (to_generator(a)) in.recorder->identity(a);
  }
  if (takes_sparse(c)) return in.breaks("a call with a sparse tensor: " + shown(c.callable));
  read_all(in, c);
  std::string name = shown(c.callable);
  bool is_of_c = PyCFunction_Check(c.callable) || Py_TYPE(c.callable) == &PyMethodDescr_Type;
  bool differentiates = is_of_c && (name == "backward" || name == "grad" || name.ends_with(".backward"));
  if (in.backend && differentiates) return break_for_backend(in, name);
  if (in.recorder->stops.at_backward && differentiates && name != "grad")
    return in.breaks("`" + name + "`, behind which another history goes on",
                     "call all backward passes in a row");
  Call with = c;
  std::vector<PyRef> args;
  for (auto*& a : with.args) {
    args.push_back(in.recorder->with_symbols(a));
    a = args.back().get();
  }
  UserCalls calls;
  auto* trace = run::OpenTrace::current();
  size_t values = trace ? trace->values() : 0;
  int writes = trace ? trace->writes(values) : 0;
  size_t effects = in.recorder->writes.size();
  PyObject* result = run_unpinned(with);
  if (!result) calls.take_back();
  // The call is made again, plainly.
  if (!result) in.recorder->writes.resize(effects);
  if (!result && trace && trace->writes(values) != writes)
    in.recorder->failure = name + " failed after it had written tensors";
  if (!result || c.role == Role::call) return in.give_recorded(f, c.drop, result, name.c_str());
  in.recorder->result(result);
  return finish(in, f, c, result);
}

// ---- functions of Python

// The call `c` by the name that its errors tell. `function`: whose parameters its arguments are. The first argument of a method
// is its object.
std::shared_ptr<const NamedCall> named_call(const Call& c, std::string name, PyObject* function, bool method,
                                            bool also_of_operators) {
  return std::make_shared<NamedCall>(NamedCall{std::move(name), PyRef::share(function), c.positional,
                                               PyRef::share(c.kwnames), method, also_of_operators});
}
bool is_of_nn(PyObject* function) {
  return PyFunction_Check(function) && is_our_module(PyFunction_GET_GLOBALS(function), "facula.nn");
}

void note_defaults(Interpreter& in, const Call& c) {
  auto* r = in.recorder;
  SourceId source = r->source_of(c.callable);
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(c.callable));
  if (source == kNoSource) return;
  auto is_passed = [&](int k) {
    if (k < code->co_argcount && size_t(k) < c.positional) return true;
    PyObject* name = PyTuple_GET_ITEM(code->co_localsplusnames, k);
    for (Py_ssize_t i = 0; c.kwnames && i < PyTuple_GET_SIZE(c.kwnames); ++i)
      if (!PyUnicode_Compare(PyTuple_GET_ITEM(c.kwnames, i), name)) return true;
    return false;
  };
  PyObject* all = PyFunction_GET_DEFAULTS(c.callable);
  Py_ssize_t n = all ? PyTuple_GET_SIZE(all) : 0;
  for (Py_ssize_t k = 0; k < n; ++k)
    if (!is_passed(code->co_argcount - int(n - k)))
      r->note({Source::Kind::fallback, source, {}, k}, PyTuple_GET_ITEM(all, k));
  PyObject* named = PyFunction_GET_KW_DEFAULTS(c.callable);
  for (int k = code->co_argcount; named && k < code->co_argcount + code->co_kwonlyargcount; ++k) {
    PyObject* name = PyTuple_GET_ITEM(code->co_localsplusnames, k);
    PyObject* value = is_passed(k) ? nullptr : PyDict_GetItemWithError(named, name);
    if (value) r->note({Source::Kind::keyword_fallback, source, PyRef::share(name)}, value);
  }
}

// A method of this package that runs on the real objects. Its recorded calls cannot be taken back, so that
// an error behind the first of them ends the capture.
Outcome call_observed(Interpreter& in, Frame& f, Call& c) {
  auto* r = in.recorder;
  auto* trace = run::OpenTrace::current();
  PyRef of = PyRef::share(c.args[0]);
  std::string name = shown(c.callable);
  r->identity(of.get());
  size_t calls = trace->calls(), slots = trace->slots().size();
  PyRef done = checked(PyObject_CallMethod(r->observer(), "begin", nullptr));
  PyRef result(run_native(in, c));
  PyObject *type, *value, *at;
  PyErr_Fetch(&type, &value, &at);
  done = checked(PyObject_CallMethod(r->observer(), "end", nullptr));
  PyErr_Restore(type, value, at);
  if (result) {
    r->take_observations();
    r->result(result.get());
    return finish(in, f, c, result.detach());
  }
  if (trace->calls() != calls || trace->slots().size() != slots)
    r->failure = name + " of a " + kind(of.get()) + " failed after it had changed tensors";
  return in.give_recorded(f, c.drop, nullptr, name.c_str());
}

// A tensor that is computed here, or a list of such.
bool is_new_data(Interpreter& in, PyObject* o) {
  if (is_tensor(o)) return impl_of(o)->traced;
  if (!PyList_CheckExact(o) || in.recorder->is_outside(o)) return false;
  for (Py_ssize_t k = 0; k < PyList_GET_SIZE(o); ++k)
    if (!is_new_data(in, PyList_GET_ITEM(o, k))) return false;
  return true;
}

bool is_observed(Interpreter& in, const Call& c) {
  if (c.args.empty()) return false;
  PyObject* name = reinterpret_cast<PyFunctionObject*>(c.callable)->func_name;
  bool is_step = !PyUnicode_CompareWithASCIIString(name, "step");  // its closure has to be interpreted
  for (size_t k = 1; k < c.args.size(); ++k) {
    PyObject* a = c.args[k];
    bool is_empty =
        (PyTuple_CheckExact(a) || PyDict_CheckExact(a) || PyList_CheckExact(a)) && !PyObject_Size(a);
    bool is_called = PyFunction_Check(a) && !is_step;
    if (!is_atom(a) && !is_empty && !is_called && !is_new_data(in, a)) return false;
  }
  if (!in.recorder->is_outside(c.args[0])) return false;
  PyRef answer = checked(PyObject_CallMethod(in.recorder->observer(), "accepts", "OO", c.args[0], name));
  return answer.get() == Py_True;
}

// Modules of Python whose functions have rules.
bool is_ruled_module(PyObject* globals) {
  for (const char* name :
       {"inspect", "copy", "importlib", "logging", "random", "threading", "pickle", "json", "re", "warnings"})
    if (is_our_module(globals, name)) return true;
  return false;
}

// Whether a function that runs calls backward(), so that hooks of intermediate tensors are called in the same program.
bool differentiates(Interpreter& in) {
  for (auto& f : in.frames) {
    PyObject* names = f->code->get()->co_names;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(names); ++k)
      if (!PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, k), "backward")) return true;
  }
  return false;
}

// Whether a capture calls the backward hooks of a module: its function calls backward(), and the list of tensors that a node of the
// tape would watch has a single one that requires a gradient.
bool can_call_module_hooks(Interpreter& in, PyObject* tensors) {
  if (in.backend || in.recorder->stops.at_hooks || !differentiates(in) || !PyList_CheckExact(tensors))
    return false;
  int watched = 0;
  for (Py_ssize_t k = 0; k < PyList_GET_SIZE(tensors); ++k) {
    PyObject* t = PyList_GET_ITEM(tensors, k);
    if (!is_tensor(t) || !is_plain(Py_TYPE(t))) return false;
    watched += tensor_of(t).requires_grad();
  }
  return watched == 1;
}

Outcome call_function(Interpreter& in, Frame& f, Call& c) {
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(c.callable));
  const Rule* own = user_rule(c.callable);
  if (own && (own->policy != Policy::recorded || all_data(c, true))) {
    pin_all(in, c);
    return call_ruled(in, f, c, *own);
  }
  if (code->co_flags & (CO_VARARGS | CO_VARKEYWORDS)) pin_all(in, c);
  PyObject* globals = PyFunction_GET_GLOBALS(c.callable);
  if (is_our_module(globals) || is_ruled_module(globals)) {
    Rule rule = rule_of(c.callable);
    if (rule.policy != Policy::unknown && rule.policy != Policy::recorded) pin_all(in, c);
    bool has_hooks = rule.policy == Policy::hooks && !can_call_module_hooks(in, c.args[0]);
    if (rule.policy == Policy::breaks || has_hooks) return in.breaks(std::string(text_of(rule.detail)));
    if (rule.policy == Policy::recorded && all_data(c, true)) return call_recorded(in, f, c);
    if (rule.policy == Policy::constant) return finish(in, f, c, Py_NewRef(rule.detail));
    if (rule.policy == Policy::folded) return call_folded(in, f, c);
    if (rule.policy == Policy::values) return call_values(in, f, c, rule);
    if (rule.policy == Policy::observed && is_observed(in, c)) return call_observed(in, f, c);
    if (rule.policy == Policy::replaced) {
      c.callable = rule.detail;
      in.recorder->constant(c.callable);
      return call_function(in, f, c);
    }
  }
  if (code->co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE))
    return in.breaks("a call of a coroutine");
  const Code& decoded = code_of(reinterpret_cast<PyObject*>(code));
  if (decoded.refused) return in.breaks("a call of " + shown(c.callable) + ": " + decoded.refused);
  if (in.frames.size() > in.depth_limit)
    return in.breaks("a recursion of " + std::to_string(in.depth_limit) + " calls");
  in.recorder->function(c.callable);
  auto callee = frame_of_call(c.callable, c.args.data(), c.positional, c.kwnames);
  if (!callee) {
    PyErr_Clear();
    return in.breaks("arguments that do not fit " + shown(c.callable));
  }
  note_defaults(in, c);
  callee->created = c.created;
  callee->named = c.named;
  return in.enter(f, c.drop, std::move(callee), c.role);
}

// ---- classes

Outcome construct(Interpreter& in, Frame& f, Call& c) {
  auto* type = reinterpret_cast<PyTypeObject*>(c.callable);
  auto* r = in.recorder;
  PyRef new_name = checked(PyUnicode_InternFromString("__new__"));
  PyObject* maker = _PyType_Lookup(type, new_name.get());
  PyObject* init = _PyType_Lookup(type, names::__init__);
  r->member(c.callable, new_name.get(), maker);
  r->member(c.callable, names::__init__, init);
  bool own_init = init && PyFunction_Check(init);
  bool is_init_of_python = init && Py_TYPE(init) != &PyWrapperDescr_Type;  // as a partialmethod is
  bool own_new = maker && Py_TYPE(maker) == &PyStaticMethod_Type;
  if (own_new) {
    PyRef function(PyObject_GetAttr(c.callable, new_name.get()));
    if (!function || !PyFunction_Check(function.get()))
      return in.breaks("an instance of " + shown(c.callable) + ", whose __new__ is not a function of Python");
    r->constant(function.get());
    if (is_init_of_python) {
      Call inner = c;
      inner.bind(polyfill("construct_"), c.callable);
      r->constant(inner.callable);
      return call_function(in, f, inner);
    }
    Call inner = c;
    inner.bind(function.get(), c.callable);
    return call_function(in, f, inner);
  }
  if (is_init_of_python && !own_init)
    return in.breaks("an instance of " + shown(c.callable) + ", whose __init__ is not a function of Python");
  if (!own_init &&
      (!all_data(c, true) && is_class_of_python(type) && type->tp_init != PyBaseObject_Type.tp_init))
    return in.breaks("an instance of " + shown(c.callable) + ", which is made by C code");
  if (!own_init) {
    for (auto* a : c.args) r->contents(a);
    return finish(in, f, c, run_native(in, c));
  }
  auto [args, named] = arguments_of(c);
  pin_all(in, c);
  PyRef created(type->tp_new(type, args.get(), named.get()));
  if (!created) return Outcome::raised;
  r->constant(init);
  Call inner = c;
  inner.bind(init, created.get());
  inner.role = Role::construct;
  inner.created = created;
  if (is_module(created.get()) && is_of_nn(init))
    inner.named = named_call(inner, type->tp_name, init, true, true);
  return call_function(in, f, inner);
}

Outcome call_super(Interpreter& in, Frame& f, Call& c) {
  if (c.args.size() == 2) return finish(in, f, c, run_native(in, c));
  if (!c.args.empty()) return opaque(in, c);
  bool has_object = f.code->get()->co_argcount;
  if (has_object) note_variable(in, f, 0);
  if (has_object && f.locals[0] && PyCell_Check(f.locals[0].get())) in.recorder->cell(f.locals[0].get());
  auto [cls, self] = arguments_of_super(f);
  if (!cls || !self) return in.breaks("super() without a class");
  in.recorder->constant(cls);
  PyObject* created = PyObject_CallFunctionObjArgs(c.callable, cls, self, nullptr);
  return finish(in, f, c, created);
}

PyObject* python_call_of_metaclass(PyTypeObject* meta) {
  PyObject* own = meta->tp_call == PyType_Type.tp_call ? nullptr : _PyType_Lookup(meta, names::__call__);
  return own && PyFunction_Check(own) ? own : nullptr;
}

// The items of a container become elements of a set, or are pairs of keys and values.
void tell_elements_apart(Recorder& r, PyObject* container, PyTypeObject* type) {
  if (type == &PySet_Type || type == &PyFrozenSet_Type) return r.tell_apart(container);
  if (!PyTuple_Check(container) && !PyList_Check(container)) return;  // the keys of a dict are apart
  for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(container); ++k) {
    PyObject* pair = PySequence_Fast_GET_ITEM(container, k);
    bool is_pair = (PyTuple_Check(pair) || PyList_Check(pair)) && PySequence_Fast_GET_SIZE(pair);
    if (is_pair && !is_atom(PySequence_Fast_GET_ITEM(pair, 0))) r.identity(PySequence_Fast_GET_ITEM(pair, 0));
  }
}

Outcome call_type(Interpreter& in, Frame& f, Call& c) {
  auto* type = reinterpret_cast<PyTypeObject*>(c.callable);
  if (type == &PySuper_Type) return call_super(in, f, c);
  if (type == &PyMethod_Type) return finish(in, f, c, run_native(in, c));
  if (type == &PyType_Type && c.args.size() == 1) {
    PyObject* of = reinterpret_cast<PyObject*>(Py_TYPE(c.args[0]));
    in.recorder->constant(of);
    return finish(in, f, c, Py_NewRef(of));
  }
  Rule rule = rule_of(c.callable);
  switch (rule.policy) {
    case Policy::breaks: return in.breaks(std::string(text_of(rule.detail)));
    case Policy::mode:
      if (!all_data(c, false)) return opaque(in, c);
      return finish(in, f, c, run_native(in, c));
    case Policy::values:
      if (PyRef number = apply_to_numbers(in, c)) return finish(in, f, c, number.detach());
      if (!all_data(c, false)) return convert(in, f, c);
      read_all(in, c);
      return finish(in, f, c, run_native(in, c));
    case Policy::structural: {
      bool plain = true;
      bool is_set_or_dict = type == &PySet_Type || type == &PyFrozenSet_Type || type == &PyDict_Type;
      bool has_factory =
          named_type(type, "collections.defaultdict") && !c.args.empty();  // its first argument
      bool keyed = is_set_or_dict || type == &PyODict_Type || has_factory;
      for (size_t k = has_factory; k < c.args.size(); ++k)
        plain = plain && is_walkable(in, c.args[k]) && !(keyed && PyIter_Check(c.args[k]));
      if (plain && rule.detail == Py_None) plain = all_data(c, false);
      if (plain) {
        for (auto* a : c.args) in.recorder->contents(a);
        for (size_t k = has_factory; k < c.args.size() && keyed; ++k)
          tell_elements_apart(*in.recorder, c.args[k], type);
        return finish(in, f, c, is_set_or_dict ? run_native(in, c) : run_unpinned(c));
      }
      [[fallthrough]];
    }
    case Policy::replaced:
      if (rule.detail == Py_None) return opaque(in, c);
      c.callable = rule.detail;
      in.recorder->constant(c.callable);
      return call_function(in, f, c);
    default: break;
  }
  PyTypeObject* meta = Py_TYPE(type);
  bool exception = PyExceptionClass_Check(c.callable);
  if (PyObject* own = python_call_of_metaclass(meta)) {
    Call inner = c;
    inner.bind(own, c.callable);
    in.recorder->constant(own);
    return call_function(in, f, inner);
  }
  if (meta->tp_call != PyType_Type.tp_call) return in.breaks("a class whose metaclass treats its calls");
  if (!is_class_of_python(type) && !exception) return opaque(in, c);
  return construct(in, f, c);
}

// ---- functions of C

Outcome call_len(Interpreter& in, Frame& f, Call& c) {
  PyObject* o = c.args[0];
  if (is_plain(Py_TYPE(o))) {  // a length that is known only when the program has run is a break
    in.recorder->contents(o);
    return in.give_recorded(f, c.drop, run_unpinned(c), "len");
  }
  if (is_container(o) || is_atom(o) || PyTuple_Check(o) || is_dict_view(o) ||
      takes_method_of_dict(in.recorder, o, "__len__")) {
    in.recorder->contents(o);
    return finish(in, f, c, run_unpinned(c));
  }
  if (Py_TYPE(o) == &PyDictProxy_Type && in.recorder->is_outside(o)) {  // of a constant object
    in.recorder->identity(o);
    return finish(in, f, c, run_native(in, c));
  }
  if (is_deque(o) && !in.recorder->is_outside(o)) return finish(in, f, c, run_native(in, c));
  PyRef key = checked(PyUnicode_InternFromString("__len__"));
  PyObject* method = is_class_of_python(Py_TYPE(o)) ? _PyType_Lookup(Py_TYPE(o), key.get()) : nullptr;
  if (!method || !PyFunction_Check(method)) return opaque(in, c);
  in.recorder->member(o, key.get(), method);
  c.callable = method;
  return call_function(in, f, c);
}

// getattr, hasattr: with what load_attribute gives. `fallback` null: AttributeError is raised.
Outcome call_getattr(Interpreter& in, Frame& f, Call& c, bool has) {
  if (!PyUnicode_CheckExact(c.args[1])) return opaque(in, c);
  PyRef name = PyRef::share(c.args[1]), fallback;
  PyObject* interned = name.detach();
  PyUnicode_InternInPlace(&interned);
  name = PyRef(interned);
  if (c.args.size() > 2) fallback = PyRef::share(c.args[2]);
  PyRef o = PyRef::share(c.args[0]);
  std::vector<PyRef> owner_ref(f.stack.end() - std::ptrdiff_t(c.drop), f.stack.end());
  size_t depth = in.frames.size();
  Outcome got = load_attribute(in, f, o.get(), name.get(), c.drop, false);
  if (in.frames.size() != depth &&
      (fallback || has)) {  // Python code computes it, and may raise AttributeError
    in.frames.pop_back();
    for (auto& s : owner_ref) f.push(s);
    if (has) return call_polyfill(in, f, "hasattr_", {o.get(), name.get()}, c.drop);
    return call_polyfill(in, f, "getattr_", {o.get(), name.get(), fallback.get()}, c.drop);
  }
  if (got == Outcome::raised && (fallback || has) && PyErr_ExceptionMatches(PyExc_AttributeError)) {
    PyErr_Clear();
    return in.give(f, c.drop, has ? Py_NewRef(Py_False) : fallback.detach());
  }
  if (got == Outcome::next && has) f.top() = PyRef::share(Py_True);
  return got;
}

Outcome call_next(Interpreter& in, Frame& f, Call& c) {
  PyObject* o = c.args[0];
  if (c.args.size() == 2 && (is_generator(o) || python_method(o, "__next__")))
    return call_polyfill(in, f, "next_", c.args, c.drop);
  if (PyObject* method = python_method(o, "__next__")) {
    PyRef key = checked(PyUnicode_InternFromString("__next__"));
    in.recorder->member(o, key.get(), method);
    c.callable = method;
    return call_function(in, f, c);
  }
  if (is_generator(o) && !in.recorder->is_outside(o) && c.args.size() == 1) {
    if (auto frame = resume(generator_of(o), Py_None))
      return in.enter(f, c.drop, std::move(frame), Role::next);
    PyErr_SetNone(PyExc_StopIteration);
    return Outcome::raised;
  }
  if (in.recorder->is_outside(o) && Py_TYPE(o) == &PyTupleIter_Type) {
    PyRef number, item = in.recorder->advance(o, &number);
    return item ? in.give(f, c.drop, number ? number.detach() : item.detach()) : opaque(in, c);
  }
  if (in.recorder->is_outside(o) || !PyIter_Check(o) || !is_walkable(in, o)) return opaque(in, c);
  return finish(in, f, c, run_native(in, c));
}

Outcome call_structural(Interpreter& in, Frame& f, Call& c) {
  std::string name = shown(c.callable);
  size_t n = c.args.size();
  if (keywords(c)) return opaque(in, c);
  if (name == "len" && n == 1) return call_len(in, f, c);
  if (name == "getattr" && n >= 2) return call_getattr(in, f, c, false);
  if (name == "hasattr" && n == 2) return call_getattr(in, f, c, true);
  if (name == "next" && n) return call_next(in, f, c);
  if (name == "setattr" && n == 3 && PyUnicode_CheckExact(c.args[1])) {
    PyObject* key = Py_NewRef(c.args[1]);
    PyUnicode_InternInPlace(&key);
    PyRef owner_ref(key);
    size_t depth = in.frames.size();
    Outcome o = store_attribute(in, f, c.args[0], key, c.args[2], c.drop);
    if (o == Outcome::next && in.frames.size() == depth) f.push(PyRef::share(Py_None));
    else if (o == Outcome::next) in.frame().role = Role::call;
    return o;
  }
  if (name == "has_torch_function" && n == 1 && PyTuple_CheckExact(c.args[0])) {
    in.recorder->contents(c.args[0]);
    return finish(in, f, c, run_unpinned(c));
  }
  if (name == "isinstance" || name == "issubclass" || name == "callable") {
    for (auto* a : c.args)
      if (PyTuple_Check(a)) in.recorder->contents(a);
    return finish(in, f, c, run_unpinned(c));
  }
  if (name == "globals" && n == 0) {
    in.recorder->constant(f.globals.get());
    return finish(in, f, c, Py_NewRef(f.globals.get()));
  }
  if (name == "id" && n == 1) {
    if (!in.recorder->is_outside(c.args[0])) return in.breaks("`id` of an object that is made here");
    in.recorder->identity(c.args[0]);
    return finish(in, f, c, run_native(in, c));
  }
  if (name == "iter" && n == 1 && is_plain(Py_TYPE(c.args[0]))) {
    PyRef rows(PyObject_CallMethod(c.args[0], "unbind", nullptr));
    if (!rows) return in.give_recorded(f, c.drop, nullptr, "iteration");
    in.recorder->result(rows.get());
    return finish(in, f, c, PyObject_GetIter(rows.get()));
  }
  if (name == "iter" && n == 1) {
    PyRef o = PyRef::share(c.args[0]), key = checked(PyUnicode_InternFromString("__iter__"));
    PyObject* method = is_class_of_python(Py_TYPE(o.get())) && !is_generator(o.get())
                           ? _PyType_Lookup(Py_TYPE(o.get()), key.get())
                           : nullptr;
    if (method && PyFunction_Check(method)) {
      in.recorder->member(o.get(), key.get(), method);
      c.callable = method;
      return call_function(in, f, c);
    }
    if (python_method(o.get(), "__getitem__")) return call_polyfill(in, f, "iter_", {o.get()}, c.drop);
    if (!is_generator(o.get()) && !is_walkable(in, o.get())) return opaque(in, c);
    in.recorder->contents(o.get());
    return finish(in, f, c, run_native(in, c));
  }
  return opaque(in, c);
}

// bool(o), int(o), str(o) and others of an object that is no data.
Outcome convert(Interpreter& in, Frame& f, Call& c) {
  auto* type = reinterpret_cast<PyTypeObject*>(c.callable);
  PyObject* o = c.args.size() == 1 && !keywords(c) ? c.args[0] : nullptr;
  if (!o) return opaque(in, c);
  if (type == &PyBool_Type) {
    if (has_python_truth(in, o)) return call_polyfill(in, f, "bool_", {o}, c.drop);
    int t = in.truth(o);
    return t == -2 ? Outcome::breaks : t < 0 ? Outcome::raised : finish(in, f, c, PyBool_FromLong(t));
  }
  if (is_tensor(o)) return in.breaks(std::string("`") + type->tp_name + "` reads the elements of a tensor");
  if (type == &PyUnicode_Type && PyExceptionInstance_Check(o) && !in.recorder->is_outside(o)) {
    PyRef args = checked(PyObject_GetAttrString(o, "args"));
    bool plain = Py_TYPE(o)->tp_str != nullptr && !python_method(o, "__str__") && is_data(args.get(), false);
    if (plain) return finish(in, f, c, run_native(in, c));
  }
  const char* name = type == &PyLong_Type      ? "__int__"
                     : type == &PyFloat_Type   ? "__float__"
                     : type == &PyUnicode_Type ? "__str__"
                                               : nullptr;
  PyObject* method = name ? python_method(o, name) : nullptr;
  if (!method) return opaque(in, c);
  PyRef key = checked(PyUnicode_InternFromString(name));
  in.recorder->member(o, key.get(), method);
  c.callable = method;
  return call_function(in, f, c);
}

Outcome call_values(Interpreter& in, Frame& f, Call& c, const Rule& rule) {
  if (PyRef number = apply_to_numbers(in, c)) return finish(in, f, c, number.detach());
  if (all_data(c, false)) {
    read_all(in, c);
    return finish(in, f, c, run_native(in, c));
  }
  if (rule.detail == Py_None) return opaque(in, c);
  c.callable = rule.detail;
  in.recorder->constant(c.callable);
  return call_function(in, f, c);
}

// A function whose result the user declared constant: it runs once, outside of the trace.
Outcome call_folded(Interpreter& in, Frame& f, Call& c) {
  for (auto* a : c.args) {
    in.recorder->identity(a);
    if (PyMethod_Check(a)) {
      in.recorder->identity(PyMethod_GET_SELF(a));
      in.recorder->identity(PyMethod_GET_FUNCTION(a));
    }
    in.recorder->deep_contents(a);
    if (is_tensor(a) && impl_of(a)->traced)
      return in.breaks("a result that is declared constant, of a tensor that is computed here");
  }
  PyRef result;
  {
    run::OpenTrace::Inactive outside;
    result = PyRef(run_native(in, c));
  }
  if (!result) return Outcome::raised;
  if (!is_atom(result.get())) in.recorder->constant(result.get());
  return finish(in, f, c, result.detach());
}

// A function of functools.lru_cache: its cache has the result, which later calls read there again before they run.
Outcome call_cached(Interpreter& in, Frame& f, Call& c) {
  auto* r = in.recorder;
  PyRef parameters = checked(PyObject_CallMethod(c.callable, "cache_parameters", nullptr));
  PyRef size = checked(PyObject_GetItem(parameters.get(), checked(PyUnicode_FromString("maxsize")).get()));
  if (size.get() != Py_None && !PyObject_IsTrue(size.get())) return opaque(in, c);  // nothing is cached
  for (auto* a : c.args)
    if (!is_data(a, false) && (is_tensor(a) || !is_plain_key(a) || !r->is_outside(a))) return opaque(in, c);
  for (auto* a : c.args) {
    if (is_data(a, false)) r->deep_contents(a);
    else r->identity(a);
  }
  PyRef result;
  {
    run::OpenTrace::Inactive outside;
    result = PyRef(run_native(in, c));
  }
  SourceId function = r->constant(c.callable);
  if (!result) {  // an error is not cached: a later call may return
    r->serve_this_call_alone();
    return Outcome::raised;
  }
  auto [args, named] = arguments_of(c);
  PyRef key = checked(PyTuple_Pack(2, args.get(), named ? named.get() : Py_None));
  PyRef number;
  r->note({Source::Kind::cached_call, function, std::move(key)}, result.get(), &number);
  return finish(in, f, c, (number ? number : result).detach());
}

// A hook of a tensor, or the handle of one. The method is bound, or gets its object as the first argument.
Outcome call_hooks(Interpreter& in, Frame& f, Call& c, const Rule& rule) {
  PyObject* self = PyCFunction_Check(c.callable) ? PyCFunction_GET_SELF(c.callable)
                   : c.args.empty()              ? nullptr
                                                 : c.args[0];
  if (self && !is_tensor(self) && !in.recorder->is_outside(self))  // the handle of a hook that is recorded
    return in.give_recorded(f, c.drop, run_unpinned(c), "remove");
  bool is_inner = self && is_tensor(self) && is_plain(Py_TYPE(self)) && impl_of(self)->traced;
  if (!is_inner || in.backend || in.recorder->stops.at_hooks || !differentiates(in))
    return in.breaks(std::string(text_of(rule.detail)));
  return in.give_recorded(f, c.drop, run_unpinned(c), "register_hook");
}

// warnings.warn(message, category=None, stacklevel=1)
Outcome call_warn(Interpreter& in, Frame& f, Call& c) {
  static const char* names[] = {"message", "category", "stacklevel"};
  PyObject* values[3] = {};
  for (size_t k = 0; k < c.args.size(); ++k) {
    size_t at = k;
    if (k >= c.positional)
      for (at = 0; at < 3 &&
                   PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(c.kwnames, Py_ssize_t(k - c.positional)),
                                                    names[at]);)
        ++at;
    if (at >= 3 || values[at]) return opaque(in, c);
    values[at] = c.args[k];
  }
  auto [message, category, level] = values;
  if (!category || category == Py_None) category = PyExc_UserWarning;
  bool fits = message && PyUnicode_CheckExact(message) && PyExceptionClass_Check(category) &&
              (!level || PyLong_CheckExact(level));
  if (!fits) return opaque(in, c);
  pin_all(in, c);
  in.recorder->constant(category);
  size_t up = level ? size_t(std::max<int64_t>(PyLong_AsLongLong(level), 1)) : 1;
  if (PyErr_Occurred() || up > in.frames.size()) return opaque(in, c);
  Frame& from = *in.frames[in.frames.size() - up];
  bool done =
      in.recorder->warn(category, message, from.code->get()->co_filename, from.line(), from.globals.get());
  return finish(in, f, c, done ? Py_NewRef(Py_None) : nullptr);
}

Outcome call_ruled(Interpreter& in, Frame& f, Call& c, const Rule& rule) {
  switch (rule.policy) {
    case Policy::folded: return call_folded(in, f, c);
    case Policy::calls: {
      std::string name = shown(c.callable);
      bool has_gradients = name != "apply_function" || autograd::grad_enabled();
      if (in.backend && has_gradients) return break_for_backend(in, name);
      UserCalls calls;
      PyObject* result = run_unpinned(c);
      if (!result) calls.take_back();
      return in.give_recorded(f, c.drop, result, name.c_str());
    }
    case Policy::hooks: return call_hooks(in, f, c, rule);
    case Policy::warns: return call_warn(in, f, c);
    case Policy::recorded: return call_recorded(in, f, c);
    case Policy::structural: return call_structural(in, f, c);
    case Policy::values: return call_values(in, f, c, rule);
    case Policy::mode:
      if (!all_data(c, false)) return opaque(in, c);
      return finish(in, f, c, run_native(in, c));
    case Policy::breaks: return in.breaks(std::string(text_of(rule.detail)));
    case Policy::constant: return finish(in, f, c, Py_NewRef(rule.detail));
    case Policy::replaced:
    case Policy::inlined:
      c.callable = rule.detail;
      in.recorder->constant(c.callable);
      return call(in, f, std::move(c));
    default: return opaque(in, c);
  }
}

// An instance of a subclass of dict that Python code defines.
bool is_mapping(PyObject* o) { return PyDict_Check(o) && is_python_instance(o); }

// A method of a set compares elements with its arguments, or with their items.
void tell_elements_apart(Recorder& r, PyObject* set, const Call& c, const char* name) {
  bool element = !std::strcmp(name, "add") || !std::strcmp(name, "remove") || !std::strcmp(name, "discard");
  std::vector<PyObject*> containers = {set};
  for (auto* a : c.args) {
    if (element) r.tell_apart(a, set, *name == 'a');
    else containers.push_back(a);
  }
  if (containers.size() > 1) r.tell_apart(containers);
}

// A method of a builtin container, string or number. `self` is the object, which c.args do not contain.
Outcome call_builtin_method(Interpreter& in, Frame& f, Call& c, PyObject* self, const char* name) {
  auto* r = in.recorder;
  bool mapping = is_mapping(self), outside = r->is_outside(self);
  int effect = effect_of_method(mapping ? &PyDict_Type : Py_TYPE(self), name);
  if (!effect || (outside && is_deque(self))) return opaque(in, c);
  // The copy of an OrderedDict is made by its class.
  if (mapping && outside && (effect != 1 || !std::strcmp(name, "copy"))) return opaque(in, c);
  if (effect == 1 && is_atom(self)) {
    if (!all_data(c, false)) return opaque(in, c);
    read_all(in, c);
    return finish(in, f, c, run_native(in, c));
  }
  for (auto* a : c.args) {
    if (PyAnySet_CheckExact(self) && PyIter_Check(a))
      return opaque(in, c);  // with items that nobody has seen
    bool walks = is_walkable(in, a);
    bool key = is_plain_key(a) || is_data(a, true);
    bool stored = !std::strcmp(name, "append") || !std::strcmp(name, "insert") ||
                  !std::strcmp(name, "setdefault") || !std::strcmp(name, "get") || !std::strcmp(name, "pop");
    if (!walks && !key && !stored) return opaque(in, c);
  }
  if (PyList_CheckExact(self) && !std::strcmp(name, "append") && c.args.size() == 1) {
    PyRef value = PyRef::share(c.args[0]), list = PyRef::share(self);
    if (!outside) return finish(in, f, c, run_unpinned(c));
    r->append(self, c.args[0]);
    return finish(in, f, c, run_native(in, c));
  }
  bool compares = !std::strcmp(name, "index") || !std::strcmp(name, "count") ||
                  !std::strcmp(name, "remove") || !std::strcmp(name, "sort");
  if (compares && PyList_CheckExact(self) && (keywords(c) || !is_data(self, false) || !all_data(c, false)))
    return opaque(in, c);
  if ((is_dict(self) || (mapping && outside)) && !c.args.empty() && std::strcmp(name, "update")) {
    if (!is_plain_key(c.args[0]) && !is_data(c.args[0], false)) return opaque(in, c);
    if (!is_atom(c.args[0])) r->identity(c.args[0]);
  }
  bool item = (is_dict(self) || (mapping && outside)) && !std::strcmp(name, "get") && !c.args.empty();
  if (item) r->dict_item(self, c.args[0], PyDict_GetItemWithError(self, c.args[0]));
  else r->contents(self);
  for (auto* a : c.args) r->contents(a);
  if (compares) read_all(in, c), r->deep_contents(self);
  if (PyAnySet_CheckExact(self)) tell_elements_apart(*r, self, c, name);
  if (effect == 2 && outside && keywords(c)) return opaque(in, c);
  for (auto* a : c.args)
    if (effect == 2 && outside && PyIter_Check(a)) return opaque(in, c);  // it is used up
  bool walks = !std::strcmp(name, "extend") || std::strstr(name, "update");
  PyRef args = checked(PyTuple_New(Py_ssize_t(c.positional)));
  for (size_t k = 0; k < c.positional; ++k)
    PyTuple_SET_ITEM(args.get(), Py_ssize_t(k), walks ? snapshot(c.args[k]).detach() : Py_NewRef(c.args[k]));
  PyRef owner_ref = PyRef::share(self), key = checked(PyUnicode_InternFromString(name));
  if (effect == 2 && outside) r->remember(self, nullptr);
  PyObject* result = run_native(in, c);
  if (result && effect == 2 && outside) r->write(Write::Kind::call, self, key.get(), args.get());
  return finish(in, f, c, result);
}

// object.__new__(C), tuple.__new__(C, items), and others of builtin classes.
Outcome call_new(Interpreter& in, Frame& f, Call& c, PyTypeObject* base) {
  if (c.args.empty() || !PyType_Check(c.args[0])) return opaque(in, c);
  in.recorder->constant(c.args[0]);
  bool plain = base == &PyBaseObject_Type;
  if (base == &PyTuple_Type && c.args.size() == 2 && !keywords(c) && !is_walkable(in, c.args[1]))
    return call_polyfill(in, f, "new_tuple_", c.args, c.drop);
  if (base == &PyTuple_Type)
    plain = c.args.size() == 1 || (c.args.size() == 2 && !keywords(c) && is_walkable(in, c.args[1]));
  if (!plain) {
    plain = base == &PyLong_Type || base == &PyFloat_Type || base == &PyUnicode_Type ||
            base == &PyDict_Type || base == &PyList_Type || base == &PySet_Type ||
            base == &PyFrozenSet_Type || base == &PyODict_Type;
    for (size_t k = 1; k < c.args.size(); ++k) plain = plain && is_data(c.args[k], false);
  }
  if (!plain) return opaque(in, c);
  for (size_t k = 1; k < c.args.size(); ++k) {
    if (base == &PyTuple_Type) in.recorder->contents(c.args[k]);
    else if (base != &PyBaseObject_Type) in.recorder->deep_contents(c.args[k]);
  }
  return finish(in, f, c, run_native(in, c));
}

// send, throw and close of a generator whose frame is ours.
Outcome call_generator_method(Interpreter& in, Frame& f, Call& c, PyObject* self, const char* name) {
  GeneratorObject* g = generator_of(self);
  if (in.recorder->is_outside(self) || keywords(c) || g->running) return opaque(in, c);
  if (!std::strcmp(name, "close")) {
    if (!g->frame || !g->started) return finish(in, f, c, run_native(in, c));
    return call_polyfill(in, f, "close_", {self}, c.drop);
  }
  if (!g->frame || !g->started) {  // it raises at once, or begins
    if (std::strcmp(name, "send") || !g->frame || c.args[0] != Py_None)
      return finish(in, f, c, run_native(in, c));
  }
  if (!std::strcmp(name, "send")) return in.enter(f, c.drop, resume(g, c.args[0]), Role::next);
  PyObject* error = c.args.empty()                              ? nullptr
                    : c.args.size() > 1 && c.args[1] != Py_None ? c.args[1]
                                                                : c.args[0];
  if (!error || !PyExceptionInstance_Check(error)) return opaque(in, c);
  PyRef raised = PyRef::share(error);
  auto frame = resume(g, Py_None);
  frame->drop(1);
  in.enter(f, c.drop, std::move(frame), Role::next);
  PyErr_SetObject(PyExceptionInstance_Class(raised.get()), raised.get());
  return Outcome::raised;
}

Outcome call_c_function(Interpreter& in, Frame& f, Call& c) {
  PyObject* self = PyCFunction_GET_SELF(c.callable);
  const char* name = reinterpret_cast<PyCFunctionObject*>(c.callable)->m_ml->ml_name;
  if (!self || PyModule_Check(self)) return call_ruled(in, f, c, rule_of(c.callable));
  if (in.recorder->is_outside(c.callable) && !PyType_Check(self))  // so the object is from outside too
    in.recorder->read_attribute(c.callable, "__self__");
  if (is_mapping(self)) return call_builtin_method(in, f, c, self, name);
  if (is_tensor(self)) {
    PyRef key = checked(PyUnicode_InternFromString(name));
    PyObject* descriptor = _PyType_Lookup(Py_TYPE(self), key.get());
    if (!is_plain(Py_TYPE(self)) || !descriptor) return opaque(in, c);
    return call_ruled(in, f, c, rule_of(descriptor));
  }
  if (is_generator(self)) return call_generator_method(in, f, c, self, name);
  if (PyType_Check(self) || !is_class_of_python(Py_TYPE(self))) {
    if (!PyType_Check(self)) return call_builtin_method(in, f, c, self, name);
    if (!std::strcmp(name, "__new__")) return call_new(in, f, c, reinterpret_cast<PyTypeObject*>(self));
    return call_ruled(in, f, c, rule_of(c.callable));
  }
  PyRef key = checked(PyUnicode_InternFromString(name));
  PyObject* descriptor = _PyType_Lookup(Py_TYPE(self), key.get());
  return descriptor ? call_ruled(in, f, c, rule_of(descriptor)) : opaque(in, c);
}

// object.__setattr__(o, name, value)
Outcome store_generic(Interpreter& in, Frame& f, Call& c) {
  PyObject *o = c.args[0], *name = c.args[1];
  PyObject* looked_up = PyUnicode_CheckExact(name) ? _PyType_Lookup(Py_TYPE(o), name) : nullptr;
  if (!PyUnicode_CheckExact(name) || is_tensor(o) || (looked_up && Py_TYPE(looked_up)->tp_descr_set))
    return opaque(in, c);
  PyRef key = PyRef::share(name);
  PyObject* interned = key.detach();
  PyUnicode_InternInPlace(&interned);
  key = PyRef(interned);
  in.recorder->member(o, key.get(), looked_up);
  in.recorder->remember(o, key.get());
  if (PyObject_GenericSetAttr(o, key.get(), c.args[2]) < 0) return Outcome::raised;
  if (in.recorder->is_outside(o))
    in.recorder->write(Write::Kind::set_attribute, o, key.get(), c.args[2], true);
  return finish(in, f, c, Py_NewRef(Py_None));
}

// A method of a C class that is called with its object as the first argument.
Outcome call_descriptor(Interpreter& in, Frame& f, Call& c) {
  auto* d = reinterpret_cast<PyDescrObject*>(c.callable);
  if (PyType_IsSubtype(d->d_type, TensorType)) return call_ruled(in, f, c, rule_of(c.callable));
  const char* name = PyUnicode_AsUTF8(d->d_name);
  if (c.args.empty()) return opaque(in, c);
  PyObject* self = c.args[0];
  if (Py_TYPE(c.callable) == &PyMethodDescr_Type && Py_TYPE(self) == d->d_type &&
      !is_class_of_python(d->d_type)) {
    PyRef bound = checked(PyObject_GetAttr(self, d->d_name));
    Call inner = c;
    inner.callable = bound.get();
    inner.args.erase(inner.args.begin());
    --inner.positional;
    return call_builtin_method(in, f, inner, self, name);
  }
  if (d->d_type == &PyBaseObject_Type && !std::strcmp(name, "__setattr__") && c.args.size() == 3) {
    return store_generic(in, f, c);
  }
  if (d->d_type == &PyBaseObject_Type && !std::strcmp(name, "__init__"))
    return finish(in, f, c, run_native(in, c));
  if (Py_TYPE(c.callable) == &PyWrapperDescr_Type) return call_wrapper(in, f, c);
  return call_ruled(in, f, c, rule_of(c.callable));
}

Outcome call_module(Interpreter& in, Frame& f, Call& c) {
  PyObject* o = c.callable;
  auto* r = in.recorder;
  PyObject* of_class = _PyType_Lookup(Py_TYPE(o), names::__call__);
  PyObject* name = names::forward;
  r->member(o, names::__call__, of_class);
  if (of_class && PyFunction_Check(of_class)) name = names::__call__;
  else if (calls_forward_directly(o)) r->no_hooks(o);
  else name = names::_call_impl;
  PyObject** dict = _PyObject_GetDictPtr(o);
  PyObject* own = dict && *dict && name != names::__call__ ? PyDict_GetItemWithError(*dict, name) : nullptr;
  Call inner = c;
  if (own) {
    r->attribute(o, name, own);
    inner.callable = own;
    return call(in, f, std::move(inner));
  }
  r->absent(o, name);
  PyObject* function = _PyType_Lookup(Py_TYPE(o), name);
  if (!function || !PyFunction_Check(function))
    return in.breaks("a module whose forward is not a function of Python");
  r->member(o, name, function);
  inner.bind(function, o);
  PyObject* forward = _PyType_Lookup(Py_TYPE(o), names::forward);
  if (name != names::__call__ && forward && is_of_nn(forward))
    inner.named = named_call(inner, Py_TYPE(o)->tp_name, forward, true, false);
  return call_function(in, f, inner);
}

// A bound method or a partial: its function with more arguments. False: neither.
bool unwrap(Interpreter& in, Call& c, std::vector<PyRef>& owner_ref) {
  auto* r = in.recorder;
  PyRef outer = PyRef::share(c.callable);
  owner_ref.push_back(outer);
  if (PyMethod_Check(c.callable)) {
    PyObject *self = PyMethod_GET_SELF(c.callable), *function = PyMethod_GET_FUNCTION(c.callable);
    PyRef self_name = checked(PyUnicode_InternFromString("__self__")),
          function_name = checked(PyUnicode_InternFromString("__func__"));
    r->attribute(c.callable, self_name.get(), self);
    r->attribute(c.callable, function_name.get(), function);
    c.bind(function, self);
    return true;
  }
  if (PyObject* inner = function_of_compiled(c.callable)) {
    r->read_attribute(c.callable, "function");
    c.callable = inner;
    return true;
  }
  return false;
}

// functools.partial
bool unwrap_partial(Interpreter& in, Call& c, std::vector<PyRef>& owner_ref, PyRef& names) {
  if (!named(c.callable, "functools.partial")) return false;
  auto part = [&](const char* name) {
    PyRef key = checked(PyUnicode_InternFromString(name)),
          value = checked(PyObject_GetAttr(c.callable, key.get()));
    in.recorder->attribute(c.callable, key.get(), value.get());
    in.recorder->contents(value.get());
    owner_ref.push_back(value);
    return value.get();
  };
  PyObject *function = part("func"), *args = part("args"), *named = part("keywords");
  owner_ref.push_back(PyRef::share(c.callable));
  PyRef all = checked(PyDict_Copy(named));
  for (size_t k = 0; k < keywords(c); ++k)
    checked(PyDict_SetItem(all.get(), PyTuple_GET_ITEM(c.kwnames, Py_ssize_t(k)), c.args[c.positional + k]));
  std::vector<PyObject*> merged;
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(args); ++k) merged.push_back(PyTuple_GET_ITEM(args, k));
  merged.insert(merged.end(), c.args.begin(), c.args.begin() + std::ptrdiff_t(c.positional));
  c.positional = merged.size();
  PyRef keys = checked(PyDict_Keys(all.get()));
  names = checked(PyList_AsTuple(keys.get()));
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(names.get()); ++k)
    merged.push_back(PyDict_GetItemWithError(all.get(), PyTuple_GET_ITEM(names.get(), k)));
  c.kwnames = PyTuple_GET_SIZE(names.get()) ? names.get() : nullptr;
  c.args = std::move(merged);
  c.callable = function;
  owner_ref.push_back(all);
  return true;
}

bool is_item_method(const char* name) {
  for (const char* n : {"__getitem__", "__setitem__", "__delitem__", "__contains__"})
    if (!std::strcmp(n, name)) return true;
  return false;
}

// A special method of a builtin class, called with its object as the first argument: int.__add__(1, x), object.__eq__(a, b).
Outcome call_wrapper(Interpreter& in, Frame& f, Call& c) {
  auto* d = reinterpret_cast<PyDescrObject*>(c.callable);
  const char* name = PyUnicode_AsUTF8(d->d_name);
  PyTypeObject* t = d->d_type;
  bool number = t == &PyLong_Type || t == &PyFloat_Type || t == &PyComplex_Type || t == &PyBool_Type;
  if (number && is_atom(c.args[0])) return finish(in, f, c, run_native(in, c));
  bool is_comparison =
      std::strlen(name) == 6 && std::strstr("__eq__ __ne__ __lt__ __le__ __gt__ __ge__", name);
  if (t == &PyBaseObject_Type && c.args.size() == 2 && is_comparison) {
    PyObject *a = c.args[0], *b = c.args[1];
    if (name[2] == 'n' && python_method(a, "__eq__")) return opaque(in, c);
    if (a != b) in.recorder->distinct(a, b);
    return finish(in, f, c, run_native(in, c));
  }
  bool is_lookup = t == &PyBaseObject_Type && !std::strcmp(name, "__getattribute__") && c.args.size() == 2;
  if (is_lookup && is_python_instance(c.args[0]) && PyUnicode_CheckExact(c.args[1]) && !keywords(c))
    return load_generic(in, f, c.args[0], c.args[1], c.drop);
  if (PyType_IsSubtype(t, TensorType) && !std::strcmp(name, "__len__"))
    return in.give_recorded(f, c.drop, run_native(in, c), name);
  bool reads_item = !std::strcmp(name, "__getitem__") || !std::strcmp(name, "__contains__");
  bool item = c.args.size() > 1 && is_mapping(c.args[0]) && is_item_method(name) && is_plain_key(c.args[1]);
  if (item && (reads_item || !in.recorder->is_outside(c.args[0]))) {
    PyObject* value = PyDict_GetItemWithError(c.args[0], c.args[1]);
    if (!value && reads_item && name[2] == 'g') return opaque(in, c);  // the class may have __missing__
    if (!is_atom(c.args[1])) in.recorder->identity(c.args[1]);
    in.recorder->dict_item(c.args[0], c.args[1], value);
    return finish(in, f, c, run_native(in, c));
  }
  if (all_data(c, false) && !is_class_of_python(t) && effect_of_method(t, name) == 1) {
    read_all(in, c);
    return finish(in, f, c, run_native(in, c));
  }
  return call_ruled(in, f, c, rule_of(c.callable));
}

// The native callable behind an operator of facula.ops; null if autocast changes its arguments before.
PyRef native_of_operator(PyObject* o) {
  PyRef functions = checked(PyObject_GetAttrString(o, "_functions"));
  if (functions.get() != Py_None) {
    PyRef autocast = checked(PyObject_GetAttrString(functions.get(), "autocast"));
    if (PyObject_IsTrue(autocast.get())) return {};
  }
  return checked(PyObject_GetAttrString(o, "_op"));
}

// A function of this package, or of C, on an instance of a subclass of Tensor or another class with __torch_function__, which decides.
bool takes_subclass(const Call& c) {
  PyObject* o = c.callable;
  bool ours = std::strstr(kind(o), "Overridable") != nullptr;
  if (PyFunction_Check(o))
    ours = is_our_module(PyFunction_GET_GLOBALS(o)) && rule_of(o).policy == Policy::recorded;
  else if (PyCFunction_Check(o) && (!PyCFunction_GET_SELF(o) || PyModule_Check(PyCFunction_GET_SELF(o))))
    ours = rule_of(o).policy != Policy::structural;
  if (!ours) return false;
  for (auto* a : c.args)
    if (is_tensor(a) && !is_plain(Py_TYPE(a))) return true;
  return any_taken(c.args.data(), Py_ssize_t(c.args.size()));
}

// A special method of an object of a builtin class, bound to it. `owner_ref` keeps the object alive.
Outcome call_method_wrapper(Interpreter& in, Frame& f, Call& c, std::vector<PyRef>& owner_ref) {
  PyObject* o = c.callable;
  PyRef self = checked(PyObject_GetAttrString(o, "__self__")),
        name = checked(PyObject_GetAttrString(o, "__name__"));
  PyRef of = checked(PyObject_GetAttrString(o, "__objclass__"));
  PyObject* descriptor = _PyType_Lookup(reinterpret_cast<PyTypeObject*>(of.get()), name.get());
  owner_ref.push_back(self);
  if (in.recorder->is_outside(o))
    for (const char* part : {"__self__", "__name__", "__objclass__"}) in.recorder->read_attribute(o, part);
  if (!descriptor || Py_TYPE(descriptor) != &PyWrapperDescr_Type) return opaque(in, c);
  c.bind(descriptor, self.get());
  return call_descriptor(in, f, c);
}

}  // namespace

Outcome call_polyfill(Interpreter& in, Frame& f, const char* name, std::vector<PyObject*> args, size_t drop) {
  PyObject* function = polyfill(name);
  in.recorder->constant(function);
  size_t n = args.size();
  return call(in, f, {function, std::move(args), n, nullptr, drop});
}

PyRef snapshot(PyObject* o) {
  if (PyDict_Check(o)) return checked(PyDict_Copy(o));
  if (PyList_CheckExact(o) || PyAnySet_CheckExact(o) || is_dict_view(o)) return checked(PySequence_Tuple(o));
  return PyRef::share(o);
}

Outcome call(Interpreter& in, Frame& f, Call c) {
  std::vector<PyRef> owner_ref;
  PyRef names;
  for (auto* a : c.args) owner_ref.push_back(PyRef::share(a));
  while (unwrap(in, c, owner_ref) || unwrap_partial(in, c, owner_ref, names)) {}
  owner_ref.push_back(PyRef::share(c.callable));
  PyObject* o = c.callable;
  if (takes_subclass(c))
    return in.breaks("a call of " + shown(o) + " on an object whose __torch_function__ decides what it does");
  if (PyFunction_Check(o)) return call_function(in, f, c);
  if (PyType_Check(o)) return call_type(in, f, c);
  if (PyCFunction_Check(o)) return call_c_function(in, f, c);
  if (Py_TYPE(o) == &PyMethodDescr_Type || Py_TYPE(o) == &PyWrapperDescr_Type)
    return call_descriptor(in, f, c);
  if (is_module(o)) return call_module(in, f, c);
  if (std::strstr(kind(o), "Overridable")) {
    in.recorder->identity(o);
    Rule rule = rule_of(o);
    PyRef function = checked(PyObject_GetAttrString(o, "__wrapped__"));
    if (PyFunction_Check(function.get())) {
      PyObject* name = reinterpret_cast<PyFunctionObject*>(function.get())->func_name;
      c.named = named_call(c, std::string(text_of(name)), function.get(), false, true);
    }
    if (rule.policy == Policy::recorded && !all_data(c, true)) {
      PyRef inner = checked(PyObject_GetAttrString(o, "__wrapped__"));
      c.callable = inner.get();
      owner_ref.push_back(inner);
      in.recorder->constant(c.callable);
      return call_function(in, f, c);
    }
    return call_ruled(in, f, c, rule);
  }
  if (std::strstr(kind(o), "_C.Operators")) {
    in.recorder->identity(o);
    return call_recorded(in, f, c);
  }
  if (named(o, "OpOverload") || named(o, "OpOverloadPacket")) {
    in.recorder->identity(o);
    PyRef native = native_of_operator(o);
    if (!native) return opaque(in, c);
    owner_ref.push_back(native);
    in.recorder->constant(o);
    c.callable = native.get();
    return call_recorded(in, f, c);
  }
  if (named(o, "method-wrapper")) return call_method_wrapper(in, f, c, owner_ref);
  if (named(o, "functools._lru_cache_wrapper")) return call_cached(in, f, c);
  PyObject* method = is_class_of_python(Py_TYPE(o)) ? _PyType_Lookup(Py_TYPE(o), names::__call__) : nullptr;
  if (!method || !PyFunction_Check(method)) return opaque(in, c);
  in.recorder->member(o, names::__call__, method);
  c.bind(method, o);
  return call_function(in, f, c);
}

}  // namespace facula::bind::capture
