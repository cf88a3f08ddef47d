// __torch_function__: how subclasses of Tensor, and classes that have nothing to do with it, take over calls.
#pragma once
#include "python.h"

#include "facula/tensor/tensor.h"

namespace facula::bind {

enum class Override : uint8_t {
  none,    // plain: native
  rewrap,  // a subclass with the default __torch_function__: native, results become the subclass
  taken,   // it takes calls itself
};
// How a class overrides calls: a class of tensors, or any other with __torch_function__.
Override override_of(PyTypeObject* t);
bool has_torch_function(PyObject* o);  // of an object that is no Tensor
// True if one of these arguments takes calls, or an item of their tuples and lists down to this depth.
constexpr int kNesting = 4;
bool any_taken(PyObject* const* args, Py_ssize_t n, int depth = kNesting);
bool overrides_disabled();  // inside DisableTorchFunctionSubclass, on this thread
// A TorchFunctionMode takes every call of this thread.
extern __attribute__((tls_model("initial-exec"))) thread_local int modes_active;
// A result of a call on `like` that is no operator: as its subclass, if that takes part natively.
PyObject* wrap_like(PyObject* like, Tensor t);

// Gives a class that has Tensor's own __torch_function__ the one that leaves results as they are: what __torch_dispatch__ returns
// is the result.
void keep_results_plain(PyTypeObject* cls);

// Calls the overrides among the arguments in PyTorch's order (subclasses first, then left to right) until one
// answers.
PyObject* call_override(PyObject* function, PyObject* self, PyObject* const* args, Py_ssize_t n,
                        PyObject* kwnames);

// Has Tensor's attributes and methods that are no operators ask the overrides of this class, a subclass with its own, or
// of Tensor itself, for modes. False with a Python error set.
bool make_overridable(PyObject* cls);

// After an exception of a function of this package written in Python: its text names what was `called`, and says what
// was given where types were wrong, also where it names an operator already. Of a method the first argument is self.
void name_error(const std::string& called, PyObject* function, PyObject* const* args, Py_ssize_t n,
                PyObject* kwnames, bool method, bool also_of_operators);

// Whether `o` is a NumPy scalar.
bool is_numpy_scalar(PyObject* o);

}  // namespace facula::bind
