// check_pickle: what is looked at before CPython's unpickler runs on a file of somebody else's.
#include "facula/io/pickle_check.h"
#include "python.h"

namespace facula::bind {

namespace {

PyObject* check_pickle(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    Py_buffer data;
    const char* where;
    if (!PyArg_ParseTuple(args, "y*s:check_pickle", &data, &where)) return nullptr;
    struct Release {
      Py_buffer* b;
      ~Release() { PyBuffer_Release(b); }
    } release{&data};
    return PyLong_FromSize_t(io::check_pickle({static_cast<const char*>(data.buf), size_t(data.len)}, where));
  });
}

PyMethodDef functions[] = {
    {"check_pickle", check_pickle, METH_VARARGS,
     "check_pickle(data, where): the length of the pickle that begins data; raises if unpickling it would need "
     "what no checkpoint needs."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

void add_pickle(PyObject* module) { add_functions(module, functions); }

}  // namespace facula::bind
