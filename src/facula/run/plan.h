// Plan: a program for one layout of its inputs, with nothing left to decide. It consists of an outline, which plans for other
// sizes share, and the numbers of this layout. A plan refers to its program's graph.
#pragma once
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "facula/codegen/kernel.h"
#include "facula/device/device.h"
#include "facula/graph/graph.h"
#include "facula/loop/lazy_nest.h"
#include "facula/op/call.h"
#include "facula/schedule/fuse.h"
#include "facula/tensor/retained_block.h"

namespace facula::run {

class ExecutionState;  // run/execution_state.h
class Plan;

// The execution states of an outline in which nothing runs.
class IdleExecutionStates {
 public:
  ~IdleExecutionStates();
  // A state that ran `plan` last; any state if the plan runs for the first time or states of kPlans plans exist; null if
  // none is idle.
  std::unique_ptr<ExecutionState> take(const Plan& plan);
  void give(std::unique_ptr<ExecutionState> state);

 private:
  struct Slot {
    std::atomic<ExecutionState*> state{nullptr};
    std::atomic<uint64_t> plan{0};  // the plan that it ran last; a hint
  };
  std::unique_ptr<ExecutionState> taken(Slot& slot);
  static constexpr size_t kPlans = 4, kMost = 16;
  Slot slots_[kMost];
};

// The steps of a plan, their order and the reuse of memory. Plans that differ only in sizes share it.
struct Outline {
  struct Exec {
    schedule::Step::Kind kind;
    const graph::Node* node;              // of a view or a library call
    device::LibraryFn library = nullptr;  // of a library call: the backend's function; null if it has none
    device::EpilogueFn with_epilogue = nullptr;  // the same with an epilogue
    // Whether the library call before it may compute this kernel as its epilogue, so that results may be written a step earlier.
    bool may_be_epilogue = false;
    int kernels = -1;                  // index of the step's kernels in the plan; equal steps share them
    std::vector<int> inputs, outputs;  // value numbers
    std::vector<int> empty;            // positions of inputs and outputs without elements
    std::vector<int>
        alike;  // positions of operands with equal layouts, if the kernel treats each element alone
    std::vector<int> dead;  // values that no later step reads
    int operand(size_t k) const { return k < inputs.size() ? inputs[k] : outputs[k - inputs.size()]; }
    void find_library();  // sets `library` and `with_epilogue` from `node`
    // Whether results are written to memory allocated before the step. Views and users' functions return tensors instead.
    bool allocates() const {
      return kind == schedule::Step::Kind::kernel || (node && node->op->is<op::Library>());
    }
  };
  std::vector<Exec> execs;
  std::vector<int> written_to;  // by value number: the input that it is written to, or -1
  std::vector<int>
      takes_over;  // by value number: the operand whose live range ends there and whose memory it reuses, or -1
  std::vector<int> form;     // by value number: index of its form; -1: no step uses the value
  std::vector<bool> inside;  // by value number: whether it is in the arena
  // Whether the step that computes `v` may read the memory that it writes.
  bool overwrites(int v) const { return written_to[size_t(v)] >= 0 || takes_over[size_t(v)] >= 0; }
  // Whether the outline serves all sizes that satisfy the guards of `relied`: every value then has its traced strides, or
  // strides that are expressions over the symbols.
  bool general = false;
  sym::Shapes relied;
  struct Form {
    int like;  // a value with these traced sizes
    DType dtype;
    std::optional<Dims> strides = {};  // over the symbols of sizes, where they differ from the traced ones
  };
  std::vector<Form> forms;
  const Form& form_of(int v) const { return forms[size_t(form[size_t(v)])]; }
  size_t kernels = 0;     // their number in a plan
  int last_refusal = -1;  // the last step that may raise an error about elements (run/refusals.h); -1: none
  mutable IdleExecutionStates idle;

  // Derived from the steps, so that planning other sizes does not visit all of them.
  struct Allocation {
    size_t step;
    int value, form;
    size_t last;  // the last step that reads it or a value that reuses its memory
  };
  std::vector<Allocation> allocations;           // in the order of their steps
  std::vector<std::pair<int, int>> successions;  // values that reuse memory, and whose; in the order of steps
  std::vector<std::pair<size_t, int>> launches;  // (step, index of its kernels)
  std::vector<size_t> first_launch;              // by index of kernels: the first step that launches them
  void index();                                  // derives these
};

class Plan {
 public:
  struct KernelLaunch {
    const codegen::Kernel* kernel;  // null in a plan to print, which has `nest` instead
    codegen::Work work;
    bool all_in_order;  // `buffers` are those of the step in order
    std::vector<int> buffers;
    std::vector<int64_t> params;
    std::shared_ptr<const loop::LazyNest> nest = {};
  };
  struct Kernels {
    std::vector<KernelLaunch> launches;
    std::vector<size_t> temporaries;  // bytes of the temporaries that the launches share
  };
  struct Form {
    op::Meta meta;
    size_t bytes = 0;  // if a step allocates the value
  };
  std::shared_ptr<const Outline> outline;
  std::vector<int64_t> symbols;  // values of the symbols of sizes
  std::vector<Form> forms;
  std::vector<Kernels> kernels;
  std::vector<int64_t> offsets;  // by value number: offset in the arena; -1: not in the arena
  std::vector<int64_t> scratch;  // offsets of the temporaries of all steps, in order
  const Form& form(int v) const { return forms[size_t(outline->form[size_t(v)])]; }
  const Kernels& kernels_of(const Outline::Exec& e) const { return kernels[size_t(e.kernels)]; }
  // Bytes of the arena; peak of the arena and all values allocated apart together.
  size_t arena = 0, peak = 0;
  const uint64_t number = next_number();  // unique in the process, from 1
  mutable std::atomic<bool> has_run{false};
  // Set if the plan is a single kernel from the program's inputs to its outputs, all with elements, as most calls of one
  // operator are: execute() then needs no execution state.
  struct Direct {
    std::vector<int> inputs;  // by kernel input: number of the program's input
    std::vector<int>
        outputs;  // by program output: number of the kernel's buffer; kDirect + i: the program's input i
  };
  std::optional<Direct> direct;
  // A kernel that the library call before it may compute as its epilogue.
  struct Epilogue {
    size_t call;  // the step of the library call; the kernel is the next step
    schedule::Epilogue function;
    std::vector<int> operands;  // values
    std::vector<int64_t> params;
  };
  std::vector<Epilogue> epilogues;
  static constexpr size_t kDirect = 12;  // the largest number of buffers

 private:
  static uint64_t next_number();
};

// A graph with numbered values, to which plans refer.
struct NumberedGraph {
  graph::Graph graph;
  std::string name;                  // of the operator, as users write it
  std::vector<int> inputs, outputs;  // value numbers; -1: none
  std::vector<graph::Value*> constants;
  bool output_repeats = false;           // whether a value is an output twice
  std::shared_ptr<const Keeper> keeper;  // retains the memory of runs; null: it returns to the pool
  void number();                         // sets the value numbers of inputs and outputs, and the constants
};
// Plans a graph. `steps`: the fused graph; `symbols`: the values of sizes; `at`, by value number: the inputs over their physical
// layouts; `out`: the caller's destinations; `for_others`: also determine whether the outline serves other sizes of inputs with
// their traced strides.
std::shared_ptr<Plan> make_plan(const NumberedGraph& g, const std::vector<schedule::Step>& steps,
                                IntSpan symbols, std::vector<Tensor> at, std::span<const Tensor> out,
                                bool for_others);

// Plans other sizes with an existing outline; null if it does not serve them. Inputs have their traced strides and there are no
// destinations.
std::shared_ptr<Plan> make_plan(const NumberedGraph& g, const std::vector<schedule::Step>& steps,
                                IntSpan symbols, std::shared_ptr<const Outline> outline);
// A plan with nests in place of compiled kernels, for printers of whole programs. All sizes are numbers, and inputs are contiguous.
std::shared_ptr<const Plan> make_plan_to_print(const NumberedGraph& g,
                                               const std::vector<schedule::Step>& steps);
// Raises an internal error if the plans differ (FACULA_VERIFY).
void check_same(const Plan& a, const Plan& b);

Tensor fake(const op::Meta& m);  // a tensor without memory
// A new tensor of this form.
inline Tensor fresh(const Plan::Form& f) {
  auto& m = f.meta;
  return Tensor(make_ref<TensorImpl>(make_ref<StorageImpl>(f.bytes, m.device), m.sizes, m.strides, SymInt(),
                                     m.dtype, m.device));
}
// Memory for a number of any dtype.
struct Number {
  alignas(16) std::byte bytes[16];
};
// Whether each output element is computed from the same element of each input, or from inputs of one element.
bool treats_each_element_alone(const schedule::Group& g);
// Whether the group reads `input` only at the element that it writes to output `written`, so that it may overwrite it.
bool reads_only_own_element(const schedule::Group& g, int input, size_t written);

}  // namespace facula::run
