#include "facula/autograd/shown_name.h"

#include <unordered_map>
#include <vector>

#include "facula/autograd/node.h"
#include "facula/op/registry.h"

namespace facula::autograd {

namespace {

std::vector<std::span<const ShownName>> given;

const ShownName* name_of(const op::Operator& o) {
  static const auto all = [] {
    std::unordered_map<const op::Operator*, const ShownName*> all;
    for (auto& list : given)
      for (auto& s : list) all[&op::get(s.op)] = &s;
    return all;
  }();
  auto it = all.find(&o);
  return it == all.end() ? nullptr : it->second;
}

}  // namespace

void set_shown_names(std::span<const ShownName> all) { given.push_back(all); }

std::string shown_name(const op::Operator& o, std::span<const op::Value> args) {
  auto* known = name_of(o);
  if (known && !known->of) return std::string(known->stem) + "Backward0";
  std::string name = known ? known->of(op::Call(o, args), known->stem) : std::string();
  return name.empty() ? node_name(o.name()) : name;
}

}  // namespace facula::autograd
