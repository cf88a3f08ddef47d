// All operators, by full name. Filled once by catalog::load(); later definitions (custom operators, tests)
// append.
#pragma once
#include <functional>
#include <string_view>
#include <vector>

#include "facula/op/operator.h"

namespace facula::op {
const Operator* find(std::string_view full_name);               // null if unknown; aliases are known too
const Operator& get(std::string_view full_name);                // internal error if unknown
const std::vector<const Operator*>& all();                      // in order of definition
std::vector<const Operator*> overloads(std::string_view name);  // of a base name, in order of definition
// Called for every operator defined after the catalog was loaded (the binding attaches it).
void on_define(std::function<void(const Operator&)> listener);
// Completes derived facts and checks the definition; called when the next definition starts or all are done.
void finish_definitions();
// Runs a family of definitions after the catalog was loaded and finishes it. A faulty definition raises and
// leaves no trace in the registry.
void define_late(const std::function<void()>& family);
// Forgets the name of an operator that was defined late, so that another may have it. Tapes and programs that
// call it go on doing so: it is never freed.
void retire(const Operator& o);
// An operator without a name for `find`, such as a traced program. It is never freed either.
Operator& nameless(std::string_view schema, Composite calls);
}  // namespace facula::op
