// Tensors from Python data: tensor(), as_tensor(), asarray(); numbers of Python and NumPy.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "facula/autograd/autograd.h"
#include "facula/autograd/tracing.h"
#include "facula/base/warning.h"
#include "facula/op/factory.h"
#include "facula/tensor/promotion.h"
#include "override.h"
#include "symint.h"
#include "tensor.h"
#include "trampoline.h"
#include "types.h"

namespace facula::bind {

bool to_scalar(PyObject* o, Scalar& s) {
  PyTypeObject* t = Py_TYPE(o);
  if (is_symint(o)) {
    s = Scalar(symint_of(o).guard_int());
    return true;
  }
  if (PyLong_Check(o)) {
    if (PyBool_Check(o)) {
      s = Scalar(o == Py_True);
      return true;
    }
    int overflow;
    int64_t i = PyLong_AsLongLongAndOverflow(o, &overflow);
    if (uint64_t large = overflow > 0 ? PyLong_AsUnsignedLongLong(o) : 0; overflow > 0 && !PyErr_Occurred()) {
      s = Scalar::of_unsigned(large);
      return true;
    }
    if (overflow) {
      PyErr_SetString(PyExc_OverflowError, "Python int too large to convert to an integer of 64 bits");
      throw PythonError();
    }
    s = Scalar(i);
    return true;
  }
  if (PyFloat_Check(o)) {
    s = Scalar(PyFloat_AS_DOUBLE(o));
    return true;
  }
  if (PyComplex_Check(o)) {
    s = Scalar(std::complex<double>(PyComplex_RealAsDouble(o), PyComplex_ImagAsDouble(o)));
    return true;
  }
  if (o == Py_None || PyUnicode_Check(o) || PyTuple_Check(o) || PyList_Check(o) || is_tensor(o) ||
      !is_numpy_scalar(o))
    return false;
  if (strstr(t->tp_name, "bool")) {
    s = Scalar(PyObject_IsTrue(o) == 1);
    return true;
  }
  if (PyIndex_Check(o)) {
    PyRef i = checked(PyNumber_Index(o));
    return to_scalar(i.get(), s);
  }
  PyRef plain = checked(PyObject_CallMethod(o, "item", nullptr));
  return !is_numpy_scalar(plain.get()) && to_scalar(plain.get(), s);
}

namespace {

// The dtype of one element of nested data.
DType element_type(const char* function, PyObject* o) {
  if (PyBool_Check(o)) return DType::Bool;
  if (PyLong_Check(o)) return DType::Int64;
  if (PyFloat_CheckExact(o)) return default_dtype();
  if (is_tensor(o)) return impl_of(o)->dtype;
  if (has_array_interface(o)) return from_array_interface(function, o).dtype();  // NumPy's scalars and arrays
  if (PyFloat_Check(o)) return default_dtype();
  if (PyComplex_Check(o)) return complex_of(default_dtype());
  if (PyUnicode_Check(o)) {
    PyErr_Format(PyExc_TypeError, "%s(): invalid data type 'str'", function);
    throw PythonError();
  }
  if (PyIndex_Check(o)) return DType::Int64;
  runtime_check(false, function) << "could not infer dtype of " << Py_TYPE(o)->tp_name;
  __builtin_unreachable();
}

bool is_nested(PyObject* o) {
  if (PyList_Check(o) || PyTuple_Check(o)) return true;
  if (PyFloat_Check(o) || PyLong_Check(o) || PyUnicode_Check(o) || PyBytes_Check(o) || is_tensor(o))
    return false;
  return PySequence_Check(o) && !is_numpy_scalar(o);
}

constexpr int kMaxDepth = 64;

constexpr const char* kTooLong = "%s: a Python int does not fit into 64 bits";

struct Nested {
  const char* function;
  Ints sizes;
  DType type{};
  bool any = false;

  std::vector<std::pair<int64_t, SymInt>> later;  // elements that a traced function's program knows alone

  explicit Nested(const char* f) : function(f) {}
  void meet(DType d) {
    type = any ? promote(type, d) : d;
    any = true;
  }
  // Sizes along the first elements.
  void measure(PyObject* o) {
    while (is_nested(o)) {
      Py_ssize_t n = PySequence_Size(o);
      if (n < 0) throw PythonError();
      sizes.push_back(n);
      value_check(sizes.size() <= kMaxDepth, function)
          << "too many dimensions (nested deeper than " << kMaxDepth << ")";
      if (!n) return;
      if (PyList_Check(o) || PyTuple_Check(o)) {
        o = PySequence_Fast_GET_ITEM(o, 0);
      } else {
        holder_ = checked(PySequence_GetItem(o, 0));
        o = holder_.get();
      }
      value_check(!PyUnicode_Check(o), function) << "too many dimensions 'str'";
    }
  }
  // Checks that every level has its size, and finds the common type.
  void infer(PyObject* o, size_t level) {
    if (level == sizes.size()) {
      if (PyFloat_CheckExact(o)) {
        if (!any || type != default_dtype()) meet(default_dtype());
        return;
      }
      if (PyLong_CheckExact(o)) {
        if (!any || type == DType::Bool) meet(DType::Int64);
        return;
      }
      if (size_of(o)) return meet(DType::Int64);
      type_check(!is_nested(o), function) << "expected a number at depth " << level << ", but got a sequence";
      value_check(!is_tensor(o) || tensor_of(o).numel() == SymInt(int64_t(1)), function)
          << "only one element tensors can be converted to Python scalars"
          << hint("facula.stack() joins tensors");
      meet(element_type(function, o));
      return;
    }
    each(o, level, [&](PyObject* item) { infer(item, level + 1); });
  }
  void fill(PyObject* o, size_t level, char*& to, DType d) {
    if (level < sizes.size()) {
      each(o, level, [&](PyObject* item) { fill(item, level + 1, to, d); });
      return;
    }
    if (PyFloat_CheckExact(o) && d == DType::Float32) {
      float f = float(PyFloat_AS_DOUBLE(o));
      std::memcpy(to, &f, sizeof f);
    } else {
      Scalar s;
      if (auto size = size_of(o)) {
        later.push_back({position, *size});
        s = Scalar(int64_t(0));
      } else if (is_tensor(o)) s = tensor_of(o).item();
      else if (!to_scalar(o, s)) {
        PyRef i = checked(PyNumber_Index(o));
        if (!to_scalar(i.get(), s)) element_type(function, o);
      }
      store(s, d, to);
    }
    to += itemsize(d);
    ++position;
  }
  // `t`, which was filled, with the elements that are left.
  Tensor completed(Tensor t) {
    if (later.empty()) return t;
    static const op::Operator& slice_op = operator_named("slice");
    Tensor flat = run_operator(operator_named("view"), {t, int64_t(-1)})[0];
    std::vector<Tensor> parts;
    int64_t done = 0;
    auto keep_until = [&](int64_t end) {
      if (end > done) parts.push_back(run_operator(slice_op, {flat, 0, done, end, 1})[0]);
      done = end + 1;
    };
    for (auto& [at, size] : later) {
      keep_until(at);
      parts.push_back(run_operator(operator_named("full"), {int64_t(1), size, t.dtype()})[0]);
    }
    keep_until(position);
    Tensor all = run_operator(operator_named("cat"), {std::span<const Tensor>(parts)})[0];
    return run_operator(operator_named("view"), {all, t.sizes()})[0];
  }
  void store(const Scalar& s, DType d, void* to) const {
    type_check(s.category() != Category::complex || is_complex(d) || d == DType::Bool, function)
        << "must be a real number for dtype " << name(d) << ", not the complex " << s;
    bool too_long = s.is_beyond_int64() && is_integral(d) && d != DType::UInt64;
    if (too_long || (d == DType::UInt64 && s.category() == Category::integral && !s.is_beyond_int64() &&
                     s.to_int() < 0)) {
      PyErr_Format(PyExc_OverflowError, too_long ? kTooLong : "%s: can't convert negative int to unsigned",
                   function);
      throw PythonError();
    }
    type_check(d != DType::UInt64 || s.category() <= Category::integral, function)
        << "must be an integer for dtype uint64, not " << s;
    runtime_check(!is_integral(d) || !overflows(s, d), function)  // too large for a float: infinite
        << "value " << s << " cannot be converted to type " << name(d) << " without overflow";
    s.store(d, to);
  }

 private:
  template <class F>
  void each(PyObject* o, size_t level, F&& f) {
    Py_ssize_t n = is_nested(o) ? PySequence_Size(o) : -1;
    if (n < 0 && PyErr_Occurred()) throw PythonError();
    type_check(n >= 0, function) << "not a sequence: expected a sequence of length " << sizes[level]
                                 << " at dim " << level << ", but got " << Py_TYPE(o)->tp_name;
    value_check(n == sizes[level], function)
        << "expected sequence of length " << sizes[level] << " at dim " << level << " (got " << n << ")";
    if (PyList_Check(o)) {  // its items may change while we look at them
      for (Py_ssize_t i = 0; i < n && i < PyList_GET_SIZE(o); ++i) f(PyList_GET_ITEM(o, i));
    } else if (PyTuple_Check(o)) {
      for (Py_ssize_t i = 0; i < n; ++i) f(PyTuple_GET_ITEM(o, i));
    } else {
      for (Py_ssize_t i = 0; i < n; ++i) {
        PyRef item = checked(PySequence_GetItem(o, i));
        f(item.get());
      }
    }
  }
  // A size of a traced function, or a tensor of it with an integer.
  static std::optional<SymInt> size_of(PyObject* o) {
    if (!is_symint(o)) return size_of_traced(o);
    SymInt s = symint_of(o);
    return s.is_symbolic() ? std::optional(s) : std::nullopt;
  }
  int64_t position = 0;  // of the element that is filled next
  PyRef holder_;
};

Tensor cast(const Tensor& t, DType d) {
  return t.dtype() == d ? t : run_operator(operator_named("to_dtype"), {t, d})[0];
}
Tensor fresh_copy(const Tensor& t, const DType* d) {
  autograd::GradMode off(false);
  if (d && *d != t.dtype()) return cast(t, *d);
  return run_operator(operator_named("clone"), {t})[0];
}

}  // namespace

Tensor make_tensor(const char* function, PyObject* data, const DType* dtype) {
  if (is_tensor(data)) return fresh_copy(tensor_of(data), dtype);
  bool sequence = PyList_Check(data) || PyTuple_Check(data);
  if (!sequence && has_array_interface(data)) return fresh_copy(from_array_interface(function, data), dtype);
  PyRef array;  // of what can make one: pandas' series, arrays of other libraries
  if (!sequence && is_nested(data) && PyObject_HasAttrString(data, "__array__")) {
    array = checked(PyObject_CallMethod(data, "__array__", nullptr));
    if (has_array_interface(array.get()))
      return fresh_copy(from_array_interface(function, array.get()), dtype);
    data = array.get();
  }
  Nested n(function);
  n.measure(data);
  struct Overflow {  // of an element is a ValueError, as in PyTorch, of an operand an OverflowError
    const char* function;
    bool is_unsigned;
    ~Overflow() {
      if (is_unsigned || !PyErr_Occurred() || !PyErr_ExceptionMatches(PyExc_OverflowError)) return;
      PyErr_Clear();
      PyErr_Format(PyExc_ValueError, kTooLong, function);
    }
  } overflow{function, dtype && *dtype == DType::UInt64};
  if (!dtype || n.sizes.size()) n.infer(data, 0);  // also checks that it is no ragged list
  DType d = dtype ? *dtype : n.any ? n.type : default_dtype();
  Tensor t = Tensor::empty(IntSpan(n.sizes), d);
  char* to = static_cast<char*>(t.impl()->data_ptr());
  n.fill(data, 0, to, d);
  return n.completed(std::move(t));
}

Tensor on_device(Tensor t, Device device) {
  return numbered(device) == t.device() ? t : run_operator(operator_named("_to_device"), {t, device})[0];
}

Tensor as_tensor(const char* function, PyObject* data, const DType* dtype, bool copy) {
  if (!copy && is_tensor(data)) return dtype ? cast(tensor_of(data), *dtype) : tensor_of(data);
  if (!copy && !PyList_Check(data) && !PyTuple_Check(data) && has_array_interface(data)) {
    Tensor t = from_array_interface(function, data);
    return dtype ? cast(t, *dtype) : t;
  }
  if (is_storage(data)) {
    PyRef wanted(dtype ? wrap(*dtype) : Py_NewRef(Py_None));
    PyRef made = checked(PyObject_CallMethodOneArg(data, names::_as_tensor, wanted.get()));
    return copy ? fresh_copy(tensor_of(made.get()), nullptr) : tensor_of(made.get());
  }
  return make_tensor(function, data, dtype);
}

namespace {

struct Options {
  bool has_dtype = false;
  DType dtype{};
  Device device{};
  bool has_device = false, requires_grad = false, copy = false;
  // The tensor on the requested device; without a request it stays on its device.
  Tensor place(Tensor made) const { return has_device ? on_device(std::move(made), device) : made; }
};

bool take_options(const char* function, PyObject** v, Options& o) {  // dtype, device, requires_grad
  if (v[0] && v[0] != Py_None) {
    o.has_dtype = to_dtype(v[0], o.dtype);
    if (!o.has_dtype) {
      PyErr_Format(PyExc_TypeError, "%s(): argument 'dtype' must be %s.dtype, not %s", function,
                   package_name(), Py_TYPE(v[0])->tp_name);
      return false;
    }
  }
  if (v[1] && v[1] != Py_None && !to_device(v[1], o.device)) {
    PyErr_Format(PyExc_TypeError, "%s(): argument 'device' must be %s.device, not %s", function,
                 package_name(), Py_TYPE(v[1])->tp_name);
    return false;
  }
  o.has_device = (v[1] && v[1] != Py_None) || default_device().type != DeviceType::cpu;
  if (!v[1] || v[1] == Py_None) o.device = default_device();
  op::check_can_hold(function, o.device);
  if (v[2] && !PyBool_Check(v[2])) {
    PyErr_Format(PyExc_TypeError, "%s(): argument 'requires_grad' must be bool, not %s", function,
                 Py_TYPE(v[2])->tp_name);
    return false;
  }
  o.requires_grad = v[2] == Py_True;
  return true;
}

// A tensor made of Python's data: while a function is traced, another one at each call of the program.
Tensor made_anew(Tensor t) {
  return autograd::Tracing::current() && !t.is_traced() ? run_operator(operator_named("_copied"), {t})[0] : t;
}

// PyTorch's warning for data that another function handles better.
void warn_of_data(PyObject* data) {
  if (is_tensor(data))
    warn(
        "To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
        "sourceTensor.detach().clone().requires_grad_(True), rather than torch.tensor(sourceTensor).");
  bool arrays = PyList_Check(data) && PyList_GET_SIZE(data) > 0;
  if (PyObject* first = arrays ? PyList_GET_ITEM(data, 0) : nullptr;
      first && !is_tensor(first) && is_nested(first) && has_array_interface(first))
    warn_once(
        "Creating a tensor from a list of numpy.ndarrays is extremely slow. Please consider converting the list to a single numpy.ndarray "
        "with numpy.array() before converting to a tensor.");
}

// Asks the modes, and arguments that are no tensors and have a __torch_function__, to make the call of a function of this
// module. The result is null, without an error, where nobody takes the call. Data in lists is not searched.
PyObject* taken_over(PyObject* module, const char* name, PyObject* const* args, Py_ssize_t n,
                     PyObject* kwnames) {
  if (overrides_disabled()) return nullptr;
  Py_ssize_t all = n + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  bool taken = modes_active || std::any_of(args, args + all, [](PyObject* o) {
                 return !is_tensor(o) && has_torch_function(o);
               });
  if (!taken) return nullptr;
  PyRef function(PyObject_GetAttrString(module, name));
  return function ? call_override(function.get(), nullptr, args, n, kwnames) : nullptr;
}

PyObject* tensor(PyObject* module, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  if (PyObject* taken = taken_over(module, "tensor", args, n, kwnames)) return taken;
  if (PyErr_Occurred()) return nullptr;
  return guarded("tensor", [&]() -> PyObject* {
    static const char* const spec[] = {"data", "dtype", "device", "requires_grad", "pin_memory", nullptr};
    PyObject* v[5];
    Options o;
    if (!take_arguments("tensor", spec, 1, args, n, kwnames, v, 1) || !take_options("tensor", v + 1, o))
      return nullptr;
    warn_of_data(v[0]);
    Tensor t = o.place(make_tensor("tensor", v[0], o.has_dtype ? &o.dtype : nullptr));
    if (o.requires_grad) autograd::set_requires_grad(t, true);
    return wrap(o.requires_grad ? std::move(t) : made_anew(std::move(t)));
  });
}
PyObject* as_tensor_function(PyObject* module, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  if (PyObject* taken = taken_over(module, "as_tensor", args, n, kwnames)) return taken;
  if (PyErr_Occurred()) return nullptr;
  return guarded("as_tensor", [&]() -> PyObject* {
    static const char* const spec[] = {"data", "dtype", "device", nullptr};
    PyObject* v[4] = {};
    Options o;
    if (!take_arguments("as_tensor", spec, 1, args, n, kwnames, v) || !take_options("as_tensor", v + 1, o))
      return nullptr;
    if (is_tensor(v[0]) && (!o.has_dtype || o.dtype == impl_of(v[0])->dtype) &&
        (!o.has_device || o.device == impl_of(v[0])->device))
      return Py_NewRef(v[0]);
    Tensor t = o.place(as_tensor("as_tensor", v[0], o.has_dtype ? &o.dtype : nullptr, false));
    return wrap(is_tensor(v[0]) || has_array_interface(v[0]) ? std::move(t) : made_anew(std::move(t)));
  });
}
PyObject* asarray(PyObject* module, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  if (PyObject* taken = taken_over(module, "asarray", args, n, kwnames)) return taken;
  if (PyErr_Occurred()) return nullptr;
  return guarded("asarray", [&]() -> PyObject* {
    static const char* const spec[] = {"obj", "dtype", "device", "requires_grad", "copy", nullptr};
    PyObject* v[5];
    Options o;
    if (!take_arguments("asarray", spec, 1, args, n, kwnames, v, 1)) return nullptr;
    bool copy = v[4] && v[4] != Py_None && is_true(v[4]);
    bool says_gradient = v[3] && v[3] != Py_None;
    if (!says_gradient) v[3] = nullptr;
    if (!take_options("asarray", v + 1, o)) return nullptr;
    bool same_type = !o.has_dtype || (is_tensor(v[0]) && o.dtype == impl_of(v[0])->dtype);
    bool same_place = !o.has_device || !is_tensor(v[0]) || o.device == impl_of(v[0])->device;
    bool itself = !copy && is_tensor(v[0]) && same_type && same_place;
    if (v[4] == Py_False && !itself && (is_tensor(v[0]) || PyList_Check(v[0]) || PyTuple_Check(v[0]))) {
      PyErr_SetString(PyExc_ValueError,
                      is_tensor(v[0]) ? "asarray: can't alias a tensor as one of another dtype or device"
                                      : "asarray: can't alias arbitrary sequence into a tensor.");
      return nullptr;
    }
    bool recorded = is_tensor(v[0]) && copy && same_type && same_place;
    Tensor t =
        itself ? tensor_of(v[0])
        : recorded
            ? run_operator(operator_named("clone"), {tensor_of(v[0])})[0]
            : o.place(as_tensor("asarray", v[0], o.has_dtype ? &o.dtype : nullptr, copy && !is_tensor(v[0])));
    if (says_gradient && !o.requires_grad && !autograd::is_leaf(t)) {
      t = t.detached();
      itself = false;
    } else if (says_gradient && o.requires_grad != t.requires_grad()) {
      autograd::set_requires_grad(t, o.requires_grad);  // of a tensor that is given back: its own
    }
    return itself ? Py_NewRef(v[0]) : wrap(std::move(t));
  });
}
// The two dtypes that a function gets.
bool take_dtypes(const char* function, const char* const* spec, PyObject* const* args, Py_ssize_t n,
                 PyObject* kwnames, DType* types) {
  PyObject* v[2];
  if (!take_arguments(function, spec, 2, args, n, kwnames, v)) return false;
  type_check(to_dtype(v[0], types[0]) && to_dtype(v[1], types[1]), function) << "expected two dtypes";
  return true;
}
PyObject* promote_types(PyObject* module, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  if (PyObject* taken = taken_over(module, "promote_types", args, n, kwnames)) return taken;
  if (PyErr_Occurred()) return nullptr;
  return guarded("promote_types", [&]() -> PyObject* {
    static const char* const spec[] = {"type1", "type2", nullptr};
    DType types[2];
    if (!take_dtypes("promote_types", spec, args, n, kwnames, types)) return nullptr;
    return wrap(promote(types[0], types[1]));
  });
}
PyObject* can_cast_function(PyObject* module, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  if (PyObject* taken = taken_over(module, "can_cast", args, n, kwnames)) return taken;
  if (PyErr_Occurred()) return nullptr;
  return guarded("can_cast", [&]() -> PyObject* {
    static const char* const spec[] = {"from_", "to", nullptr};
    DType types[2];
    if (!take_dtypes("can_cast", spec, args, n, kwnames, types)) return nullptr;
    return PyBool_FromLong(can_cast(types[0], types[1]));
  });
}

SymInt one_size(PyObject* o) {
  if (is_symint(o)) return symint_of(o);
  PyRef index = checked(PyNumber_Index(o));
  int64_t n = PyLong_AsLongLong(index.get());
  if (n == -1 && PyErr_Occurred()) throw PythonError();
  value_check(n >= 0, "broadcast_shapes") << "expected sizes that are not negative, got " << n;
  return n;
}
PyObject* broadcast_shapes(PyObject*, PyObject* args) {
  return guarded("broadcast_shapes", [&]() -> PyObject* {
    std::vector<Dims> shapes;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(args); ++k) {
      PyObject* o = PyTuple_GET_ITEM(args, k);
      Dims& sizes = shapes.emplace_back();
      if (is_symint(o) || PyIndex_Check(o)) {
        sizes.push_back(one_size(o));
        continue;
      }
      PyRef items = checked(PySequence_Fast(o, "broadcast_shapes(): expected numbers, or sequences of them"));
      for (Py_ssize_t j = 0; j < PySequence_Fast_GET_SIZE(items.get()); ++j)
        sizes.push_back(one_size(PySequence_Fast_GET_ITEM(items.get(), j)));
    }
    std::vector<SymSpan> spans(shapes.begin(), shapes.end());
    return wrap_sizes(broadcast_sizes("broadcast_shapes", spans));
  });
}

PyMethodDef functions[] = {
    {"tensor", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(tensor)),
     METH_FASTCALL | METH_KEYWORDS,
     "tensor(data, *, dtype=None, device=None, requires_grad=False) -> Tensor, a copy of data"},
    {"as_tensor", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(as_tensor_function)),
     METH_FASTCALL | METH_KEYWORDS,
     "as_tensor(data, dtype=None, device=None) -> Tensor, sharing memory where possible"},
    {"asarray", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(asarray)),
     METH_FASTCALL | METH_KEYWORDS,
     "asarray(obj, *, dtype=None, device=None, copy=None, requires_grad=False) -> Tensor"},
    {"broadcast_shapes", broadcast_shapes, METH_VARARGS,
     "broadcast_shapes(*shapes): the common shape that these broadcast to"},
    {"can_cast", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(can_cast_function)),
     METH_FASTCALL | METH_KEYWORDS, "can_cast(from_, to): may results of type from_ be written to type to?"},
    {"promote_types", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(promote_types)),
     METH_FASTCALL | METH_KEYWORDS, "promote_types(type1, type2) -> dtype of a mixed result"},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

void add_construct(PyObject* module) { add_functions(module, functions); }

}  // namespace facula::bind
