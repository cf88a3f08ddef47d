#include "facula/run/failed_check.h"

#include <algorithm>

#include "facula/op/registry.h"
#include "facula/schedule/fuse.h"

namespace facula::run {
namespace {

// The nodes that compute the outputs from the inputs, in order.
std::vector<const graph::Node*> between(const graph::Graph& g, const std::vector<int>& inputs,
                                        const std::vector<int>& outputs) {
  std::vector<const graph::Node*> inside;
  std::vector<int> waiting = outputs;
  while (!waiting.empty()) {
    int v = waiting.back();
    waiting.pop_back();
    if (v < 0 || std::ranges::count(inputs, v)) continue;
    auto* node = g.values()[size_t(v)]->producer;
    if (!node || std::ranges::count(inside, node)) continue;
    inside.push_back(node);
    for (auto& t : node->args.tensors())
      if (auto* from = graph::value_of(t)) waiting.push_back(from->id);
  }
  std::ranges::sort(inside, {}, [](auto* n) { return n->id; });
  return inside;
}

// The name by which users know the operator; empty if they do not.
std::string name_of(const op::Operator& o) {
  if (!o.called.empty()) return o.called;
  if (!(o.namespaces & op::hidden) || o.name()[0] != '_') return o.name();
  const char* visible_name = o.name() + 1;  // "index" for _index
  return op::overloads(visible_name).empty() ? "" : visible_name;
}

// Whether the call checks an index into a dimension of the size that the error names. A symbolic size may be any.
bool looks(const graph::Node& n, std::string_view text) {
  if (!n.op->is<op::Loop>() && !n.op->is<op::Pointwise>()) return false;
  auto d = schedule::lower(*n.op, n.args.values());
  std::vector<loop::Expr> all = d.values;
  if (d.scatter) {
    all.insert(all.end(), d.scatter->target.begin(), d.scatter->target.end());
    all.push_back(d.scatter->value);
  }
  bool may_fail = false;
  for (auto x : all)
    loop::visit(x, [&](loop::Expr e) {
      if (e->kind != loop::Kind::check) return;
      auto size = e->args[1];
      if (size->kind == loop::Kind::constant && !n.op->refusals.empty()) return;  // the check of an element
      bool is_concrete = size->kind == loop::Kind::size && !size->size.is_symbolic();
      may_fail = may_fail || !is_concrete || text.ends_with("size " + std::to_string(size->size.concrete()));
    });
  return may_fail;
}

}  // namespace

Error as_of_operator(const Error& e, const NumberedGraph& g, const std::vector<int>& inputs,
                     const std::vector<int>& outputs) {
  if (e.op() != g.name || !op::overloads(g.name).empty()) return e;
  std::string names;
  std::optional<ErrorType> type;
  for (auto* n : between(g.graph, inputs, outputs)) {
    if (!looks(*n, e.message())) continue;
    auto& o = *n->op;
    std::string name = name_of(o);
    if (name.empty()) return e;
    if (("or " + names + " ").find(" " + name + " ") != std::string::npos) continue;
    names += (names.empty() ? "" : " or ") + name;
    type = type && *type != o.bad_index ? ErrorType::IndexError : o.bad_index;
  }
  return names.empty() ? e : Error(e.kind(), *type, names, e.message());
}

}  // namespace facula::run
