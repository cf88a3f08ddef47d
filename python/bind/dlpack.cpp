// DLPack both ways, versioned (1.x) and unversioned capsules. The structures are those of the standard.
#include <memory>
#include <optional>

#include "facula/autograd/autograd.h"
#include "facula/op/factory.h"
#include "facula/tensor/resize.h"
#include "tensor.h"
#include "trampoline.h"
#include "types.h"

namespace facula::bind {

namespace dlpack {
struct Version {
  uint32_t major, minor;
};
struct DeviceRecord {
  int32_t type, id;
};
struct DataType {
  uint8_t code, bits;
  uint16_t lanes;
};
struct TensorRecord {
  void* data;
  DeviceRecord device;
  int32_t ndim;
  DataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};
struct Managed {
  TensorRecord tensor;
  void* context;
  void (*deleter)(Managed*);
};
struct ManagedVersioned {
  Version version;
  void* context;
  void (*deleter)(ManagedVersioned*);
  uint64_t flags;
  TensorRecord tensor;
};
constexpr int kCpu = 1;
constexpr uint64_t kReadOnly = 1, kCopied = 2;
enum Code : uint8_t {
  integer = 0,
  unsigned_integer = 1,
  floating = 2,
  bfloat = 4,
  complex = 5,
  boolean = 6,
  e4m3fn = 10,
  e4m3fnuz = 11,
  e5m2 = 12,
  e5m2fnuz = 13,
  e8m0fnu = 14
};
}  // namespace dlpack

namespace {

using namespace dlpack;

DataType data_type(DType d) {
  auto bits = uint8_t(itemsize(d) * 8);
  switch (d) {
    case DType::Bool: return {boolean, 8, 1};
    case DType::BFloat16: return {bfloat, 16, 1};
    case DType::Float8E4M3FN: return {e4m3fn, 8, 1};
    case DType::Float8E4M3FNUZ: return {e4m3fnuz, 8, 1};
    case DType::Float8E5M2: return {e5m2, 8, 1};
    case DType::Float8E5M2FNUZ: return {e5m2fnuz, 8, 1};
    case DType::Float8E8M0FNU: return {e8m0fnu, 8, 1};
    default: break;
  }
  if (is_integral(d)) return {is_signed(d) ? integer : unsigned_integer, bits, 1};
  return {is_complex(d) ? Code::complex : Code::floating, bits, 1};
}
DType dtype_of_record(DataType t) {
  for (int i = 0; i < kDTypeCount; ++i) {
    DataType mine = data_type(DType(i));
    if (mine.code == t.code && mine.bits == t.bits && t.lanes == 1) return DType(i);
  }
  runtime_check(false, "from_dlpack") << "no dtype corresponds to DLPack's (code " << int(t.code) << ", "
                                      << int(t.bits) << " bits, " << t.lanes << " lanes)";
  __builtin_unreachable();
}

template <class M>
struct Exported {
  M managed{};
  Tensor tensor;
  std::optional<Lent> lent;
  Ints sizes, strides;
};

template <class M>
PyObject* export_capsule(const Tensor& t, const char* name, uint64_t flags) {
  auto e = std::make_unique<Exported<M>>();
  e->tensor = t;
  e->lent.emplace(t.impl()->storage);
  e->sizes = Ints(t.int_sizes());
  e->strides = Ints(t.int_strides());
  e->managed.tensor = {t.data_ptr(),    {kCpu, 0},         t.dim(), data_type(t.dtype()),
                       e->sizes.data(), e->strides.data(), 0};
  e->managed.context = e.get();
  e->managed.deleter = [](M* m) { delete static_cast<Exported<M>*>(m->context); };
  if constexpr (std::is_same_v<M, ManagedVersioned>) {
    e->managed.version = {1, 0};
    e->managed.flags = flags;
  }
  // The consumer renames the capsule when it takes the memory over; before, the capsule owns it.
  PyObject* capsule = PyCapsule_New(&e->managed, name, [](PyObject* c) {
    const char* current = PyCapsule_GetName(c);
    bool versioned = std::is_same_v<M, ManagedVersioned>;
    if (!current || std::string_view(current) != (versioned ? "dltensor_versioned" : "dltensor")) return;
    auto* m = static_cast<M*>(PyCapsule_GetPointer(c, current));
    if (m && m->deleter) m->deleter(m);
  });
  if (!capsule) throw PythonError();
  e.release();
  return capsule;
}

template <class M>
Tensor import_record(PyObject* capsule, const char* name, const char* used) {
  auto* m = static_cast<M*>(PyCapsule_GetPointer(capsule, name));
  if (!m) throw PythonError();
  TensorRecord& r = m->tensor;
  runtime_check(r.device.type == kCpu, "from_dlpack")
      << "no backend can use memory of DLPack device " << r.device.type;
  if constexpr (std::is_same_v<M, ManagedVersioned>) {
    runtime_check(m->version.major == 1, "from_dlpack")
        << "DLPack version " << m->version.major << " is not understood";
  }
  DType d = dtype_of_record(r.dtype);
  IntSpan sizes(r.shape, size_t(r.ndim));
  Ints strides;
  if (r.strides) {
    strides = Ints(IntSpan(r.strides, size_t(r.ndim)));
  } else {
    strides.resize(size_t(r.ndim));
    int64_t step = 1;
    for (int i = r.ndim; i-- > 0; step *= r.shape[i]) strides[size_t(i)] = step;
  }
  for (auto s : strides)
    value_check(s >= 0, "from_dlpack")
        << "negative strides are not supported." << hint("copy the array first");
  Tensor t = Tensor::from_blob(static_cast<char*>(r.data) + r.byte_offset, sizes, IntSpan(strides), d, [m] {
    if (!m->deleter || !Py_IsInitialized()) return;
    WithGil gil;  // the producer may be written in Python
    m->deleter(m);
  });
  PyCapsule_SetName(capsule, used);
  PyCapsule_SetDestructor(capsule, nullptr);
  return t;
}

Tensor import_capsule(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, "dltensor_versioned"))
    return import_record<ManagedVersioned>(capsule, "dltensor_versioned", "used_dltensor_versioned");
  if (PyCapsule_IsValid(capsule, "dltensor"))
    return import_record<Managed>(capsule, "dltensor", "used_dltensor");
  runtime_check(false, "from_dlpack") << "expected a capsule named 'dltensor' that was not used before";
  __builtin_unreachable();
}

PyObject* from_dlpack(PyObject*, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  return guarded("from_dlpack", [&]() -> PyObject* {
    static const char* const spec[] = {"ext_tensor", "device", "copy", nullptr};
    PyObject* v[3];
    if (!take_arguments("from_dlpack", spec, 1, args, n, kwnames, v, 1)) return nullptr;
    if (Device device; v[1] && v[1] != Py_None) {
      type_check(to_device(v[1], device), "from_dlpack")
          << "device must be a facula.device, not " << Py_TYPE(v[1])->tp_name;
      op::check_can_hold("from_dlpack", device);
    }
    value_check(!v[2] || !PyUnicode_Check(v[2]), "from_dlpack")
        << "strings are not allowed for copy; use True, False or None";
    PyRef capsule;
    if (PyCapsule_CheckExact(v[0])) {
      capsule = PyRef::share(v[0]);
    } else {
      type_check(PyObject_HasAttr(v[0], names::__dlpack__), "from_dlpack")
          << "expected a capsule or an object with __dlpack__, not " << Py_TYPE(v[0])->tp_name;
      PyRef method = checked(PyObject_GetAttr(v[0], names::__dlpack__));
      PyRef none = checked(PyTuple_New(0));
      PyRef keywords = checked(Py_BuildValue("{s:(ii)}", "max_version", 1, 0));
      capsule = PyRef(PyObject_Call(method.get(), none.get(), keywords.get()));
      if (!capsule) {  // an older producer
        if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw PythonError();
        PyErr_Clear();
        capsule = checked(PyObject_CallNoArgs(method.get()));
      }
    }
    Tensor t = import_capsule(capsule.get());
    if (v[2] && v[2] != Py_None && is_true(v[2])) t = run_operator(operator_named("clone"), {t})[0];
    return wrap(std::move(t));
  });
}

PyMethodDef functions[] = {
    {"from_dlpack", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(from_dlpack)),
     METH_FASTCALL | METH_KEYWORDS,
     "from_dlpack(ext_tensor, *, device=None, copy=None) -> Tensor sharing the memory"},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

PyObject* tensor_dlpack(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  return guarded([&]() -> PyObject* {
    static const char* const spec[] = {"stream", "max_version", "dl_device", "copy", nullptr};
    PyObject* v[4];
    if (!take_arguments("__dlpack__", spec, 0, args, n, kwnames, v)) return nullptr;
    Tensor t = tensor_of(self);
    if (t.requires_grad()) {  // the type that the protocol asks for
      PyErr_SetString(PyExc_BufferError,
                      "__dlpack__: Can't export tensors that require gradient, use tensor.detach()");
      return nullptr;
    }
    type_check(!v[0] || v[0] == Py_None || PyLong_Check(v[0]), "__dlpack__")
        << "stream must be int or None, not " << Py_TYPE(v[0])->tp_name;
    built_check(!v[0] || v[0] == Py_None, "__dlpack__") << "stream should be None on cpu";
    type_check(!v[3] || v[3] == Py_None || PyBool_Check(v[3]), "__dlpack__")
        << "copy must be bool or None, not " << Py_TYPE(v[3])->tp_name;
    if (v[2] && v[2] != Py_None) {
      int kind, id;
      if (!PyArg_ParseTuple(v[2], "ii;__dlpack__: dl_device must be (type, id)", &kind, &id)) return nullptr;
      if (kind != kCpu) {
        PyErr_Format(PyExc_BufferError, "__dlpack__: no backend can export memory to DLPack device type %d",
                     kind);
        return nullptr;
      }
    }
    if (t.impl()->is_lazy()) {
      PyErr_SetString(
          PyExc_BufferError,
          "Can't export tensors with the conjugate or the negative bit set: use resolve_conj() or "
          "resolve_neg() first");
      return nullptr;
    }
    bool copy = v[3] == Py_True;
    if (copy) t = run_operator(operator_named("clone"), {t})[0];
    bool versioned = v[1] && PyTuple_Check(v[1]) && PyTuple_GET_SIZE(v[1]) &&
                     PyLong_AsLong(PyTuple_GET_ITEM(v[1], 0)) >= 1;
    return versioned ? export_capsule<ManagedVersioned>(t, "dltensor_versioned", copy ? kCopied : 0)
                     : export_capsule<Managed>(t, "dltensor", 0);
  });
}
PyObject* tensor_dlpack_device(PyObject*, PyObject*) { return Py_BuildValue("ii", kCpu, 0); }

void add_dlpack(PyObject* module) { add_functions(module, functions); }

}  // namespace facula::bind
