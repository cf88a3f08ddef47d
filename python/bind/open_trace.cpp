#include "open_trace.h"

#include <unordered_map>

#include "symint.h"
#include "tensor.h"
#include "types.h"

namespace facula::bind {

namespace {

using run::OpenTrace;
using run::Segment;

// ---- Segment

struct SegmentObject {
  PyObject_HEAD std::shared_ptr<Segment>* segment;
};
PyTypeObject* SegmentType;
Segment& segment(PyObject* o) { return **reinterpret_cast<SegmentObject*>(o)->segment; }

void segment_dealloc(PyObject* o) {
  delete reinterpret_cast<SegmentObject*>(o)->segment;
  PyTypeObject* t = Py_TYPE(o);
  PyObject_Free(o);
  Py_DECREF(t);
}

// A tensor, or a number for an input that is a number or a size.
Tensor input_of(PyObject* o, const graph::Value& spec) {
  if (is_tensor(o)) return tensor_of(o);
  Scalar number;
  type_check(to_scalar(o, number), "Segment") << "expects tensors and numbers, not " << Py_TYPE(o)->tp_name;
  return spec.tensor.impl()->wrapped_number ? run::number_input(number) : run::size_input(number.to_int());
}

std::vector<Tensor> inputs_of(PyObject* self, PyObject* list) {
  PyRef all = checked(PySequence_Fast(list, "a segment expects a list of its inputs"));
  auto n = size_t(PySequence_Fast_GET_SIZE(all.get()));
  auto& s = segment(self);
  type_check(n == s.sources().size(), "Segment") << "has " << s.sources().size() << " inputs, and got " << n;
  std::vector<Tensor> inputs;
  for (size_t k = 0; k < n; ++k)
    inputs.push_back(
        input_of(PySequence_Fast_GET_ITEM(all.get(), Py_ssize_t(k)), *s.program().graph().inputs[k]));
  return inputs;
}

PyObject* segment_call(PyObject* self, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    PyObject* list;
    if (!PyArg_ParseTuple(args, "O:Segment", &list)) return nullptr;
    type_check(!kwargs || !PyDict_GET_SIZE(kwargs), "Segment") << "has no keyword arguments";
    auto inputs = inputs_of(self, list);
    std::vector<Tensor> results;
    {
      WithoutGil released;
      results = segment(self)(inputs);
    }
    return wrap_list(results);
  });
}

PyObject* segment_accepts(PyObject* self, PyObject* list) {
  return guarded([&]() -> PyObject* {
    std::string why;
    if (segment(self).accepts(inputs_of(self, list), &why)) Py_RETURN_NONE;
    return unicode(why);
  });
}

PyObject* segment_text(PyObject* self, PyObject* args) {
  return guarded([&]() -> PyObject* {
    int lines = 0;
    if (!PyArg_ParseTuple(args, "|p:text", &lines)) return nullptr;
    return unicode(segment(self).text(lines));
  });
}

PyObject* segment_sources(PyObject* self, PyObject*) {
  return guarded([&] {
    auto sources = segment(self).sources();
    PyRef tuple = checked(PyTuple_New(Py_ssize_t(sources.size())));
    for (size_t k = 0; k < sources.size(); ++k)
      PyTuple_SET_ITEM(tuple.get(), Py_ssize_t(k), PyLong_FromUnsignedLongLong(sources[k]));
    return tuple.detach();
  });
}

PyObject* segment_writes(PyObject* self, PyObject*) {
  return guarded([&] {
    auto writes = segment(self).writes();
    PyRef tuple = checked(PyTuple_New(Py_ssize_t(writes.size())));
    for (size_t k = 0; k < writes.size(); ++k)
      PyTuple_SET_ITEM(tuple.get(), Py_ssize_t(k), PyBool_FromLong(writes[k]));
    return tuple.detach();
  });
}

PyObject* segment_captured(PyObject* self, PyObject*) {
  return guarded([&] { return wrap_list(segment(self).captured()); });
}

PyMethodDef segment_methods[] = {
    {"accepts", segment_accepts, METH_O, "accepts(inputs): None, or which assumption does not hold."},
    {"text", segment_text, METH_VARARGS, "text(lines=False): the graph, one line per call."},
    {"sources", segment_sources, METH_NOARGS, "The sources of the inputs."},
    {"writes", segment_writes, METH_NOARGS, "Whether each input is written."},
    {"captured", segment_captured, METH_NOARGS, "The tensors that are read and are no inputs."},
    {nullptr, nullptr, 0, nullptr}};
PyType_Slot segment_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(segment_dealloc)},
                               {Py_tp_call, reinterpret_cast<void*>(segment_call)},
                               {Py_tp_methods, segment_methods},
                               {0, nullptr}};
PyType_Spec segment_spec = {"facula._C.Segment", sizeof(SegmentObject), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, segment_slots};

// ---- OpenTrace

struct TraceObject {
  PyObject_HEAD OpenTrace* trace;
  std::vector<std::unique_ptr<OpenTrace::Active>>* active;  // what `with` has opened
};
PyTypeObject* TraceType;
OpenTrace& trace(PyObject* o) { return *reinterpret_cast<TraceObject*>(o)->trace; }

PyObject* trace_new(PyTypeObject* type, PyObject* args, PyObject*) {
  return guarded([&]() -> PyObject* {
    const char* name = "program";
    if (!PyArg_ParseTuple(args, "|s:OpenTrace", &name)) return nullptr;
    PyRef o = checked(type->tp_alloc(type, 0));
    auto* self = reinterpret_cast<TraceObject*>(o.get());
    self->active = new std::vector<std::unique_ptr<OpenTrace::Active>>;
    self->trace = new OpenTrace(name);
    return o.detach();
  });
}
void trace_dealloc(PyObject* o) {
  auto* self = reinterpret_cast<TraceObject*>(o);
  if (self->active)
    while (!self->active->empty()) self->active->pop_back();
  delete self->active;
  delete self->trace;
  PyTypeObject* t = Py_TYPE(o);
  t->tp_free(o);
  Py_DECREF(t);
}

PyObject* trace_enter(PyObject* self, PyObject*) {
  return guarded([&] {
    reinterpret_cast<TraceObject*>(self)->active->push_back(std::make_unique<OpenTrace::Active>(trace(self)));
    return Py_NewRef(self);
  });
}
PyObject* trace_exit(PyObject* self, PyObject*) {
  return guarded([&] {
    auto& active = *reinterpret_cast<TraceObject*>(self)->active;
    runtime_check(!active.empty(), "OpenTrace") << "is not active";
    active.pop_back();
    return Py_NewRef(Py_None);
  });
}

// input(tensor, source, symbolic=()): `symbolic` lists dimensions.
PyObject* trace_input(PyObject* self, PyObject* args) {
  return guarded([&]() -> PyObject* {
    PyObject *tensor, *dims = nullptr;
    unsigned long long source;
    if (!PyArg_ParseTuple(args, "OK|O:input", &tensor, &source, &dims)) return nullptr;
    Tensor t = tensor_argument("input", "tensor", tensor);
    std::vector<run::SizeKind> kinds(size_t(t.dim()), run::SizeKind::fixed);
    if (dims) {
      PyRef all = checked(PySequence_Fast(dims, "input expects a list of dimensions"));
      for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(all.get()); ++k) {
        auto d = PyLong_AsSize_t(PySequence_Fast_GET_ITEM(all.get(), k));
        if (PyErr_Occurred()) return nullptr;
        index_check(d < kinds.size(), "input") << "no dimension " << d;
        kinds[d] = run::SizeKind::symbolic;
      }
    }
    return PyLong_FromSize_t(trace(self).input(t, source, kinds));
  });
}
PyObject* trace_handle_of(PyObject* self, PyObject* tensor) {
  return guarded([&] { return wrap(trace(self).handle_of(tensor_argument("handle_of", "tensor", tensor))); });
}
PyObject* trace_number(PyObject* self, PyObject* args) {
  return guarded([&]() -> PyObject* {
    PyObject* value;
    unsigned long long source;
    if (!PyArg_ParseTuple(args, "OK:number", &value, &source)) return nullptr;
    Scalar number;
    type_check(to_scalar(value, number), "number") << "expects a number";
    return wrap(trace(self).number(number, source));
  });
}
PyObject* trace_size(PyObject* self, PyObject* args) {
  return guarded([&]() -> PyObject* {
    long long value;
    unsigned long long source;
    if (!PyArg_ParseTuple(args, "LK:size", &value, &source)) return nullptr;
    return wrap_symint(trace(self).size(value, source));
  });
}
PyObject* trace_is_handle(PyObject* self, PyObject* o) {
  return PyBool_FromLong(is_tensor(o) && trace(self).is_handle(tensor_of(o)));
}
PyObject* trace_living(PyObject* self, PyObject*) {
  return guarded([&] { return wrap_list(trace(self).living()); });
}
PyObject* trace_calls(PyObject* self, PyObject*) { return PyLong_FromSize_t(trace(self).calls()); }
PyObject* trace_at_line(PyObject* self, PyObject* args) {
  const char *file, *module = "";
  int line;
  if (!PyArg_ParseTuple(args, "si|s:at_line", &file, &line, &module)) return nullptr;
  return guarded([&] {
    trace(self).at_line(graph::interned(file), line, graph::interned(module));
    return Py_NewRef(Py_None);
  });
}
PyObject* trace_cut(PyObject* self, PyObject* list) {
  return guarded([&] { return wrap(trace(self).cut(tensor_list_argument("cut", "results", list, true))); });
}
PyObject* trace_close(PyObject* self, PyObject* list) {
  return guarded(
      [&] { return wrap(trace(self).close(tensor_list_argument("close", "results", list, true))); });
}

PyMethodDef trace_methods[] = {
    {"__enter__", trace_enter, METH_NOARGS, nullptr},
    {"__exit__", trace_exit, METH_VARARGS, nullptr},
    {"input", trace_input, METH_VARARGS,
     "input(tensor, source, symbolic=()): announces a tensor from outside."},
    {"handle_of", trace_handle_of, METH_O, "handle_of(tensor): a handle of a tensor from outside."},
    {"number", trace_number, METH_VARARGS, "number(value, source): a number as an operand."},
    {"size", trace_size, METH_VARARGS, "size(value, source): an integer of at least 2 as a size."},
    {"is_handle", trace_is_handle, METH_O, "is_handle(x): whether x is a handle of the current segment."},
    {"living", trace_living, METH_NOARGS, "living(): the handles that somebody refers to."},
    {"calls", trace_calls, METH_NOARGS, "calls(): how many calls the current segment has."},
    {"at_line", trace_at_line, METH_VARARGS,
     "at_line(file, line, module_path=''): the line of what follows."},
    {"cut", trace_cut, METH_O, "cut(results) -> Segment: runs the calls so far; the results get data."},
    {"close", trace_close, METH_O, "close(results) -> Segment: the same, and ends the trace."},
    {nullptr, nullptr, 0, nullptr}};
PyType_Slot trace_slots[] = {{Py_tp_new, reinterpret_cast<void*>(trace_new)},
                             {Py_tp_dealloc, reinterpret_cast<void*>(trace_dealloc)},
                             {Py_tp_methods, trace_methods},
                             {0, nullptr}};
PyType_Spec trace_spec = {"facula._C.OpenTrace", sizeof(TraceObject), 0, Py_TPFLAGS_DEFAULT, trace_slots};

}  // namespace

PyObject* wrap(std::shared_ptr<Segment> s) {
  auto* o = PyObject_New(SegmentObject, SegmentType);
  if (!o) throw PythonError();
  o->segment = new std::shared_ptr<Segment>(std::move(s));
  return reinterpret_cast<PyObject*>(o);
}

static PyObject* break_object(const std::string& reason, const Error& e, const graph::SourceLine& at,
                              const std::string& fix) {
  PyRef module = checked(PyImport_ImportModule("facula.program"));
  PyRef type = checked(PyObject_GetAttrString(module.get(), "Break"));
  return PyObject_CallFunction(type.get(), "sssss", reason.c_str(), e.op().c_str(), e.message().c_str(),
                               graph::to_string(at).c_str(), fix.c_str());
}

void describe_break(const Error& e) noexcept {
  auto* b = graph::Break::find(e);
  // Reading the memory of a handle, below the operators.
  bool reads = !b && e.op() == "data_ptr" && autograd::Tracing::current();
  if (!b && !reads) return;
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  try {
    PyRef described(b ? break_object(graph::name(b->reason), e, b->at, b->fix)
                      : break_object("reads_elements", e, graph::Break::current_line(), ""));
    if (described) PyObject_SetAttrString(value, "trace_break", described.get());
  } catch (const PythonError&) {}
  PyErr_Clear();
  PyErr_Restore(type, value, trace);
}

namespace {

// The innermost line that runs outside of this package.
graph::SourceLine find_line() {
  WithGil gil;  // backward() has let go of it
  PyThreadState* state = PyThreadState_Get();
  PyRef frame(reinterpret_cast<PyObject*>(PyThreadState_GetFrame(state)));
  while (frame) {
    auto* f = reinterpret_cast<PyFrameObject*>(frame.get());
    PyRef globals(PyFrame_GetGlobals(f));
    if (!is_our_module(globals.get())) {
      PyRef code(reinterpret_cast<PyObject*>(PyFrame_GetCode(f)));
      auto* file = reinterpret_cast<PyCodeObject*>(code.get())->co_filename;
      static auto& files = *new std::unordered_map<PyObject*, const char*>;  // with references, under the GIL
      auto [it, fresh] = files.try_emplace(file, nullptr);
      if (fresh) {
        Py_INCREF(file);
        const char* text = PyUnicode_AsUTF8(file);
        if (!text) PyErr_Clear();
        it->second = graph::interned(text ? text : "?");
      }
      return {it->second, PyFrame_GetLineNumber(f), ""};
    }
    frame = PyRef(reinterpret_cast<PyObject*>(PyFrame_GetBack(f)));
  }
  return {};
}

PyObject* current_line(PyObject*, PyObject*) {
  return guarded([&] { return unicode(graph::to_string(graph::Break::current_line())); });
}
PyMethodDef functions[] = {
    {"current_line", current_line, METH_NOARGS,
     "current_line(): the line of the user's program that is running, \"file.py:12\"."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

void add_open_trace(PyObject* module) {
  graph::Break::find_line = find_line;
  add_functions(module, functions);
  SegmentType = add_type(module, &segment_spec);
  TraceType = add_type(module, &trace_spec);
}

}  // namespace facula::bind
