// Access of other files of the binding to the programs of facula._C.
#pragma once
#include "facula/io/program.h"
#include "python.h"

namespace facula::bind {

// The traced function of a Program of facula._C; raises TypeError for other objects.
run::Traced& traced_of(PyObject* program);
PyObject* wrap_program(Program program);
void add_graph(PyObject* module);

}  // namespace facula::bind
