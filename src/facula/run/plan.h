// Plan: what a program does for one layout of its inputs, with nothing left to decide. Plans refer to their program's
// graph.
#pragma once
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "facula/backend/backend.h"
#include "facula/codegen/kernel.h"
#include "facula/graph/graph.h"
#include "facula/op/call.h"
#include "facula/schedule/fuse.h"

namespace facula::run {

class Frame;  // run/frame.h

// Frames of a plan that nobody runs in.
class IdleFrames {
 public:
  ~IdleFrames();
  std::unique_ptr<Frame> take();  // null: none is idle
  void give(std::unique_ptr<Frame> frame);

 private:
  static constexpr size_t kMost = 4;
  std::atomic<Frame*> frames_[kMost]{};
};

class Plan {
 public:
  // Memory that a run takes: a part of its arena, or, offset -1, a block of its own.
  struct Block {
    size_t bytes = 0;
    int64_t offset = -1;
  };
  struct KernelLaunch {
    const codegen::Kernel* kernel;
    codegen::Work work;
    bool all_in_order;  // buffers: those of the step as they are
    std::vector<int> buffers;
    std::vector<int64_t> params;
  };
  struct Exec {
    schedule::Step::Kind kind;
    const graph::Node* node;               // view, library
    backend::LibraryFn library = nullptr;  // of a library call: what computes it, if its backend has it
    std::vector<KernelLaunch> launches;    // kernel
    std::vector<Block> temporaries;        // of all its launches
    op::Args args;                         // view, library: sizes are concrete
    std::vector<int> inputs, outputs;      // value numbers
    std::vector<int> empty;  // inputs and outputs without elements, in the order of the pointers
    std::vector<int> alike;  // likewise: those that lie alike, of a kernel that treats each element alone
    std::vector<int> dead;   // values that no later step reads
    int operand(size_t k) const { return k < inputs.size() ? inputs[k] : outputs[k - inputs.size()]; }
    void find_library();  // when the node is known
    // Are its results made in memory that is allocated before? Views and functions of users give tensors.
    bool allocates() const {
      return kind == schedule::Step::Kind::kernel || (node && node->op->is<op::Library>());
    }
  };
  struct Result : Block {
    op::Meta meta;
  };
  std::vector<Result> results;  // by value number: what a step allocates
  std::vector<Exec> execs;
  std::vector<int> written_to;  // by value number: input it is written to in place, or -1
  // Bytes that a run holds from beginning to end, and with those the most that it holds of blocks of their own.
  size_t arena = 0, peak = 0;
  mutable IdleFrames idle;
  // A single kernel whose operands are the program's inputs and whose results are its outputs, none of them
  // without elements, as calls of one operator mostly are: execute() then needs no table of values.
  struct Direct {
    std::vector<int> inputs;   // of the kernel: number of the program's input
    std::vector<int> outputs;  // of the program: number of the kernel's buffer; kDirect + i: its own input i
  };
  std::optional<Direct> direct;
  static constexpr size_t kDirect = 12;  // buffers at most
};

// A graph whose values plans refer to by number.
struct NumberedGraph {
  graph::Graph graph;
  std::string name;                  // as users write it
  std::vector<int> inputs, outputs;  // -1: none
  std::vector<graph::Value*> constants;
  bool output_repeats = false;  // is a value an output twice?
};
// `steps`: the graph, fused; `at`, by value number: the inputs as they lie in memory; `symbols`: the sizes' values; `out`:
// given destinations.
std::shared_ptr<Plan> make_plan(const NumberedGraph& g, const std::vector<schedule::Step>& steps,
                                IntSpan symbols, std::vector<Tensor> at, std::span<const Tensor> out);

Tensor fake(const op::Meta& m);  // without memory
// In a block of its own.
inline Tensor fresh(const Plan::Result& r) {
  auto& m = r.meta;
  return Tensor(make_ref<TensorImpl>(make_ref<StorageImpl>(r.bytes, m.device), m.sizes, m.strides, SymInt(),
                                     m.dtype, m.device));
}
// Memory of a number, of any dtype.
struct Number {
  alignas(16) std::byte bytes[16];
};
// Is what the group computes of an element made of the same element of each input, or of inputs of one element?
bool treats_each_element_alone(const schedule::Group& g);
// May the group write over an input it reads? Only if it reads that input at the element it writes.
bool reads_only_own_element(const schedule::Group& g, int input, size_t written);

}  // namespace facula::run
