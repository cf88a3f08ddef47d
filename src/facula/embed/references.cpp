#include "facula/embed/references.h"

#include "facula/graph/passes.h"
#include "facula/graph/trace.h"
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

// Calls the node's operator, or the reference of a library operator.
std::vector<Tensor> called(const Node& n, std::span<const op::Value> args) {
  auto* library = n.op->as<op::Library>();
  if (!library) return op::call(*n.op, args).to_vector();
  if (library->reference) return op::call(run::reference_loop(*n.op), args).to_vector();
  return library->composed_reference(op::Call(*n.op, args)).to_vector();
}

std::vector<Tensor> interpreted(const Graph& g, std::span<const Tensor> inputs) {
  std::vector<Tensor> at(g.values().size());  // by the number of the value
  for (size_t i = 0; i < inputs.size(); ++i) at[size_t(g.inputs[i]->id)] = inputs[i];
  auto tensor_of = [&](graph::Value* v) {
    return !v ? Tensor() : v->constant.defined() ? v->constant : at[size_t(v->id)];
  };
  for (auto& n : g.nodes) {
    graph::At place(n->place);
    op::Args args = n->args.clone();
    args.each_tensor([&](size_t, Tensor& t) {
      if (t.defined()) t = tensor_of(graph::value_of(t));
    });
    auto results = called(*n, args.values());
    for (size_t k = 0; k < n->results.size(); ++k) at[size_t(n->results[k]->id)] = results[k];
  }
  std::vector<Tensor> out, written;
  for (auto* v : g.outputs) out.push_back(tensor_of(v));
  for (auto& [i, v] : g.mutated) written.push_back(tensor_of(v));
  graph::write_back(g, inputs, written, out);
  return out;
}

// One round: the reference of a library operator may call other library operators.
Graph expanded_once(const Graph& g, const char* program) {
  std::vector<graph::InputSpec> specs;
  for (auto* v : g.inputs) specs.push_back(graph::spec_of(v->tensor));
  auto calls = [&](std::span<const Tensor> inputs) {
    graph::KeepRules off(graph::KeepRules::none);
    return interpreted(g, inputs);
  };
  Graph result = graph::trace(g.shapes, specs, calls, program);
  result.results = g.results;
  result.renumber();
  return result;
}

}  // namespace

Graph with_references(const Graph& g, const char* program) {
  check_supported(g, program);
  Graph result = expanded_once(g, program);
  auto has_library = [](const Graph& any) {
    return std::ranges::any_of(any.nodes, [](auto& n) { return n->op->template is<op::Library>(); });
  };
  constexpr int kRounds = 8;  // references are nested two or three deep
  for (int k = 0; k < kRounds && has_library(result); ++k) {
    check_supported(result, program);
    result = expanded_once(result, program);
  }
  internal_check(!has_library(result))
      << program << ": references of library operators call each other without end";
  check_supported(result, program);
  graph::remove_dead(result);
  graph::merge_equal(result);
  return result;
}

}  // namespace facula::embed
