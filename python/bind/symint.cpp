#include "symint.h"

#include <limits>

#include "facula/autograd/batch.h"
#include "facula/io/program.h"
#include "facula/op/call.h"
#include "facula/sym/substitute.h"
#include "tensor.h"
#include "trampoline.h"
#include "types.h"

namespace facula::bind {

namespace {

PyTypeObject* SymIntType;

struct PySymInt {
  PyObject ob_base;
  SymInt size;
};

SymInt stored_size(PyObject* o) { return reinterpret_cast<PySymInt*>(o)->size; }

bool to_size(PyObject* o, SymInt& s) {
  if (is_symint(o)) {
    s = symint_of(o);
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

// The number; the program is then for this size alone. Raises where there is none yet.
PyObject* number(PyObject* o) {
  return guarded([&] { return PyLong_FromLongLong(symint_of(o).guard_int()); });
}
PyRef plain(PyObject* o) { return is_symint(o) ? PyRef(number(o)) : PyRef::share(o); }
PyObject* real(PyObject* o) {
  return guarded([&] { return PyFloat_FromDouble(double(symint_of(o).guard_int())); });
}

bool is_number(PyObject* o) {
  return is_symint(o) || PyLong_Check(o) || PyFloat_Check(o) || PyComplex_Check(o);
}
// f of the numbers.
template <class F>
PyObject* on_numbers(PyObject* a, PyObject* b, F&& f) {
  if (!is_number(a) || !is_number(b)) Py_RETURN_NOTIMPLEMENTED;
  PyRef x = plain(a), y = x ? plain(b) : PyRef();
  return y ? f(x.get(), y.get()) : nullptr;
}
template <PyObject* (*f)(PyObject*, PyObject*)>
PyObject* numeric(PyObject* a, PyObject* b) {
  return on_numbers(a, b, f);
}
PyObject* power(PyObject* a, PyObject* b, PyObject* modulus) {
  return on_numbers(a, b, [&](PyObject* x, PyObject* y) { return PyNumber_Power(x, y, modulus); });
}
template <PyObject* (*f)(PyObject*)>
PyObject* numeric(PyObject* o) {
  PyRef x = plain(o);
  return x ? f(x.get()) : nullptr;
}

SymInt added(SymInt a, SymInt b) { return a + b; }
SymInt subtracted(SymInt a, SymInt b) { return a - b; }
SymInt multiplied(SymInt a, SymInt b) { return a * b; }
SymInt divided(SymInt a, SymInt b) { return a / b; }
SymInt remaining(SymInt a, SymInt b) { return a % b; }

// A binary operator on sizes; other operands are handled by numbers.
template <SymInt (*f)(SymInt, SymInt), PyObject* (*on_plain)(PyObject*, PyObject*)>
PyObject* binary(PyObject* a, PyObject* b) {
  SymInt x, y;
  bool by_zero = PyLong_Check(b) && (f == divided || f == remaining) && !PyObject_IsTrue(b);
  if (by_zero || !to_size(a, x) || !to_size(b, y)) return on_numbers(a, b, on_plain);
  return guarded([&] { return wrap_int(f(x, y)); });
}

// A function of two sizes or ints; of ints it returns an int.
template <SymInt (*f)(SymInt, SymInt)>
PyObject* of_two(PyObject*, PyObject* const* args, Py_ssize_t n) {
  SymInt x, y;
  if (n == 2 && to_size(args[0], x) && to_size(args[1], y)) return guarded([&] { return wrap_int(f(x, y)); });
  PyErr_SetString(PyExc_TypeError, "expected two sizes");
  return nullptr;
}
SymInt larger(SymInt a, SymInt b) { return max(a, b); }
SymInt smaller(SymInt a, SymInt b) { return min(a, b); }

PyObject* negative(PyObject* o) {
  return guarded([&] { return wrap_int(-symint_of(o)); });
}
PyObject* itself(PyObject* o) { return Py_NewRef(o); }
int truth(PyObject* o) {
  bool is = false;
  if (guarded_int([&] { is = symint_of(o) != SymInt(int64_t(0)); }) < 0) return -1;
  return is;
}

PyObject* compare(PyObject* a, PyObject* b, int op) {
  SymInt x, y;
  if (!to_size(a, x) || !to_size(b, y))
    return on_numbers(a, b, [&](PyObject* i, PyObject* j) { return PyObject_RichCompare(i, j, op); });
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

// Equal to the hash of the number.
Py_hash_t hash(PyObject* o) {
  if (sym::is_run_time(stored_size(o))) return Py_hash_t(stored_size(o).identity() >> 4);
  PyRef n(number(o));
  return n ? PyObject_Hash(n.get()) : -1;
}
PyObject* repr(PyObject* o) {
  return guarded([&] { return PyUnicode_FromString(to_string(symint_of(o)).c_str()); });
}
PyObject* format(PyObject* o, PyObject* how) {
  if (PyUnicode_Check(how) && !PyUnicode_GET_LENGTH(how)) return repr(o);
  PyRef n(number(o));
  return n ? PyObject_Format(n.get(), how) : nullptr;
}
PyObject* reduce(PyObject* o, PyObject*) {
  PyRef n(number(o));
  return n ? Py_BuildValue("O(O)", &PyLong_Type, n.get()) : nullptr;
}
PyObject* rounded(PyObject* o, PyObject*) { return itself(o); }
PyObject* get_class(PyObject*, void*) { return Py_NewRef(reinterpret_cast<PyObject*>(&PyLong_Type)); }
// Attributes that SymInt lacks are those of the number.
PyObject* attribute(PyObject* o, PyObject* name) {
  PyObject* found = PyObject_GenericGetAttr(o, name);
  if (found || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
  PyObject *type, *error, *trace;
  PyErr_Fetch(&type, &error, &trace);
  if (!PyObject_HasAttr(reinterpret_cast<PyObject*>(&PyLong_Type), name)) {
    PyErr_Restore(type, error, trace);
    return nullptr;
  }
  for (auto* p : {type, error, trace}) Py_XDECREF(p);
  PyRef n(number(o));
  return n ? PyObject_GetAttr(n.get(), name) : nullptr;
}
void dealloc(PyObject* o) {
  PyTypeObject* type = Py_TYPE(o);
  PyObject_Free(o);
  Py_DECREF(type);
}

PyMethodDef methods[] = {{"__format__", format, METH_O, nullptr},
                         {"__reduce__", reduce, METH_NOARGS, nullptr},
                         {"__round__", rounded, METH_VARARGS, nullptr},
                         {"__trunc__", rounded, METH_NOARGS, nullptr},
                         {"__floor__", rounded, METH_NOARGS, nullptr},
                         {"__ceil__", rounded, METH_NOARGS, nullptr},
                         {nullptr, nullptr, 0, nullptr}};
PyGetSetDef properties[] = {{"__class__", get_class, nullptr, "int: programs ask isinstance(size, int)",
                             nullptr},
                            {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
    {Py_tp_repr, reinterpret_cast<void*>(repr)},
    {Py_tp_hash, reinterpret_cast<void*>(hash)},
    {Py_tp_richcompare, reinterpret_cast<void*>(compare)},
    {Py_tp_getattro, reinterpret_cast<void*>(attribute)},
    {Py_tp_methods, methods},
    {Py_tp_getset, properties},
    {Py_nb_add, reinterpret_cast<void*>(binary<added, PyNumber_Add>)},
    {Py_nb_subtract, reinterpret_cast<void*>(binary<subtracted, PyNumber_Subtract>)},
    {Py_nb_multiply, reinterpret_cast<void*>(binary<multiplied, PyNumber_Multiply>)},
    {Py_nb_floor_divide, reinterpret_cast<void*>(binary<divided, PyNumber_FloorDivide>)},
    {Py_nb_remainder, reinterpret_cast<void*>(binary<remaining, PyNumber_Remainder>)},
    {Py_nb_true_divide, reinterpret_cast<void*>(static_cast<binaryfunc>(numeric<PyNumber_TrueDivide>))},
    {Py_nb_divmod, reinterpret_cast<void*>(static_cast<binaryfunc>(numeric<PyNumber_Divmod>))},
    {Py_nb_lshift, reinterpret_cast<void*>(static_cast<binaryfunc>(numeric<PyNumber_Lshift>))},
    {Py_nb_rshift, reinterpret_cast<void*>(static_cast<binaryfunc>(numeric<PyNumber_Rshift>))},
    {Py_nb_and, reinterpret_cast<void*>(static_cast<binaryfunc>(numeric<PyNumber_And>))},
    {Py_nb_or, reinterpret_cast<void*>(static_cast<binaryfunc>(numeric<PyNumber_Or>))},
    {Py_nb_xor, reinterpret_cast<void*>(static_cast<binaryfunc>(numeric<PyNumber_Xor>))},
    {Py_nb_power, reinterpret_cast<void*>(power)},
    {Py_nb_negative, reinterpret_cast<void*>(negative)},
    {Py_nb_positive, reinterpret_cast<void*>(itself)},
    {Py_nb_absolute, reinterpret_cast<void*>(static_cast<unaryfunc>(numeric<PyNumber_Absolute>))},
    {Py_nb_invert, reinterpret_cast<void*>(static_cast<unaryfunc>(numeric<PyNumber_Invert>))},
    {Py_nb_bool, reinterpret_cast<void*>(truth)},
    {Py_nb_int, reinterpret_cast<void*>(number)},
    {Py_nb_index, reinterpret_cast<void*>(number)},
    {Py_nb_float, reinterpret_cast<void*>(real)},
    {Py_tp_doc,
     const_cast<char*>("A size in the trace of a function: a number, or an expression over sizes.")},
    {0, nullptr}};
PyType_Spec spec = {"facula.SymInt", sizeof(PySymInt), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

}  // namespace

bool is_symint(PyObject* o) { return Py_TYPE(o) == SymIntType; }

SymInt symint_of(PyObject* o) {
  SymInt s = stored_size(o);
  auto* shapes = sym::Shapes::current();
  if (sym::is_run_time(s) || (shapes && sym::is_of(s, *shapes))) return s;
  return s.hint();
}

bool has_traced_integers(const Tensor& t) {
  auto* mode = op::Mode::current();
  return t.is_traced() && category(t.dtype()) == Category::integral && mode && mode->records() &&
         !autograd::batch_level(t);
}

SymInt size_of_traced(const Tensor& t) { return item_as_size(t); }

std::optional<SymInt> size_of_traced(PyObject* o) {
  if (!is_tensor(o) || !impl_of(o)->sizes.empty()) return {};
  Tensor t = tensor_of(o);
  return has_traced_integers(t) ? std::optional(size_of_traced(t)) : std::nullopt;
}

PyObject* wrap_symint(SymInt size) {
  auto* o = PyObject_New(PySymInt, SymIntType);
  if (o) o->size = size;
  return reinterpret_cast<PyObject*>(o);
}

void add_symint(PyObject* module) {
  static PyMethodDef functions[] = {
      {"sym_max", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(of_two<larger>)), METH_FASTCALL,
       "The larger of two sizes."},
      {"sym_min", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(of_two<smaller>)), METH_FASTCALL,
       "The smaller of two sizes."},
      {nullptr, nullptr, 0, nullptr}};
  SymIntType = add_type(module, &spec);
  if (PyModule_AddFunctions(module, functions) < 0) throw PythonError();
}

}  // namespace facula::bind
