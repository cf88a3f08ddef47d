// facula.Tensor, and who owns whom. Exactly one side owns the other:
//   normally the Python object holds a strong reference to its impl, and impl->py_object points back, borrowed;
//   when the last Python reference goes while C++ still holds the impl, the object stays alive and the impl owns it
//   (impl->owns_py), so that a subclass, its attributes and its identity survive. A plain Tensor without attributes or
//   weak references is dropped instead and made again on demand.
// Plain tensors come from a free list and are known to the garbage collector only once they have a __dict__.
#pragma once
#include "python.h"

#include "facula/op/value.h"
#include "facula/tensor/tensor.h"

namespace facula::bind {

struct TensorObject {
  PyObject_HEAD TensorImpl* impl;  // strong; null only while the object dies
  PyObject* dict;
  PyObject* weakrefs;
};
extern PyTypeObject* TensorType;
extern PyTypeObject* ParameterType;  // set_parameter_class; never null (Tensor's type before)

inline bool is_plain(PyTypeObject* t) { return t == TensorType || t == ParameterType; }
inline bool is_tensor(PyObject* o) {
  PyTypeObject* t = Py_TYPE(o);
  return is_plain(t) || PyType_IsSubtype(t, TensorType);
}
inline TensorImpl* impl_of(PyObject* o) { return reinterpret_cast<TensorObject*>(o)->impl; }
inline Tensor tensor_of(PyObject* o) { return Tensor(Ref<TensorImpl>::share(impl_of(o))); }

// From now on the garbage collector knows the object: it may be part of a cycle.
inline void track(PyObject* o) {
  if (!PyObject_GC_IsTracked(o)) PyObject_GC_Track(o);
}

// Raises what PyTorch does for a tensor that stands for one of a batch (vmap.cpp). `what`: item, bool, or a method.
void check_has_data(const Tensor& t, const char* what);
// Once: a number of Python's is made of a tensor that requires a gradient, while gradients are recorded.
void warn_of_gradient(const Tensor& t);
// The Python object of a tensor, a new reference; None for an undefined one. Holds the GIL.
PyObject* wrap(Tensor t);
// The tensor as an object of the subclass `type`. If the impl has an object already, the result is an alias.
PyObject* wrap_as(Tensor t, PyTypeObject* type);
PyObject* wrap_list(std::span<const Tensor> tensors);  // tuple
PyObject* wrap_number(const Scalar& s);

// A tensor from what a function was given; TypeError naming function and argument otherwise.
Tensor tensor_argument(const char* function, const char* argument, PyObject* o);
// Tensors of a tuple or list, or one tensor; None gives undefined ones.
std::vector<Tensor> tensor_list_argument(const char* function, const char* argument, PyObject* o,
                                         bool gaps = false);

extern PyMethodDef tensor_methods[];
extern PyGetSetDef tensor_getset[];
void add_tensor_functions(PyObject* module);  // tensor_methods.cpp: helpers' registration

// index.cpp
PyObject* tensor_subscript(PyObject* self, PyObject* index);
int tensor_assign_subscript(PyObject* self, PyObject* index, PyObject* value);

// construct.cpp: a new tensor of nested sequences, numbers, arrays or tensors.
Tensor make_tensor(const char* function, PyObject* data, const DType* dtype);
// Itself, or what it is on another device; recorded.
Tensor on_device(Tensor t, Device device);
Tensor as_tensor(const char* function, PyObject* data, const DType* dtype, bool copy);
// A Python number (NumPy's too); false without exception for anything else.
bool to_scalar(PyObject* o, Scalar& s);
// numpy.cpp: memory of an object with the array interface, shared.
bool has_array_interface(PyObject* o);
Tensor from_array_interface(const char* function, PyObject* o);
PyObject* to_numpy(const Tensor& t);
bool is_storage(
    PyObject* o);  // facula.storage's: its _as_tensor(dtype or None) gives a tensor over its memory

}  // namespace facula::bind
