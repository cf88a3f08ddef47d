// tensor[...] and tensor[...] = value. Integers, slices, None and Ellipsis make views, one operator each;
// tensors, lists and masks are collected by dimension and read through `index`, written through `index_put`.
#include <algorithm>
#include <cmath>
#include <limits>

#include "facula/autograd/batch.h"
#include "facula/base/warning.h"
#include "facula/tensor/promotion.h"
#include "facula/tensor/sparse.h"
#include "override.h"
#include "symint.h"
#include "tensor.h"
#include "trampoline.h"

namespace facula::bind {

namespace {

const op::Operator& select_op() {
  static const op::Operator& o = operator_named("select");
  return o;
}
const op::Operator& slice_op() {
  static const op::Operator& o = operator_named("slice");
  return o;
}

bool is_mask(const Tensor& t) { return t.dtype() == DType::Bool || t.dtype() == DType::UInt8; }

Tensor select(const Tensor& t, int dim, SymInt i) {
  index_check(t.dim() > 0, "index") << "invalid index of a 0-dim tensor."
                                    << hint("use tensor.item() to convert it to a number");
  int64_t n = t.size(dim).hint();
  index_check(i.is_symbolic() || sym::is_run_time(t.size(dim)) || (i.concrete() >= -n && i.concrete() < n),
              "index")
      << "index " << i << " is out of bounds for dimension " << dim << " with size " << n;
  return run_operator(select_op(), {t, dim, i})[0];
}

// An index that is a size of a traced function, or a tensor with an element that says one.
std::optional<SymInt> size_as_index(PyObject* o) {
  if (is_symint(o)) return symint_of(o);
  return is_tensor(o) && impl_of(o)->dtype != DType::UInt8 ? size_of_traced(o) : std::nullopt;
}

SymInt whole(PyObject* o) {
  PyRef i = checked(PyNumber_Index(o));
  int64_t n = PyLong_AsLongLong(i.get());
  if (n == -1 && PyErr_Occurred()) throw PythonError();
  return n;
}

Tensor slice(const Tensor& t, int dim, PyObject* s, bool& changed) {
  auto* py = reinterpret_cast<PySliceObject*>(s);
  if (py->start == Py_None && py->stop == Py_None && py->step == Py_None) return t;
  auto size = [](PyObject* o) -> std::optional<SymInt> {
    if (o == Py_None || PyLong_CheckExact(o)) return std::nullopt;
    return is_symint(o) ? symint_of(o) : size_of_traced(o);
  };
  if (auto from = size(py->start), to = size(py->stop); from || to) {
    auto bound = [](PyObject* o, std::optional<SymInt> n) {
      return n ? op::Value(*n) : o == Py_None ? op::Value() : op::Value(whole(o));
    };
    changed = true;
    op::Value step = bound(py->step, size(py->step));
    return run_operator(slice_op(), {t, dim, bound(py->start, from), bound(py->stop, to),
                                     step.is_none() ? op::Value(int64_t(1)) : step})[0];
  }
  Py_ssize_t start, stop, step;
  if (PySlice_Unpack(s, &start, &stop, &step) < 0) throw PythonError();
  value_check(step > 0, "slice") << "step must be greater than zero";
  constexpr Py_ssize_t far = Py_ssize_t(1) << 60;
  auto clip = [](Py_ssize_t i) { return int64_t(i > far ? far : i < -far ? -far : i); };
  changed = true;
  op::Value to = py->stop == Py_None ? op::Value() : op::Value(clip(stop));
  return run_operator(slice_op(), {t, dim, py->start == Py_None ? op::Value() : op::Value(clip(start)), to,
                                   clip(step)})[0];
}

// The result of the views, and an index tensor (or nothing) for each of its dimensions.
struct Applied {
  Tensor view;
  std::vector<Tensor> indices;
  bool changed = false;
  bool advanced = false;
};

// An index that is no int, slice, None, Ellipsis or bool, as a tensor.
Tensor index_tensor(PyObject* o) {
  if (is_tensor(o)) return tensor_of(o);
  bool sequence = PySequence_Check(o) && !PyUnicode_Check(o) && !PyBytes_Check(o);
  index_check(sequence || has_array_interface(o), "index")
      << "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices (got "
      << Py_TYPE(o)->tp_name << ")";
  if (has_array_interface(o)) return from_array_interface("index", o);
  Tensor t = make_tensor("index", o, nullptr);
  if (t.numel() == 0 && is_floating(t.dtype())) t = Tensor::empty(t.sizes(), DType::Int64);  // x[[]]
  return t;
}

int64_t dims_used(PyObject* o) {
  if (o == Py_None || o == Py_Ellipsis || PyBool_Check(o)) return 0;
  if (is_tensor(o)) {
    Tensor t = tensor_of(o);
    return is_mask(t) ? t.dim() : 1;
  }
  return 1;
}

void add_index(Applied& a, int& dim, Tensor t) {
  index_check((is_integral(t.dtype()) && !is_limited(t.dtype())) || t.dtype() == DType::Bool, "index")
      << "tensors used as indices must be long, int, byte or bool tensors, not " << name(t.dtype());
  if (t.dtype() == DType::UInt8) {
    warn("indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead.");
    t = run_operator(operator_named("to_dtype"), {t, DType::Bool})[0];
  }
  int width = t.dtype() == DType::Bool ? t.dim() : 1;
  index_check(dim + width <= a.view.dim(), "index")
      << "too many indices for tensor of dimension " << a.view.dim();
  for (int k = 0; t.dtype() == DType::Bool && k < width; ++k) {
    index_check(t.size(k) == a.view.size(dim + k), "index")
        << "The shape of the mask " << to_string(t.sizes()) << " at index " << k
        << " does not match the shape of the indexed tensor " << to_string(a.view.sizes()) << " at index "
        << dim + k;
  }
  if (int(a.indices.size()) <= dim) a.indices.resize(size_t(dim) + 1);
  a.indices[size_t(dim)] = on_device(std::move(t), a.view.device());
  a.advanced = true;
  dim += width;
}

// True or False as an index: a new dimension of size 1, taken or not.
void add_bool(Applied& a, int& dim, bool taken) {
  a.view = run_operator(operator_named("unsqueeze"), {a.view, dim})[0];
  Tensor t = Tensor::empty(IntSpan(Ints{taken ? 1 : 0}), DType::Int64);
  if (taken) *t.data<int64_t>() = 0;
  add_index(a, dim, std::move(t));
}

void apply_one(Applied& a, int& dim, PyObject* o, int64_t skipped) {
  if (PyBool_Check(o)) {
    add_bool(a, dim, o == Py_True);
  } else if (PyLong_Check(o)) {
    int64_t i = PyLong_AsLongLong(o);
    if (i == -1 && PyErr_Occurred()) {
      PyErr_Clear();
      value_check(false, "index") << "index does not fit in 64 bits";
    }
    constexpr int64_t far = int64_t(1) << 60;
    a.view = select(a.view, dim, std::clamp(i, -far, far));
    a.changed = true;
  } else if (PySlice_Check(o)) {
    index_check(a.view.dim() > 0, "index") << "slice() cannot be applied to a 0-dim tensor.";
    a.view = slice(a.view, dim++, o, a.changed);
  } else if (o == Py_Ellipsis) {
    dim += int(skipped);
  } else if (o == Py_None) {
    a.view = run_operator(operator_named("unsqueeze"), {a.view, dim++})[0];
    a.changed = true;
  } else if (auto size = size_as_index(o)) {
    a.view = select(a.view, dim, *size);
    a.changed = true;
  } else if (!is_tensor(o) && PyIndex_Check(o) && !has_array_interface(o)) {
    PyRef whole = checked(PyNumber_Index(o));
    apply_one(a, dim, whole.get(), skipped);
  } else if (is_numpy_scalar(o)) {
    PyRef plain = checked(PyObject_CallMethod(o, "item", nullptr));
    apply_one(a, dim, plain.get(), skipped);
  } else {
    Tensor t = index_tensor(o);
    bool differs = autograd::batch_level(t) != 0;  // from call to call of a batch
    if (t.dim() == 0 && is_integral(t.dtype()) && t.dtype() != DType::UInt8 && !differs) {
      check_has_data(t, "item");
      a.view = select(a.view, dim, t.item().to_int());
      a.changed = true;
    } else if (t.dim() == 0 && is_mask(t)) {
      check_has_data(t, "bool");
      add_bool(a, dim, t.item().to_bool());
    } else {
      add_index(a, dim, std::move(t));
    }
  }
}

// A mask of one element whose value is not known yet: all of the tensor, or nothing.
bool is_traced_flag(PyObject* index) {
  if (!is_tensor(index)) return false;
  Tensor t = tensor_of(index);
  return t.is_traced() && t.dim() == 0 && t.dtype() == DType::Bool;
}

// NumPy's old rule, which PyTorch keeps: a short list that holds sequences, tensors, slices, None or Ellipsis
// is a tuple.
bool is_tuple_like(PyObject* index) {
  if (!PyList_Check(index) || PyList_GET_SIZE(index) >= 32) return false;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(index); ++i) {
    PyObject* o = PyList_GET_ITEM(index, i);
    if (is_tensor(o) || PySequence_Check(o) || PySlice_Check(o) || o == Py_Ellipsis || o == Py_None)
      return true;
  }
  return false;
}

Applied apply(Tensor self, PyObject* index) {
  int dim = 0, rank = self.dim();
  if (is_tuple_like(index)) {
    PyRef items = checked(PyList_AsTuple(index));
    return apply(std::move(self), items.get());
  }
  Applied a{std::move(self), {}};
  if (!PyTuple_Check(index)) {
    bool fits = dims_used(index) <= rank;
    index_check(fits || rank > 0, "index")
        << "invalid index of a 0-dim tensor." << hint("use tensor.item() to convert it to a number");
    index_check(fits, "index") << "too many indices for tensor of dimension " << rank;
    apply_one(a, dim, index, rank);
    return a;
  }
  int64_t used = 0;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(index); ++i) used += dims_used(PyTuple_GET_ITEM(index, i));
  index_check(used <= rank, "index") << "too many indices for tensor of dimension " << rank;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(index); ++i) {
    PyObject* o = PyTuple_GET_ITEM(index, i);
    apply_one(a, dim, o, rank - used);
    if (o == Py_Ellipsis) used = rank;  // another one takes no dimensions
  }
  return a;
}

op::Value as_value(const std::vector<Tensor>& indices) { return op::Value(std::span<const Tensor>(indices)); }

// The value to assign, without leading dimensions of size 1 beyond `rank` dimensions.
Tensor fitted(Tensor value, int rank) {
  int extra = 0;
  while (value.dim() - extra > rank && sym::must_equal(value.size(extra), SymInt(1))) ++extra;
  if (!extra) return value;
  Dims sizes(SymSpan(value.sizes()).subspan(size_t(extra)));
  return run_operator(operator_named("view"), {value, SymSpan(sizes)})[0];
}

PyObject* rewrapped(PyObject* self, Tensor t) {
  return override_of(Py_TYPE(self)) == Override::rewrap ? wrap_as(std::move(t), Py_TYPE(self))
                                                        : wrap(std::move(t));
}

PyObject* override_item(const char* name, PyObject* self, std::initializer_list<PyObject*> args) {
  PyRef method = checked(PyObject_GetAttrString(reinterpret_cast<PyObject*>(TensorType), name));
  return call_override(method.get(), self, args.begin(), Py_ssize_t(args.size()), nullptr);
}

// A number as it is assigned to elements of dtype `d`. As in PyTorch, what is too large for a 16-bit float is
// infinite.
Scalar assignable(const Scalar& s, DType d) {
  if (!overflows(s, d)) return s;
  bool real = s.category() != Category::complex || s.to_complex().imag() == 0;
  runtime_check(real && is_floating(d) && itemsize(d) == 2, "index_put_")
      << "value cannot be converted to type " << name(d) << " without overflow: it is " << s;
  return Scalar(std::copysign(std::numeric_limits<double>::infinity(), s.to_complex().real()));
}

// An assignment by the in-place form of `op`; what is wrong is said of the assignment.
void write(const char* op, std::initializer_list<op::Value> args) {
  try {
    run_operator(operator_named(op), args, op::Form::in_place);
  } catch (const Error& e) { throw e.from("index_put_"); }
}

}  // namespace

PyObject* tensor_subscript(PyObject* self, PyObject* index) {
  return guarded("index", [&]() -> PyObject* {
    if ((modes_active && !overrides_disabled()) ||
        (!is_plain(Py_TYPE(self)) && override_of(Py_TYPE(self)) == Override::taken))
      return override_item("__getitem__", self, {index});
    Tensor t = tensor_of(self);
    if (PyLong_CheckExact(index)) {
      int64_t i = PyLong_AsLongLong(index);
      if (!(i == -1 && PyErr_Occurred())) return rewrapped(self, select(t, 0, i));
      PyErr_Clear();
    }
    if (any_taken(&index, 1) && !overrides_disabled()) return override_item("__getitem__", self, {index});
    Applied a = apply(std::move(t), index);
    if (a.advanced)
      return rewrapped(self, run_operator(operator_named("index"), {a.view, as_value(a.indices)})[0]);
    if (!a.changed) a.view = run_operator(operator_named("view"), {a.view, a.view.sizes()})[0];
    return rewrapped(self, std::move(a.view));
  });
}

int tensor_assign_subscript(PyObject* self, PyObject* index, PyObject* value) {
  return guarded_int([&] {
    type_check(value, "index") << "Tensor does not support deleting items";
    PyObject* const operands[] = {self, index, value};
    if (!overrides_disabled() && (modes_active || any_taken(operands, 3))) {
      checked(override_item("__setitem__", self, {index, value}));
      return;
    }
    Tensor t = tensor_of(self);
    supported_check(!is_sparse(t), "index")
        << "elements of a tensor of a sparse layout cannot be assigned to"
        << hint("assign to those of to_dense(), or make another with sparse_coo_tensor");
    Scalar number;
    bool is_number = !is_tensor(value) && to_scalar(value, number);
    if (!is_number && !is_tensor(value)) {
      PyErr_Format(PyExc_TypeError, "can't assign a %s to a %s.Tensor", Py_TYPE(value)->tp_name,
                   package_name());
      throw PythonError();
    }
    if (is_number) number = assignable(number, t.dtype());
    if (is_traced_flag(index) && (is_number || tensor_of(value).dim() == 0)) {
      op::Value fill = is_number ? op::Value(number) : op::Value(tensor_of(value));
      write("masked_fill", {t, tensor_of(index), fill});
      return;
    }
    Applied a = apply(t, index);
    if (!a.advanced) {
      if (is_number) write("fill", {a.view, number});
      else write("copy", {a.view, fitted(tensor_of(value), a.view.dim())});
      return;
    }
    Tensor source = is_number ? Tensor::scalar(number, a.view.dtype(), a.view.device()) : tensor_of(value);
    if (a.indices.size() == 1 && a.indices[0].dtype() == DType::Bool && a.indices[0].dim() == a.view.dim() &&
        source.dim() == 0) {
      op::Value fill = is_number ? op::Value(number) : op::Value(source);
      write("masked_fill", {a.view, a.indices[0], fill});
      return;
    }
    // The value may have leading dimensions of size 1 that the picked elements lack, as in PyTorch.
    write("index_put", {a.view, as_value(a.indices), fitted(source, 0)});
  });
}

}  // namespace facula::bind
