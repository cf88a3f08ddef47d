// Methods and attributes of Tensor that are no operators.
#include "autograd.h"
#include "facula/autograd/autograd.h"
#include "facula/autograd/data.h"
#include "facula/op/factory.h"
#include "facula/op/registry.h"
#include "facula/run/interpose.h"
#include "facula/run/open_trace.h"
#include "facula/tensor/resize.h"
#include "facula/tensor/sparse.h"
#include "override.h"
#include "parse.h"
#include "symint.h"
#include "tensor.h"
#include "trampoline.h"
#include "types.h"

namespace facula::bind {

PyObject* tensor_dlpack(PyObject* self, PyObject* const* args, Py_ssize_t n,
                        PyObject* kwnames);  // dlpack.cpp
PyObject* tensor_dlpack_device(PyObject* self, PyObject*);

namespace {

PyObject* reduce_helper;

using Fast = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);
inline PyMethodDef fast(const char* name, Fast f, const char* doc) {
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(f)), METH_FASTCALL | METH_KEYWORDS,
          doc};
}

// ---- geometry

PyObject* get_shape(PyObject* self, void*) {
  return guarded("shape", [&] { return wrap_sizes(impl_of(self)->sizes); });
}
PyObject* get_dtype(PyObject* self, void*) { return wrap(impl_of(self)->dtype); }
PyObject* get_device(PyObject* self, void*) {
  return guarded("device", [&] { return wrap(impl_of(self)->device); });
}
PyObject* get_layout(PyObject* self, void*) { return wrap(layout_of(impl_of(self))); }
PyObject* get_has_layout(PyObject* self, void* layout) {
  return PyBool_FromLong(layout_of(impl_of(self)) == *static_cast<const Layout*>(layout));
}
Layout coo = Layout::sparse_coo, csr = Layout::sparse_csr;
// (nnz, sparse dimensions, is it coalesced?) of a sparse tensor, None of another.
PyObject* sparse_info(PyObject* self, PyObject*) {
  return guarded("_sparse_info", [&]() -> PyObject* {
    Tensor t = tensor_of(self);
    if (!is_sparse(t)) Py_RETURN_NONE;
    auto& p = sparse_parts(t);
    return Py_BuildValue("LiO", (long long)p.nnz(), p.sparse_dims(), p.coalesced ? Py_True : Py_False);
  });
}
PyObject* set_coalesced(PyObject* self, PyObject* value) {
  return guarded("_coalesced_", [&]() -> PyObject* {
    Tensor t = tensor_of(self);
    runtime_check(is_coo(t), "_coalesced_") << "expected sparse coordinate tensor layout but got another";
    sparse_parts(t).coalesced = PyObject_IsTrue(value) == 1;
    return Py_NewRef(self);
  });
}
PyObject* get_ndim(PyObject* self, void*) { return PyLong_FromSize_t(impl_of(self)->sizes.size()); }
PyObject* dim(PyObject* self, PyObject*) { return get_ndim(self, nullptr); }
PyObject* numel(PyObject* self, PyObject*) {
  return guarded("nelement", [&] { return wrap_int(product(impl_of(self)->sizes)); });
}
PyObject* get_itemsize(PyObject* self, void*) { return PyLong_FromLong(itemsize(impl_of(self)->dtype)); }
PyObject* element_size(PyObject* self, PyObject*) { return get_itemsize(self, nullptr); }
PyObject* get_nbytes(PyObject* self, void*) {
  return guarded("nbytes", [&] {
    runtime_check(!is_sparse(impl_of(self)), "nbytes")
        << "nbytes is not defined for sparse tensors."
        << hint("add those of the indices and the values, or multiply numel() by element_size()");
    return wrap_int(product(impl_of(self)->sizes) * SymInt(itemsize(impl_of(self)->dtype)));
  });
}
PyObject* storage_offset(PyObject* self, PyObject*) {
  return guarded("storage_offset", [&] { return wrap_int(impl_of(self)->offset); });
}
PyObject* data_ptr(PyObject* self, PyObject*) {
  return guarded("data_ptr", [&] {
    Tensor t = tensor_of(self);
    bool nowhere =
        t.device().type == DeviceType::meta || (t.impl()->storage && is_released(*t.impl()->storage));
    return nowhere ? PyLong_FromLong(0) : PyLong_FromVoidPtr(t.data_ptr());
  });
}

PyObject* one_or_all(const char* function, PyObject* self, PyObject* const* args, Py_ssize_t n,
                     PyObject* kwnames, bool sizes) {
  return guarded([&]() -> PyObject* {
    static const char* const spec[] = {"dim", nullptr};
    PyObject* dim;
    if (!take_arguments(function, spec, 0, args, n, kwnames, &dim)) return nullptr;
    TensorImpl* t = impl_of(self);
    if (!dim || dim == Py_None) return sizes ? wrap_sizes(t->sizes) : wrap_ints(t->strides);
    Py_ssize_t d = PyNumber_AsSsize_t(dim, PyExc_IndexError);
    if (d == -1 && PyErr_Occurred()) {
      prefix_python_error(std::string(function) + "(): argument 'dim': ");
      return nullptr;
    }
    Tensor whole = tensor_of(self);
    int k = wrap_dim(function, d, whole.dim());
    return wrap_int(sizes ? whole.size(k) : whole.stride(k));
  });
}
PyObject* size(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  return one_or_all("size", self, args, n, kwnames, true);
}
PyObject* stride(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  return one_or_all("stride", self, args, n, kwnames, false);
}
PyObject* is_contiguous(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  return guarded("is_contiguous", [&]() -> PyObject* {
    static const char* const spec[] = {"memory_format", nullptr};
    PyObject* format;
    if (!take_arguments("is_contiguous", spec, 0, args, n, kwnames, &format)) return nullptr;
    MemoryFormat f = MemoryFormat::contiguous;
    type_check(!format || to_format(format, f), "is_contiguous")
        << "memory_format must be a facula.memory_format, not " << Py_TYPE(format)->tp_name;
    return PyBool_FromLong(tensor_of(self).is_contiguous(f) && !is_sparse(impl_of(self)));
  });
}
PyObject* is_floating_point(PyObject* self, PyObject*) {
  return PyBool_FromLong(is_floating(impl_of(self)->dtype));
}
PyObject* is_complex_(PyObject* self, PyObject*) { return PyBool_FromLong(is_complex(impl_of(self)->dtype)); }
PyObject* is_signed(PyObject* self, PyObject*) {
  return PyBool_FromLong(facula::is_signed(impl_of(self)->dtype));
}
PyObject* get_false(PyObject*, void*) { Py_RETURN_FALSE; }
PyObject* get_is_cpu(PyObject* self, void*) {
  return PyBool_FromLong(impl_of(self)->device.type == DeviceType::cpu);
}
PyObject* get_is_cuda(PyObject* self, void*) {
  return PyBool_FromLong(impl_of(self)->device.type == DeviceType::cuda);
}
PyObject* get_output_nr(PyObject* self, void*) {
  return guarded("output_nr", [&] {
    Tensor t = tensor_of(self);
    auto* m = autograd::meta_of(t);
    return PyLong_FromLong(m && m->node ? m->result : 0);
  });
}
PyObject* get_is_meta(PyObject* self, void*) {
  return PyBool_FromLong(impl_of(self)->device.type == DeviceType::meta);
}
PyObject* get_device_number(PyObject* self, PyObject*) {
  return PyLong_FromLong(impl_of(self)->device.index);
}

// ---- values

PyObject* item(PyObject* self, PyObject*) {
  return guarded("item", [&] {
    Tensor t = tensor_of(self);
    runtime_check(t.numel() == 1, "item")
        << "a Tensor with " << to_string(t.numel()) << " elements cannot be converted to Scalar";
    if (has_traced_integers(t)) return wrap_int(size_of_traced(t));
    check_has_data(t, "item");
    return wrap_number(t.item());
  });
}

PyObject* list_of(const char* data, IntSpan sizes, IntSpan strides, DType d) {
  if (sizes.empty()) return wrap_number(Scalar::load(d, data));
  PyRef list = checked(PyList_New(Py_ssize_t(sizes[0])));
  int64_t step = strides[0] * itemsize(d);
  for (int64_t i = 0; i < sizes[0]; ++i)
    PyList_SET_ITEM(list.get(), Py_ssize_t(i),
                    checked(list_of(data + i * step, sizes.subspan(1), strides.subspan(1), d)).detach());
  return list.detach();
}
// Its memory as what it says it is.
Tensor resolved(Tensor t) {
  if (t.impl()->conj) t = run_operator(operator_named("resolve_conj"), {t})[0];
  return t.impl()->neg ? run_operator(operator_named("resolve_neg"), {t})[0] : t;
}
void check_resolved(const Tensor& t) {
  const char* what = t.impl()->conj ? "conj" : "neg";
  runtime_check(!t.impl()->is_lazy(), "numpy")
      << "Can't call numpy() on Tensor that has " << (t.impl()->conj ? "conjugate" : "negative")
      << " bit set." << hint("use tensor.resolve_", what, "().numpy()");
}
PyObject* is_conj(PyObject* self, PyObject*) { return PyBool_FromLong(impl_of(self)->conj); }
PyObject* is_neg(PyObject* self, PyObject*) { return PyBool_FromLong(impl_of(self)->neg); }

PyObject* list_of_traced(const Tensor& t) {
  if (!t.dim()) return wrap_int(size_of_traced(t));
  int64_t n = t.size(0).guard_int();
  PyRef list = checked(PyList_New(Py_ssize_t(n)));
  for (int64_t i = 0; i < n; ++i)
    PyList_SET_ITEM(
        list.get(), Py_ssize_t(i),
        checked(list_of_traced(run_operator(operator_named("select"), {t, int64_t(0), i})[0])).detach());
  return list.detach();
}

PyObject* tolist(PyObject* self, PyObject*) {
  return guarded("tolist", [&] {
    if (Tensor t = tensor_of(self); has_traced_integers(t)) return list_of_traced(t);
    check_has_data(tensor_of(self), "tolist");
    Tensor t = resolved(tensor_of(self)).on_host();
    return list_of(static_cast<const char*>(t.data_ptr()), t.int_sizes(), t.int_strides(), t.dtype());
  });
}

PyObject* numpy(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  return guarded("numpy", [&]() -> PyObject* {
    static const char* const spec[] = {"force", nullptr};
    PyObject* force;
    if (!take_arguments("numpy", spec, 0, args, n, kwnames, &force, 0)) return nullptr;
    Tensor t = tensor_of(self);
    check_has_data(t, "numpy");
    runtime_check((force && is_true(force)) || !(t.requires_grad() && autograd::grad_enabled()), "numpy")
        << "Can't call numpy() on Tensor that requires grad." << hint("use tensor.detach().numpy()");
    if (force && is_true(force)) t = resolved(t);
    check_resolved(t);
    return to_numpy(t);
  });
}
PyObject* array(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  return guarded("__array__", [&]() -> PyObject* {
    static const char* const spec[] = {"dtype", "copy", nullptr};
    PyObject* v[2];
    if (!take_arguments("__array__", spec, 0, args, n, kwnames, v)) return nullptr;
    Tensor t = tensor_of(self);
    check_has_data(t, "numpy");
    runtime_check(!(t.requires_grad() && autograd::grad_enabled()), "numpy")
        << "Can't call numpy() on Tensor that requires grad." << hint("use tensor.detach().numpy()");
    check_resolved(t);
    PyRef result = checked(to_numpy(t));
    bool copy = v[1] && v[1] != Py_None && is_true(v[1]);
    if (v[0] && v[0] != Py_None) {
      PyRef astype = checked(PyObject_GetAttrString(result.get(), "astype"));
      PyRef positional = checked(PyTuple_Pack(1, v[0]));
      PyRef keywords = checked(Py_BuildValue("{s:O}", "copy", copy ? Py_True : Py_False));
      return PyObject_Call(astype.get(), positional.get(), keywords.get());
    }
    return copy ? PyObject_CallMethod(result.get(), "copy", nullptr) : result.detach();
  });
}

PyObject* format(PyObject* self, PyObject* spec) {
  return guarded("__format__", [&]() -> PyObject* {
    if (!PyUnicode_Check(spec) || PyUnicode_GET_LENGTH(spec) == 0) return PyObject_Str(self);
    Tensor t = tensor_of(self);
    type_check(t.dim() == 0, "format")
        << "unsupported format string passed to Tensor.__format__: a 0-d tensor is needed, not "
        << to_string(t.sizes());
    check_has_data(t, "item");
    PyRef number = checked(wrap_number(t.item()));
    return PyObject_Format(number.get(), spec);
  });
}

PyObject* to_complex_number(PyObject* self, PyObject*) {
  return guarded("__complex__", [&] {
    Tensor t = tensor_of(self);
    check_has_data(t, "item");
    warn_of_gradient(t);
    auto z = t.item().to_complex();
    return PyComplex_FromDoubles(z.real(), z.imag());
  });
}

// ---- conversion

PyObject* converted(PyObject* self, std::optional<DType> d, std::optional<Device> device, bool copy,
                    std::optional<MemoryFormat> f) {
  Tensor t = tensor_of(self), r = t;
  if (device) r = on_device(t, *device);
  if (d && *d != r.dtype()) r = run_operator(operator_named("to_dtype"), {r, *d})[0];
  if (f && *f != MemoryFormat::preserve && !r.is_contiguous(*f))
    r = run_operator(operator_named("contiguous"), {r, *f})[0];
  if (r.is_same(t)) {
    if (!copy) return Py_NewRef(self);
    r = run_operator(operator_named("clone"), {t})[0];
  }
  return override_of(Py_TYPE(self)) == Override::rewrap ? wrap_as(std::move(r), Py_TYPE(self))
                                                        : wrap(std::move(r));
}

PyObject* to(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  return guarded("to", [&]() -> PyObject* {
    std::optional<DType> d;
    std::optional<Device> device;
    std::optional<MemoryFormat> f;
    bool copy = false, seen_flag = false;
    auto take = [&](PyObject* o) {
      DType dt;
      Device dev;
      if (to_dtype(o, dt)) d = dt;
      else if (is_tensor(o)) {
        d = impl_of(o)->dtype;
        device = impl_of(o)->device;
      } else if (PyBool_Check(o)) {
        if (seen_flag) copy = o == Py_True;
        seen_flag = true;
      } else if (to_device(o, dev)) device = dev;
      else if (o != Py_None) return false;
      return true;
    };
    for (Py_ssize_t i = 0; i < n; ++i)
      if (!take(args[i])) {
        PyErr_Format(PyExc_TypeError,
                     "to(): argument (position %zd) must be a dtype, a device or a Tensor, not %s", i + 1,
                     Py_TYPE(args[i])->tp_name);
        return nullptr;
      }
    for (Py_ssize_t k = 0; kwnames && k < PyTuple_GET_SIZE(kwnames); ++k) {
      std::string_view key = text_of(PyTuple_GET_ITEM(kwnames, k));
      PyObject* o = args[n + k];
      MemoryFormat m;
      bool known = true, good = true;
      DType dt;
      if (key == "dtype") good = (o == Py_None || to_dtype(o, dt)) && take(o);
      else if (key == "device" || key == "other") good = !PyBool_Check(o) && take(o);
      else if (key == "copy") copy = is_true(o);
      else if (key == "memory_format" && o == Py_None) continue;
      else if (key == "memory_format") {
        good = to_format(o, m);
        f = m;
      } else known = key == "non_blocking";
      if (!known)
        return PyErr_Format(PyExc_TypeError, "to() got an unexpected keyword argument '%s'",
                            std::string(key).c_str());
      if (!good)
        return PyErr_Format(PyExc_TypeError, "to(): argument '%s' must be a %s, not %s",
                            std::string(key).c_str(), std::string(key).c_str(), Py_TYPE(o)->tp_name);
    }
    return converted(self, d, device, copy, f);
  });
}
// The name of a method, as an argument of a template.
template <size_t N>
struct Text {
  char at[N];
  constexpr Text(const char (&text)[N]) { std::copy_n(text, N, at); }
};
// A method of one argument, which may also be given by keyword.
template <PyCFunction F, Text Name, Text Parameter>
PyObject* with_one(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  static const char* const spec[] = {Parameter.at, nullptr};
  PyObject* one;
  return take_arguments(Name.at, spec, 1, args, n, kwnames, &one) ? F(self, one) : nullptr;
}
template <PyCFunction F, Text Name, Text Parameter>
PyMethodDef of_one(const char* doc) {
  return fast(Name.at, with_one<F, Name, Parameter>, doc);
}
template <int D, Text Name>
PyObject* as_dtype(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  return guarded(Name.at, [&]() -> PyObject* {
    static const char* const spec[] = {"memory_format", nullptr};
    PyObject* v[1];
    MemoryFormat f = MemoryFormat::preserve;
    if (!take_arguments(Name.at, spec, 0, args, n, kwnames, v, 0)) return nullptr;
    type_check(!v[0] || v[0] == Py_None || to_format(v[0], f), Name.at)
        << "memory_format must be a facula.memory_format, not " << Py_TYPE(v[0])->tp_name;
    return converted(self, DType(D), {}, false, f);
  });
}
template <int D, Text Name>
PyMethodDef conversion(const char* doc) {
  return fast(Name.at, as_dtype<D, Name>, doc);
}
PyObject* cpu(PyObject* self, PyObject* const*, Py_ssize_t, PyObject*) {
  return guarded("cpu", [&] { return converted(self, {}, Device{}, false, {}); });
}
PyObject* type_as(PyObject* self, PyObject* other) {
  return guarded("type_as", [&] {
    return converted(self, tensor_argument("type_as", "other", other).dtype(), {}, false, {});
  });
}
PyObject* type(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  return guarded("type", [&]() -> PyObject* {
    static const char* const spec[] = {"dtype", "non_blocking", nullptr};
    PyObject* v[2];
    if (!take_arguments("type", spec, 0, args, n, kwnames, v)) return nullptr;
    if (!v[0] || v[0] == Py_None)
      return PyUnicode_FromFormat("%s.%sTensor", package_name(), class_name(impl_of(self)->dtype));
    DType d;
    if (to_dtype(v[0], d)) return converted(self, d, {}, false, {});
    if (PyUnicode_Check(v[0])) {
      std::string_view text = text_of(v[0]);
      for (int i = 0; i < kDTypeCount; ++i)
        if (text.ends_with(std::string(".") + class_name(DType(i)) + "Tensor"))
          return converted(self, DType(i), {}, false, {});
    }
    if (PyRef kind{PyType_Check(v[0]) ? PyObject_GetAttrString(v[0], "dtype") : nullptr};
        kind && to_dtype(kind.get(), d))  // facula.FloatTensor
      return converted(self, d, {}, false, {});
    PyErr_Clear();
    return PyErr_Format(PyExc_TypeError,
                        "type(): dtype must be a dtype or a name as '%s.FloatTensor', not %s", package_name(),
                        Py_TYPE(v[0])->tp_name);
  });
}

PyObject* get_hermitian(PyObject* self, void* matrix) {
  return guarded("mH", [&]() -> PyObject* {
    Tensor t = tensor_of(self);
    bool any_rank = matrix != nullptr;
    runtime_check(t.dim() == 2 || t.dim() == 0 || (any_rank && t.dim() > 2), any_rank ? "mH" : "H")
        << (any_rank ? "only matrices or batches of matrices" : "only matrices (2-d tensors)")
        << " have this attribute, not " << to_string(t.sizes());
    if (t.dim() >= 2) t = run_operator(operator_named("transpose"), {t, -2, -1})[0];
    if (is_complex(t.dtype())) t = run_operator(operator_named("conj"), {t})[0];
    return wrap_like(self, std::move(t));
  });
}
PyObject* get_part(PyObject* self, void* name) {
  bool real = *static_cast<const char*>(name) == 'r';
  if (real && !is_complex(impl_of(self)->dtype)) return Py_NewRef(self);
  return call_method_operator(static_cast<const char*>(name), self);
}

// ---- gradients

PyObject* get_grad(PyObject* self, void*) {
  return guarded("grad", [&] {
    Tensor t = tensor_of(self), g = autograd::grad_of(t);
    if (!g.defined() && autograd::node_of(t) && !autograd::retains_grad(t) &&
        PyErr_WarnEx(
            PyExc_UserWarning,
            "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed: backward() fills that of "
            "leaves only. Call .retain_grad() on it before backward(), or access the leaf instead.",
            1) < 0)
      throw PythonError();
    return wrap(std::move(g));
  });
}
int set_grad(PyObject* self, PyObject* value, void*) {
  return guarded_int([&] {
    Tensor g = !value || value == Py_None ? Tensor() : tensor_argument("grad", "grad", value);
    runtime_check(!value || value != self, "grad") << "can't assign Variable as its own grad";
    autograd::set_grad(tensor_of(self), g);
  });
}
PyObject* get_requires_grad(PyObject* self, void*) {
  return guarded("requires_grad", [&] { return PyBool_FromLong(tensor_of(self).requires_grad()); });
}
int set_requires_grad(PyObject* self, PyObject* value, void*) {
  return guarded_int([&] {
    type_check(value && PyBool_Check(value), "requires_grad") << "requires_grad must be a bool";
    autograd::set_requires_grad(tensor_of(self), value == Py_True);
  });
}
PyObject* requires_grad_(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  return guarded("requires_grad_", [&]() -> PyObject* {
    static const char* const spec[] = {"requires_grad", nullptr};
    PyObject* value;
    if (!take_arguments("requires_grad_", spec, 0, args, n, kwnames, &value)) return nullptr;
    type_check(!value || PyBool_Check(value), "requires_grad_")
        << "requires_grad must be bool, not " << Py_TYPE(value)->tp_name;
    autograd::set_requires_grad(tensor_of(self), value != Py_False);
    return Py_NewRef(self);
  });
}
PyObject* get_grad_fn(PyObject* self, void*) {
  return guarded("grad_fn", [&] { return wrap_node(autograd::node_of(tensor_of(self))); });
}
PyObject* get_is_leaf(PyObject* self, void*) {
  return guarded("is_leaf", [&] { return PyBool_FromLong(autograd::is_leaf(tensor_of(self))); });
}
PyObject* get_retains_grad(PyObject* self, void*) {
  return guarded("retains_grad", [&] { return PyBool_FromLong(autograd::retains_grad(tensor_of(self))); });
}
PyObject* get_base(PyObject* self, void*) {
  return guarded("_base", [&] {
    auto* m = autograd::meta_of(tensor_of(self));
    return wrap(m ? m->base : Tensor());
  });
}
PyObject* is_view(PyObject* self, PyObject*) {
  auto* m = impl_of(self)->grad_slot.get();
  return PyBool_FromLong(m && m->base.defined());
}
PyObject* get_version(PyObject* self, void*) {
  return guarded("_version", [&] {
    runtime_check(!impl_of(self)->inference, "_version") << "Inference tensors do not track version counter.";
    return PyLong_FromUnsignedLong(tensor_of(self).version());
  });
}
// A number that two Python objects share if they are handles of one tensor.
PyObject* get_cdata(PyObject* self, void*) { return PyLong_FromVoidPtr(impl_of(self)); }
PyObject* is_inference(PyObject* self, PyObject*) { return PyBool_FromLong(impl_of(self)->inference); }
PyObject* retain_grad(PyObject* self, PyObject*) {
  return guarded("retain_grad", [&] {
    autograd::retain_grad(tensor_of(self));
    Py_RETURN_NONE;
  });
}
PyObject* detach(PyObject* self, PyObject*) {
  return guarded("detach", [&] {
    Tensor t = tensor_of(self), r;
    if (is_in_use(Interceptor::interposed)) [[unlikely]] {
      op::Value args[] = {t};
      if (run::find_interposer(args, {})) return wrap(op::call(op::get("detach"), args)[0]);
    }
    if (run::OpenTrace::current() &&
        !t.is_traced()) {  // a view of a tensor from outside, which is a call of the trace
      op::Value args[] = {t};
      return wrap(op::call(op::get("detach"), args)[0]);
    }
    r = autograd::detach(t);
    return override_of(Py_TYPE(self)) == Override::rewrap ? wrap_as(std::move(r), Py_TYPE(self))
                                                          : wrap(std::move(r));
  });
}
PyObject* detach_(PyObject* self, PyObject*) {
  return guarded("detach_", [&] {
    autograd::detach_(tensor_of(self));
    return Py_NewRef(self);
  });
}
PyObject* get_data(PyObject* self, void*) {
  return guarded("data", [&] { return wrap_like(self, autograd::data_of(tensor_of(self))); });
}
int set_data(PyObject* self, PyObject* value, void*) {
  return guarded_int([&] {
    type_check(value, "data") << "data cannot be deleted";
    Tensor from = tensor_argument("data", "data", value);
    autograd::set_data(tensor_of(self), from);
  });
}
PyObject* register_hook(PyObject* self, PyObject* hook) {
  return guarded("register_hook", [&] {
    track(self);
    return add_tensor_hook(tensor_of(self), hook);
  });
}
PyObject* backward(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  return guarded("backward", [&]() -> PyObject* {
    static const char* const spec[] = {"gradient", "retain_graph", "create_graph", "inputs", nullptr};
    PyObject* v[4];
    if (!take_arguments("backward", spec, 0, args, n, kwnames, v)) return nullptr;
    Tensor root = tensor_of(self), gradient;
    std::vector<Tensor> gradients = tensor_list_argument("backward", "gradient", v[0], true);
    runtime_check(gradients.size() == 1 || !v[0] || v[0] == Py_None, "backward")
        << "got 1 tensors and " << gradients.size() << " gradients";
    if (!gradients.empty()) gradient = gradients[0];
    bool create = v[2] && is_true(v[2]);
    bool retain = v[1] && v[1] != Py_None ? is_true(v[1]) : create;
    std::vector<Tensor> inputs = tensor_list_argument("backward", "inputs", v[3]);
    runtime_check(!v[3] || v[3] == Py_None || !inputs.empty(), "backward")
        << "'inputs' argument to backward() cannot be empty.";
    {
      WithoutGil free;
      autograd::backward({&root, 1}, {&gradient, 1}, retain, create, inputs);
    }
    Py_RETURN_NONE;
  });
}

PyObject* as_subclass(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  return guarded("as_subclass", [&]() -> PyObject* {
    static const char* const spec[] = {"cls", nullptr};
    PyObject* cls;
    if (!take_arguments("as_subclass", spec, 1, args, n, kwnames, &cls)) return nullptr;
    type_check(PyType_Check(cls) && PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(cls), TensorType),
               "as_subclass")
        << "cls must be a subclass of Tensor";
    Tensor t = tensor_of(self);
    return wrap_as(run_operator(operator_named("alias"), {t})[0], reinterpret_cast<PyTypeObject*>(cls));
  });
}
PyObject* rewrap(PyObject*, PyObject* args) {
  return guarded("rewrap", [&]() -> PyObject* {
    PyObject *like, *result;
    if (!PyArg_ParseTuple(args, "O!O!:rewrap", TensorType, &like, TensorType, &result)) return nullptr;
    return override_of(Py_TYPE(like)) == Override::rewrap ? wrap_as(tensor_of(result), Py_TYPE(like))
                                                          : Py_NewRef(result);
  });
}

// ---- copying

// A copy of t in a copy of its storage. All tensors of one storage that are copied with the same memo share
// the copy.
Tensor copied(const Tensor& t, PyObject* memo) {
  autograd::GradMode off(false);
  auto clone = [](const Tensor& of) { return run_operator(operator_named("clone"), {of})[0]; };
  const Storage& storage = t.impl()->storage;
  if (!storage || is_sparse(t) || t.device().type == DeviceType::meta || !PyDict_Check(memo)) return clone(t);
  if (is_released(*storage)) t.data_ptr();  // raises
  PyRef key = checked(PyLong_FromVoidPtr(storage.get()));
  PyObject* known = PyDict_GetItemWithError(memo, key.get());
  Tensor memory;
  if (known) {
    memory = tensor_of(known);
  } else {
    bool whole = t.is_non_overlapping_and_dense() &&
                 size_t(t.numel().concrete()) * t.itemsize() == storage->bytes() && !t.impl()->is_lazy();
    memory =
        whole ? clone(t)
              : clone(Tensor(make_ref<TensorImpl>(storage, Dims{int64_t(storage->bytes())}, Dims{int64_t(1)},
                                                  SymInt(int64_t(0)), DType::UInt8, t.device())));
    checked(PyDict_SetItem(memo, key.get(), checked(wrap(memory)).get()));
  }
  auto copy = make_ref<TensorImpl>(memory.impl()->storage, t.impl()->sizes, t.impl()->strides, t.offset(),
                                   t.dtype(), t.device());
  copy->conj = t.impl()->conj;
  copy->neg = t.impl()->neg;
  return Tensor(std::move(copy));
}

PyObject* deepcopy(PyObject* self, PyObject* memo) {
  return guarded("__deepcopy__", [&]() -> PyObject* {
    PyRef key = checked(PyLong_FromVoidPtr(self));
    if (PyDict_Check(memo))
      if (PyObject* done = PyDict_GetItemWithError(memo, key.get())) return Py_NewRef(done);
    Tensor t = tensor_of(self);
    runtime_check(autograd::is_leaf(t), "deepcopy")
        << "only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol"
        << hint("detach() it first");
    Tensor copy = copied(t, memo);
    if (t.requires_grad()) autograd::set_requires_grad(copy, true);
    if (Tensor g = autograd::grad_of(t); g.defined()) {
      PyRef grad = checked(wrap(g));
      autograd::set_grad(copy, tensor_of(checked(deepcopy(grad.get(), memo)).get()));
    }
    PyRef result = checked(wrap_as(std::move(copy), Py_TYPE(self)));
    if (PyDict_Check(memo)) checked(PyDict_SetItem(memo, key.get(), result.get()));
    if (PyObject* dict = reinterpret_cast<TensorObject*>(self)->dict) {
      PyRef module = checked(PyImport_ImportModule("copy"));
      PyRef attributes = checked(PyObject_CallMethod(module.get(), "deepcopy", "OO", dict, memo));
      PyRef target = checked(PyObject_GetAttr(result.get(), names::__dict__));
      checked(PyDict_Update(target.get(), attributes.get()));
    }
    return result.detach();
  });
}
PyObject* reduce_ex(PyObject* self, PyObject* protocol) {
  if (!reduce_helper) {
    PyErr_SetString(PyExc_RuntimeError, "pickling needs facula's Python package: import facula");
    return nullptr;
  }
  return PyObject_CallFunctionObjArgs(reduce_helper, self, protocol, nullptr);
}
PyObject* set_reduce_helper(PyObject*, PyObject* f) {
  Py_XSETREF(reduce_helper, Py_NewRef(f));
  Py_RETURN_NONE;
}
PyObject* own_methods(PyObject*, PyObject*) {
  return guarded([] {
    PyRef list = checked(PyList_New(0));
    for (auto* m = tensor_methods; m->ml_name; ++m)
      checked(PyList_Append(list.get(), checked(PyUnicode_FromString(m->ml_name)).get()));
    return list.detach();
  });
}
PyMethodDef helpers[] = {
    {"own_methods", own_methods, METH_NOARGS, "Names of Tensor's methods that are no operators."},
    {"rewrap", rewrap, METH_VARARGS,
     "rewrap(like, result): result as the subclass that like is, if that takes part natively."},
    {"set_reduce_helper", set_reduce_helper, METH_O, "f(tensor, protocol): what Tensor.__reduce_ex__ gives."},
    {nullptr, nullptr, 0, nullptr}};

PyObject* is_same_storage(PyObject* self, PyObject* other) {
  return guarded("is_set_to", [&] {
    Tensor o = tensor_argument("is_set_to", "tensor", other);
    TensorImpl *a = impl_of(self), *b = o.impl();
    return PyBool_FromLong(a->storage == b->storage && a->offset == b->offset && a->sizes == b->sizes &&
                           a->strides == b->strides);
  });
}
// (address of the storage, its bytes, the tensors that share it): what saving and sharing need to know of it.
PyObject* storage_info(PyObject* self, PyObject*) {
  return guarded("_storage_info", [&]() -> PyObject* {
    TensorImpl* t = impl_of(self);
    if (!t->storage) Py_RETURN_NONE;
    supported_check(!is_sparse(t), "storage") << "Cannot access storage of a sparse tensor"
                                              << hint("its parts have storages: t._indices(), t._values()");
    if (t->device.type != DeviceType::meta && !is_released(*t->storage))
      tensor_of(self).data_ptr();  // in the logical layout
    return Py_BuildValue("NNN", PyLong_FromVoidPtr(t->storage->data()),
                         PyLong_FromSize_t(t->storage->bytes()), PyLong_FromSize_t(t->storage->use_count()));
  });
}

PyObject* get_dict(PyObject* self, void*) {
  PyObject* d = PyObject_GenericGetDict(self, nullptr);
  if (d && !PyObject_GC_IsTracked(self)) PyObject_GC_Track(self);
  return d;
}
int set_dict(PyObject* self, PyObject* dict, void*) {
  int rc = PyObject_GenericSetDict(self, dict, nullptr);
  if (!rc && !PyObject_GC_IsTracked(self)) PyObject_GC_Track(self);
  return rc;
}

}  // namespace

PyMethodDef tensor_methods[] = {
    fast("size", size, "size(dim=None) -> Size or int"),
    fast("stride", stride, "stride(dim=None) -> tuple or int"),
    {"dim", dim, METH_NOARGS, "The number of dimensions."},
    {"ndimension", dim, METH_NOARGS, "The number of dimensions."},
    {"numel", numel, METH_NOARGS, "The number of elements."},
    {"nelement", numel, METH_NOARGS, "The number of elements."},
    {"element_size", element_size, METH_NOARGS, "Bytes of an element."},
    {"storage_offset", storage_offset, METH_NOARGS, "Elements before the first one in the storage."},
    {"data_ptr", data_ptr, METH_NOARGS, "The address of the first element."},
    fast("is_contiguous", is_contiguous, "is_contiguous(memory_format=contiguous_format) -> bool"),
    {"is_floating_point", is_floating_point, METH_NOARGS, "Is the dtype floating?"},
    {"is_complex", is_complex_, METH_NOARGS, "Is the dtype complex?"},
    {"is_signed", is_signed, METH_NOARGS, "Can the dtype hold negative numbers?"},
    {"get_device", get_device_number, METH_NOARGS, "The device's index; -1 for the CPU."},
    {"item", item, METH_NOARGS, "The only element, as a Python number."},
    {"tolist", tolist, METH_NOARGS, "Nested lists of Python numbers."},
    fast("numpy", numpy, "numpy(*, force=False) -> ndarray sharing the memory"),
    fast("__array__", array, nullptr),
    {"__format__", format, METH_O, nullptr},
    {"__complex__", to_complex_number, METH_NOARGS, nullptr},
    fast("__dlpack__", tensor_dlpack, nullptr),
    {"__dlpack_device__", tensor_dlpack_device, METH_NOARGS, nullptr},
    fast("to", to,
         "to(dtype | device | other, ..., non_blocking=False, copy=False, memory_format=None) -> Tensor"),
    fast("cpu", cpu, "The tensor on the CPU."),
    conversion<int(DType::Bool), "bool">("The tensor as bool."),
    conversion<int(DType::UInt8), "byte">("The tensor as uint8."),
    conversion<int(DType::Int8), "char">("The tensor as int8."),
    conversion<int(DType::Int16), "short">("The tensor as int16."),
    conversion<int(DType::Int32), "int">("The tensor as int32."),
    conversion<int(DType::Int64), "long">("The tensor as int64."),
    conversion<int(DType::Float16), "half">("The tensor as float16."),
    conversion<int(DType::BFloat16), "bfloat16">("The tensor as bfloat16."),
    conversion<int(DType::Float32), "float">("The tensor as float32."),
    conversion<int(DType::Float64), "double">("The tensor as float64."),
    conversion<int(DType::Complex32), "chalf">("The tensor as complex32."),
    conversion<int(DType::Complex64), "cfloat">("The tensor as complex64."),
    conversion<int(DType::Complex128), "cdouble">("The tensor as complex128."),
    fast("type", type, "type(dtype=None) -> str or Tensor"),
    of_one<type_as, "type_as", "other">("The tensor in the dtype of another."),
    fast("requires_grad_", requires_grad_, "requires_grad_(requires_grad=True) -> self"),
    {"retain_grad", retain_grad, METH_NOARGS, "Keeps the gradient of this result in .grad."},
    {"detach", detach, METH_NOARGS, "The same memory without history."},
    {"detach_", detach_, METH_NOARGS, "Forgets the history."},
    of_one<register_hook, "register_hook", "hook">(
        "register_hook(hook) -> handle; hook(grad) may return another gradient."),
    fast("backward", backward, "backward(gradient=None, retain_graph=None, create_graph=False, inputs=None)"),
    fast("as_subclass", as_subclass,
         "as_subclass(cls) -> the same tensor as an instance of cls, on the tape"),
    {"_is_view", is_view, METH_NOARGS, "Is it a view of another tensor?"},
    {"is_inference", is_inference, METH_NOARGS, "Was it made under inference_mode?"},
    {"is_conj", is_conj, METH_NOARGS, "Is it a view of the conjugates of its memory, as conj() gives it?"},
    {"is_neg", is_neg, METH_NOARGS,
     "Is it a view of the negatives of its memory, as the imag of a conj() is?"},
    of_one<is_same_storage, "is_set_to", "tensor">("Do both have the same storage and geometry?"),
    {"_sparse_info", sparse_info, METH_NOARGS,
     "(nnz, sparse dimensions, is coalesced) of a sparse tensor; else None."},
    {"_coalesced_", set_coalesced, METH_O, "Says whether a sparse tensor has every index once, in order."},
    {"_storage_info", storage_info, METH_NOARGS, "(address, bytes, tensors that share it) of the storage."},
    {"__deepcopy__", deepcopy, METH_O, nullptr},
    {"__reduce_ex__", reduce_ex, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef tensor_getset[] = {
    {"shape", get_shape, nullptr, "The sizes.", nullptr},
    {"dtype", get_dtype, nullptr, "The type of the elements.", nullptr},
    {"device", get_device, nullptr, "Where the memory is.", nullptr},
    {"layout", get_layout, nullptr, "facula.strided, sparse_coo, sparse_csr or sparse_csc.", nullptr},
    {"ndim", get_ndim, nullptr, "The number of dimensions.", nullptr},
    {"itemsize", get_itemsize, nullptr, "Bytes of an element.", nullptr},
    {"nbytes", get_nbytes, nullptr, "Bytes of all elements.", nullptr},
    {"grad", get_grad, set_grad, "The gradient that backward() accumulated, or None.", nullptr},
    {"requires_grad", get_requires_grad, set_requires_grad, "Are gradients computed for it?", nullptr},
    {"grad_fn", get_grad_fn, nullptr, "The node that made it, or None.", nullptr},
    {"is_leaf", get_is_leaf, nullptr, "Is it no result of a recorded operator?", nullptr},
    {"retains_grad", get_retains_grad, nullptr, "Does a result keep its gradient?", nullptr},
    {"data", get_data, set_data, "The same memory, unknown to autograd.", nullptr},
    {"_base", get_base, nullptr, "The tensor that this is a view of, or None.", nullptr},
    {"_cdata", get_cdata, nullptr, "The address of the tensor's description.", nullptr},
    {"_version", get_version, nullptr, "How often it was written in place.", nullptr},
    {"H", get_hermitian, nullptr, "The conjugate transpose of a matrix.", nullptr},
    {"mH", get_hermitian, nullptr, "The conjugate transpose of the last two dimensions.",
     const_cast<char*>("m")},
    {"real", get_part, nullptr, "The real part.", const_cast<char*>("real")},
    {"imag", get_part, nullptr, "The imaginary part.", const_cast<char*>("imag")},
    {"is_cpu", get_is_cpu, nullptr, nullptr, nullptr},
    {"is_cuda", get_is_cuda, nullptr, nullptr, nullptr},
    {"is_meta", get_is_meta, nullptr, nullptr, nullptr},
    {"output_nr", get_output_nr, nullptr, "Which result of its grad_fn it is.", nullptr},
    {"is_sparse", get_has_layout, nullptr, "Is its layout sparse_coo?", &coo},
    {"is_sparse_csr", get_has_layout, nullptr, "Is its layout sparse_csr?", &csr},
    {"is_quantized", get_false, nullptr, nullptr, nullptr},
    {"is_mkldnn", get_false, nullptr, nullptr, nullptr},
    {"is_nested", get_false, nullptr, nullptr, nullptr},
    {"is_mps", get_false, nullptr, nullptr, nullptr},
    {"__dict__", get_dict, set_dict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

void add_tensor_functions(PyObject* module) {
  PyRef priority = checked(PyLong_FromLong(1000));
  checked(PyDict_SetItemString(TensorType->tp_dict, "__array_priority__",
                               priority.get()));  // NumPy leaves mixed arithmetic to us
  add_functions(module, helpers);
}

}  // namespace facula::bind
