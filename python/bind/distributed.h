// distributed.cpp: groups of ranks (facula.distributed).
#pragma once
#include "python.h"

namespace facula::bind {

void add_distributed(PyObject* module);

}  // namespace facula::bind
