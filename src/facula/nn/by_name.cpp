#include "facula/nn/by_name.h"

#include <algorithm>

#include "facula/nn/dynamic.h"

namespace facula::nn {

namespace {
Arguments by_name(const io::Dict& values) {
  Arguments a;
  for (auto& [name, v] : values) a.named.emplace_back(name.string(), v);
  return a;
}
template <class Entry>
const Entry& entry(std::span<const Entry> table, std::string_view name, const char* what) {
  auto found = std::find_if(table.begin(), table.end(), [&](const Entry& e) { return e.name == name; });
  value_check(found != table.end(), "nn") << "there is no " << what << " '" << name << "'";
  return *found;
}
}  // namespace

Module make_module(std::string_view name, const io::Dict& settings) {
  return construct(*entry(classes(), name, "module").type, by_name(settings));
}
io::Value call_module(const Module& m, const io::Dict& inputs) { return forward(m, by_name(inputs)); }
io::Value call_functional(std::string_view name, const io::Dict& arguments) {
  return invoke(entry(functional_functions(), name, "function").body, by_name(arguments));
}
io::Value call_operator(std::string_view name, const io::Dict& arguments) {
  return call(operator_value(name), by_name(arguments));
}
io::Value module_value(const Module& m) { return std::make_shared<ModuleObject>(m); }

}  // namespace facula::nn
