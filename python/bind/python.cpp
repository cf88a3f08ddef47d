#include "python.h"

#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>

#include "facula/base/error.h"
#include "facula/tensor/print.h"
#include "open_trace.h"

namespace facula::bind {

namespace names {
#define FACULA_NAME(n) PyObject* n;
FACULA_NAMES(FACULA_NAME)
#undef FACULA_NAME
}  // namespace names

void make_names() {
#define FACULA_NAME(n) names::n = checked(PyUnicode_InternFromString(#n)).detach();
  FACULA_NAMES(FACULA_NAME)
#undef FACULA_NAME
}

class CarriedError : public std::exception {
 public:
  explicit CarriedError(PyObject* exception) : exception_(std::make_shared<AnyThreadRef>(exception)) {
    PyRef text(PyObject_Str(exception));
    const char* s = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
    if (s) text_ = s;
    else PyErr_Clear();
  }
  const char* what() const noexcept override { return text_.c_str(); }
  PyObject* exception() const { return exception_->get(); }

 private:
  std::shared_ptr<AnyThreadRef> exception_;
  std::string text_;
};

void throw_carried() {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  if (trace) PyException_SetTraceback(value, trace);
  PyRef t(type), v(value), tb(trace);
  throw CarriedError(v.get());
}

static PyObject* linalg_error() {
  static PyObject* type = PyErr_NewException("facula.linalg.LinAlgError", PyExc_RuntimeError, nullptr);
  return type;
}

static std::string& package() {
  static std::string name = "facula";
  return name;
}
const char* package_name() { return package().c_str(); }

std::string in_programs_names(std::string_view text) {
  constexpr std::string_view ours = "facula.";
  std::string out;
  for (size_t at; (at = text.find(ours)) != text.npos; text.remove_prefix(at + ours.size())) {
    out += text.substr(0, at);
    (out += package()) += '.';
  }
  return out += text;
}

static PyObject* set_package_name(PyObject*, PyObject* name) {
  return guarded([&] {
    print_options().package = package() = text_of(name);
    return Py_NewRef(Py_None);
  });
}

static PyObject* get_package_name(PyObject*, PyObject*) { return PyUnicode_FromString(package_name()); }

void add_errors(PyObject* module) {
  checked(PyModule_AddObjectRef(module, "LinAlgError", linalg_error()));
  checked(PyModule_AddObjectRef(module, "_LinAlgError",
                                linalg_error()));  // what handlers of users' programs name
  static PyMethodDef functions[] = {{"set_package_name", set_package_name, METH_O,
                                     "The name that objects show and messages advise."},
                                    {"package_name", get_package_name, METH_NOARGS,
                                     "What set_package_name set."},
                                    {nullptr, nullptr, 0, nullptr}};
  add_functions(module, functions);
}

static PyObject* python_type(ErrorType t) {
  switch (t) {
    case ErrorType::IndexError: return PyExc_IndexError;
    case ErrorType::TypeError: return PyExc_TypeError;
    case ErrorType::ValueError: return PyExc_ValueError;
    case ErrorType::NotImplementedError: return PyExc_NotImplementedError;
    case ErrorType::AssertionError: return PyExc_AssertionError;
    case ErrorType::LinAlgError: return linalg_error();
    case ErrorType::KeyboardInterrupt: return PyExc_KeyboardInterrupt;
    default: return PyExc_RuntimeError;
  }
}

ErrorType error_type(PyObject* exception) {
  ErrorType found = ErrorType::RuntimeError;
  for (int k = int(ErrorType::KeyboardInterrupt); k > 0; --k)  // what derives from another stands behind it
    if (PyObject_IsSubclass(exception, python_type(ErrorType(k))) == 1) found = ErrorType(k);
  PyErr_Clear();
  return found;
}

void set_python_error() noexcept {
  try {
    throw;
  } catch (const PythonError&) {
  } catch (const CarriedError& e) {
    PyObject* x = e.exception();
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(x)), x);
  } catch (const Error& e) {
    PyErr_SetString(python_type(e.type()), in_programs_names(e.what()).c_str());
    describe_break(e);
  } catch (const std::bad_alloc&) {
    PyErr_SetString(PyExc_MemoryError, "not enough memory for this tensor");
  } catch (const std::exception& e) { PyErr_SetString(PyExc_RuntimeError, e.what()); } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "internal: an exception of unknown type");
  }
}

void prefix_python_error(const std::string& prefix) noexcept {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  PyRef args(value ? PyObject_GetAttrString(value, "args") : nullptr);
  if (args && PyTuple_Check(args.get()) && PyTuple_GET_SIZE(args.get()) == 1 &&
      PyUnicode_Check(PyTuple_GET_ITEM(args.get(), 0))) {
    PyRef more(PyUnicode_FromFormat("%s%U", prefix.c_str(), PyTuple_GET_ITEM(args.get(), 0)));
    PyRef tuple(more ? PyTuple_Pack(1, more.get()) : nullptr);
    if (tuple) PyObject_SetAttrString(value, "args", tuple.get());
  }
  PyErr_Clear();
  PyErr_Restore(type, value, trace);
}

bool is_our_module(PyObject* globals, std::string_view package) {
  PyObject* module = globals ? PyDict_GetItemString(globals, "__name__") : nullptr;
  if (!module || !PyUnicode_Check(module)) return false;
  std::string_view name = text_of(module);
  auto is_in = [&](std::string_view p) {
    return name.starts_with(p) && (name.size() == p.size() || name[p.size()] == '.');
  };
  // Programs may use the package by another name, which its modules have then.
  constexpr std::string_view own = "facula";
  return is_in(package) ||
         (package.starts_with(own) && is_in(package_name() + std::string(package.substr(own.size()))));
}
bool is_ours(PyObject* trace) {
  if (!trace || !PyTraceBack_Check(trace)) return !trace;  // its signature refused the arguments
  auto* last = reinterpret_cast<PyTracebackObject*>(trace);
  while (last->tb_next) last = last->tb_next;
  // Programs that call us torch expect the texts of PyTorch.
  return std::string_view(package_name()) == "facula" &&
         is_our_module(PyRef(PyFrame_GetGlobals(last->tb_frame)).get());
}

bool has_word(std::string_view text, std::string_view word) {
  auto inside = [](char c) { return isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    size_t end = at + word.size();
    if ((at == 0 || !inside(text[at - 1])) && (end == text.size() || !inside(text[end]))) return true;
  }
  return false;
}

void name_python_error(const std::string& called) noexcept {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  PyRef raised(value && !trace ? PyException_GetTraceback(value) : PyRef::share(trace).detach());
  PyRef shown(value && is_ours(raised.get()) ? PyObject_Str(value) : nullptr);
  const char* text = shown ? PyUnicode_AsUTF8(shown.get()) : nullptr;
  PyErr_Clear();
  bool named = !text || has_word(text, called), silent = text && !*text;
  PyErr_Restore(type, value, trace);
  if (silent && PyErr_ExceptionMatches(PyExc_MemoryError))
    PyErr_Format(PyExc_MemoryError, "%s: not enough memory", called.c_str());
  else if (!named &&
           PyErr_ExceptionMatches(PyExc_OverflowError))  // whose arguments may be a number and a text
    PyErr_Format(PyExc_OverflowError, "%s: %U", called.c_str(), shown.get());
  else if (!named) prefix_python_error(called + ": ");
}

PyTypeObject* add_type(PyObject* module, PyType_Spec* spec, PyTypeObject* base, PyTypeObject* meta) {
  PyRef bases(base ? PyTuple_Pack(1, base) : nullptr);
  PyRef type;
  if (meta) {
#if PY_VERSION_HEX >= 0x030C0000
    type = checked(PyType_FromMetaclass(meta, module, spec, bases.get()));
#else
    type = checked(PyType_FromModuleAndSpec(module, spec, bases.get()));
    Py_SET_TYPE(type.get(), meta);  // 3.11 cannot name a metaclass; ours only adds to `type`
    Py_INCREF(meta);
#endif
  } else {
    type = checked(PyType_FromModuleAndSpec(module, spec, bases.get()));
  }
  auto* t = reinterpret_cast<PyTypeObject*>(type.get());
  if (const char* dot = strrchr(spec->name, '.'))
    t->tp_name = dot + 1;  // messages say Tensor, not facula.Tensor
  checked(PyModule_AddType(module, t));
  return reinterpret_cast<PyTypeObject*>(type.detach());
}

void add_object(PyObject* module, const char* name, PyObject* owned) {
  PyRef keep = checked(owned);
  checked(PyModule_AddObjectRef(module, name, keep.get()));
}

void add_functions(PyObject* module, PyMethodDef* defs) { checked(PyModule_AddFunctions(module, defs)); }

bool take_arguments(const char* function, const char* const* spec, int required, PyObject* const* args,
                    Py_ssize_t n, PyObject* kwnames, PyObject** values, int keyword_only) {
  int count = 0;
  while (spec[count]) values[count++] = nullptr;
  int positional = keyword_only < count ? keyword_only : count;
  if (n > positional) {
    PyErr_Format(PyExc_TypeError, "%s() takes %d positional argument%s but %zd were given", function,
                 positional, positional == 1 ? "" : "s", n);
    return false;
  }
  for (Py_ssize_t i = 0; i < n; ++i) values[i] = args[i];
  Py_ssize_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  for (Py_ssize_t k = 0; k < keywords; ++k) {
    PyObject* key = PyTuple_GET_ITEM(kwnames, k);
    int i = 0;
    while (i < count && PyUnicode_CompareWithASCIIString(key, spec[i]) != 0) ++i;
    if (i == count) {
      PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'", function, key);
      return false;
    }
    if (values[i]) {
      PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument '%s'", function, spec[i]);
      return false;
    }
    values[i] = args[n + k];
  }
  for (int i = 0; i < required; ++i) {
    if (values[i]) continue;
    PyErr_Format(PyExc_TypeError, "%s() missing 1 required positional argument: '%s'", function, spec[i]);
    return false;
  }
  return true;
}

}  // namespace facula::bind
