// Sizes that are known only when a program runs, as Python has them while a function is traced (sym/run_time.h).
#pragma once
#include "facula/sym/run_time.h"
#include "python.h"

namespace facula::bind {

bool is_run_time_size(PyObject* o);
SymInt run_time_size_of(PyObject* o);
PyObject* wrap_run_time_size(SymInt size);
void add_run_time_size(PyObject* module);

}  // namespace facula::bind
