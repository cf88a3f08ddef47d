// Identifies operators whose definition follows from their full name in every process of the same build: those of the
// catalog, and those derived from them. Others (custom operators, tests) may differ between runs.
#pragma once
#include <cstddef>
#include <memory>
#include <string_view>

#include "facula/op/operator.h"

namespace facula::op {
bool is_reproducible(const Operator& o);
// Declares that the operators defined after the first `begin` ones are the catalog's. catalog::load() calls it once.
void fix_catalog(size_t begin);
// Registers a derived operator, a gradient for instance, under its full name, from which its definition must follow
// (together with the operator that it was derived from). find() knows it from then on; it lives as long as the
// process, and all() does not list it. Gives the existing operator if there is one of that name.
const Operator& register_derived(std::unique_ptr<Operator> derived);
// True if find() gives this operator for its full name.
bool is_found(const Operator& o);
// Sets the function that find() calls for unknown names: it gives an operator that follows from the name alone, or
// null.
void derive_by_name(const Operator* (*derive)(std::string_view full_name));
}  // namespace facula::op
