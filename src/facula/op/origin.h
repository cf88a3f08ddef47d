// Operators whose definition follows from their full name, in every process of the same build: those of the
// catalog, and those derived from them. Others (custom operators, tests) may differ from run to run.
#pragma once
#include <cstddef>
#include <memory>
#include <string_view>

#include "facula/op/operator.h"

namespace facula::op {
bool is_reproducible(const Operator& o);
// Operators defined since there were `begin` are the catalog's: said once, by catalog::load().
void fix_catalog(size_t begin);
// Registers an operator that was derived, a gradient for instance, under its full name, which says all that its
// definition follows from besides the operator that it was derived from: find() knows it then. It lives for
// ever, and all() leaves it out. Gives the one that has the name already, if there is one.
const Operator& register_derived(std::unique_ptr<Operator> derived);
// Is it what find() gives for its full name?
bool is_found(const Operator& o);
// What find() asks for a name that it does not know: an operator that follows from the name alone, or null.
void derive_by_name(const Operator* (*derive)(std::string_view full_name));
}  // namespace facula::op
