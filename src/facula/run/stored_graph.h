// Graphs as bytes. Names of stored plans are digests of them (stored_plan.h). The simplified graph of a traced program (after trace,
// expand, merge equal and rematerialize of pipeline.h) is stored with its plans, so that a process that captures the program
// again neither traces nor simplifies it.
//   The name of a stored graph is a digest of everything that it depends on: the build of this library, the processor's
//   features, the captured graph with the values of its constants, and the layouts of the operands. Graphs whose constants are
//   tensors with several elements, or whose operators are not derived from the catalog, are not stored.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "facula/graph/graph.h"

namespace facula::run {

struct GraphBytes {
  std::string bytes;
  bool is_reproducible = true;  // the bytes mean the same in every process of this build
  bool is_readable = true;      // read_graph() can read them
  bool has_constants = false;
};
// How constants are written: with their value, which has to be a number, or as a layout, which cannot be read back.
enum class Constants : uint8_t { values, layouts };
GraphBytes bytes_of(const graph::Graph& g, Constants constants);
// Nothing if the bytes are no graph, or if it calls an operator that this process does not have.
std::optional<graph::Graph> read_graph(std::string_view bytes);

// Whether this process looks for graphs and plans on the disk, and leaves them there.
bool stores_plans();
// A digest of the build of this library, the processor's features, and `contents`.
std::string stored_digest(std::string_view kind, std::string_view contents);

// The name of the graph of a call of `o`, whose body is a captured graph; empty if it is not to be stored.
std::string stored_name_of_call(const op::Operator& o, std::span<const op::Value> operands);
// The stored graph; nothing if there is none, or if it does not have the inputs and outputs of `captured`.
std::optional<graph::Graph> load_graph(const std::string& name, const graph::Graph& captured);
// Stores the graph when the process ends.
void store_graph(const std::string& name, const graph::Graph& g);

}  // namespace facula::run
