#include "facula/embed/references.h"

#include "facula/embed/c_functions.h"
#include "facula/graph/passes.h"
#include "facula/op/call.h"
#include "facula/run/library_call.h"

namespace facula::embed {
namespace {

using graph::Graph;
using graph::Node;

void check_supported(const Graph& g, const char* program) {
  for (auto& n : g.nodes) {
    auto& o = *n->op;
    auto* library = o.as<op::Library>();
    bool has_reference = library && (library->reference || library->composed_reference);
    bool generated = has_reference || o.is<op::Pointwise>() || o.is<op::Loop>() || o.is<op::View>();
    supported_check(generated && !o.effects.draws && !o.effects.reads_data, program)
        << "calls " << o.name() << ", for which no C is generated"
        << hint(o.effects.draws ? "give random numbers as an argument; eval() turns dropout off"
                                : "compute it outside of the program");
  }
}

// A call of a library operator for which the C backend has no function.
bool needs_reference(const Node& n, bool functions) {
  return n.op->is<op::Library>() && !(functions && c_function(n));
}

// Calls the node's operator, or the reference of a library operator.
op::Results called(const Node& n, std::span<const op::Value> args, bool functions) {
  auto* library = n.op->as<op::Library>();
  if (!needs_reference(n, functions)) return op::call(*n.op, args);
  if (library->reference) return op::call(run::reference_loop(*n.op), args);
  return library->composed_reference(op::Call(*n.op, args));
}

// One round: the reference of a library operator may call other library operators.
Graph expanded_once(const Graph& g, bool functions) {
  auto call = [&](const Node& n, std::span<const op::Value> args) { return called(n, args, functions); };
  Graph result = graph::expanded(g, g.shapes, call);
  result.renumber();
  return result;
}

}  // namespace

Graph with_references(const Graph& g, const char* program, bool functions) {
  check_supported(g, program);
  Graph result = expanded_once(g, functions);
  auto has_library = [&](const Graph& any) {
    return std::ranges::any_of(any.nodes, [&](auto& n) { return needs_reference(*n, functions); });
  };
  constexpr int kRounds = 8;  // references are nested two or three deep
  for (int k = 0; k < kRounds && has_library(result); ++k) {
    check_supported(result, program);
    result = expanded_once(result, functions);
  }
  internal_check(!has_library(result))
      << program << ": references of library operators call each other without end";
  check_supported(result, program);
  graph::remove_dead(result);
  graph::merge_equal(result);
  return result;
}

}  // namespace facula::embed
