// Python's Generator objects.
#pragma once
#include "python.h"

#include "facula/base/random.h"

namespace facula::bind {
Generator* to_generator(PyObject* o);  // null if it is none
PyObject* wrap(Generator* g);          // the default one keeps its object; others get one that shares
}  // namespace facula::bind
