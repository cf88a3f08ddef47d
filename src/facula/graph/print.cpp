#include <map>
#include <sstream>

#include "facula/graph/graph.h"
#include "facula/op/call.h"
#include "facula/op/registry.h"

namespace facula::graph {

namespace {

std::string type_of(const Value& v) {
  std::ostringstream s;
  s << v.tensor.dtype() << to_string(v.tensor.sizes());
  if (!v.tensor.is_contiguous()) s << " strides " << to_string(v.tensor.strides());
  return s.str();
}

std::string quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

void print_argument(std::ostream& s, const op::Value& v) {
  using op::Tag;
  auto reference = [&](const TensorImpl* t) {
    if (t) s << '%' << t->traced->id;
    else s << "None";
  };
  switch (v.tag) {
    case Tag::none: s << "None"; break;
    case Tag::tensor: reference(v.tensor); break;
    case Tag::integer: s << v.integer(); break;
    case Tag::scalar: s << v.scalar; break;
    case Tag::ints: s << to_string(v.ints()); break;
    case Tag::string: s << quoted(v.string()); break;
    case Tag::dtype: s << name(v.dtype); break;
    case Tag::device: s << v.device; break;
    case Tag::format: s << "format" << int(v.format); break;
    case Tag::generator: s << "generator"; break;
    case Tag::tensors: {
      s << '[';
      bool first = true;
      for (auto* t : v.tensors()) {
        if (!std::exchange(first, false)) s << ", ";
        reference(t);
      }
      s << ']';
      break;
    }
    case Tag::scalars: {
      s << '[';
      for (size_t i = 0; i < v.list.count; ++i)
        s << (i ? ", " : "") << static_cast<const Scalar*>(v.list.data)[i];
      s << ']';
      break;
    }
  }
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
