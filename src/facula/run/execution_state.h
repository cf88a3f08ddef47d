// ExecutionState: what a run of a plan needs besides the plan. The part that stays the same from run to run is bound once: tensors
// over the arena, their views, arguments of library calls, addresses that kernels take. A run sets what changes: the block of
// the arena, addresses of inputs, results. One thread at a time runs in a state, and a run that raises discards it. States of
// traced programs retain the block of their arena between runs (tensor/retained_block.h); operators return theirs to the pool.
#pragma once
#include <vector>

#include "facula/op/value.h"
#include "facula/run/layout.h"
#include "facula/run/plan.h"
#include "facula/tensor/retained_block.h"

namespace facula::run {

class ExecutionState {
 public:
  ExecutionState(const Outline& outline, const NumberedGraph& g);
  // `plan` has this outline. `inputs` and `out` are those of Program::run.
  op::Results run(const Plan& plan, std::span<const op::Value> inputs, std::span<const Tensor> out);
  uint64_t plan() const { return bound_; }  // the number of the plan that ran last

 private:
  enum class Action : uint8_t {
    launch,  // kernels
    follow,  // views of values that have other memory in each run: only their storage changes
    view,    // views that outlive the run: new tensors in each run
    call,    // a library's or a user's function
    none,    // views of values in the arena: nothing to do once they are bound
  };
  struct Step {
    Action action;
    const Outline::Exec* exec;
    std::vector<int> allocated;  // results that each run allocates
    std::vector<int> resident;   // results in the arena
    std::vector<int> dropped;    // values outside of the arena that no later step reads
    // launch
    size_t buffers = 0, scratch = 0;  // offsets of its buffers and temporaries among those of all steps
    struct Fetch {
      size_t buffer;
      int value;  // -1: a buffer without elements
    };
    std::vector<Fetch> fetched;  // buffers whose address changes from run to run
    bool may_be_packed = false;  // whether operands may be in packed layouts
    // call
    const Plan::Epilogue* epilogue = nullptr;  // the next step, if the call may compute it
    // others
    op::Args args;
    std::vector<std::pair<size_t, SymInt>> sizes;  // attributes of `args` that depend on the plan's symbols
    struct Bound {
      size_t slot;
      int value;
    };
    std::vector<Bound> bound;     // arguments that are new tensors in each run
    bool fixed = false;           // views: equal in all plans except for the offset of the base
    std::vector<SymInt> offsets;  // views: their offsets in the base over the symbols of sizes, if known
    std::vector<int64_t> begins;  // follow: these offsets in the plan, for views that another plan made
    bool stale = false;           // whether its arguments are still those of another plan
    SymInt followed = SymInt(int64_t(-1));  // the base offset for which the views were made
  };
  struct Value {
    TensorImpl* tensor = nullptr;
    void* number = nullptr;  // memory of an input that is a number
    Tensor own;  // the tensor if the state makes it; stays if it is in the arena or follows another
    int64_t in_arena = -1;  // byte offset of its first element
    bool inside = false;    // in the arena
    bool follows = false;
    bool escapes = false;  // a view that outlives the run, or the base of one
  };

  // Done once.
  void find_escaping();
  void add(const Outline::Exec& exec);
  void add_view(Step& step);
  void find_offsets(Step& step);
  void add_call(Step& step);

  // Done for each plan.
  void bind(const Plan& plan);
  void own(int v);
  void bind_launch(Step& step, size_t& scratch);
  void bind_call(Step& step);
  void bind_view(Step& step);
  bool is_fixed(int v) const;
  bool reshape_views(Step& step);
  void view_arena(Step& step);

  // Done in each run.
  void take_arena();
  void bind_inputs(std::span<const op::Value> inputs, std::span<const Tensor> out);
  void launch(Step& step);
  std::vector<Tensor> in_order(const Step& step, PhysicalOrder& order);
  void follow(Step& step);
  void view(Step& step);
  void call(Step& step);
  bool call_with_epilogue(Step& step, const Step& kernel);
  void drop(const std::vector<int>& values);
  void note_written(const Step& step);
  op::Results outputs(std::span<const Tensor> out);

  Value& at(int v) { return values_[size_t(v)]; }
  bool is_in_arena(int v) const { return values_[size_t(v)].inside; }
  void set(int v, Tensor t);
  void allocate(int v);
  Tensor tensor_at(int v) { return Tensor(Ref<TensorImpl>::share(at(v).tensor)); }
  TensorImpl* argument(int v);
  void* address(int v) { return at(v).number ? at(v).number : at(v).tensor->data_ptr(); }
  bool is_fresh(const Outline::Exec& exec, int operand);
  void bind_arguments(Step& step);
  op::Views views_of(const Step& step, const Tensor& base) const;

  const Outline& outline_;
  const NumberedGraph& g_;
  const Plan* plan_ = nullptr;  // during a run
  uint64_t bound_ = 0;          // the number of the plan that it is bound to
  bool renewed_ =
      true;  // while binding: whether a value in the arena got another tensor than in the last plan
  std::vector<Value> values_;  // by number
  std::vector<Step> steps_;
  std::vector<int> undropped_;  // results of steps that no step drops
  std::vector<Number> numbers_;
  std::vector<Tensor> wrapped_;  // numbers that a library function takes as tensors
  std::vector<void*> buffers_;   // the buffers of all kernels
  std::vector<void*> chosen_;    // the buffers of one launch that takes only some of its step

  struct Resident {
    StorageImpl* storage;
    int64_t offset;
  };
  struct Buffer {
    size_t buffer;
    int64_t offset;
  };
  std::vector<Resident> residents_;  // storages in the arena
  std::vector<Buffer> settled_;      // buffers in the arena
  RetainedBlock arena_;              // retained until the next run
  void* arena_at_ = nullptr;         // its address in the last run
};

}  // namespace facula::run
