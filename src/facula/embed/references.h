// Replaces library calls by their reference definitions, so that a graph consists of operators from which loop nests are
// generated, and of the library calls for which the C backend has functions (embed/c_functions.h).
//   example:  %2 = conv2d(%0, %1)  ->  %2 = the loop over conv2d's elements, as an operator
//   requires: a verified functional graph without symbolic sizes
//   ensures:  every node is pointwise, a loop, a view or such a library call. NotImplementedError names an operator that has no such form:
//             sizes that depend on data, random numbers, functions of users.
//   cost:     linear in nodes
#pragma once
#include "facula/graph/graph.h"

namespace facula::embed {

// `program`: its name, for errors; `functions`: whether the C backend's functions are called.
graph::Graph with_references(const graph::Graph& g, const char* program, bool functions);

}  // namespace facula::embed
