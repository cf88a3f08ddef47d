// The registry of all operators by full name. catalog::load() fills it once; later definitions (custom operators,
// tests) append to it.
#pragma once
#include <functional>
#include <string_view>
#include <vector>

#include "facula/op/operator.h"

namespace facula::op {
const Operator* find(std::string_view full_name);               // null if unknown; finds aliases as well
const Operator& get(std::string_view full_name);                // internal error if unknown
const std::vector<const Operator*>& all();                      // in order of definition
std::vector<const Operator*> overloads(std::string_view name);  // of a base name, in order of definition
// Sets a listener for operators that are defined after the catalog was loaded (the binding attaches them).
void on_define(std::function<void(const Operator&)> listener);
// Completes derived properties and checks the definition; called when the next definition starts or all are done.
void finish_definitions();
// Runs a family of definitions after the catalog was loaded, and finishes it. If a definition is invalid, it raises
// and leaves the registry unchanged.
void define_late(const std::function<void()>& family);
// Frees the name of an operator that was defined late, so that another one may use it. Tapes and programs can still
// call the operator, which is never freed.
void retire(const Operator& o);
// An operator that `find` does not know, such as a traced program. It is never freed either.
Operator& nameless(std::string_view schema, Composite calls);
}  // namespace facula::op
