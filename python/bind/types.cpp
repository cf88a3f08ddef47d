#include "types.h"

#include <cmath>
#include <iterator>

#include "facula/base/per_thread.h"
#include "facula/op/describe.h"
#include "facula/op/factory.h"
#include "override.h"

namespace facula::bind {

PyTypeObject *DTypeType, *DeviceType_, *FormatType, *LayoutType;
static PyObject* dtype_objects[kDTypeCount];
static PyObject* format_objects[kMemoryFormats];
static PyObject* layout_objects[4];  // as Layout counts

PyObject* wrap(DType d) { return Py_NewRef(dtype_objects[int(d)]); }
PyObject* wrap(MemoryFormat f) { return Py_NewRef(format_objects[int(f)]); }
PyObject* wrap(Layout l) { return Py_NewRef(layout_objects[int(l)]); }
PyObject* wrap(Device d) {
  auto* o = PyObject_New(DeviceObject, DeviceType_);
  if (!o) throw PythonError();
  o->value = d;
  return reinterpret_cast<PyObject*>(o);
}

bool to_dtype(PyObject* o, DType& d) {
  if (is_dtype(o)) {
    d = reinterpret_cast<DTypeObject*>(o)->value;
    return true;
  }
  auto* t = reinterpret_cast<PyTypeObject*>(o);
  if (t == &PyFloat_Type) d = DType::Float64;
  else if (t == &PyLong_Type) d = DType::Int64;
  else if (t == &PyBool_Type) d = DType::Bool;
  else if (t == &PyComplex_Type) d = DType::Complex128;
  else return false;
  return true;
}

static bool device_of(PyObject* o, Device& d) {
  if (Py_TYPE(o) == DeviceType_) {
    d = reinterpret_cast<DeviceObject*>(o)->value;
    return true;
  }
  if (PyUnicode_Check(o)) {
    d = parse_device(text_of(o));
    return true;
  }
  if (PyLong_CheckExact(o)) {
    d = parse_device("cuda:" + std::to_string(PyLong_AsLong(o)));
    return true;
  }
  return false;
}

// Tensors have no use for the number of the CPU, nor of meta: there is one.
bool to_device(PyObject* o, Device& d) {
  if (!device_of(o, d)) return false;
  if (d.type <= DeviceType::meta) d.index = -1;
  return true;
}

bool to_format(PyObject* o, MemoryFormat& f) {
  if (Py_TYPE(o) != FormatType) return false;
  f = reinterpret_cast<FormatObject*>(o)->value;
  return true;
}

namespace {

DType dtype(PyObject* o) { return reinterpret_cast<DTypeObject*>(o)->value; }
PyObject* dtype_repr(PyObject* o) { return PyUnicode_FromFormat("%s.%s", package_name(), name(dtype(o))); }
PyObject* dtype_reduce(PyObject* o, PyObject*) { return PyUnicode_FromString(name(dtype(o))); }
PyObject* dtype_is_floating(PyObject* o, void*) { return PyBool_FromLong(is_floating(dtype(o))); }
PyObject* dtype_is_complex(PyObject* o, void*) { return PyBool_FromLong(is_complex(dtype(o))); }
PyObject* dtype_is_signed(PyObject* o, void*) { return PyBool_FromLong(is_signed(dtype(o))); }
PyObject* dtype_itemsize(PyObject* o, void*) { return PyLong_FromLong(itemsize(dtype(o))); }
PyObject* dtype_to_complex(PyObject* o, PyObject*) {
  return guarded([&] {
    DType d = dtype(o);
    runtime_check(!is_limited(d) || is_complex(d), "to_complex") << "there are no complex numbers of " << d;
    return wrap(complex_of(d));
  });
}
PyObject* dtype_to_real(PyObject* o, PyObject*) { return wrap(real_of(dtype(o))); }

PyGetSetDef dtype_getset[] = {{"is_floating_point", dtype_is_floating, nullptr, "Is it a floating type?",
                               nullptr},
                              {"is_complex", dtype_is_complex, nullptr, "Is it a complex type?", nullptr},
                              {"is_signed", dtype_is_signed, nullptr, "Can it hold negative numbers?",
                               nullptr},
                              {"itemsize", dtype_itemsize, nullptr, "Bytes of an element.", nullptr},
                              {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMethodDef dtype_methods[] = {{"to_complex", dtype_to_complex, METH_NOARGS,
                                "The complex type of the same precision."},
                               {"to_real", dtype_to_real, METH_NOARGS, "The type of the real part."},
                               {"__reduce__", dtype_reduce, METH_NOARGS, nullptr},
                               {nullptr, nullptr, 0, nullptr}};
PyType_Slot dtype_slots[] = {{Py_tp_repr, reinterpret_cast<void*>(dtype_repr)},
                             {Py_tp_getset, dtype_getset},
                             {Py_tp_methods, dtype_methods},
                             {0, nullptr}};
PyType_Spec dtype_spec = {"facula.dtype", sizeof(DTypeObject), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, dtype_slots};

Device device(PyObject* o) { return reinterpret_cast<DeviceObject*>(o)->value; }
const char* kind(Device d) {
  struct Text : std::string {};
  auto& text = per_thread<Text>();
  text.assign(to_string(Device{d.type, -1}));
  return text.c_str();
}
PyObject* device_new(PyTypeObject*, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    static const char* keywords[] = {"type", "index", nullptr};
    PyObject *type, *index = nullptr;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:device", const_cast<char**>(keywords), &type, &index))
      return nullptr;
    PyObject* const given[] = {type, index};
    if (Py_ssize_t n = index ? 2 : 1; any_taken(given, n, 0) && !overrides_disabled())
      return call_override(reinterpret_cast<PyObject*>(DeviceType_), nullptr, given, n, nullptr);
    Device d;
    if (!device_of(type, d)) {
      PyErr_Format(PyExc_TypeError, "device(): argument 'type' (position 1) must be str or device, not %s",
                   Py_TYPE(type)->tp_name);
      return nullptr;
    }
    if (index && index != Py_None) {
      long i = PyLong_AsLong(index);
      if (i == -1 && PyErr_Occurred()) return nullptr;
      runtime_check(d.index < 0, "device")
          << "type (string) must not include an index because index was passed explicitly: " << to_string(d);
      runtime_check(i >= 0 && i < 127, "device") << "Device index must not be negative";
      d.index = int8_t(i);
    }
    return wrap(d);
  });
}
PyObject* device_repr(PyObject* o) {
  Device d = device(o);
  return d.index < 0 ? PyUnicode_FromFormat("device(type='%s')", kind(d))
                     : PyUnicode_FromFormat("device(type='%s', index=%d)", kind(d), int(d.index));
}
PyObject* device_str(PyObject* o) {
  return guarded([&] { return unicode(to_string(device(o))); });
}
Py_hash_t device_hash(PyObject* o) { return Py_hash_t(device(o).type) * 131 + device(o).index + 2; }
PyObject* device_compare(PyObject* a, PyObject* b, int op) {
  if (Py_TYPE(b) != DeviceType_ || (op != Py_EQ && op != Py_NE)) Py_RETURN_NOTIMPLEMENTED;
  return PyBool_FromLong((device(a) == device(b)) == (op == Py_EQ));
}
PyObject* device_type(PyObject* o, void*) { return PyUnicode_FromString(kind(device(o))); }
PyObject* device_index(PyObject* o, void*) {
  if (device(o).index < 0) Py_RETURN_NONE;
  return PyLong_FromLong(device(o).index);
}
PyObject* device_reduce(PyObject* o, PyObject*) {
  return guarded([&] { return Py_BuildValue("O(s)", Py_TYPE(o), to_string(device(o)).c_str()); });
}
void device_dealloc(PyObject* o) {
  PyTypeObject* t = Py_TYPE(o);
  PyObject_Free(o);
  Py_DECREF(t);
}
PyGetSetDef device_getset[] = {{"type", device_type, nullptr, "The kind of device, as 'cpu'.", nullptr},
                               {"index", device_index, nullptr, "Its number, or None.", nullptr},
                               {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMethodDef device_methods[] = {{"__reduce__", device_reduce, METH_NOARGS, nullptr},
                                {nullptr, nullptr, 0, nullptr}};
PyType_Slot device_slots[] = {{Py_tp_new, reinterpret_cast<void*>(device_new)},
                              {Py_tp_repr, reinterpret_cast<void*>(device_repr)},
                              {Py_tp_str, reinterpret_cast<void*>(device_str)},
                              {Py_tp_hash, reinterpret_cast<void*>(device_hash)},
                              {Py_tp_richcompare, reinterpret_cast<void*>(device_compare)},
                              {Py_tp_dealloc, reinterpret_cast<void*>(device_dealloc)},
                              {Py_tp_getset, device_getset},
                              {Py_tp_methods, device_methods},
                              {0, nullptr}};
PyType_Spec device_spec = {"facula.device", sizeof(DeviceObject), 0, Py_TPFLAGS_DEFAULT, device_slots};

PyObject* format_repr(PyObject* o) {
  return PyUnicode_FromFormat("%s.%s", package_name(), op::name(reinterpret_cast<FormatObject*>(o)->value));
}
PyObject* format_reduce(PyObject* o, PyObject*) {
  return PyUnicode_FromString(op::name(reinterpret_cast<FormatObject*>(o)->value));
}
PyMethodDef format_methods[] = {{"__reduce__", format_reduce, METH_NOARGS, nullptr},
                                {nullptr, nullptr, 0, nullptr}};
PyType_Slot format_slots[] = {{Py_tp_repr, reinterpret_cast<void*>(format_repr)},
                              {Py_tp_methods, format_methods},
                              {0, nullptr}};
PyType_Spec format_spec = {"facula.memory_format", sizeof(FormatObject), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, format_slots};

struct LayoutObject {
  PyObject_HEAD const char* name;
};
PyObject* layout_repr(PyObject* o) {
  return PyUnicode_FromFormat("%s.%s", package_name(), reinterpret_cast<LayoutObject*>(o)->name);
}
PyObject* layout_reduce(PyObject* o, PyObject*) {
  return PyUnicode_FromString(reinterpret_cast<LayoutObject*>(o)->name);
}
PyMethodDef layout_methods[] = {{"__reduce__", layout_reduce, METH_NOARGS, nullptr},
                                {nullptr, nullptr, 0, nullptr}};
PyType_Slot layout_slots[] = {{Py_tp_repr, reinterpret_cast<void*>(layout_repr)},
                              {Py_tp_methods, layout_methods},
                              {0, nullptr}};
PyType_Spec layout_spec = {"facula.layout", sizeof(LayoutObject), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, layout_slots};

template <class T>
void put(PyObject* dict, const char* key, T value) {
  PyRef v;
  if constexpr (std::is_same_v<T, const char*>) v = checked(PyUnicode_FromString(value));
  else if constexpr (std::is_same_v<T, uint64_t>) v = checked(PyLong_FromUnsignedLongLong(value));
  else if constexpr (std::is_integral_v<T>) v = checked(PyLong_FromLongLong(value));
  else v = checked(PyFloat_FromDouble(value));
  checked(PyDict_SetItemString(dict, key, v.get()));
}

DType dtype_argument(const char* function, PyObject* o) {
  DType d;
  type_check(to_dtype(o, d), function) << "expected a dtype, not " << Py_TYPE(o)->tp_name;
  return d;
}

PyObject* finfo_of(PyObject*, PyObject* o) {
  return guarded([&] {
    DType d = real_of(dtype_argument("finfo", o));
    type_check(is_floating(d), "finfo") << "finfo needs a floating type; for " << name(d) << " use iinfo";
    // mantissa bits and smallest normal exponent; the rest follows
    int mantissa = d == DType::Float16 ? 10 : d == DType::BFloat16 ? 7 : d == DType::Float32 ? 23 : 52;
    int low = d == DType::Float16 ? -14 : d == DType::Float64 ? -1022 : -126;
    double eps = std::ldexp(1.0, -mantissa), tiny = std::ldexp(1.0, low),
           max = std::ldexp(2.0 - eps, -low + 1), min = -max;
    if (auto* f = float8_format(d)) {
      mantissa = f->mantissa;
      eps =
          d == DType::Float8E5M2FNUZ ? 0.125 : std::ldexp(1.0, -mantissa);  // half the distance, as PyTorch's
      max = f->decode(f->largest);
      tiny = f->decode(uint8_t(1 << mantissa));
      if (!f->is_signed) tiny = f->decode(0);
      min = f->is_signed ? -max : tiny;
    }
    PyRef r = checked(PyDict_New());
    put(r.get(), "bits", itemsize(d) * 8);
    put(r.get(), "eps", eps);
    put(r.get(), "max", max);
    put(r.get(), "min", min);
    put(r.get(), "tiny", tiny);
    put(r.get(), "smallest_normal", tiny);
    put(r.get(), "resolution", std::pow(10.0, -std::floor(mantissa * std::log10(2.0))));
    put(r.get(), "dtype", name(d));
    return r.detach();
  });
}
PyObject* iinfo_of(PyObject*, PyObject* o) {
  return guarded([&] {
    DType d = dtype_argument("iinfo", o);
    type_check(is_integral(d), "iinfo") << "iinfo needs an integer type; for " << name(d) << " use finfo";
    int bits = itemsize(d) * 8;
    PyRef r = checked(PyDict_New());
    put(r.get(), "bits", bits);
    uint64_t max = ~uint64_t(0) >> (64 - bits + is_signed(d));
    put(r.get(), "max", max);
    put(r.get(), "min", is_signed(d) ? -int64_t(max) - 1 : int64_t(0));
    put(r.get(), "dtype", name(d));
    return r.detach();
  });
}
PyObject* get_default(PyObject*, PyObject*) { return wrap(default_dtype()); }
PyObject* set_default(PyObject*, PyObject* o) {
  return guarded([&] {
    DType d = dtype_argument("set_default_dtype", o);
    type_check(is_floating(d) && !is_limited(d), "set_default_dtype")
        << "only floating-point types are supported as the default type, not " << name(d);
    set_default_dtype(d);
    Py_RETURN_NONE;
  });
}
PyObject* get_default_device(PyObject*, PyObject*) {
  return guarded([] { return wrap(numbered(default_device())); });
}
PyObject* set_device(PyObject*, PyObject* o) {
  return guarded([&] {
    Device d;
    type_check(to_device(o, d), "set_default_device") << "expected a device, not " << Py_TYPE(o)->tp_name;
    op::check_can_hold("set_default_device", d);
    set_default_device(numbered(d));
    Py_RETURN_NONE;
  });
}
// Calls `o(name)` for each name that is no device, once; it may import what adds the device.
PyObject* set_loader(PyObject*, PyObject* o) {
  return guarded([&] {
    set_device_loader([o = Py_NewRef(o)](const std::string& name) {
      PyGILState_STATE held = PyGILState_Ensure();
      PyObject* done = PyObject_CallFunction(o, "s", name.c_str());
      Py_XDECREF(done);
      PyGILState_Release(held);
      if (!done) throw PythonError();
    });
    Py_RETURN_NONE;
  });
}
PyObject* rename_device(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    const char *from, *to;
    if (!PyArg_ParseTuple(args, "ss:rename_device", &from, &to)) return nullptr;
    rename_device_type(parse_device(from).type, to);
    Py_RETURN_NONE;
  });
}
PyObject* added_devices(PyObject*, PyObject*) {
  return guarded([] {
    auto names = added_device_types();
    PyRef list = checked(PyList_New(Py_ssize_t(names.size())));
    for (size_t k = 0; k < names.size(); ++k) PyList_SET_ITEM(list.get(), Py_ssize_t(k), unicode(names[k]));
    return list.detach();
  });
}
PyMethodDef functions[] = {
    {"get_default_device", get_default_device, METH_NOARGS, "Where new tensors are."},
    {"set_default_device", set_device, METH_O, "Sets where new tensors are."},
    {"set_device_loader", set_loader, METH_O, "Sets what is called with each name that is no device."},
    {"rename_device", rename_device, METH_VARARGS, "(name, new name) of an added device."},
    {"added_devices", added_devices, METH_NOARGS, "Names of the devices that were added."},
    {"finfo_of", finfo_of, METH_O, "Properties of a floating type, as a dict."},
    {"iinfo_of", iinfo_of, METH_O, "Properties of an integer type, as a dict."},
    {"get_default_dtype", get_default, METH_NOARGS, "The floating type of new tensors."},
    {"set_default_dtype", set_default, METH_O, "Sets the floating type of new tensors."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

void add_types(PyObject* module) {
  DTypeType = add_type(module, &dtype_spec);
  for (int i = 0; i < kDTypeCount; ++i) {
    auto* o = PyObject_New(DTypeObject, DTypeType);
    if (!o) throw PythonError();
    o->value = DType(i);
    dtype_objects[i] = reinterpret_cast<PyObject*>(o);
    checked(PyModule_AddObjectRef(module, name(DType(i)), dtype_objects[i]));
  }
  DeviceType_ = add_type(module, &device_spec);
  FormatType = add_type(module, &format_spec);
  for (int i = 0; i < kMemoryFormats; ++i) {
    auto* o = PyObject_New(FormatObject, FormatType);
    if (!o) throw PythonError();
    o->value = MemoryFormat(i);
    format_objects[i] = reinterpret_cast<PyObject*>(o);
    checked(PyModule_AddObjectRef(module, op::name(MemoryFormat(i)), format_objects[i]));
  }
  LayoutType = add_type(module, &layout_spec);
  // Layouts of tensors first, in the order of Layout; then names that PyTorch programs only compare with.
  size_t layouts = 0;
  for (const char* n :
       {"strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged"}) {
    PyRef layout = checked(LayoutType->tp_alloc(LayoutType, 0));
    reinterpret_cast<LayoutObject*>(layout.get())->name = n;
    if (layouts < std::size(layout_objects)) layout_objects[layouts++] = Py_NewRef(layout.get());
    add_object(module, n, layout.detach());
  }
  add_functions(module, functions);
}

}  // namespace facula::bind
