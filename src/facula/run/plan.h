// Plan: what a program does for one layout of its inputs, with nothing left to decide. It is an outline, which other
// layouts share, with the numbers of this one. Plans refer to their program's graph.
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
#include "facula/tensor/kept.h"

namespace facula::run {

class ExecutionState;  // run/execution_state.h
class Plan;

// The execution states of an outline in which nothing runs.
class IdleExecutionStates {
 public:
  ~IdleExecutionStates();
  // One that ran `plan` last; another one if the plan is run for the first time, or if those of kPlans plans are there. Null:
  // none is idle. There are as many as plans and threads needed at once, kMost at most.
  std::unique_ptr<ExecutionState> take(const Plan& plan);
  void give(std::unique_ptr<ExecutionState> state);

 private:
  struct Slot {
    std::atomic<ExecutionState*> state{nullptr};
    std::atomic<uint64_t> plan{0};  // which it ran last; a hint
  };
  std::unique_ptr<ExecutionState> taken(Slot& slot);
  static constexpr size_t kPlans = 4, kMost = 16;
  Slot slots_[kMost];
};

// What runs in which order on which values. Plans for layouts of one class, which differ in numbers alone, share it.
struct Outline {
  struct Exec {
    schedule::Step::Kind kind;
    const graph::Node* node;               // view, library
    backend::LibraryFn library = nullptr;  // of a library call: what computes it, if its backend has it
    int kernels = -1;                  // kernel: which of the plan's, for steps that do the same share them
    std::vector<int> inputs, outputs;  // value numbers
    std::vector<int> empty;            // inputs and outputs without elements, in the order of the pointers
    std::vector<int> alike;  // likewise: those that lie alike, of a kernel that treats each element alone
    std::vector<int> dead;   // values that no later step reads
    int operand(size_t k) const { return k < inputs.size() ? inputs[k] : outputs[k - inputs.size()]; }
    void find_library();  // when the node is known
    // Are its results made in memory that is allocated before? Views and functions of users give tensors.
    bool allocates() const {
      return kind == schedule::Step::Kind::kernel || (node && node->op->is<op::Library>());
    }
  };
  std::vector<Exec> execs;
  std::vector<int> written_to;  // by value number: input it is written to in place, or -1
  std::vector<int>
      takes_over;  // by value number: the one that dies where it is made and leaves it its memory, or -1
  std::vector<int> form;     // by value number: which of the plan's forms it has; -1: no step knows it
  std::vector<bool> inside;  // by value number: does it lie in the arena?
  // May the step that makes v read what it writes there?
  bool overwrites(int v) const { return written_to[size_t(v)] >= 0 || takes_over[size_t(v)] >= 0; }
  // Does it hold for other sizes, of which `relied` holds? So where every value lies as it was traced, or in an order
  // that follows from the trace.
  bool general = false;
  sym::Shapes relied;
  struct Form {
    int like;  // a value that was traced so
    DType dtype;
    std::optional<Dims> strides = {};  // over the sizes' symbols, where it lies otherwise
  };
  std::vector<Form> forms;
  const Form& form_of(int v) const { return forms[size_t(form[size_t(v)])]; }
  size_t kernels = 0;  // of a plan
  mutable IdleExecutionStates idle;

  // What follows from the steps, so that a plan for other sizes need not go through all of them.
  struct Allocation {
    size_t step;
    int value, form;
    size_t last;  // the last step that reads it, or what takes over its memory
  };
  std::vector<Allocation> allocations;  // by their steps, in order
  std::vector<std::pair<int, int>>
      successions;  // values that take over memory, and whose; in the order of steps
  std::vector<std::pair<size_t, int>> launches;  // steps that launch kernels, and which
  std::vector<size_t> first_launch;              // by kernels: the first of these steps
  void index();                                  // finds these, when all else is known
};

class Plan {
 public:
  struct KernelLaunch {
    const codegen::Kernel* kernel;
    codegen::Work work;
    bool all_in_order;  // buffers: those of the step as they are
    std::vector<int> buffers;
    std::vector<int64_t> params;
  };
  struct Kernels {
    std::vector<KernelLaunch> launches;
    std::vector<size_t> temporaries;  // bytes that all launches together need besides
  };
  struct Form {
    op::Meta meta;
    size_t bytes = 0;  // of values that a step allocates
  };
  std::shared_ptr<const Outline> outline;
  std::vector<int64_t> symbols;  // the sizes' values
  std::vector<Form> forms;
  std::vector<Kernels> kernels;
  std::vector<int64_t> offsets;  // by value number: in the arena; -1: in a block of its own, or nowhere
  std::vector<int64_t> scratch;  // likewise of the temporaries of all steps, in order
  const Form& form(int v) const { return forms[size_t(outline->form[size_t(v)])]; }
  const Kernels& kernels_of(const Outline::Exec& e) const { return kernels[size_t(e.kernels)]; }
  // Bytes that a run holds from beginning to end, and with those the most that it holds of blocks of their own.
  size_t arena = 0, peak = 0;
  const uint64_t number = next_number();  // its own, from 1
  mutable std::atomic<bool> has_run{false};
  // A single kernel whose operands are the program's inputs and whose results are its outputs, none of them
  // without elements, as calls of one operator mostly are: execute() then needs no table of values.
  struct Direct {
    std::vector<int> inputs;   // of the kernel: number of the program's input
    std::vector<int> outputs;  // of the program: number of the kernel's buffer; kDirect + i: its own input i
  };
  std::optional<Direct> direct;
  static constexpr size_t kDirect = 12;  // buffers at most

 private:
  static uint64_t next_number();
};

// A graph whose values plans refer to by number.
struct NumberedGraph {
  graph::Graph graph;
  std::string name;                  // as users write it
  std::vector<int> inputs, outputs;  // -1: none
  std::vector<graph::Value*> constants;
  bool output_repeats = false;           // is a value an output twice?
  std::shared_ptr<const Keeper> keeper;  // of the memory that runs need; null: it serves others between them
};
// `steps`: the graph, fused; `at`, by value number: the inputs as they lie in memory; `symbols`: the sizes' values; `out`:
// given destinations; `for_others`: find out whether the outline holds for other sizes, for inputs that lie as traced.
std::shared_ptr<Plan> make_plan(const NumberedGraph& g, const std::vector<schedule::Step>& steps,
                                IntSpan symbols, std::vector<Tensor> at, std::span<const Tensor> out,
                                bool for_others);

// The plan of an outline for other sizes; null if it has none for them. Inputs lie as they were traced, and no destinations
// are given.
std::shared_ptr<Plan> make_plan(const NumberedGraph& g, const std::vector<schedule::Step>& steps,
                                IntSpan symbols, std::shared_ptr<const Outline> outline);
// Do plans say the same? For checks.
void check_same(const Plan& a, const Plan& b);

Tensor fake(const op::Meta& m);  // without memory
// In a block of its own.
inline Tensor fresh(const Plan::Form& f) {
  auto& m = f.meta;
  return Tensor(make_ref<TensorImpl>(make_ref<StorageImpl>(f.bytes, m.device), m.sizes, m.strides, SymInt(),
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
