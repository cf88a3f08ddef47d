// Plans on the disk, stored with the kernels, so that a process which starts like an earlier one neither fuses nor schedules. The
// name of a plan is a digest of everything that it depends on: the build of this library, the processor's features, the traced
// graph with its symbols, and the layouts. So a stored plan equals the plan that would be made. Graphs with values that have no
// text, such as generators, or operators that are not derived from the catalog, are not stored.
//   Only the first plans of a program, an operator and a process are looked up and stored, and the number of files is bounded
//   (codegen/store.h), so that programs whose sizes always change do not fill the disk.
#pragma once
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "facula/graph/graph.h"
#include "facula/run/program.h"

namespace facula::run {

// The part of a plan's name that depends on the graph alone: the name of the stored graph, or else computed once.
struct GraphName {
  std::once_flag named;
  std::string name;       // empty: plans of the graph are not stored
  bool captures = false;  // whether the graph has constants
  void set(std::string stored, bool has_constants) {
    std::call_once(named, [&] {
      name = std::move(stored);
      captures = has_constants;
    });
  }
};
// The name of a plan; empty if it is not to be stored. `op`: the operator of the program; `symbols`: values of the symbols of `g`.
std::string stored_name(const std::string& op, GraphName& of_graph, const graph::Graph& g, IntSpan symbols,
                        std::span<const op::Value> inputs, std::span<const Tensor> out);
// The stored plan; null if there is none or one of its kernels is missing.
std::shared_ptr<const Plan> load_plan(const std::string& name, const graph::Graph& g, IntSpan symbols);
// Stores the plan when the process ends.
void store_plan(const std::string& name, const graph::Graph& g, const Plan& plan);

}  // namespace facula::run
