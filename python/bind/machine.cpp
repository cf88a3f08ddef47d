// Threads, memory and settings.
#include <cstring>

#include "capture/compiled.h"
#include "facula/base/interrupt.h"
#include "facula/base/log.h"
#include "facula/base/parallel.h"
#include "facula/base/settings.h"
#include "facula/base/warning.h"
#include "facula/codegen/kernel.h"
#include "facula/tensor/memory.h"
#include "facula/tensor/print.h"
#include "facula/tensor/storage.h"
#include "python.h"

namespace facula::bind {

namespace {

PyObject* get_num_threads(PyObject*, PyObject*) { return PyLong_FromLong(num_threads()); }
PyObject* set_threads(PyObject*, PyObject* n) {
  return guarded([&]() -> PyObject* {
    if (!PyLong_Check(n) || PyBool_Check(n))
      return PyErr_Format(PyExc_TypeError, "set_num_threads expects an int, but got %s", Py_TYPE(n)->tp_name);
    long count = PyLong_AsLong(n);
    if (count == -1 && PyErr_Occurred()) return nullptr;
    runtime_check(count > 0, "set_num_threads") << "expects a positive integer, but got " << count;
    set_num_threads(int(count));
    Py_RETURN_NONE;
  });
}
PyObject* memory(PyObject*, PyObject*) {
  return guarded([&] {
    AllocatorStats s = allocator_stats();
    PyRef stats = checked(PyDict_New());
    auto add = [&](const std::string& name, int64_t v) {
      PyRef number = checked(PyLong_FromLongLong(v));
      checked(PyDict_SetItemString(stats.get(), name.c_str(), number.get()));
    };
    auto amount = [&](const std::string& name, const AllocatorStats::Amount& a) {
      add(name + ".all.current", a.current);
      add(name + ".all.peak", a.peak);
      add(name + ".all.allocated", a.allocated);
      add(name + ".all.freed", a.freed);
    };
    amount("allocated_bytes", s.allocated_bytes);
    amount("reserved_bytes", s.reserved_bytes);
    add("allocation.all.allocated", s.allocations);
    add("inactive_bytes.large_pool.current", s.waiting_bytes);
    add("inactive.large_pool.current", s.waiting_blocks);
    add("num_alloc_retries", s.retries);
    add("num_ooms", s.failures);
    add("current_bytes", s.allocated_bytes.current);  // short names of the most used
    add("peak_bytes", s.allocated_bytes.peak);
    add("allocations", s.allocations);
    return stats.detach();
  });
}
PyObject* empty(PyObject*, PyObject*) {
  return guarded([]() -> PyObject* {
    empty_cache();
    Py_RETURN_NONE;
  });
}
PyObject* reset_peak(PyObject*, PyObject*) {
  reset_peak_memory();
  Py_RETURN_NONE;
}

PyObject* set_warn_always_function(PyObject*, PyObject* on) {
  int flag = PyObject_IsTrue(on);
  if (flag < 0) return nullptr;
  set_warn_always(flag);
  Py_RETURN_NONE;
}
PyObject* is_warn_always(PyObject*, PyObject*) { return PyBool_FromLong(warns_always()); }

PyObject* get_print_options(PyObject*, PyObject*) {
  auto& o = print_options();
  PyRef scientific(o.scientific ? PyBool_FromLong(*o.scientific) : Py_NewRef(Py_None));
  return Py_BuildValue("{s:i,s:L,s:L,s:L,s:O}", "precision", o.precision, "threshold", (long long)o.threshold,
                       "edgeitems", (long long)o.edge_items, "linewidth", (long long)o.line_width, "sci_mode",
                       scientific.get());
}
PyObject* set_print_options(PyObject*, PyObject* args) {
  long long precision, threshold, edge, line;
  PyObject* scientific;
  if (!PyArg_ParseTuple(args, "LLLLO", &precision, &threshold, &edge, &line, &scientific)) return nullptr;
  return guarded([&]() -> PyObject* {
    value_check(precision >= 0 && precision <= 300 && threshold >= 0 && edge >= 0 && line >= 0,
                "set_printoptions")
        << "precision (up to 300), threshold, edgeitems and linewidth must not be negative, got " << precision
        << ", " << threshold << ", " << edge << " and " << line;
    print_options() = {int(precision), threshold, edge, line, std::nullopt, print_options().package};
    if (scientific != Py_None) print_options().scientific = PyObject_IsTrue(scientific) == 1;
    Py_RETURN_NONE;
  });
}

PyObject* to_python(const std::string& v) { return unicode(v); }
PyObject* to_python(int64_t v) { return PyLong_FromLongLong(v); }
PyObject* to_python(bool v) { return PyBool_FromLong(v); }
void from_python(PyObject* o, std::string& v) { v = text_of(o); }
void from_python(PyObject* o, int64_t& v) {
  v = PyLong_AsLongLong(o);
  if (v == -1 && PyErr_Occurred()) throw PythonError();
}
void from_python(PyObject* o, bool& v) { v = PyObject_IsTrue(o) == 1; }

PyObject* get_settings(PyObject*, PyObject*) {
  return guarded([&] {
    PyRef list = checked(PyList_New(0));
    auto add = [&](const char* name, const char* env, const char* type, PyObject* value, const char* doc) {
      PyRef one = checked(Py_BuildValue("{s:s,s:s,s:s,s:N,s:s}", "name", name, "env", env, "type", type,
                                        "value", value, "doc", doc));
      checked(PyList_Append(list.get(), one.get()));
    };
#define FACULA_ADD(name, env, type, def, doc) add(#name, env, #type, to_python(settings().name), doc);
    FACULA_SETTINGS(FACULA_ADD)
#undef FACULA_ADD
    return list.detach();
  });
}
PyObject* set_setting(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    const char* which;
    PyObject* value;
    if (!PyArg_ParseTuple(args, "sO:set_setting", &which, &value)) return nullptr;
    if (!strcmp(which, "log")) set_logs("-all," + std::string(text_of(value)));
#define FACULA_SET(name, env, type, def, doc) if (!strcmp(which, #name)) { from_python(value, mutable_settings().name); Py_RETURN_NONE; }
    FACULA_SETTINGS(FACULA_SET)
#undef FACULA_SET
    return PyErr_Format(PyExc_ValueError, "no setting is named '%s'", which);
  });
}

PyObject* get_cache_stats(PyObject*, PyObject*) {
  codegen::CacheStats s = codegen::cache_stats();
  return Py_BuildValue("{s:L,s:L,s:L,s:L,s:d}", "memory_hits", (long long)s.memory_hits, "shipped_hits",
                       (long long)s.shipped_hits, "disk_hits", (long long)s.disk_hits, "compiled",
                       (long long)s.compiled, "compile_seconds", s.compile_seconds);
}
PyObject* record_kernels(PyObject*, PyObject* folder) {
  return guarded([&] {
    type_check(PyUnicode_Check(folder), "record_kernels_to")
        << "expected a path, not " << Py_TYPE(folder)->tp_name;
    codegen::record_kernels_to(std::string(text_of(folder)));
    Py_RETURN_NONE;
  });
}

PyObject* get_cache_folder(PyObject*, PyObject*) {
  return guarded([] { return unicode(codegen::cache_folder()); });
}
PyObject* get_target_features(PyObject*, PyObject*) {
  return guarded([] { return unicode(codegen::target_features()); });
}

PyObject* set_log_areas(PyObject*, PyObject* areas) {
  return guarded([&]() -> PyObject* {
    type_check(PyUnicode_Check(areas), "set_logs") << "expected a string, not " << Py_TYPE(areas)->tp_name;
    set_logs(text_of(areas));
    Py_RETURN_NONE;
  });
}
PyObject* get_log_help(PyObject*, PyObject*) {
  return guarded([] { return unicode(log_help()); });
}

PyObject* get_build(PyObject*, PyObject*) {
  return Py_BuildValue("{s:s,s:s,s:s}", "compiler", FACULA_COMPILER, "type", FACULA_BUILD_TYPE, "libraries",
                       FACULA_BUILT_WITH);
}

PyMethodDef functions[] = {
    {"_build", get_build, METH_NOARGS,
     "The compiler, the build type, and the libraries that were found then."},
    {"_set_logs", set_log_areas, METH_O, "Turns areas of the log on and off, in the language of FACULA_LOG."},
    {"_log_help", get_log_help, METH_NOARGS, "The areas of the log, a line each."},
    {"cache_folder", get_cache_folder, METH_NOARGS,
     "The folder of the user's kernel cache; '' if none can be used."},
    {"target_features", get_target_features, METH_NOARGS, "What kernels are compiled for."},
    {"cache_stats", get_cache_stats, METH_NOARGS, "Where kernels came from so far."},
    {"record_kernels_to", record_kernels, METH_O,
     "Copies every kernel used from now on into a folder; '' ends it."},
    {"get_num_threads", get_num_threads, METH_NOARGS, "Threads of an operator."},
    {"set_num_threads", set_threads, METH_O, "Sets the threads of an operator."},
    {"memory_stats", memory, METH_NOARGS,
     "Bytes held by tensors now and at the peak, and allocations so far."},
    {"empty_cache", empty, METH_NOARGS, "Gives memory that waits for new tensors back to the system."},
    {"reset_peak_memory", reset_peak, METH_NOARGS, "Starts a new peak."},
    {"get_print_options", get_print_options, METH_NOARGS, "How tensors are shown."},
    {"set_print_options", set_print_options, METH_VARARGS,
     "set_print_options(precision, threshold, edgeitems, linewidth, sci_mode)"},
    {"settings", get_settings, METH_NOARGS,
     "Every setting: name, environment variable, type, value, documentation."},
    {"set_setting", set_setting, METH_VARARGS, "set_setting(name, value), for this process."},
    {"set_warn_always", set_warn_always_function, METH_O,
     "Do warnings that come once come each time from now on?"},
    {"is_warn_always_enabled", is_warn_always, METH_NOARGS, "What set_warn_always set."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

void add_machine(PyObject* module) {
  add_functions(module, functions);
  set_interrupt_check([] {
    WithGil gil;
    if (PyErr_CheckSignals() < 0) throw_carried();
  });
  set_warning_handler([](const std::string& told) {
    WithGil gil;
    std::string text = in_programs_names(told);
    for (size_t at = 0; (at = text.find("torch.", at)) != text.npos; at += 1)
      text.replace(at, 5, package_name());
    if (capture::take_warning(text.c_str())) return;
    if (PyErr_Occurred() || PyErr_WarnEx(PyExc_UserWarning, text.c_str(), 1) < 0) throw_carried();
  });
}

}  // namespace facula::bind
