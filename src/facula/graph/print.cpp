#include <map>
#include <sstream>

#include "facula/graph/graph.h"
#include "facula/op/call.h"
#include "facula/op/describe.h"
#include "facula/op/registry.h"

namespace facula::graph {

namespace {

std::string type_of(const Value& v) {
  std::ostringstream s;
  s << v.tensor.dtype() << to_string(v.tensor.sizes());
  if (!v.tensor.is_contiguous()) s << " strides " << to_string(v.tensor.strides());
  return s.str();
}

void print_argument(std::ostream& s, const op::Value& v) {
  auto reference = [&](const TensorImpl* t) {
    if (t) s << '%' << t->traced->id;
    else s << "None";
  };
  if (v.tag == op::Tag::tensor) return reference(v.tensor);
  if (v.tag != op::Tag::tensors) return op::print_attribute(s, v);
  s << '[';
  bool first = true;
  for (auto* t : v.tensors()) {
    if (!std::exchange(first, false)) s << ", ";
    reference(t);
  }
  s << ']';
}

}  // namespace

std::string print(const Graph& g) {
  std::ostringstream s;
  s << "graph(";
  for (size_t i = 0; i < g.inputs.size(); ++i)
    s << (i ? ", " : "") << '%' << g.inputs[i]->id << ": " << type_of(*g.inputs[i]);
  s << ")\n";
  for (auto& v : g.values())
    if (v->constant.defined()) s << "  %" << v->id << ": " << type_of(*v) << " = constant\n";
  for (auto& n : g.nodes) {
    s << "  ";
    for (size_t i = 0; i < n->results.size(); ++i)
      s << (i ? ", " : "") << '%' << n->results[i]->id << ": " << type_of(*n->results[i]);
    s << " = " << n->op->schema.full_name() << '(';
    auto values = n->args.values();
    bool first = true;
    for (size_t k = 0; k < values.size(); ++k) {
      auto& p = n->op->schema.parameters[k];
      if (!std::exchange(first, false)) s << ", ";
      if (p.type != op::Type::Tensor) s << p.name << '=';
      print_argument(s, values[k]);
    }
    s << ")\n";
  }
  s << "  return ";
  for (size_t i = 0; i < g.outputs.size(); ++i) {
    if (i) s << ", ";
    if (g.outputs[i]) s << '%' << g.outputs[i]->id;
    else s << "None";
  }
  for (auto& [i, v] : g.mutated) s << "  mutates input " << i << " = %" << v->id;
  s << '\n';
  return s.str();
}

}  // namespace facula::graph
