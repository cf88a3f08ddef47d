// The functions that facula._C provides to users' C++ modules, in a capsule (torch/python.h). Python objects are
// PyObject*, without a dependency on its headers; the caller holds the GIL.
#pragma once
#include "facula/extend/build.h"
#include "facula/tensor/tensor.h"

struct _object;

namespace facula::extend {

struct PythonApi {
  using Object = ::_object;
  TensorImpl* (*tensor_of)(Object*);  // borrowed; null for other objects
  Object* (*wrap)(TensorImpl*);       // a new reference; None for null; null and an exception
  bool (*dtype_of)(Object*, DType*);
  Object* (*wrap_dtype)(DType);
  bool (*device_of)(Object*, Device*);
  Object* (*wrap_device)(Device);
  CustomClassHolder* (*object_of)(Object*);  // borrowed; null for objects that are not of a C++ class
  Object* (*wrap_object)(CustomClassHolder*);
  void (*set_error)();  // within a catch block: raises Python's exception for the C++ one
};

}  // namespace facula::extend
