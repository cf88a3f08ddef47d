// Replaces library calls by their reference definitions, so that a graph consists of operators from which loop nests are
// generated, and of the library calls for which the C backend has functions (embed/c_functions.h).
//   example:  %2 = conv2d(%0, %1)  ->  %2 = the loop over conv2d's elements, as an operator
// Pointwise values of a forward pass that the backward pass reads are computed again there, where that needs less memory.
//   requires: a verified functional graph without symbolic sizes
//   ensures:  every node is pointwise, a loop, a view or such a library call. NotImplementedError names an operator that has no such form:
//             sizes that depend on data, random numbers, functions of users; and the line of the user's program that calls it.
//   cost:     linear in nodes
#pragma once
#include "facula/graph/trace.h"

namespace facula::embed {

// The graph of the first `results` outputs of a trace, and of its writes. `program`: its name, and `lines`: of the nodes, both for errors;
// `functions`: whether the C backend's functions are called.
graph::Graph with_references(const graph::Graph& traced, size_t results, const char* program, bool functions,
                             const graph::Lines& lines);

}  // namespace facula::embed
