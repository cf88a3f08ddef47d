// facula._C.ProgramBase: the call of a traced function, and the assumptions that a call checks (program_call.cpp).
#pragma once
#include "facula/run/traced.h"
#include "python.h"

namespace facula::bind {

void add_program_call(PyObject* module);

}  // namespace facula::bind
