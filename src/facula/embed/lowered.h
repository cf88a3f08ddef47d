// A traced program, planned for printing as one function of a language without a run-time library: every step is a generated
// nest or a view, and every value has a place in an argument, a captured tensor or one arena.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

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

struct Lowered {
  run::NumberedGraph graph;
  std::vector<schedule::Step> steps;
  std::shared_ptr<const run::Plan> plan;
  size_t arguments = 0;       // of the function; the graph's other inputs are captured tensors
  std::vector<Place> places;  // by value number
  std::vector<std::vector<Place>> temporaries;  // by step
  std::vector<Copy> copies;                     // written inputs and results that no step stores in place
  int64_t arena = 0;                            // bytes
};

// Raises NotImplementedError for sizes that are symbols or depend on data, random numbers, and functions of users. Gradient
// slots that the program fills are dropped: a board has no tensors that hold them.
Lowered lowered(const run::Traced& program);

}  // namespace facula::embed
