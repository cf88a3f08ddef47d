#include "interpreter.h"

#include <frameobject.h>

#include <algorithm>

#include "../autograd.h"
#include "../symint.h"
#include "../types.h"
#include "facula/run/open_trace.h"
#include "facula/sym/run_time.h"

namespace facula::bind::capture {

namespace {

constexpr Operation kOperations[] = {
#define FACULA_MICRO_OP(name) do_##name,
    FACULA_MICRO_OPS(FACULA_MICRO_OP)
#undef FACULA_MICRO_OP
};

// Pins the numbers that an operation uses, unless it passes them on or treats them itself.
void pin_operands(Recorder& r, Frame& f, const MicroOp& op) {
  size_t count = 0;
  switch (op.op) {
    case Op::nop:
    case Op::load_const:
    case Op::load_fast:
    case Op::store_fast:
    case Op::delete_fast:
    case Op::load_global:
    case Op::store_global:
    case Op::load_deref:
    case Op::store_deref:
    case Op::make_cell:
    case Op::copy_free_vars:
    case Op::load_and_clear:
    case Op::cleanup_throw:
    case Op::load_closure:
    case Op::pop_top:
    case Op::push_null:
    case Op::copy:
    case Op::swap:
    case Op::binary:
    case Op::compare:
    case Op::subscr:
    case Op::unpack:
    case Op::build_tuple:
    case Op::build_list:
    case Op::build_slice:
    case Op::build_string:
    case Op::before_with:
    case Op::import_name:
    case Op::import_from:
    case Op::yield_value:
    case Op::load_assertion_error:
    case Op::list_extend:
    case Op::list_append:
    case Op::list_to_tuple:
    case Op::jump:
    case Op::call:
    case Op::call_ex:
    case Op::store_attr:
    case Op::return_value: return;
    case Op::pop_jump: {
      bool is_truth = When(op.other) == When::is_true || When(op.other) == When::is_false;
      if (is_truth && r.is_free(f.top().get())) {
        PyRef zero = checked(PyLong_FromLong(0));
        PyRef differs = checked(PyObject_RichCompare(f.top().get(), zero.get(), Py_NE));
        r.computed(kComparison + Py_NE, f.top().get(), zero.get(), std::move(differs));
      }
      return;  // no number is None
    }
    case Op::get_iter: {
      PyObject* o = f.top().get();
      bool passes_items = PyTuple_CheckExact(o) || PyList_CheckExact(o) || Py_TYPE(o) == SizeType;
      count = passes_items ? 0 : 1;
      break;
    }
    case Op::load_attr:
    case Op::load_method:
    case Op::for_iter:
    case Op::unary: count = 1; break;
    case Op::format_value: count = op.arg & 4 ? 2 : 1; break;
    case Op::is_op: {
      auto is_number = [](PyObject* o) { return PyLong_CheckExact(o) || PyFloat_CheckExact(o); };
      count = is_number(f.top().get()) && is_number(f.top(2).get()) ? 2 : 0;
      break;
    }
    case Op::contains: count = 1; break;
    case Op::store_subscr: count = PyDict_CheckExact(f.top(2).get()) ? 1 : 3; break;  // the key, or all
    default: count = 4 + size_t(op.arg >= 0 && op.arg < 256 ? op.arg : 0);
  }
  for (size_t k = 1; k <= std::min(count, f.stack.size()); ++k) r.pin(f.top(k).get());
}

// An exception that C code raised through C++ keeps its Python form.
Outcome execute(Interpreter& in, Frame& f, const MicroOp& op) {
  try {
    return kOperations[size_t(op.op)](in, f, op);
  } catch (...) {
    bool is_set = PyErr_Occurred();
    try {
      throw;
    } catch (const PythonError&) {
      if (!is_set) PyErr_SetString(PyExc_SystemError, "an error without an exception");
    } catch (...) { set_python_error(); }
    return Outcome::raised;
  }
}

}  // namespace

Interpreter::Stop Interpreter::run() { return loop(false); }
Interpreter::Stop Interpreter::step() {
  Recorder* outer = std::exchange(recorder, nullptr);
  Stop s = loop(true);
  recorder = outer;
  return s;
}

Interpreter::Stop Interpreter::handle() {
  Recorder* outer = std::exchange(recorder, nullptr);
  Stop s = unwind() ? loop(false) : Stop::raised;
  recorder = outer;
  return s;
}

namespace {

// Whether `exit` is the __exit__ of a mode of this package, which passes exceptions on.
bool is_exit_of_mode(PyObject* exit) {
  if (PyCFunction_Check(exit)) return is_grad_mode(PyCFunction_GET_SELF(exit));
  PyObject* function = PyMethod_Check(exit) ? PyMethod_GET_FUNCTION(exit) : exit;
  return PyFunction_Check(function) && is_our_module(PyFunction_GET_GLOBALS(function));
}

}  // namespace

bool Interpreter::has_handlers() const {
  return std::ranges::any_of(frames, [](auto& f) {
    const Handler* h = f->code->handler_of(f->last);
    if (!h) return false;
    auto& ops = f->code->ops;
    bool is_with = size_t(h->target) + 1 < ops.size() && ops[size_t(h->target)].op == Op::push_exc_info &&
                   ops[size_t(h->target) + 1].op == Op::with_except_start;
    return !(is_with && h->depth > 0 && is_exit_of_mode(f->stack[size_t(h->depth) - 1].get()));
  });
}

Interpreter::Stop Interpreter::loop(bool once) {
  int countdown = 0;
  auto* trace = recorder ? run::OpenTrace::current() : nullptr;
  do {
    size_t calls = trace ? trace->calls() : 0;
    Frame& f = frame();
    f.last = f.ip++;
    const MicroOp& op = f.code->ops[size_t(f.last)];
    if (recorder) recorder->at_line(f.code->get()->co_filename, f.line(), f.globals.get());
    if (recorder && recorder->has_free()) pin_operands(*recorder, f, op);
    if (!recorder && (++countdown & 255) == 0 && PyErr_CheckSignals() < 0) {
      if (!unwind()) return Stop::raised;
      continue;
    }
    switch (execute(*this, f, op)) {
      case Outcome::next:
        if (!trace || !is_later_segment || trace->calls() <= calls) break;
        if (!trace->may_refuse_since(calls) || !has_handlers()) break;
        breaks("an operator that may refuse elements, in a block with handlers of exceptions");
        report.is_behind = true;
        return Stop::broke;
      case Outcome::breaks:
        f.ip = f.last;
        if (trace) trace->take_back_draws(calls);
        return Stop::broke;
      case Outcome::raised:
        if (!unwind()) return Stop::raised;
        break;
      case Outcome::returned: return Stop::returned;
    }
  } while (!once);
  return Stop::broke;
}

Outcome Interpreter::breaks(std::string reason, std::string fix) {
  Frame& f = frame();
  PyRef file = PyRef::share(f.code->get()->co_filename);
  report = {std::move(reason), std::move(fix), std::string(text_of(file.get())), f.line(), false};
  return Outcome::breaks;
}

static bool has_run_time_size(PyObject* o) {
  if (is_symint(o)) return sym::is_run_time(symint_of(o));
  if (!PyTuple_Check(o)) return false;
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(o); ++k)
    if (has_run_time_size(PyTuple_GET_ITEM(o, k))) return true;
  return false;
}

bool Interpreter::stops_at_size(PyObject* value) {
  if (!recorder || !has_run_time_size(value)) return false;
  if (!recorder->stops.at_sizes) recorder->run_time_sizes.push_back(PyRef::share(value));
  else breaks("a size that is known only when the program has run");
  return recorder->stops.at_sizes;
}

Outcome Interpreter::give(Frame& f, size_t drop, PyObject* owned) {
  if (!owned) return Outcome::raised;
  if (stops_at_size(owned)) {
    Py_DECREF(owned);
    return Outcome::breaks;
  }
  f.drop(drop);
  f.push(PyRef(owned));
  return Outcome::next;
}

Outcome Interpreter::give_recorded(Frame& f, size_t drop, PyObject* owned, const char* name) {
  if (owned) {
    PyRef value = recorder->without_symbols(PyRef(owned));
    recorder->result(value.get());
    return give(f, drop, value.detach());
  }
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  PyRef kind(type), error(value), tb(trace);
  PyRef text(error ? PyObject_Str(error.get()) : nullptr);
  if (!text) PyErr_Clear();
  std::string first = text ? std::string(text_of(text.get())) : "";
  return breaks(std::string(name) + ": " + first.substr(0, first.find('\n')));
}

Outcome Interpreter::enter(Frame& f, size_t drop, std::unique_ptr<Frame> callee, Role role) {
  f.drop(drop);
  callee->role = role;
  frames.push_back(std::move(callee));
  return Outcome::next;
}

void Interpreter::end_generator(Frame& f) {
  if (f.generator) generator_of(f.generator.get())->running = false;
}

Outcome Interpreter::leave(PyRef value) {
  auto done = std::move(frames.back());
  frames.pop_back();
  end_generator(*done);
  if (done->role == Role::next && done->generator) {  // the end of a generator in next()
    PyRef error(PyObject_CallFunctionObjArgs(PyExc_StopIteration,
                                             value.get() == Py_None ? nullptr : value.get(), nullptr));
    if (error) PyErr_SetObject(PyExc_StopIteration, error.get());
    return Outcome::raised;
  }
  if (frames.empty()) {
    result = std::move(value);
    return Outcome::returned;
  }
  Frame& f = frame();
  switch (done->role) {
    case Role::iterate:
      f.drop(1);
      f.jump(f.code->ops[size_t(f.last)].target);
      break;
    case Role::delegate:
      f.drop(2);
      f.push(std::move(value));
      f.jump(f.code->ops[size_t(f.last)].target);
      break;
    case Role::construct:
      if (value.get() != Py_None) {
        PyErr_Format(PyExc_TypeError, "__init__() should return None, not '%.200s'",
                     Py_TYPE(value.get())->tp_name);
        return Outcome::raised;
      }
      f.push(done->created);
      break;
    case Role::discard: break;
    default: f.push(std::move(value));
  }
  return Outcome::next;
}

Outcome Interpreter::yields(PyRef value) {
  auto paused = std::move(frames.back());
  frames.pop_back();
  PyRef generator = std::move(paused->generator);
  paused->generator = {};
  Role role = paused->role;
  GeneratorObject* g = generator_of(generator.get());
  g->running = false;
  g->frame = new std::unique_ptr<Frame>(std::move(paused));
  if (frames.empty()) {
    result = std::move(value);
    return Outcome::returned;
  }
  Frame& f = frame();
  if (role == Role::delegate) f.drop(1);
  f.push(std::move(value));
  return Outcome::next;
}

PyObject* Interpreter::run_alone(std::unique_ptr<Frame> frame, bool raises) {
  Interpreter in;
  in.frames.push_back(std::move(frame));
  if (Py_EnterRecursiveCall(" in a generator")) return nullptr;
  Stop s = Stop::broke;
  if (raises && !in.unwind()) s = Stop::raised;
  else s = in.run();
  Py_LeaveRecursiveCall();
  return s == Stop::returned ? in.result.detach() : nullptr;
}

namespace {

// The code of a frame that is only shown. CPython fills its free variables from a closure when somebody reads `f_locals`, and
// PyFrame_New sets none.
PyRef code_to_show(PyCodeObject* code) {
  if (!code->co_nfreevars) return PyRef::share(reinterpret_cast<PyObject*>(code));
  PyRef none = checked(PyTuple_New(0)), changes = checked(PyDict_New());
  checked(PyDict_SetItemString(changes.get(), "co_freevars", none.get()));
  PyRef replace = checked(PyObject_GetAttrString(reinterpret_cast<PyObject*>(code), "replace"));
  return checked(PyObject_Call(replace.get(), none.get(), changes.get()));
}

}  // namespace

void Interpreter::add_traceback(Frame& f) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  PyRef code = code_to_show(f.code->get());
  PyRef shown(reinterpret_cast<PyObject*>(PyFrame_New(PyThreadState_Get(),
                                                      reinterpret_cast<PyCodeObject*>(code.get()),
                                                      f.globals.get(), nullptr)));
  PyRef next = trace ? PyRef(trace) : PyRef::share(Py_None);
  PyRef created;
  if (shown)
    created = PyRef(PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyTraceBack_Type), "OOii", next.get(),
                                          shown.get(), f.code->ops[size_t(f.last)].offset, f.line()));
  if (!created) PyErr_Clear();
  else next = created;
  PyErr_Restore(type, value, next.get() == Py_None ? nullptr : next.detach());
}

bool Interpreter::unwind() {
  if (recorder) recorder->sizes_failed |= !recorder->run_time_sizes.empty();
  while (!frames.empty()) {
    Frame& f = frame();
    // A `raise` again keeps the position of the exception; its own position decides the handler.
    bool again = std::exchange(reraises, false);
    if (!again) add_traceback(f);
    if (const Handler* h = f.code->handler_of(again ? f.ip - 1 : f.last)) {
      PyObject *type, *value, *trace;
      PyErr_Fetch(&type, &value, &trace);
      PyErr_NormalizeException(&type, &value, &trace);
      if (trace) PyException_SetTraceback(value, trace);
      PyRef t(type), error(value), tb(trace);
      f.stack.resize(size_t(h->depth));
      if (h->pushes_offset) f.push(checked(PyLong_FromLong(f.last)));
      f.push(std::move(error));
      f.jump(h->target);
      return true;
    }
    auto done = std::move(frames.back());
    frames.pop_back();
    end_generator(*done);
    if (done->named) name_error_of(*done);
    if (!done->generator || !PyErr_ExceptionMatches(PyExc_StopIteration)) continue;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace) PyException_SetTraceback(value, trace);
    PyErr_SetString(PyExc_RuntimeError, "generator raised StopIteration");
    PyObject *t2, *v2, *tb2;
    PyErr_Fetch(&t2, &v2, &tb2);
    PyErr_NormalizeException(&t2, &v2, &tb2);
    PyException_SetCause(v2, Py_NewRef(value));
    PyException_SetContext(v2, value);
    PyErr_Restore(t2, v2, tb2);
    Py_XDECREF(type);
    Py_XDECREF(trace);
  }
  return false;
}

int Interpreter::truth(PyObject* o) {
  if (o == Py_True) return 1;
  if (o == Py_False || o == Py_None) return 0;
  if (!recorder) {
    int t = PyObject_IsTrue(o);
    return t < 0 ? -1 : t;
  }
  if (is_atom(o)) return PyObject_IsTrue(o);
  if (is_container(o)) {
    recorder->contents(o);
    return PyObject_IsTrue(o);
  }
  if (is_tensor(o)) {
    breaks("a branch on the elements of a tensor", "compute both values and select with where()");
    return -2;
  }
  if (is_deque(o) && !recorder->is_outside(o)) return PyObject_IsTrue(o);
  PyTypeObject* t = Py_TYPE(o);
  bool by_class = (t->tp_as_number && t->tp_as_number->nb_bool) ||
                  (t->tp_as_mapping && t->tp_as_mapping->mp_length) ||
                  (t->tp_as_sequence && t->tp_as_sequence->sq_length);
  if (!by_class) {
    for (const char* name : {"__bool__", "__len__"}) {
      PyRef key = checked(PyUnicode_InternFromString(name));
      recorder->member(o, key.get(), nullptr);
    }
    return 1;
  }
  breaks(std::string("the truth of a ") + t->tp_name);
  return -2;
}

}  // namespace facula::bind::capture
