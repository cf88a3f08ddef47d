// Prints traced programs as a folder of freestanding C99: a header, the code, and the captured tensors. The code needs <math.h>, <string.h>
// (memcpy) and <stdint.h>, and no allocation, threads or other run-time library; intermediates are in one static arena. Results are
// deterministic: on every machine with IEEE arithmetic, without contraction of products and sums, they have the same bits.
//   example:  entries infer(x) and train(x, labels) of one model  ->  int model_infer(const float* x, float* result0);
//             int model_train(const float* x, const int64_t* labels, float* result0); and the weights that both use
#pragma once
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "facula/embed/lowered.h"
#include "facula/run/traced.h"

namespace facula::embed {

struct Entry {
  std::string name;  // of the C function, behind the name of the model
  const run::Traced* program;
  std::vector<std::string> arguments;  // names; missing ones are called input0, input1, ...
  Options options = {};                // the header names the arguments that are a part of the arena
};

struct CFile {
  std::string name, text;
};

// A captured tensor's name ("net.0.weight": that of its module, and its own), and the line of the user's code that calls the module
// ("net.py:12", or empty). The code is annotated with both.
struct Named {
  std::string name;
  Tensor tensor;
  std::string line;
};

// A part of the arena, during steps of an entry.
struct MemoryBlock {
  std::string entry;
  Block block;
};

// An array: an argument of a function, or a captured tensor.
struct CArray {
  std::string name, type, shape;  // of C: "float"; the dtype and sizes
  int64_t elements;
  bool written;
};
struct CEntry {
  std::string name, prototype;  // the name without the model's
  std::vector<CArray> arguments;
};

struct CProgram {
  std::vector<CFile> files;
  int64_t arena = 0;                   // bytes, shared by all entries
  int64_t constant = 0, writable = 0;  // bytes of captured tensors
  std::vector<CEntry> functions;       // the entries
  std::vector<CArray> weights;         // the captured tensors
  std::vector<MemoryBlock> blocks;
};

// `names`: names of captured tensors in the C code. Captured tensors that an entry writes become variables, the others
// constants. ValueError if a name is no identifier of C, or if a captured tensor that an entry writes shares memory with
// another captured tensor; NotImplementedError like lowered().
CProgram c_program(const std::string& name, std::span<const Entry> entries, std::span<const Named> names);

}  // namespace facula::embed
