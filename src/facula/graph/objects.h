// Objects of users' C++ classes in graphs: arguments of calls that belong to the graph, as constants do. The text of
// a graph numbers them in the order of their first use, `push(self=object 0, %1)`, and is stored together with them.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "facula/graph/graph.h"

namespace facula::graph {

using Objects = std::vector<Ref<CustomClassHolder>>;
// The objects by their numbers in the text; each one once.
Objects objects_of(const Graph& g);
// parse_graph() for a text that refers to these objects.
Graph parse_graph(std::string_view text, const Objects& objects);

}  // namespace facula::graph
