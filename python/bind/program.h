// The C++ program of a facula._C.Program, for other parts of the binding.
#pragma once
#include "facula/run/traced.h"
#include "python.h"

namespace facula::bind {

run::Traced& traced_of(PyObject* program);  // TypeError if it is no program

}  // namespace facula::bind
