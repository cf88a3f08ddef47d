// Helpers over CPython for all files of the binding: an owning pointer, exceptions in both directions, interned names, and the list
// of the files' entry points.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <string>
#include <string_view>
#include <utility>

#include "facula/base/error.h"
#include "facula/profile/profile.h"

namespace facula::bind {

// An owned reference.
class PyRef {
 public:
  PyRef() = default;
  explicit PyRef(PyObject* owned) : p_(owned) {}
  static PyRef share(PyObject* borrowed) {
    Py_XINCREF(borrowed);
    return PyRef(borrowed);
  }
  PyRef(const PyRef& o) : p_(o.p_) { Py_XINCREF(p_); }
  PyRef(PyRef&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  PyRef& operator=(PyRef o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  ~PyRef() { Py_XDECREF(p_); }
  PyObject* get() const { return p_; }
  PyObject* detach() { return std::exchange(p_, nullptr); }
  explicit operator bool() const { return p_; }

 private:
  PyObject* p_ = nullptr;
};

// A Python exception is set; unwinds C++ up to the nearest `guarded`.
struct PythonError {};
// The owned result of a C API call, or PythonError.
inline PyRef checked(PyObject* owned) {
  if (!owned) throw PythonError();
  return PyRef(owned);
}
inline void checked(int rc) {
  if (rc < 0) throw PythonError();
}
inline bool is_true(PyObject* o) {  // an array of several has no truth
  int truth = PyObject_IsTrue(o);
  checked(truth);
  return truth;
}

// A Python exception on its way through C++ (the engine, a mode): keeps the exception object. Any thread may
// copy it.
class CarriedError;
// Turns the exception of Python that is set into a C++ one that may cross code without the GIL.
[[noreturn]] void throw_carried();

// The package's name as programs write it: "facula", or the name that `_C.set_package_name` gave ("torch").
// What objects show and messages advise begins with it.
const char* package_name();
// A message of the core with the name that programs write instead of "facula".
std::string in_programs_names(std::string_view text);

// Sets the Python exception for the C++ exception being handled. Call it in a catch block.
void set_python_error() noexcept;
// Puts `prefix` before the text of the exception that is set, if it has one text.
void prefix_python_error(const std::string& prefix) noexcept;
// The exception that is set names what Python `called`, before its text if that does not.
void name_python_error(const std::string& called) noexcept;
bool has_word(std::string_view text, std::string_view word);
// Whether these are the globals of a function of this package or of a subpackage.
bool is_our_module(PyObject* globals, std::string_view package = "facula");
bool is_ours(PyObject* trace);              // raised in this package, and not in code of the program
ErrorType error_type(PyObject* exception);  // of a class of Python, or the nearest above it

// Runs f; C++ exceptions become Python's.
template <class F>
PyObject* guarded(F&& f) noexcept {
  try {
    return f();
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}
// The same for what Python reaches as `called`: errors name it, whoever inside of it found the fault.
template <class F>
PyObject* guarded(const char* called, F&& f) noexcept {
  PyObject* result = guarded(std::forward<F>(f));
  if (!result) [[unlikely]]
    name_python_error(called);
  return result;
}
template <class F>
int guarded_int(F&& f) noexcept {
  try {
    f();
    return 0;
  } catch (...) {
    set_python_error();
    return -1;
  }
}

// Holds the GIL on any thread.
class WithGil {
 public:
  WithGil() : state_(PyGILState_Ensure()) {}
  ~WithGil() { PyGILState_Release(state_); }

 private:
  PyGILState_STATE state_;
};
// Lets other Python threads run for a scope.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() { PyEval_RestoreThread(state_); }

 private:
  profile::KeepLocation location_;  // before the interpreter is let go
  PyThreadState* state_;
};
// A Python object that C++ may copy and drop on any thread, with or without the GIL.
class AnyThreadRef {
 public:
  explicit AnyThreadRef(PyObject* borrowed) : p_(borrowed) { Py_XINCREF(p_); }
  AnyThreadRef(const AnyThreadRef& o) : p_(o.p_) {
    if (p_) {
      WithGil gil;
      Py_INCREF(p_);
    }
  }
  AnyThreadRef(AnyThreadRef&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  AnyThreadRef& operator=(AnyThreadRef o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  ~AnyThreadRef() {
    if (p_ && Py_IsInitialized()) {
      WithGil gil;
      Py_DECREF(p_);
    }
  }
  PyObject* get() const { return p_; }

 private:
  PyObject* p_;
};

inline std::string_view text_of(PyObject* unicode) {
  Py_ssize_t n;
  const char* s = PyUnicode_AsUTF8AndSize(unicode, &n);
  if (!s) throw PythonError();
  return {s, size_t(n)};
}
inline PyObject* unicode(std::string_view s) {
  return PyUnicode_FromStringAndSize(s.data(), Py_ssize_t(s.size()));
}

// Names that are looked up often, interned.
#define FACULA_NAMES(_) \
  _(__torch_function__) _(__torch_dispatch__) _(__dict__) _(__init__) _(__call__) _(__getattr__) _(__getattribute__) _(__array_interface__) _(_as_tensor) _(__dlpack__) \
  _(_parameters) _(_buffers) _(_modules) _(_forward_hooks) _(_forward_pre_hooks) _(_backward_hooks) \
  _(_backward_pre_hooks) _(_call_impl) _(forward) _(backward) _(setup_context) _(self) _(input) _(out) \
  _(requires_grad) _(layout) _(pin_memory) _(memory_format) _(names) _(non_blocking) _(axis) _(keepdims) _(x) _(a) _(x2) _(split_size_or_sections)
namespace names {
#define FACULA_NAME(n) extern PyObject* n;
FACULA_NAMES(FACULA_NAME)
#undef FACULA_NAME
}  // namespace names
void make_names();

// A heap type from its spec, added to the module under its last name.
PyTypeObject* add_type(PyObject* module, PyType_Spec* spec, PyTypeObject* base = nullptr,
                       PyTypeObject* meta = nullptr);
void add_object(PyObject* module, const char* name, PyObject* owned);
void add_functions(PyObject* module, PyMethodDef* defs);

// Keyword-only use of a METH_FASTCALL|METH_KEYWORDS call by hand-written functions: fills `values` by `spec`,
// a null-ended list of names; names from the `keyword_only`th on are by keyword only; absent ones stay null.
// TypeError otherwise.
bool take_arguments(const char* function, const char* const* spec, int required, PyObject* const* args,
                    Py_ssize_t n, PyObject* kwnames, PyObject** values, int keyword_only = 1000);

// Every file's contribution to the module, in the order of calling.
void add_types(PyObject* module);           // types.cpp: dtype, device, memory_format, layout
void add_size(PyObject* module);            // size.cpp
void add_tensor(PyObject* module);          // tensor.cpp and tensor_methods.cpp
void add_overrides(PyObject* module);       // override.cpp
void add_generator(PyObject* module);       // generator.cpp
void add_errors(PyObject* module);          // python.cpp
void add_autograd(PyObject* module);        // autograd.cpp
void add_function(PyObject* module);        // function.cpp
void add_construct(PyObject* module);       // construct.cpp
void add_numpy(PyObject* module);           // numpy.cpp
void add_dlpack(PyObject* module);          // dlpack.cpp
void add_module_base(PyObject* module);     // module.cpp
void add_machine(PyObject* module);         // machine.cpp
void add_pickle(PyObject* module);          // pickle.cpp
void add_storage(PyObject* module);         // storage.cpp
void add_operators(PyObject* module);       // trampoline.cpp
void add_profile(PyObject* module);         // profile.cpp
void add_inspect(PyObject* module);         // inspect.cpp
void add_program(PyObject* module);         // program.cpp
void add_embed(PyObject* module);           // embed.cpp
void add_vmap(PyObject* module);            // vmap.cpp
void add_library(PyObject* module);         // library.cpp
void add_extend(PyObject* module);          // extend.cpp
void add_torch_dispatch(PyObject* module);  // torch_dispatch.cpp

}  // namespace facula::bind
