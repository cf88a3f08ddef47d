// c_program: traced programs as C99 (facula/embed/c_program.h).
#include "facula/embed/c_program.h"

#include "graph.h"
#include "tensor.h"
#include "types.h"

namespace facula::bind {

namespace {

PyRef sequence(PyObject* o) { return checked(PySequence_Fast(o, "c_program expects lists of tuples")); }
Py_ssize_t size(const PyRef& list) { return PySequence_Fast_GET_SIZE(list.get()); }
PyObject* item(const PyRef& list, Py_ssize_t k) { return PySequence_Fast_GET_ITEM(list.get(), k); }

std::vector<embed::Entry> entries_of(PyObject* list) {
  PyRef all = sequence(list);
  std::vector<embed::Entry> entries;
  for (Py_ssize_t k = 0; k < size(all); ++k) {
    const char* name;
    PyObject *program, *arguments, *in_arena;
    int functions, reorders;
    if (!PyArg_ParseTuple(item(all, k), "sOOOpp", &name, &program, &arguments, &in_arena, &functions,
                          &reorders))
      throw PythonError();
    auto& entry = entries.emplace_back(embed::Entry{name, &traced_of(program), {}});
    PyRef numbers = sequence(in_arena);
    for (Py_ssize_t i = 0; i < size(numbers); ++i) {
      long number = PyLong_AsLong(item(numbers, i));
      if (number == -1 && PyErr_Occurred()) throw PythonError();
      entry.options.in_arena.insert(int(number));
    }
    entry.options.functions = functions;
    entry.options.reorders = reorders;
    PyRef names = sequence(arguments);
    for (Py_ssize_t i = 0; i < size(names); ++i) entry.arguments.emplace_back(text_of(item(names, i)));
  }
  return entries;
}

std::vector<embed::Named> names_of(PyObject* list) {
  PyRef all = sequence(list);
  std::vector<embed::Named> names;
  for (Py_ssize_t k = 0; k < size(all); ++k) {
    const char *name, *line;
    PyObject* tensor;
    if (!PyArg_ParseTuple(item(all, k), "sOs", &name, &tensor, &line)) throw PythonError();
    names.push_back({name, tensor_argument("c_program", "tensor", tensor), line});
  }
  return names;
}

// [(name, C type, shape, elements, written)]
PyRef list_of(const std::vector<embed::CArray>& arrays) {
  PyRef list = checked(PyList_New(0));
  for (auto& a : arrays) {
    PyRef row = checked(Py_BuildValue("(sssLN)", a.name.c_str(), a.type.c_str(), a.shape.c_str(),
                                      (long long)a.elements, PyBool_FromLong(a.written)));
    checked(PyList_Append(list.get(), row.get()));
  }
  return list;
}

PyObject* c_program(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    const char* name;
    PyObject *entries, *names;
    if (!PyArg_ParseTuple(args, "sOO:c_program", &name, &entries, &names)) return nullptr;
    auto all = entries_of(entries);
    auto weights = names_of(names);
    auto program = embed::c_program(name, all, weights);
    PyRef files = checked(PyList_New(0)), functions = checked(PyList_New(0));
    for (auto& f : program.files) {
      PyRef file = checked(Py_BuildValue("(ss#)", f.name.c_str(), f.text.data(), Py_ssize_t(f.text.size())));
      checked(PyList_Append(files.get(), file.get()));
    }
    for (auto& f : program.functions) {
      PyRef arguments = list_of(f.arguments);
      PyRef row = checked(Py_BuildValue("(ssO)", f.name.c_str(), f.prototype.c_str(), arguments.get()));
      checked(PyList_Append(functions.get(), row.get()));
    }
    PyRef blocks = checked(PyList_New(0));
    for (auto& [entry, b] : program.blocks) {
      PyRef block = checked(Py_BuildValue("(ssLLnn)", entry.c_str(), b.name.c_str(), (long long)b.offset,
                                          (long long)b.bytes, Py_ssize_t(b.first), Py_ssize_t(b.last)));
      checked(PyList_Append(blocks.get(), block.get()));
    }
    PyRef captured = list_of(program.weights);
    return Py_BuildValue("(OOOLLLO)", files.get(), functions.get(), captured.get(), (long long)program.arena,
                         (long long)program.constant, (long long)program.writable, blocks.get());
  });
}

PyMethodDef functions[] = {
    {"c_program", c_program, METH_VARARGS,
     "c_program(name, [(entry, Program, argument names, arguments in the arena, functions, reorders)], [(name, tensor, line)]) -> (files, [(name, prototype, arrays)], captured arrays, arena, constant, writable, [(entry, name, offset, bytes, first step, last step)])"},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

void add_embed(PyObject* module) { add_functions(module, functions); }

}  // namespace facula::bind
