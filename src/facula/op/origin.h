// Whence an operator is: the library's own are fixed by its build, so that what follows from them holds in every process
// of the same build. Others (custom operators, tests) may differ from run to run.
#pragma once
#include <cstddef>
#include <string>

#include "facula/op/operator.h"

namespace facula::op {
// What tells the operator from all others, with its name: "" of one of the catalog, what was said of one that was
// derived; null of others.
const std::string* origin_of(const Operator& o);
// Those defined since there were `begin` are the catalog's: said once, by catalog::load().
void fix_catalog(size_t begin);
// Of one that was derived, and lives for ever: all that its definition was made of.
void set_origin(const Operator& derived, std::string origin);
}  // namespace facula::op
