// The functions that facula._C offers to modules of users' in C++, in a capsule (torch/python.h). Objects of Python's
// are PyObject*, without its headers here; the GIL is held.
#pragma once
#include "facula/extend/build.h"
#include "facula/tensor/tensor.h"

struct _object;

namespace facula::extend {

struct PythonApi {
  using Object = ::_object;
  TensorImpl* (*tensor_of)(Object*);  // borrowed; null for what is no tensor
  Object* (*wrap)(TensorImpl*);       // a new reference; None for null; null and an exception
  bool (*dtype_of)(Object*, DType*);
  Object* (*wrap_dtype)(DType);
  bool (*device_of)(Object*, Device*);
  Object* (*wrap_device)(Device);
  CustomClassHolder* (*object_of)(Object*);  // borrowed; null for what is no object of a C++ class
  Object* (*wrap_object)(CustomClassHolder*);
  void (*set_error)();  // within a catch block: Python's exception for the C++ one
};

}  // namespace facula::extend
