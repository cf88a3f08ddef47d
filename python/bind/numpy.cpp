// NumPy arrays without NumPy's headers: both ways through the array interface (a dict with address, sizes,
// strides and type).
#include <cstddef>
#include <optional>

#include "facula/base/warning.h"
#include "facula/tensor/resize.h"
#include "tensor.h"
#include "types.h"

namespace facula::bind {

namespace {

// A dtype as NumPy writes it; empty if it has none.
std::string typestr(DType d) {
  if (compute_type(d) != d && d != DType::Float16) return "";
  char kind = is_bool(d) ? 'b' : is_integral(d) ? (is_signed(d) ? 'i' : 'u') : is_floating(d) ? 'f' : 'c';
  return std::string(1, itemsize(d) == 1 ? '|' : '<') + kind + std::to_string(itemsize(d));
}
std::optional<DType> from_typestr(std::string_view s) {
  if (s.size() < 3 || s[0] == '>') return {};
  for (int i = 0; i < kDTypeCount; ++i)
    if (std::string known = typestr(DType(i)); !known.empty() && s.substr(1) == known.substr(1))
      return DType(i);
  return {};
}

Ints ints_of(PyObject* tuple) {
  Ints v;
  PyRef fast = checked(PySequence_Fast(tuple, "the array interface must have tuples"));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast.get()); ++i) {
    v.push_back(PyLong_AsLongLong(PySequence_Fast_GET_ITEM(fast.get(), i)));
    if (PyErr_Occurred()) throw PythonError();
  }
  return v;
}

// Keeps a tensor alive for the array that looks at its memory.
struct Holder {
  PyObject_HEAD Tensor* tensor;
  Lent* lent;
};
PyTypeObject* HolderType;
PyObject* numpy_asarray;

PyObject* holder_interface(PyObject* self, void*) {
  return guarded([&]() -> PyObject* {
    const Tensor& t = *reinterpret_cast<Holder*>(self)->tensor;
    PyRef sizes = checked(PyTuple_New(t.dim())), strides = checked(PyTuple_New(t.dim()));
    for (int i = 0; i < t.dim(); ++i) {
      PyTuple_SET_ITEM(sizes.get(), i, PyLong_FromLongLong(t.int_sizes()[size_t(i)]));
      PyTuple_SET_ITEM(strides.get(), i, PyLong_FromLongLong(t.int_strides()[size_t(i)] * t.itemsize()));
    }
    // NumPy before 2.4 refuses address 0, which a tensor without elements may have.
    static char no_elements[alignof(std::max_align_t)];
    void* data = t.data_ptr() ? t.data_ptr() : no_elements;
    return Py_BuildValue("{s:i,s:s,s:O,s:O,s:(NO)}", "version", 3, "typestr", typestr(t.dtype()).c_str(),
                         "shape", sizes.get(), "strides", strides.get(), "data", PyLong_FromVoidPtr(data),
                         Py_False);
  });
}
void holder_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  delete reinterpret_cast<Holder*>(self)->lent;
  delete reinterpret_cast<Holder*>(self)->tensor;
  PyObject_Free(self);
  Py_DECREF(type);
}
PyGetSetDef holder_getset[] = {{"__array_interface__", holder_interface, nullptr, nullptr, nullptr},
                               {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot holder_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(holder_dealloc)},
                              {Py_tp_getset, holder_getset},
                              {0, nullptr}};
PyType_Spec holder_spec = {"facula._C.ArrayHolder", sizeof(Holder), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, holder_slots};

void warn_of_read_only(PyObject* array) {
  PyRef interface = checked(PyObject_GetAttrString(array, "__array_interface__"));
  PyObject* data = PyDict_Check(interface.get()) ? PyDict_GetItemString(interface.get(), "data") : nullptr;
  if (data && PyTuple_Check(data) && PyTuple_GET_SIZE(data) == 2 && PyTuple_GET_ITEM(data, 1) == Py_True)
    warn_once(
        "The given NumPy array is not writable, and PyTorch does not support non-writable tensors. This means writing to this tensor will "
        "result in undefined behavior. You may want to copy the array to protect its data or make it writable before converting it to a "
        "tensor. This type of warning will be suppressed for the rest of this program.");
}

PyObject* from_numpy(PyObject*, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  return guarded("from_numpy", [&]() -> PyObject* {
    static const char* const spec[] = {"ndarray", nullptr};
    PyObject* array;
    if (!take_arguments("from_numpy", spec, 1, args, n, kwnames, &array)) return nullptr;
    if (!has_array_interface(array)) {
      PyErr_Format(PyExc_TypeError, "expected np.ndarray (got %s)", Py_TYPE(array)->tp_name);
      return nullptr;
    }
    Tensor t = from_array_interface("from_numpy", array);
    warn_of_read_only(array);
    return wrap(std::move(t));
  });
}

// The memory of an object with the buffer protocol, as a 1-d tensor.
PyObject* frombuffer(PyObject*, PyObject* args, PyObject* kwargs) {
  return guarded("frombuffer", [&]() -> PyObject* {
    static const char* keywords[] = {"buffer", "dtype", "count", "offset", "requires_grad", nullptr};
    PyObject *object, *type = nullptr;
    Py_ssize_t count = -1, offset = 0;
    int requires_grad = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$Onnp:frombuffer", const_cast<char**>(keywords),
                                     &object, &type, &count, &offset, &requires_grad))
      return nullptr;
    type_check(type, "frombuffer") << "missing required keyword argument 'dtype'";
    DType d;
    type_check(to_dtype(type, d), "frombuffer")
        << "argument 'dtype' must be a dtype, not " << Py_TYPE(type)->tp_name;
    Py_ssize_t width = itemsize(d);
    auto buffer = std::make_shared<Py_buffer>();
    if (PyObject_GetBuffer(object, buffer.get(), PyBUF_WRITABLE) < 0) {
      PyErr_Clear();
      if (PyObject_GetBuffer(object, buffer.get(), PyBUF_SIMPLE) < 0) return nullptr;
      warn_once(
          "The given buffer is not writable, and PyTorch does not support non-writable tensors. This means you can write to the underlying "
          "(supposedly non-writable) buffer using the tensor. You may want to copy the buffer to protect its data or make it writable "
          "before converting it to a tensor. This type of warning will be suppressed for the rest of this program.");
    }
    std::shared_ptr<void> release(nullptr, [buffer](void*) {
      if (Py_IsInitialized()) {
        WithGil gil;
        PyBuffer_Release(buffer.get());
      }
    });
    value_check(offset >= 0 && offset < buffer->len, "frombuffer")
        << "offset (" << offset << ") must be within the buffer of " << buffer->len << " bytes";
    Py_ssize_t rest = buffer->len - offset;
    if (count < 0) {
      value_check(rest % width == 0, "frombuffer")
          << "buffer length (" << rest << " bytes) after offset (" << offset
          << " bytes) must be a multiple of element size (" << width << ")";
      count = rest / width;
    }
    value_check(count > 0 && count <= rest / width, "frombuffer")
        << "requested buffer length (" << count << " elements of " << width
        << " bytes) is outside of the buffer of " << buffer->len << " bytes";
    Tensor t = Tensor::from_blob(static_cast<char*>(buffer->buf) + offset, IntSpan(Ints{count}),
                                 IntSpan(Ints{1}), d, [release] {});
    if (requires_grad) t.impl()->requires_grad = true;
    return wrap(std::move(t));
  });
}

PyMethodDef functions[] = {
    {"from_numpy", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(from_numpy)),
     METH_FASTCALL | METH_KEYWORDS, "from_numpy(ndarray) -> Tensor sharing the memory"},
    {"frombuffer", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(frombuffer)),
     METH_VARARGS | METH_KEYWORDS,
     "frombuffer(buffer, *, dtype, count=-1, offset=0, requires_grad=False) -> Tensor sharing the memory"},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

// Does its type have an attribute of this name? Not asked of what most data are.
static bool declares(PyObject* o, PyObject* name) {
  PyTypeObject* t = Py_TYPE(o);
  if (t == &PyLong_Type || t == &PyFloat_Type || t == &PyBool_Type || t == &PyList_Type ||
      t == &PyTuple_Type || t == &PyUnicode_Type)
    return false;
  return _PyType_Lookup(t, name);
}
bool has_array_interface(PyObject* o) { return declares(o, names::__array_interface__); }
bool is_storage(PyObject* o) { return declares(o, names::_as_tensor); }

Tensor from_array_interface(const char* function, PyObject* o) {
  PyRef dict = checked(PyObject_GetAttr(o, names::__array_interface__));
  auto item = [&](const char* key) {
    PyObject* v = PyDict_Check(dict.get()) ? PyDict_GetItemString(dict.get(), key) : nullptr;
    return v == Py_None ? nullptr : v;
  };
  PyObject *type = item("typestr"), *shape = item("shape"), *data = item("data"), *strides = item("strides");
  type_check(type && shape && data && PyTuple_Check(data), function)
      << "the array interface of " << Py_TYPE(o)->tp_name << " lacks typestr, shape or data";
  auto d = from_typestr(text_of(type));
  std::string_view given = text_of(type);
  value_check(d || !given.starts_with('>') || given.ends_with('1'), function)
      << "given numpy array has byte order different from the native byte order. Conversion between byte orders is currently not supported."
      << hint("a.astype(a.dtype.newbyteorder('=')) converts");
  type_check(d, function)
      << "can't convert np.ndarray of type " << text_of(type)
      << ". The only supported types are: float64, float32, float16, complex64, complex128, int64, int32, int16, "
         "int8, uint64, uint32, uint16, uint8, and bool, in the machine's byte order.";
  Ints sizes = ints_of(shape), steps;
  if (strides) {
    for (int64_t bytes : ints_of(strides)) {
      value_check(bytes >= 0, function)
          << "at least one stride in the given numpy array is negative, and tensors with negative strides "
             "are not supported."
          << hint("make a copy with array.copy()");
      value_check(bytes % itemsize(*d) == 0, function)
          << "given numpy array strides are not a multiple of the element byte size."
          << hint("make a copy with array.copy()");
      steps.push_back(bytes / itemsize(*d));
    }
  } else {
    int64_t step = 1;
    steps.resize(sizes.size());
    for (size_t i = sizes.size(); i-- > 0; step *= sizes[i]) steps[i] = step;
  }
  void* at = PyLong_AsVoidPtr(PyTuple_GET_ITEM(data, 0));
  if (!at && PyErr_Occurred()) throw PythonError();
  // A NumPy scalar's memory may be its own; the dict of a 0-d temporary owns an array then. Keep both.
  auto kept =
      std::make_shared<std::pair<AnyThreadRef, AnyThreadRef>>(AnyThreadRef(o), AnyThreadRef(dict.get()));
  return Tensor::from_blob(at, IntSpan(sizes), IntSpan(steps), *d, [kept] {});
}

PyObject* to_numpy(const Tensor& t) {
  type_check(!typestr(t.dtype()).empty(), "numpy")
      << "Got unsupported ScalarType " << name(t.dtype()) << hint("convert with .float() first");
  if (!numpy_asarray) {
    PyRef module = checked(PyImport_ImportModule("numpy"));
    numpy_asarray = checked(PyObject_GetAttrString(module.get(), "asarray")).detach();
  }
  auto* h = PyObject_New(Holder, HolderType);
  if (!h) throw PythonError();
  h->tensor = new Tensor(t);
  h->lent = new Lent(t.impl()->storage);
  PyRef holder(reinterpret_cast<PyObject*>(h));
  return checked(PyObject_CallOneArg(numpy_asarray, holder.get())).detach();
}

void add_numpy(PyObject* module) {
  HolderType = add_type(module, &holder_spec);
  add_functions(module, functions);
}

}  // namespace facula::bind
