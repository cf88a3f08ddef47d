// facula._C.Compiled: a function that is captured when it is called, and whose later calls run what was captured.
#pragma once
#include "../python.h"

namespace facula::bind::capture {

// The function of an object that compile() returned; null for all others. Borrowed.
PyObject* function_of_compiled(PyObject* o);
// Whether this thread captures.
bool is_capturing();
// A call that C++ code makes of a user's callable: a hook, a method of a custom function. A new reference, or null with an
// exception. While a function is captured, the call is interpreted as a part of it. What cannot be captured takes the call's
// writes to Python objects back, and raises a RuntimeError; so does a write if not `may_write`, because the number of calls
// differs from eager mode.
PyObject* call_user(PyObject* callable, PyObject* const* args, size_t n, bool may_write = true);
void add_generator_type(PyObject* module);
void add_capture(PyObject* module);  // the types of this folder

}  // namespace facula::bind::capture
