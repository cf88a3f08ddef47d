#include "run_time_size.h"

#include <limits>

#include "tensor.h"
#include "types.h"

namespace facula::bind {

namespace {

PyTypeObject* RunTimeSizeType;

struct RunTimeSize {
  PyObject ob_base;
  SymInt size;
};

bool to_size(PyObject* o, SymInt& s) {
  if (is_run_time_size(o)) {
    s = run_time_size_of(o);
    return true;
  }
  if (!PyLong_Check(o)) return false;
  int overflow;
  int64_t i = PyLong_AsLongLongAndOverflow(o, &overflow);
  s = overflow > 0   ? std::numeric_limits<int64_t>::max()
      : overflow < 0 ? std::numeric_limits<int64_t>::min()
                     : i;
  return true;
}

SymInt added(SymInt a, SymInt b) { return a + b; }
SymInt subtracted(SymInt a, SymInt b) { return a - b; }
SymInt multiplied(SymInt a, SymInt b) { return a * b; }
SymInt divided(SymInt a, SymInt b) { return a / b; }
SymInt remaining(SymInt a, SymInt b) { return a % b; }

// What only a number can be raises, and says that there is none yet.
PyObject* number(PyObject* o) {
  return guarded([&] { return PyLong_FromLongLong(run_time_size_of(o).guard_int()); });
}
PyObject* real(PyObject* o) {
  return guarded([&] { return PyFloat_FromDouble(double(run_time_size_of(o).guard_int())); });
}

template <SymInt (*f)(SymInt, SymInt)>
PyObject* binary(PyObject* a, PyObject* b) {
  SymInt x, y;
  if (PyFloat_Check(a) || PyFloat_Check(b)) return real(PyFloat_Check(a) ? b : a);
  if (!to_size(a, x) || !to_size(b, y)) Py_RETURN_NOTIMPLEMENTED;
  return guarded([&] { return wrap_int(f(x, y)); });
}

PyObject* negative(PyObject* o) {
  return guarded([&] { return wrap_int(-run_time_size_of(o)); });
}
PyObject* quotient(PyObject* a, PyObject* b) {
  if (!is_run_time_size(a) && !is_run_time_size(b)) Py_RETURN_NOTIMPLEMENTED;
  if (is_tensor(a) || is_tensor(b)) Py_RETURN_NOTIMPLEMENTED;
  return real(is_run_time_size(a) ? a : b);
}
int truth(PyObject* o) {
  bool is = false;
  if (guarded_int([&] { is = run_time_size_of(o) != SymInt(int64_t(0)); }) < 0) return -1;
  return is;
}

PyObject* compare(PyObject* a, PyObject* b, int op) {
  SymInt x, y;
  if (!to_size(a, x) || !to_size(b, y)) Py_RETURN_NOTIMPLEMENTED;
  return guarded([&]() -> PyObject* {
    switch (op) {
      case Py_EQ: return PyBool_FromLong(x == y);
      case Py_NE: return PyBool_FromLong(x != y);
      case Py_LT: return PyBool_FromLong(x < y);
      case Py_LE: return PyBool_FromLong(x <= y);
      case Py_GT: return PyBool_FromLong(x > y);
      default: return PyBool_FromLong(x >= y);
    }
  });
}

Py_hash_t hash(PyObject* o) { return Py_hash_t(run_time_size_of(o).identity() >> 4); }
PyObject* repr(PyObject* o) {
  return guarded([&] { return PyUnicode_FromString(to_string(run_time_size_of(o)).c_str()); });
}
void dealloc(PyObject* o) {
  PyTypeObject* type = Py_TYPE(o);
  PyObject_Free(o);
  Py_DECREF(type);
}

PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
                       {Py_tp_repr, reinterpret_cast<void*>(repr)},
                       {Py_tp_hash, reinterpret_cast<void*>(hash)},
                       {Py_tp_richcompare, reinterpret_cast<void*>(compare)},
                       {Py_nb_add, reinterpret_cast<void*>(binary<added>)},
                       {Py_nb_subtract, reinterpret_cast<void*>(binary<subtracted>)},
                       {Py_nb_multiply, reinterpret_cast<void*>(binary<multiplied>)},
                       {Py_nb_floor_divide, reinterpret_cast<void*>(binary<divided>)},
                       {Py_nb_remainder, reinterpret_cast<void*>(binary<remaining>)},
                       {Py_nb_true_divide, reinterpret_cast<void*>(quotient)},
                       {Py_nb_negative, reinterpret_cast<void*>(negative)},
                       {Py_nb_bool, reinterpret_cast<void*>(truth)},
                       {Py_nb_int, reinterpret_cast<void*>(number)},
                       {Py_nb_index, reinterpret_cast<void*>(number)},
                       {Py_nb_float, reinterpret_cast<void*>(real)},
                       {Py_tp_doc, const_cast<char*>("A size that is known only when a program runs.")},
                       {0, nullptr}};
PyType_Spec spec = {"facula.RunTimeSize", sizeof(RunTimeSize), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

}  // namespace

bool is_run_time_size(PyObject* o) { return Py_TYPE(o) == RunTimeSizeType; }
SymInt run_time_size_of(PyObject* o) { return reinterpret_cast<RunTimeSize*>(o)->size; }

PyObject* wrap_run_time_size(SymInt size) {
  auto* o = PyObject_New(RunTimeSize, RunTimeSizeType);
  if (o) o->size = size;
  return reinterpret_cast<PyObject*>(o);
}

void add_run_time_size(PyObject* module) { RunTimeSizeType = add_type(module, &spec); }

}  // namespace facula::bind
