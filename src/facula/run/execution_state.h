// ExecutionState: what a run of a plan needs besides the plan. The part that stays the same from run to run is bound once: tensors
// over the arena, their views, arguments of library calls, addresses that kernels take. A run sets what changes: the block of
// the arena, addresses of inputs, results. One thread at a time runs in a state, and a run that raises discards it. States of
// traced programs retain the block of their arena between runs (tensor/kept.h); operators return theirs to the pool.
#pragma once
#include <vector>

#include "facula/op/value.h"
#include "facula/run/layout.h"
#include "facula/run/plan.h"
#include "facula/tensor/kept.h"

namespace facula::run {

class ExecutionState {
 public:
  ExecutionState(const Outline& outline, const NumberedGraph& g);
  // `plan`: of that outline. `inputs` and `out` as of Program::run.
  op::Results run(const Plan& plan, std::span<const op::Value> inputs, std::span<const Tensor> out);
  uint64_t plan() const { return bound_; }  // the number of the one that ran last

 private:
  enum class Action : uint8_t {
    launch,  // of kernels
    follow,  // views of what lies elsewhere in each run: their storage alone changes
    view,    // views that others get to hold: tensors of their own in each run
    call,    // of a library or a user's function
    none,    // views of what lies in the arena: there once they are bound
  };
  struct Step {
    Action action;
    const Outline::Exec* exec;
    std::vector<int> allocated;  // results that each run allocates
    std::vector<int> resident;   // results that it makes in the arena
    std::vector<int> dropped;    // what no later step reads, and lies elsewhere in each run
    // launch
    size_t buffers = 0, scratch = 0;  // where its buffers are among all, and its temporaries
    struct Fetch {
      size_t buffer;
      int value;  // -1: without elements
    };
    std::vector<Fetch> fetched;  // buffers that lie elsewhere in each run
    bool may_be_packed = false;  // may operands lie in orders of their own?
    // others
    op::Args args;
    std::vector<std::pair<size_t, SymInt>> sizes;  // of args: those that follow from the plan's symbols
    struct Bound {
      size_t slot;
      int value;
    };
    std::vector<Bound> bound;  // arguments that are other tensors in each run
    bool fixed = false;        // views: alike in all plans, but for where the base is
    std::vector<SymInt>
        offsets;  // views: where they begin in the base, over the sizes' symbols, if that is known
    std::vector<int64_t> begins;  // follow: the same of the plan, for views that are there from another plan
    bool stale = false;           // are its arguments still those of another plan?
    SymInt followed = SymInt(int64_t(-1));  // the offset of the base that the views were made for
  };
  struct Value {
    TensorImpl* tensor = nullptr;
    void* number = nullptr;  // memory of a number that is given
    Tensor own;  // the tensor, if it is made here; for good where it lies in the arena or follows another
    int64_t in_arena = -1;  // offset of its first element in bytes
    bool inside = false;    // the arena
    bool follows = false;
    bool escapes = false;  // a view that others get to hold, or of which such a view is made
  };

  // Once.
  void find_escaping();
  void add(const Outline::Exec& exec);
  void add_view(Step& step);
  void find_offsets(Step& step);
  void add_call(Step& step);

  // For each plan.
  void bind(const Plan& plan);
  void own(int v);
  void bind_launch(Step& step, size_t& scratch);
  void bind_call(Step& step);
  void bind_view(Step& step);
  bool is_fixed(int v) const;
  bool reshape_views(Step& step);
  void view_arena(Step& step);

  // In each run.
  void take_arena();
  void bind_given(std::span<const op::Value> inputs, std::span<const Tensor> out);
  void launch(Step& step);
  std::vector<Tensor> in_order(const Step& step, PhysicalOrder& order);
  void follow(Step& step);
  void view(Step& step);
  void call(Step& step);
  void drop(const std::vector<int>& values);
  op::Results outputs(std::span<const Tensor> out);

  Value& at(int v) { return values_[size_t(v)]; }
  bool lies_in_arena(int v) const { return values_[size_t(v)].inside; }
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
  uint64_t bound_ = 0;          // the plan that it is bound to
  bool renewed_ =
      true;  // while it is bound: has a value in the arena got another tensor than in the last plan?
  std::vector<Value> values_;  // by number
  std::vector<Step> steps_;
  std::vector<int> kept_;  // what steps make and none drops
  std::vector<Number> numbers_;
  std::vector<Tensor> wrapped_;  // numbers that a library takes as tensors
  std::vector<void*> buffers_;   // of all kernels
  std::vector<void*> chosen_;    // of one launch that does not take all of its step's

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
  KeptBlock arena_;                  // until the next run
  void* arena_at_ = nullptr;         // where the last run had it
};

}  // namespace facula::run
