// facula.Size: the tuple subclass that `shape` and `size()` give. Slices, sums and products of Sizes are
// Sizes.
#include "symint.h"
#include "types.h"

namespace facula::bind {

PyTypeObject* SizeType;

PyObject* wrap_int(SymInt i) {
  if (i.is_symbolic()) [[unlikely]]
    return wrap_symint(i);
  return PyLong_FromLongLong(i.concrete());
}

static void fill(PyObject* tuple, SymSpan ints) {
  for (size_t i = 0; i < ints.size(); ++i) {
    PyObject* item = wrap_int(ints[i]);
    if (!item) throw PythonError();
    PyTuple_SET_ITEM(tuple, Py_ssize_t(i), item);
  }
}

PyObject* wrap_ints(SymSpan ints) {
  PyRef t = checked(PyTuple_New(Py_ssize_t(ints.size())));
  fill(t.get(), ints);
  return t.detach();
}

PyObject* wrap_sizes(SymSpan sizes) {
  PyRef t = checked(SizeType->tp_alloc(SizeType, Py_ssize_t(sizes.size())));
  fill(t.get(), sizes);
  return t.detach();
}

namespace {

PyObject* as_size(PyObject* owned_tuple) {
  if (!owned_tuple || !PyTuple_Check(owned_tuple)) return owned_tuple;
  PyRef t(owned_tuple);
  Py_ssize_t n = PyTuple_GET_SIZE(owned_tuple);
  PyObject* s = SizeType->tp_alloc(SizeType, n);
  if (!s) return nullptr;
  for (Py_ssize_t i = 0; i < n; ++i) PyTuple_SET_ITEM(s, i, Py_NewRef(PyTuple_GET_ITEM(owned_tuple, i)));
  return s;
}

PyObject* size_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  PyObject* t = PyTuple_Type.tp_new(type, args, kwargs);
  if (!t) return nullptr;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(t); ++i) {
    PyObject* item = PyTuple_GET_ITEM(t, i);
    if (PyLong_Check(item) || is_symint(item)) continue;
    PyObject* whole = PyIndex_Check(item) ? PyNumber_Index(item) : nullptr;
    if (!whole) {
      PyErr_Format(PyExc_TypeError, "Size() takes an iterable of 'int' (item %zd is '%s')", i,
                   Py_TYPE(item)->tp_name);
      Py_DECREF(t);
      return nullptr;
    }
    PyTuple_SET_ITEM(t, i, whole);
    Py_DECREF(item);
  }
  return t;
}

PyObject* size_repr(PyObject* o) {
  PyRef list(PySequence_List(o));
  return list ? PyUnicode_FromFormat("%s.Size(%R)", package_name(), list.get()) : nullptr;
}
PyObject* size_numel(PyObject* o, PyObject*) {
  PyRef n(PyLong_FromLong(1));
  for (Py_ssize_t i = 0; n && i < PyTuple_GET_SIZE(o); ++i)
    n = PyRef(PyNumber_Multiply(n.get(), PyTuple_GET_ITEM(o, i)));
  return n.detach();
}
PyObject* size_subscript(PyObject* o, PyObject* key) {
  PyObject* r = PyTuple_Type.tp_as_mapping->mp_subscript(o, key);
  return PySlice_Check(key) ? as_size(r) : r;
}
PyObject* size_concat(PyObject* a, PyObject* b) {
  return as_size(PyTuple_Type.tp_as_sequence->sq_concat(a, b));
}
PyObject* size_repeat(PyObject* a, Py_ssize_t n) {
  return as_size(PyTuple_Type.tp_as_sequence->sq_repeat(a, n));
}
// A list, or a tuple that is no Size, on the left.
PyObject* size_add(PyObject* a, PyObject* b) {
  if (!PyTuple_Check(a) || !PyTuple_Check(b)) Py_RETURN_NOTIMPLEMENTED;
  return size_concat(a, b);
}
PyObject* size_reduce(PyObject* o, PyObject*) {
  PyRef list(PySequence_Tuple(o));
  if (!list) return nullptr;
  PyRef plain(PyTuple_New(PyTuple_GET_SIZE(o)));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); ++i)
    PyTuple_SET_ITEM(plain.get(), i, Py_NewRef(PyTuple_GET_ITEM(o, i)));
  return Py_BuildValue("O(O)", Py_TYPE(o), plain.get());
}

PyMethodDef methods[] = {{"numel", size_numel, METH_NOARGS,
                          "The number of elements of a tensor of this size."},
                         {"__reduce__", size_reduce, METH_NOARGS, nullptr},
                         {nullptr, nullptr, 0, nullptr}};
PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(size_new)},
                       {Py_tp_repr, reinterpret_cast<void*>(size_repr)},
                       {Py_mp_subscript, reinterpret_cast<void*>(size_subscript)},
                       {Py_sq_concat, reinterpret_cast<void*>(size_concat)},
                       {Py_sq_repeat, reinterpret_cast<void*>(size_repeat)},
                       {Py_nb_add, reinterpret_cast<void*>(size_add)},
                       {Py_tp_methods, methods},
                       {0, nullptr}};
PyType_Spec spec = {"facula.Size", 0, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

}  // namespace

void add_size(PyObject* module) { SizeType = add_type(module, &spec, &PyTuple_Type); }

}  // namespace facula::bind
