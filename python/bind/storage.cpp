// The storage of a tensor, for facula.storage: its elements, its size, and whether another tensor has it.
#include "facula/tensor/resize.h"

#include "tensor.h"

namespace facula::bind {

namespace {

TensorImpl* with_storage(PyObject* o) {
  type_check(PyObject_TypeCheck(o, TensorType), "storage")
      << "expected a tensor, got " << Py_TYPE(o)->tp_name;
  runtime_check(impl_of(o)->storage, "storage") << "the tensor has no storage";
  return impl_of(o);
}

PyObject* storage_bytes(PyObject*, PyObject* tensor) {
  return guarded([&] {
    auto* t = with_storage(tensor);
    auto bytes = make_ref<TensorImpl>(t->storage, Dims{int64_t(t->storage->bytes())}, Dims{int64_t(1)},
                                      SymInt(int64_t(0)), DType::UInt8, t->device);
    bytes->version = tensor_of(tensor).version_counter();
    return wrap(Tensor(std::move(bytes)));
  });
}

PyObject* is_storage_resizable(PyObject*, PyObject* tensor) {
  return guarded([&] { return PyBool_FromLong(is_resizable(*with_storage(tensor)->storage)); });
}

PyObject* resize_storage(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    PyObject* tensor;
    Py_ssize_t bytes;
    if (!PyArg_ParseTuple(args, "On:resize_storage", &tensor, &bytes)) return nullptr;
    runtime_check(bytes >= 0, "resize_") << "expected a size that is not negative, got " << bytes;
    resize(*with_storage(tensor)->storage, size_t(bytes), "resize_");
    Py_RETURN_NONE;
  });
}

PyObject* same_storage(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    PyObject *a, *b;
    if (!PyArg_ParseTuple(args, "O!O!:same_storage", TensorType, &a, TensorType, &b)) return nullptr;
    auto& memory = impl_of(a)->storage;
    return PyBool_FromLong(memory && memory == impl_of(b)->storage);
  });
}

PyMethodDef functions[] = {
    {"storage_bytes", storage_bytes, METH_O,
     "The bytes of a tensor's storage as a tensor that shares them and their versions."},
    {"is_storage_resizable", is_storage_resizable, METH_O, "Can the storage of a tensor change its size?"},
    {"resize_storage", resize_storage, METH_VARARGS, "resize_storage(tensor, bytes); 0 releases the memory"},
    {"same_storage", same_storage, METH_VARARGS, "Do two tensors lie in the same memory?"},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

void add_storage(PyObject* module) { add_functions(module, functions); }

}  // namespace facula::bind
