// Traces one call of an operator into a graph with symbolic sizes.
#pragma once
#include "facula/graph/graph.h"
#include "facula/run/operands.h"

namespace facula::run {

// The key of a trace: everything it depends on besides sizes and strides, which is attributes, dtypes, ranks, and the dtypes of destinations.
// Traces for other purposes than running the call are kept under keys of their own.
Key trace_key(const op::Operator& o, std::span<const op::Value> args, std::span<const Tensor> out,
              Purpose purpose = Purpose::functional);
// The graph of the call. Results are cast to the dtypes of the defined tensors in `out`. Raises what the call raises.
// `composites`: those with a gradient rule of their own are nodes of the graph, which `differentiate` needs, or the calls of
// their bodies, which a program needs.
enum class Composites : uint8_t { nodes, bodies };
graph::Graph trace_call(const op::Operator& o, std::span<const op::Value> args, std::span<const Tensor> out,
                        Composites composites = Composites::nodes);

}  // namespace facula::run
