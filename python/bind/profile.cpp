// The profiler's session, scopes of the program, and where the program is.
#include "facula/profile/profile.h"

#include <cstring>

#include "python.h"

namespace facula::bind {

namespace {

const std::string& package_folder() {
  static std::string folder;
  if (folder.empty()) {
    PyRef package(PyImport_ImportModule("facula"));
    PyRef file(package ? PyObject_GetAttrString(package.get(), "__file__") : nullptr);
    const char* text = file && PyUnicode_Check(file.get()) ? PyUnicode_AsUTF8(file.get()) : nullptr;
    PyErr_Clear();
    std::string path = text ? text : "?";
    folder = path.substr(0, path.rfind('/') + 1);
  }
  return folder;
}

// Frames outside of the package, innermost first. Only where this thread holds the interpreter; keeps its
// exception.
std::string location(bool all) {
  if (!Py_IsInitialized() || !PyGILState_Check()) return "";
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  std::string out;
  auto& package = package_folder();
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  while (frame) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    const char* file = PyUnicode_AsUTF8(code->co_filename);
    const char* name = file ? PyUnicode_AsUTF8(code->co_name) : nullptr;
    bool user = name && strncmp(file, package.c_str(), package.size()) && strncmp(file, "<frozen ", 8);
    if (user)
      out += (out.empty() ? "" : "\n") + std::string(file) + "(" +
             std::to_string(PyFrame_GetLineNumber(frame)) + "): " + name;
    Py_DECREF(code);
    PyFrameObject* back = user && !all ? nullptr : PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
  }
  PyErr_Restore(type, value, trace);
  return out;
}

PyObject* start(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    int shapes, memory, stacks;
    if (!PyArg_ParseTuple(args, "ppp:profile_start", &shapes, &memory, &stacks)) return nullptr;
    package_folder();
    return PyLong_FromUnsignedLongLong(profile::start({shapes != 0, memory != 0, stacks != 0}));
  });
}

PyObject* stop(PyObject*, PyObject* number) {
  return guarded([&]() -> PyObject* {
    unsigned long long n = PyLong_AsUnsignedLongLong(number);
    if (PyErr_Occurred()) return nullptr;
    profile::Recording r = profile::stop(n);
    PyRef events = checked(PyList_New(Py_ssize_t(r.events.size())));
    PyRef memory = checked(PyList_New(Py_ssize_t(r.memory.size())));
    std::vector<PyRef> locations;
    for (auto& l : r.locations) {
      PyObject* text = PyUnicode_DecodeUTF8(l.data(), Py_ssize_t(l.size()), "replace");
      locations.push_back(checked(text));
    }
    for (size_t k = 0; k < r.events.size(); ++k) {
      auto& e = r.events[k];
      PyObject* one =
          Py_BuildValue("(KKLssLLLLLLOOsss)", (unsigned long long)e.id, (unsigned long long)e.parent,
                        (long long)e.thread, profile::to_string(e.category), e.name.c_str(),
                        (long long)e.start, (long long)e.end, (long long)e.self, (long long)e.allocated,
                        (long long)e.freed, (long long)e.sequence, e.backward ? Py_True : Py_False,
                        locations[e.location].get(), e.shapes.c_str(), e.dtypes.c_str(), e.result.c_str());
      PyList_SET_ITEM(events.get(), Py_ssize_t(k), checked(one).detach());
    }
    for (size_t k = 0; k < r.memory.size(); ++k) {
      auto& m = r.memory[k];
      PyList_SET_ITEM(memory.get(), Py_ssize_t(k),
                      checked(
                          Py_BuildValue("(LLL)", (long long)m.time, (long long)m.thread, (long long)m.bytes))
                          .detach());
    }
    return Py_BuildValue("(LLOO)", (long long)r.start, (long long)r.end, events.get(), memory.get());
  });
}

PyObject* enter(PyObject*, PyObject* name) {
  return guarded([&]() -> PyObject* {
    type_check(PyUnicode_Check(name), "record_function") << "expects a name, not " << Py_TYPE(name)->tp_name;
    return PyLong_FromUnsignedLongLong(
        profile::enabled() ? profile::enter(profile::Category::user, text_of(name)) : 0);
  });
}
PyObject* leave(PyObject*, PyObject* id) {
  return guarded([&]() -> PyObject* {
    unsigned long long n = PyLong_AsUnsignedLongLong(id);
    if (PyErr_Occurred()) return nullptr;
    profile::leave(n);
    Py_RETURN_NONE;
  });
}
PyObject* enabled(PyObject*, PyObject*) { return PyBool_FromLong(profile::enabled()); }

PyMethodDef functions[] = {
    {"profile_start", start, METH_VARARGS, "profile_start(shapes, memory, stacks) -> number of the session"},
    {"profile_stop", stop, METH_O,
     "profile_stop(session) -> (start, end, events, memory); an event: (id, parent, thread, category, name, start, end, self, allocated, freed, "
     "sequence, backward, location, shapes, dtypes, sizes of the result), times in nanoseconds"},
    {"profile_enter", enter, METH_O, "Opens a scope of the program; 0 while nothing is recorded."},
    {"profile_leave", leave, METH_O, "Closes it."},
    {"profile_enabled", enabled, METH_NOARGS, "Is something recorded?"},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

void add_profile(PyObject* module) {
  add_functions(module, functions);
  profile::set_location_source(location);
}

}  // namespace facula::bind
