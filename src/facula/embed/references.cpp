#include "facula/embed/references.h"

#include "facula/embed/c_functions.h"
#include "facula/graph/passes.h"
#include "facula/op/call.h"
#include "facula/run/library_call.h"

namespace facula::embed {
namespace {

using graph::Graph;
using graph::Lines;
using graph::Node;

// A graph, and the lines of the user's program from which its nodes come.
struct Annotated {
  Graph graph;
  Lines lines;
};

// Notes the line of the nodes that compute `results`, up to those that have one already.
void note_line(const op::Results& results, const graph::SourceLine& line, Lines& lines) {
  std::vector<const Node*> fresh;
  auto reach = [&](const graph::Value* v) {
    if (v && v->producer && lines.try_emplace(v->producer, line).second) fresh.push_back(v->producer);
  };
  for (auto& t : results.all()) reach(graph::value_of(t));
  while (!fresh.empty()) {
    auto* n = fresh.back();
    fresh.pop_back();
    graph::each_operand(*n, reach);
  }
}

// The line of a node in the user's program, for errors: " (net.py:12)", or nothing.
std::string line_of(const Node& n, const Lines& lines) {
  auto it = lines.find(&n);
  return it == lines.end() || !it->second ? "" : " (" + to_string(it->second) + ")";
}

void check_supported(const Annotated& a, const char* program) {
  auto& g = a.graph;
  for (auto& n : g.nodes) {
    auto& o = *n->op;
    auto* library = o.as<op::Library>();
    bool has_reference = library && (library->reference || library->composed_reference);
    bool generated = has_reference || o.is<op::Pointwise>() || o.is<op::Loop>() || o.is<op::View>();
    supported_check(generated && !o.effects.draws && !o.effects.reads_data, program)
        << "calls " << o.name() << line_of(*n, a.lines) << ", for which no C is generated"
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

// Calls the operators of the graph again by `call`, and carries the lines over.
template <class F>
Annotated called_again(const Graph& g, const Lines& lines, F&& call) {
  Annotated result;
  auto noted = [&](const Node& n, std::span<const op::Value> args) {
    op::Results results = call(n, args);
    auto it = lines.find(&n);
    note_line(results, it == lines.end() ? graph::SourceLine() : it->second, result.lines);
    return results;
  };
  result.graph = graph::expanded(g, g.shapes, noted);
  result.graph.renumber();
  return result;
}
// One round: the reference of a library operator may call other library operators.
Annotated expanded_once(const Annotated& a, bool functions) {
  return called_again(a.graph, a.lines, [&](const Node& n, std::span<const op::Value> args) {
    return called(n, args, functions);
  });
}

}  // namespace

Graph with_references(const Graph& traced, size_t results, const char* program, bool functions,
                      const Lines& lines) {
  // Calls that were kept whole for their gradient become those of their bodies.
  Annotated all = called_again(traced, lines, [](const Node& n, std::span<const op::Value> args) {
    return op::call(*n.op, args);
  });
  all.graph.outputs.resize(results);
  all.graph.renumber();
  graph::remove_dead(all.graph);
  check_supported(all, program);
  all = expanded_once(all, functions);
  auto has_library = [&] {
    return std::ranges::any_of(all.graph.nodes, [&](auto& n) { return needs_reference(*n, functions); });
  };
  constexpr int kRounds = 8;  // references are nested two or three deep
  for (int k = 0; k < kRounds && has_library(); ++k) {
    check_supported(all, program);
    all = expanded_once(all, functions);
  }
  internal_check(!has_library()) << program
                                 << ": references of library operators call each other without end";
  check_supported(all, program);
  graph::remove_dead(all.graph);
  graph::merge_equal(all.graph);
  graph::rematerialize(all.graph);
  return std::move(all.graph);
}

}  // namespace facula::embed
