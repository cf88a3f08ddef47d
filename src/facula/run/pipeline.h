// The passes from a traced graph to kernels, in the order in which they run. FACULA_LOG=passes prints the time of each.
//
//   trace           an operator's body, or a function, becomes a graph (graph/trace.h)
//   differentiate   of a call that is recorded: the graph and its gradient become one graph (graph/joint.cpp)
//   partition       the joint graph is cut into a forward and a backward graph (graph/partition.cpp)
//   expand          composites become the calls of their bodies (graph/trace.cpp)
//   merge equal     equal calls become one, and calls that nobody reads vanish (graph/cse.cpp, dce.cpp)
//   rematerialize   cheap values are computed again instead of being retained (graph/rematerialize.cpp)
//   fuse            calls become expressions, and these the groups of fused kernels (schedule/lower.cpp, fuse.cpp)
//   analyse         what each group computes, for any layout (schedule/analysis.cpp)
//   plan            order, reuse of memory and arena, for one layout of the inputs (run/plan.cpp)
//   schedule        the groups become loop nests for that layout (schedule/schedule.cpp)
//   kernels         the nests are found in a cache, or lowered to lanes and compiled (schedule/lanes.cpp, codegen/cache.cpp)
//
// `name`: the operator or function as users write it.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "facula/codegen/kernel.h"
#include "facula/graph/passes.h"
#include "facula/graph/trace.h"
#include "facula/schedule/fuse.h"
#include "facula/schedule/schedule.h"

namespace facula::run::pipeline {

graph::Graph trace(std::shared_ptr<sym::Shapes> shapes, std::span<const graph::InputSpec> inputs,
                   const graph::Function& f, const std::string& name);
graph::Joint differentiate(const graph::Graph& forward, const std::vector<int>& wrt, const std::string& name);
graph::Partition partition(const graph::Joint& joint, const std::string& name);

// expand, merge equal, rematerialize.
graph::Graph simplify(graph::Graph g, const std::string& name);

// fuse, analyse.
std::vector<schedule::Step> fuse(const graph::Graph& g, const std::string& name);

schedule::Schedule schedule(const schedule::Group& group, schedule::Layout layout,
                            std::shared_ptr<const schedule::AnalysedGroup> analysis);

// The scheduler returns the same nest for equal groups, and a nest knows its kernel once that is found. Several kernels that
// are missing are found or compiled by several threads.
using Nests = std::vector<std::shared_ptr<const loop::LazyNest>>;
std::vector<const codegen::Kernel*> kernels(const Nests& nests);

}  // namespace facula::run::pipeline
