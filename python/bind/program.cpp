// facula._C.Program: a function of users, traced (facula/run/traced.h).
#include <optional>

#include "facula/autograd/tracing.h"
#include "facula/io/program.h"
#include "facula/io/program_file.h"
#include "facula/op/call.h"
#include "facula/run/traced.h"
#include "graph.h"
#include "open_trace.h"
#include "program_call.h"
#include "tensor.h"
#include "types.h"

namespace facula::bind {

namespace {

struct ProgramObject {
  PyObject_HEAD Program* program;
};
PyTypeObject* ProgramType;
Program& program(PyObject* o) { return *reinterpret_cast<ProgramObject*>(o)->program; }
run::Traced& traced(PyObject* o) { return program(o).traced(); }

void program_dealloc(PyObject* o) {
  delete reinterpret_cast<ProgramObject*>(o)->program;
  PyTypeObject* t = Py_TYPE(o);
  PyObject_Free(o);
  Py_DECREF(t);
}

PyObject* wrap(Program made) {
  auto* o = PyObject_New(ProgramObject, ProgramType);
  if (!o) throw PythonError();
  o->program = new Program(std::move(made));
  return reinterpret_cast<PyObject*>(o);
}

// trace(function, tensors, name, dynamic): function takes a tuple of tensors and gives a list of them.
PyObject* trace(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    PyObject *function, *list;
    const char* name;
    int dynamic;
    if (!PyArg_ParseTuple(args, "OOsp:trace", &function, &list, &name, &dynamic)) return nullptr;
    auto call = [&](std::span<const Tensor> inputs) {
      PyRef given = checked(wrap_list(inputs));
      PyObject* results = PyObject_CallOneArg(function, given.get());
      if (!results) throw_carried();
      PyRef all(results);
      return tensor_list_argument("trace", "results", results);
    };
    return wrap(facula::trace(call, tensor_list_argument("trace", "tensors", list), name, dynamic));
  });
}

PyObject* program_run(PyObject* self, PyObject* list) {
  return guarded([&]() -> PyObject* {
    auto inputs = tensor_list_argument(traced(self).name().c_str(), "inputs", list);
    std::vector<Tensor> results;
    {
      WithoutGil released;
      results = traced(self)(inputs);
    }
    return wrap_list(results);
  });
}
PyObject* program_text(PyObject* self, PyObject* args) {
  return guarded([&]() -> PyObject* {
    int lines = 0;
    if (!PyArg_ParseTuple(args, "|p:text", &lines)) return nullptr;
    return unicode(traced(self).text(lines));
  });
}
PyObject* program_captured(PyObject* self, PyObject*) {
  return guarded([&] { return wrap_list(program(self).captured()); });
}
PyObject* program_inputs(PyObject* self, PyObject*) {
  auto& t = traced(self);
  return PyLong_FromSize_t(t.graph().inputs.size() - t.captured().size());
}
// trace_operand(number): a number of the function that is being traced as an input of its program.
PyObject* trace_operand(PyObject*, PyObject* number) {
  return guarded([&]() -> PyObject* {
    Scalar value;
    type_check(to_scalar(number, value), "trace_operand") << "expects a number";
    auto* recording = graph::Recording::current();
    runtime_check(recording, "trace_operand") << "is called while no function is traced";
    return bind::wrap(recording->number(op::wrapped_number(value)));
  });
}
PyObject* program_outputs(PyObject* self, PyObject*) {
  auto& t = traced(self);
  return PyLong_FromSize_t(t.capture().results - t.checks().size());
}
PyObject* program_report(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    run::Report report;
    {
      WithoutGil released;
      report = traced(self).report();
    }
    PyRef all = checked(PyList_New(0));
    for (auto& s : report.steps) {
      PyRef row = checked(Py_BuildValue("(sssnn)", s.text().c_str(), s.kind, s.calls.c_str(),
                                        Py_ssize_t(s.allocates), Py_ssize_t(s.alive)));
      checked(PyList_Append(all.get(), row.get()));
    }
    return Py_BuildValue("(Onn)", all.get(), Py_ssize_t(report.arena), Py_ssize_t(report.taken));
  });
}

// require(checks): of the last results, a class of exceptions and a text each.
PyObject* program_require(PyObject* self, PyObject* list) {
  return guarded([&]() -> PyObject* {
    PyRef all = checked(PySequence_Fast(list, "require expects a list"));
    std::vector<run::Traced::Check> checks;
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(all.get()); ++k) {
      PyObject* kind;
      const char* text;
      if (!PyArg_ParseTuple(PySequence_Fast_GET_ITEM(all.get(), k), "Os", &kind, &text)) return nullptr;
      checks.push_back({error_type(kind), text});
    }
    traced(self).require(std::move(checks));
    Py_RETURN_NONE;
  });
}
// with_numbers(floats): the program with its numbers, the last inputs, fixed to these.
PyObject* program_with_numbers(PyObject* self, PyObject* list) {
  return guarded([&]() -> PyObject* {
    PyRef all = checked(PySequence_Fast(list, "with_numbers expects a list"));
    std::vector<Tensor> numbers;
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(all.get()); ++k) {
      double x = PyFloat_AsDouble(PySequence_Fast_GET_ITEM(all.get(), k));
      if (PyErr_Occurred()) return nullptr;
      numbers.push_back(op::wrapped_number(x));
    }
    return wrap(Program(traced(self).with_numbers(numbers)));
  });
}
PyObject* program_save(PyObject* self, PyObject* args) {
  return guarded([&]() -> PyObject* {
    const char *path, *extra;
    if (!PyArg_ParseTuple(args, "ss:save", &path, &extra)) return nullptr;
    std::string to = path, with = extra;
    {
      WithoutGil released;
      program(self).save(to, with);
    }
    Py_RETURN_NONE;
  });
}

PyObject* load_program(PyObject*, PyObject* path) {
  return guarded([&]() -> PyObject* {
    const char* text = PyUnicode_AsUTF8(path);
    if (!text) return nullptr;
    std::string from = text;
    std::optional<Program> loaded;
    std::string extra;
    {
      WithoutGil released;
      loaded = Program::load(from, &extra);
    }
    PyRef program(wrap(std::move(*loaded)));
    return Py_BuildValue("(Os)", program.get(), extra.c_str());
  });
}

PyObject* add_kernels(PyObject*, PyObject* path) {
  return guarded([&]() -> PyObject* {
    const char* text = PyUnicode_AsUTF8(path);
    if (!text) return nullptr;
    std::string from = text;
    size_t count;
    {
      WithoutGil released;
      count = io::add_kernels_of(from);
    }
    return PyLong_FromSize_t(count);
  });
}

PyMethodDef program_methods[] = {
    {"run", program_run, METH_O, "run(tensors) -> tuple of the function's results."},
    {"text", program_text, METH_VARARGS, "text(lines=False): the graph, a line a call."},
    {"captured", program_captured, METH_NOARGS, "Tensors that the function read besides its inputs."},
    {"report", program_report, METH_NOARGS,
     "What runs: text, kind, calls, bytes allocated and held, of each step."},
    {"require", program_require, METH_O,
     "require(checks): the last results must be True; (exception, text) each."},
    {"with_numbers", program_with_numbers, METH_O,
     "with_numbers(floats) -> Program whose last inputs are fixed."},
    {"inputs", program_inputs, METH_NOARGS, "How many tensors it takes."},
    {"outputs", program_outputs, METH_NOARGS, "How many results it has."},
    {"save", program_save, METH_VARARGS, "save(path, extra)"},
    {nullptr, nullptr, 0, nullptr}};
PyType_Slot program_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(program_dealloc)},
                               {Py_tp_methods, program_methods},
                               {0, nullptr}};
PyType_Spec program_spec = {"facula._C.Program", sizeof(ProgramObject), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, program_slots};
PyObject* is_tracing(PyObject*, PyObject*) {
  return PyBool_FromLong(autograd::Tracing::current() != nullptr);
}
PyObject* in_traced_backward(PyObject*, PyObject*) {
  auto* trace = autograd::Tracing::current();
  return PyBool_FromLong(trace && trace->in_backward());
}
PyObject* outside_of_trace(PyObject*, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    op::Mode::With no_mode(nullptr);
    autograd::Tracing::With no_trace(nullptr);
    PyRef rest = checked(PyTuple_GetSlice(args, 1, PY_SSIZE_T_MAX));
    type_check(PyTuple_GET_SIZE(args) > 0, "outside_of_trace") << "expects a function";
    return PyObject_Call(PyTuple_GET_ITEM(args, 0), rest.get(), kwargs);
  });
}

PyObject* enter_checkpoint(PyObject*, PyObject*) { return PyLong_FromLong(graph::At::enter_checkpoint()); }
PyObject* leave_checkpoint(PyObject*, PyObject* outer) {
  return guarded([&]() -> PyObject* {
    long number = PyLong_AsLong(outer);
    if (PyErr_Occurred()) return nullptr;
    graph::At::leave_checkpoint(int(number));
    return Py_NewRef(Py_None);
  });
}

PyMethodDef functions[] = {
    {"trace", trace, METH_VARARGS, "trace(function, tensors, name, dynamic) -> Program"},
    {"trace_operand", trace_operand, METH_O, "trace_operand(number) -> tensor"},
    {"add_kernels", add_kernels, METH_O,
     "add_kernels(path): makes the machine code in a package known, and returns how many kernels."},
    {"load_program", load_program, METH_O, "load_program(path) -> (Program, extra)"},
    {"is_tracing", is_tracing, METH_NOARGS, "Is a function of users being traced?"},
    {"in_traced_backward", in_traced_backward, METH_NOARGS,
     "Is the backward of a custom function being traced?"},
    {"outside_of_trace", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(outside_of_trace)),
     METH_VARARGS | METH_KEYWORDS,
     "outside_of_trace(f, *args, **kwargs): calls f as if no function was traced."},
    {"enter_checkpoint", enter_checkpoint, METH_NOARGS,
     "enter_checkpoint() -> outer: what is traced from here on is a checkpoint's."},
    {"leave_checkpoint", leave_checkpoint, METH_O, "leave_checkpoint(outer)"},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

run::Traced& traced_of(PyObject* o) {
  type_check(Py_TYPE(o) == ProgramType, "program") << "expected a Program, got " << Py_TYPE(o)->tp_name;
  return traced(o);
}
PyObject* wrap_program(Program p) { return wrap(std::move(p)); }

void add_program(PyObject* module) {
  ProgramType = add_type(module, &program_spec);
  add_graph(module);
  add_functions(module, functions);
  add_open_trace(module);
  add_program_call(module);
}

}  // namespace facula::bind
