// A traced program, planned for printing as one function of a language without a run-time library: every step is a generated
// nest, a view, or a call of one of the backend's functions, and every value has a place in an argument, a captured tensor or one arena.
#pragma once
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "facula/embed/c_functions.h"
#include "facula/run/plan.h"
#include "facula/run/traced.h"

namespace facula::embed {

struct Place {
  enum class Root : uint8_t {
    none,
    input,     // the function's argument `number`, or, behind these, a captured tensor
    result,    // the buffer of the function's result `number`
    constant,  // a constant of the graph, by value number
    arena,     // `offset` bytes behind its start
  } root = Root::none;
  int number = 0;
  int64_t offset = 0;  // in bytes
};

// A copy of a value to memory of equal sizes, after the last step.
struct Copy {
  Place from, to;
  DType dtype;
  Ints sizes, from_strides, to_strides;  // in elements
};

// A part of the arena, and the steps during which it is in use.
struct Block {
  std::string name;
  int64_t offset, bytes;
  size_t first, last;  // inclusive
};

struct Options {
  // Numbers of arguments whose memory is a part of the arena until their last use; the caller fills it before each call.
  std::set<int> in_arena;
  bool functions =
      true;  // calls the backend's functions; otherwise all operators are nests of their references
  bool reorders =
      true;  // runs steps in the order that needs little memory (embed/order.h); otherwise in that of the trace
};

struct Lowered {
  run::NumberedGraph graph;
  std::vector<schedule::Step> steps;
  std::vector<const CFunction*> functions;  // by step; null: a nest or a view
  std::shared_ptr<const run::Plan> plan;
  size_t arguments = 0;       // of the function; the graph's other inputs are captured tensors
  std::vector<Place> places;  // by value number
  std::vector<std::vector<Place>> temporaries;  // by step
  std::vector<Copy> copies;                     // written inputs and results that no step stores in place
  int64_t arena = 0;                            // bytes
  std::vector<Block> blocks;
};

// Raises NotImplementedError for sizes that are symbols or depend on data, random numbers, and functions of users, with
// the line that calls them. Gradient slots that the program fills are dropped: a board has no tensors that hold them.
Lowered lowered(const run::Traced& program, const Options& options = {});

}  // namespace facula::embed
