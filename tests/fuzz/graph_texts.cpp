// Texts of graphs to start from: of every operator one call, by its first sample, over sizes that are symbols where its
// rule allows them, and the graph with its gradient.

#include "facula/graph/graph.h"
#include "facula/graph/passes.h"
#include "facula/graph/trace.h"
#include "facula/op/call.h"
#include "facula/op/registry.h"
#include "fuzz.h"
#include "literals.h"

namespace facula::fuzz {

namespace {

// A call made of a sample, whose tensors are inputs of a graph.
struct SampleCall {
  const op::Operator& op;
  const op::Sample& sample;

  std::vector<graph::InputSpec> inputs(sym::Shapes* symbols) const {
    std::vector<graph::InputSpec> all;
    for (auto& [name, a] : sample.args) {
      for (auto& sizes : a.sizes) {
        graph::InputSpec spec{a.index ? DType::Int64 : a.boolean ? DType::Bool : real(), {}, {}};
        for (int64_t n : sizes)
          spec.sizes.push_back(symbols && n >= 2
                                   ? symbols->fresh("s" + std::to_string(symbols->symbol_count()), n)
                                   : SymInt(n));
        all.push_back(std::move(spec));
      }
    }
    return all;
  }
  std::vector<Tensor> operator()(std::span<const Tensor> given) const {
    std::vector<op::Schema> literals;
    std::vector<op::Value> args(op.schema.parameters.size());
    literals.reserve(args.size());
    for (auto& [name, a] : sample.args) {
      auto k = size_t(op.schema.index_of(name));
      if (a.kind == op::SampleArg::Kind::literal) {
        literals.push_back(test::literal(op.schema.parameters[k], a.literal));
        args[k] = literals.back().parameters[0].fallback[0];
      } else if (a.kind == op::SampleArg::Kind::tensor) {
        args[k] = op::Value(given[0]);
        given = given.subspan(1);
      } else {
        args[k] = op::Value(given.first(a.sizes.size()));
        given = given.subspan(a.sizes.size());
      }
    }
    return op::call(op, args).to_vector();
  }
  DType real() const {
    for (DType d : {DType::Float32, DType::Complex64, DType::Int64})
      if (op.dtypes.has(d)) return d;
    return DType::Bool;
  }
};

graph::Graph graph_of(const SampleCall& call, bool symbolic) {
  auto shapes = std::make_shared<sym::Shapes>();
  auto inputs = call.inputs(symbolic ? shapes.get() : nullptr);
  return graph::trace(shapes, inputs, call, "seed");
}

std::string text_of(graph::Graph g) {
  g.renumber();
  return graph::print(g);
}

void add_texts(const SampleCall& call, std::vector<std::string>& all) {
  for (bool symbolic : {true, false}) {
    try {
      auto g = graph_of(call, symbolic);
      all.push_back(text_of(std::move(g)));
      std::vector<int> wrt;
      g = graph_of(call, symbolic);
      for (size_t k = 0; k < g.inputs.size(); ++k)
        if (is_differentiable(g.inputs[k]->tensor.dtype())) wrt.push_back(int(k));
      if (call.op.differentiable && !wrt.empty())
        all.push_back(text_of(std::move(graph::differentiate(g, wrt).graph)));
      return;
    } catch (const Error&) {  // what looks at elements, or at sizes
    }
  }
}

}  // namespace

std::vector<std::string> graph_texts() {
  std::vector<std::string> all;
  for (auto* o : op::all())
    if (!o->samples().empty() && !o->schema.mutates() && !o->effects.reads_data)
      add_texts({*o, o->samples()[0]}, all);
  return all;
}

}  // namespace facula::fuzz
