// Plans on a disk, beside the kernels: what a program begins with is neither fused nor scheduled by the processes that
// begin with it again. A plan is found by all that it follows from: the build of this library, the processor's features,
// the traced graph with its symbols, and the layouts; so it is the plan that would be made, to the bit. What cannot be
// told so is not kept: generators, operators that follow from none of the catalog's.
//   Only the first plans of a program, an operator and a process are looked for, and files are bounded (codegen/store.h): sizes that
//   change for ever cost no files.
#pragma once
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "facula/graph/graph.h"
#include "facula/run/program.h"

namespace facula::run {

// What names of plans have of their graph, made once.
struct GraphName {
  std::once_flag made;
  std::string name;       // "": plans of the graph are not kept
  bool captures = false;  // does it have constants?
};
// "" if the plan is not to be kept. `op`: whose program it is; `of_graph`: of `g`; `symbols`: the values of its symbols.
std::string stored_name(const std::string& op, GraphName& of_graph, const graph::Graph& g, IntSpan symbols,
                        std::span<const op::Value> inputs, std::span<const Tensor> out);
// Null if there is none whose kernels are all there.
std::shared_ptr<const Plan> load_plan(const std::string& name, const graph::Graph& g, IntSpan symbols);
// Kept at the process's end.
void store_plan(const std::string& name, const graph::Graph& g, const Plan& plan);

}  // namespace facula::run
