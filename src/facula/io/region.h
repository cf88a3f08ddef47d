// Regions: calls of cond, while_loop, scan and map in saved programs. A region is an operator of the namespace
// facula_region that takes the operands of the call and the tensors that its functions read, and whose functions are
// graphs:
//
//   facula_region::cond_0(Tensor[] operands, Tensor[] extras) -> Tensor[]
//
// Its gradient is the operator NAME_backward, which runs the region again. Python traces the functions
// (python/facula/_higher_order_ops).
#pragma once
#include <string>
#include <vector>

#include "facula/graph/graph.h"
#include "facula/io/value.h"

namespace facula::io {

// Defines the regions of a file, a list of {name, kind, split, functions}, inner ones first; `functions` are texts of
// graphs, whose inputs are those of a function and then all extras. Returns `graph`, a text that calls the regions by their
// names in the file, with the names that they have in this process. Raises RuntimeError if a region is damaged.
std::string define_regions(const Value& regions, const std::string& graph, const std::string& path);

// Defines one region, whose functions call regions by their names in this process, and returns its name. Equal regions have
// one name.
std::string define_region(const std::string& kind, size_t split, const std::vector<std::string>& functions);

// The regions that the graph calls, in the form that define_regions() reads.
List regions_of(const graph::Graph& g);

}  // namespace facula::io
