// Objects of users' C++ classes (extend/class.h) in Python, and functions of operators that libraries define.
#pragma once
#include "python.h"

#include "facula/op/operator.h"

namespace facula::bind {

// The Python object of a C++ one, a new reference: equal for the same one.
PyObject* wrap_object(Ref<CustomClassHolder> o);
// The C++ object of a Python one if it is of the class ("mine.Stack"), else null.
CustomClassHolder* object_argument(PyObject* o, std::string_view class_name);

// A kernel as a function of Python's, called by the operator's schema.
PyObject* wrap_kernel(const op::Operator& o, op::CompositeBody kernel);

}  // namespace facula::bind
