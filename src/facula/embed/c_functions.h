// Library operators for which the C backend has functions, as text: convolutions of 8-bit integers with their gradients, and of
// float32, tiled for a target's registers. Every other library operator becomes a loop nest of its reference (embed/references.h).
#pragma once
#include <span>
#include <string>

#include "facula/graph/graph.h"

namespace facula::embed {

struct CFunction {
  const char* library;  // the name in op::Library
  // Whether the function computes this call: its sizes, and the layouts of its operands.
  bool (*accepts)(const graph::Node& n);
  // Bytes of scratch memory.
  int64_t (*scratch)(const graph::Node& n);
  // Whether the result may replace operand 0 in memory.
  bool (*in_place)(const graph::Node& n);
  // Whether operand 0 may be the last part of the result's memory.
  bool (*grows)(const graph::Node& n);
  // The position of an operand that the function reads before its conversion from int8; -1: none.
  int unconverted;
  // Statements. `pointers`: the C expressions of the operands, then those of the results; `scratch`: that of the scratch memory.
  std::string (*statements)(const graph::Node& n, std::span<const std::string> pointers,
                            const std::string& scratch);
};

// The function for a call; null if there is none.
const CFunction* c_function(const graph::Node& n);
// The int8 value from which `v` was converted; null if it is no such copy. Views with the same elements are passed.
graph::Value* converted_from(graph::Value* v);
// The texts of the functions that `code` calls.
std::string c_function_texts(const std::string& code);

}  // namespace facula::embed
