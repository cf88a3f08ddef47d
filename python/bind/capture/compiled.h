// facula._C.Compiled: a function that is captured when it is called, and whose later calls run what was captured.
#pragma once
#include "../python.h"

namespace facula::bind::capture {

// The function of an object that compile() returned; null for all others. Borrowed.
PyObject* function_of_compiled(PyObject* o);
// Whether this thread captures.
bool is_capturing();
void add_generator_type(PyObject* module);
void add_capture(PyObject* module);  // the types of this folder

}  // namespace facula::bind::capture
